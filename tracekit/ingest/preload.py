"""What a worker needs, loaded when this is imported: the server of the workers does so once for all of them."""

from __future__ import annotations

import gc
from importlib import import_module

from tracekit.ingest.worker import Options, rules_of

MODULES = (
    "tracekit.parsers.kineto", "tracekit.label.rank", "tracekit.label.observe", "tracekit.label.witness",
    "tracekit.analysis", "tracekit.analysis.crossrank.busy", "numpy.ma",
)  # fmt: skip
"""`numpy.ma`: `numpy.unique` loads it."""

for name in MODULES:
    import_module(name)
rules_of(Options())
gc.freeze()  # what all workers share is not looked through again in each

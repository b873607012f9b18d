"""What a worker needs, loaded when this is imported: the server of the workers does so once for all of them."""

from __future__ import annotations

import gc

from tracekit.ingest.worker import Options, rules_of

rules_of(Options())
gc.freeze()

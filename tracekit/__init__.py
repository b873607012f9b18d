"""tracekit: which parallel strategy cost how much time that nothing hid.

import tracekit as tk

res = tk.analyze("traces/")
res.exposure            # a pandas DataFrame
res.arrow("exposure")   # the Arrow table
res.write("out/")       # the Parquet dataset
res = tk.read("out/")   # and back
res.report("r.html")    # the page
tk.diff(before, res)    # what changed, and what brings it about
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.version import __version__

if TYPE_CHECKING:
    from tracekit.api import Result, Run, analyze, diff, open, read
    from tracekit.errors import TracekitError

__all__ = ["Result", "Run", "TracekitError", "__version__", "analyze", "diff", "open", "read"]

_HOME = {
    "Result": "tracekit.api",
    "Run": "tracekit.api",
    "TracekitError": "tracekit.errors",
    "analyze": "tracekit.api",
    "diff": "tracekit.api",
    "open": "tracekit.api",
    "read": "tracekit.api",
}


def __getattr__(name: str) -> Any:
    """Load the public names on first use: importing tracekit itself stays free of numpy and Arrow."""
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tracekit' has no attribute {name!r}")

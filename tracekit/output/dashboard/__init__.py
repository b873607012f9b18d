"""`tracekit dashboard`: many runs in the browser, from the list down to a single call. Needs the extra `dashboard`."""

from tracekit.output.dashboard.app import require, serve
from tracekit.output.dashboard.store import Store

__all__ = ["Store", "require", "serve"]

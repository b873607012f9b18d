"""Worker processes: a server that has loaded what a worker needs once, and forks each worker from that."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import ForkServerContext


_AFTERWARDS = (
    "tracekit.analysis.crossrank.run", "tracekit.analysis.expected.run", "tracekit.analysis.pipeline.run",
    "tracekit.analysis.critical.run",
)  # fmt: skip


def load_meanwhile() -> None:
    """Load what this process does with the workers' results, while it would only wait for them."""
    for name in _AFTERWARDS:
        import_module(name)


def context() -> ForkServerContext:
    """How workers are started; their server runs afterwards."""
    import multiprocessing
    from multiprocessing.forkserver import ensure_running

    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tracekit.ingest.preload"])
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"  # else the server imports what lies in the working folder: beside the traces
    try:
        ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
    return found


def start_early(paths: Sequence[str], workers: int | None) -> None:
    """Start the server where workers will be needed, so that it loads while this process does. In the main thread."""
    if (workers or os.cpu_count() or 1) > 1 and (len(paths) > 1 or any(map(_several, paths))):
        import signal

        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: the server ends with this process
        try:
            context()
        finally:
            signal.signal(signal.SIGINT, before)


def _several(path: str) -> bool:
    """A pattern, or a folder with more than one entry."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None and next(entries, None) is not None
    except OSError:
        return not Path(path).exists()

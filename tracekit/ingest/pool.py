"""Processes of a run: workers that read files, and steps that run beside others.

Where the process is the command's own and has a single thread, they are forked from it: no lock can be held then, and
they start with all that is loaded here. Elsewhere (a notebook, a program with threads, no Linux) workers come from a
server that loads what a worker needs once, and steps run one after the other.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future, ProcessPoolExecutor
    from multiprocessing.context import BaseContext, ForkServerContext
    from multiprocessing.process import BaseProcess
    from types import TracebackType

T = TypeVar("T")
_AFTERWARDS = (
    "tracekit.analysis.crossrank.run", "tracekit.analysis.expected.run", "tracekit.analysis.pipeline.run",
    "tracekit.analysis.critical.run",
)  # fmt: skip
_PATIENCE_S = 0.2
"""How long to wait for a worker before whoever watches is shown that time goes on."""
_PR_SET_PDEATHSIG = 1
_swapping = Lock()
"""Held while something of the whole process is another for a moment: threads may analyse at the same time."""
_own = False


def claim() -> None:
    """Say that this process is the command's own: nothing else runs in it, so that it may be forked."""
    global _own  # noqa: PLW0603 - a fact of the process
    _own = True


def forkable() -> bool:
    """Whether this process can be forked as it is."""
    try:
        return _own and sum(1 for _ in Path("/proc/self/task").iterdir()) == 1
    except OSError:  # not Linux
        return False


class Workers:
    """Up to `count` worker processes (default: one a processor), started when first needed; a context manager."""

    def __init__(self, count: int | None) -> None:
        self.count = count or os.cpu_count() or 1
        self._pool: ProcessPoolExecutor | None = None
        self._started_for = 0

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and _own:  # nobody waits for what is begun; elsewhere the children may be somebody else's
            from multiprocessing import active_children

            for child in active_children():
                child.terminate()
        self._stop()

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def each(
        self,
        task: Callable[..., T],
        jobs: Sequence[tuple[Any, ...]],
        sizes: Sequence[int],
        waiting: Callable[[], None] = lambda: None,
    ) -> Iterator[T]:
        """`task(*job)` of each job, in their order; one job a process at a time, so memory is workers x one job.

        sizes: of each job; the largest begin first, which keeps all busy to the end. waiting: called at first, and now
        and then. Raises TracekitError when a worker is killed.
        """
        waiting()
        if min(self.count, len(jobs)) <= 1:
            for job in jobs:
                yield task(*job)
            return
        from concurrent.futures.process import BrokenProcessPool

        try:
            begun = self._begun(task, jobs, sizes)
            _load_meanwhile()
            for i in range(len(jobs)):
                yield _awaited(begun.pop(i), waiting)
        except BrokenProcessPool as e:
            raise TracekitError(
                f"a worker process was killed ({self.count} at work); most often memory ran out: use fewer with "
                "--workers"
            ) from e

    def _begun(
        self, task: Callable[..., T], jobs: Sequence[tuple[Any, ...]], sizes: Sequence[int]
    ) -> dict[int, Future[T]]:
        pool = self._started(len(jobs))
        order = sorted(range(len(jobs)), key=lambda i: -sizes[i])
        try:
            with _swapping, _no_main_module():
                return {i: pool.submit(task, *jobs[i]) for i in order}
        except EOFError as e:  # what the server of the workers answers once it is gone
            raise TracekitError("worker processes cannot be started; try with --workers 1") from e

    def _started(self, jobs: int) -> ProcessPoolExecutor:
        count = min(self.count, jobs)
        if self._pool is None or self._started_for < count:
            from concurrent.futures import ProcessPoolExecutor

            self._stop()
            self._pool = ProcessPoolExecutor(count, mp_context=_context(), initializer=_end_with_the_command)
            self._started_for = count
        return self._pool


def _awaited(begun: Future[T], waiting: Callable[[], None]) -> T:
    from concurrent.futures import wait

    while not wait((begun,), _PATIENCE_S).done:
        waiting()
    return begun.result()


class Aside(Generic[T]):
    """`step(*args)` in a process forked from this one, while this one goes on; here, when asked for, where that fails.

    What the step changes in its arguments is lost: only its result comes back.
    """

    def __init__(self, workers: int, step: Callable[..., T], *args: Any) -> None:
        self._step, self._args = step, args
        self._child: BaseProcess | None = None
        if workers > 1 and forkable():
            import multiprocessing

            context = multiprocessing.get_context("fork")
            self._answer, theirs = context.Pipe(duplex=False)
            self._child = context.Process(target=_told, args=(self._answer, theirs, step, args), daemon=True)
            self._child.start()
            theirs.close()

    def result(self) -> T:
        """What the step returns, to be asked for once. An error there is raised here, by doing it again."""
        if self._child is None:
            return self._step(*self._args)
        try:
            found: T = self._answer.recv()
        except (EOFError, OSError):  # it ended before its answer did
            found = self._step(*self._args)
        finally:
            self._answer.close()
            self._child.join()
        return found


def _told(ours: Any, answer: Any, step: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """In the forked process: no word of what goes wrong, since the step is done again where it can be said.

    ours: the other process' end of the pipe; held open here, it would keep this one waiting when that one has gone.
    """
    _end_with_the_command()
    ours.close()
    try:
        answer.send(step(*args))
    except BaseException:
        os._exit(1)


def start_early(paths: Sequence[str], workers: int | None) -> None:
    """Where workers come from a server, start it, so that it loads while this process does. In the main thread."""
    if (workers or os.cpu_count() or 1) > 1 and not forkable() and (len(paths) > 1 or any(map(_several, paths))):
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: the server ends with this process
        try:
            _server()
        finally:
            signal.signal(signal.SIGINT, before)


def _several(path: str) -> bool:
    """A pattern, or a folder with more than one entry."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None and next(entries, None) is not None
    except OSError:
        return not Path(path).exists()


def _context() -> BaseContext:
    """How workers are started."""
    if not forkable():
        return _server()
    import multiprocessing

    import_module("tracekit.ingest.preload")
    return multiprocessing.get_context("fork")


def _server() -> ForkServerContext:
    """Workers come from a server, which runs afterwards."""
    import multiprocessing
    from multiprocessing.forkserver import ensure_running

    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tracekit.ingest.preload"])
    with _swapping:
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


def _load_meanwhile() -> None:
    """Load what this process does with the workers' results, while it would only wait for them."""
    for name in _AFTERWARDS:
        import_module(name)


def _end_with_the_command() -> None:
    """In a worker: Ctrl-C reaches it, too, and it goes without a word, as it does when its parent is killed (Linux)."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


@contextmanager
def _no_main_module() -> Iterator[None]:
    """Start workers without the caller's script: they need nothing of it, and importing it anew would run it again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main

"""Progress of long steps on standard error: only on a terminal, never with -q."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rich.progress import Progress as Bars

_REFRESH_S = 0.1


class Progress:
    """A bar a step, with counts and the time left. Without a terminal, or when quiet, its callbacks are None."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._bars: Bars | None = None
        self._tasks: dict[str, Any] = {}
        self._next = 0.0

    def __enter__(self) -> Progress:
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            self._bars = Bars(
                TextColumn("{task.description:22}", markup=False), BarColumn(), MofNCompleteColumn(),
                TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[what]}", markup=False),
                console=Console(stderr=True), transient=True, auto_refresh=False,  # a thread would forbid to fork
            )  # fmt: skip
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    @property
    def reading(self) -> Callable[[int, int, str], None] | None:
        """For `tracekit.analyze`: files, with what is being done after them."""
        return self.step("ranks read")

    def step(self, title: str) -> Callable[[int, int, str], None] | None:
        """For a step of its own. Called with (done, total, what); total 0: the step `what` begins."""
        if self._bars is None:
            return None
        now = title

        def show(done: int, total: int, what: str) -> None:
            nonlocal now
            now = now if total else what
            self._show(now, done, total or None, what if total else "")

        return show

    def say(self, what: str) -> None:
        """Name a step without counts."""
        report = self.step("")
        if report is not None:
            report(0, 0, what)

    def _show(self, title: str, done: int, total: int | None, what: str) -> None:
        from tracekit.output.text import clean

        if self._bars is None:
            return
        for name, task in self._tasks.items():  # a step without counts is over when the next begins
            if name != title and self._bars.tasks[task].total is None:
                self._bars.update(task, visible=False)
        if title not in self._tasks:
            self._tasks[title] = self._bars.add_task(title, total=total, what="")
        self._bars.update(self._tasks[title], completed=done, total=total, what=clean(what)[-48:])
        if (now := monotonic()) >= self._next or not total:
            self._next = now + _REFRESH_S
            self._bars.refresh()

"""What a step of a pipeline would take without one of its causes of idle time: a replay with one thing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.theory.schedules import ScheduleError, replay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.analysis.pipeline.causes import Grid, Typical
    from tracekit.analysis.pipeline.timed import Lags, Timed
    from tracekit.theory.schedules import Schedule

MOST_ERROR = 0.05
"""A replay that misses the measured window by more says nothing about other windows."""
WHATS = ("no-stragglers", "balanced-stages", "no-p2p", "no-other-comm", "no-gaps")


def what_if(t: Timed, ran: Schedule, typical: Typical, lag: Lags) -> tuple[int, dict[str, int]] | None:
    """(window of the unchanged replay, window for each of WHATS), ns; None when the order cannot finish.

    no-stragglers: every action as long as is typical of its stage; balanced-stages: every action as much shorter or
    longer as its stage differs from the mean; the others: without that kind of gap, all else as it was.
    """
    actual = t.durations
    stages = typical.durations(ran)
    equal = typical.equal(ran) or stages
    balanced = _with(lambda ns, own, mean: round(ns * mean / own) if own else ns, actual, stages, equal)
    gaps = (lag.p2p, lag.comm, lag.launch)

    def window(work: Grid, kept: tuple[Grid, ...]) -> int:
        return replay(ran, _with(lambda *ns: sum(ns), work, *kept)).makespan_ns

    try:
        base = window(actual, gaps)
        found = [window(stages, gaps), window(balanced, gaps)]
        found += [window(actual, gaps[:i] + gaps[i + 1 :]) for i in range(len(gaps))]
    except ScheduleError:
        return None
    return base, dict(zip(WHATS, found, strict=True))


def without_slow(
    t: Timed, ran: Schedule, lag: Lags, compute: Sequence[Sequence[int]], place: int, pace: float
) -> int | None:
    """Window when the compute of one rank takes 1/pace of its time, ns; None when the order cannot finish.

    compute: per entry of each rank, ns with compute active; the rest of an entry (communication in it) stays.
    """
    work = t.durations
    work[place] = [ns - min(ns, round(c * (1 - 1 / pace))) for ns, c in zip(work[place], compute[place], strict=True)]
    try:
        return replay(ran, _with(lambda *ns: sum(ns), work, lag.p2p, lag.comm, lag.launch)).makespan_ns
    except ScheduleError:
        return None


def _with(change: Callable[..., int], *grids: Grid) -> Grid:
    return [[change(*values) for values in zip(*rows, strict=True)] for rows in zip(*grids, strict=True)]

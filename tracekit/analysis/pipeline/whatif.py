"""What a step of a pipeline would take without one of its causes of idle time: a replay with one thing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.pipeline.causes import Typical
    from tracekit.analysis.pipeline.slow import LongStage
    from tracekit.analysis.pipeline.timed import Lags, Timed
    from tracekit.theory.schedules import Schedule

MOST_ERROR = 0.05
"""A replay that misses the measured window by more says nothing about other windows."""
WHATS = ("no-stragglers", "balanced-stages", "no-p2p", "no-other-comm", "no-gaps")


class Asked(Struct, frozen=True):
    """Numbers of the replays of one step: unchanged, each of WHATS, and without each slow stage (its place, number)."""

    base: int
    whats: list[int]
    slow: list[tuple[int, int]]


def ask_what_if(
    t: Timed, ran: Schedule, typical: Typical, lag: Lags, compute: Sequence[Sequence[int]], long: Sequence[LongStage]
) -> Asked:
    """Ask for the windows of a step with one thing changed.

    no-stragglers: every action as long as is typical of its stage; balanced-stages: every action as much shorter or
    longer as its stage differs from the mean; the others of WHATS: without that kind of gap, all else as it was.
    long: stages whose compute is to take 1/pace of its time; compute: per entry of each rank, ns with compute active
    (the rest of an entry, communication in it, stays).
    """
    actual, stages = t.durations, typical.durations(ran)
    equal = typical.equal(ran)
    columns = zip(actual.tolist(), stages.tolist(), (stages if equal is None else equal).tolist(), strict=True)
    balanced = np.array([round(ns * mean / own) if own else ns for ns, own, mean in columns], np.int64)
    gaps = lag.p2p + lag.comm + lag.launch
    ask = typical.plans.ask
    whats = [ask(ran, work + gaps) for work in (stages, balanced)]
    whats += [ask(ran, actual + gaps - gap) for gap in (lag.p2p, lag.comm, lag.launch)]
    slow = []
    for one in long:
        if one.pace is not None:
            first = typical.plans.of(ran).first[one.place]
            here = slice(first, first + len(t.start[one.place]))
            less = np.array([round(c * (1 - 1 / one.pace)) for c in compute[one.place]], np.int64)
            work = actual + gaps
            work[here] -= np.minimum(actual[here], less)
            slow.append((one.place, ask(ran, work)))
    return Asked(ask(ran, actual + gaps), whats, slow)


def what_if(asked: Asked, typical: Typical) -> tuple[int, list[tuple[str, str | None, int]]] | None:
    """(window of the unchanged replay, [what, subject, window]), ns; None when the order cannot finish."""
    base, *whats = (typical.plans.length(n) for n in (asked.base, *asked.whats))
    if base is None:
        return None
    cases: list[tuple[str, str | None, int | None]] = [(w, None, ns) for w, ns in zip(WHATS, whats, strict=True)]
    cases += [("no-slow-stage", f"stage {place}", typical.plans.length(n)) for place, n in asked.slow]
    return base, [(what, subject, ns) for what, subject, ns in cases if ns is not None]

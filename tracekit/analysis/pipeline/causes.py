"""Why a rank of a pipeline is idle: its idle time is taken apart by adding one cause after the other to a replay.

equal stages in the recognised order → in the order that ran → stages as long as they typically are → every action as
long as it was → what point-to-point calls held up → what other communication did → every other gap. Each cause gets
what the rank's idle time grows by (theory: 2.4), so the causes add up to the idle time to the ns; what the last replay
does not explain is left over.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from tracekit.theory.bubbles import StageTimes
from tracekit.theory.bubbles import bubble as closed_form
from tracekit.theory.errors import NoNumber
from tracekit.theory.schedules import ScheduleError, parts, replay

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.analysis.pipeline.timed import Lags, Timed
    from tracekit.theory.schedules import Schedule, Step

Grid = list[list[int]]
Key = tuple[int, tuple[tuple[str, int], ...]]
"""Ranks of the pipeline; (kind, stage) of an entry's actions."""
CAUSES = ("schedule", "order", "imbalance", "straggler", "p2p", "comm", "launch", "unexplained")


class Causes(Struct, frozen=True):
    """Per rank, ns of its idle time by cause (in the order of CAUSES).

    simulated: length of the step with the measured durations and nothing else, ns; closed_form: bubble of a rank by
    formula with the mean times, ns, None where no formula holds.
    """

    idle: list[tuple[int, ...]]
    simulated: int
    closed_form: int | None


class Typical:
    """Typical duration of every kind of work on every stage: the median over micro-batches, steps and replicas."""

    def __init__(self, steps: Iterable[tuple[Timed, Schedule]]) -> None:
        found: dict[Key, list[int]] = defaultdict(list)
        for t, ran in steps:
            for order, durations in zip(ran.orders, t.durations, strict=True):
                for step, ns in zip(order, durations, strict=True):
                    found[_key(ran, step)].append(ns)
        self._of = {key: int(statistics.median(values)) for key, values in found.items()}
        mean: dict[tuple[int, str], list[int]] = defaultdict(list)
        for (ranks, work), ns in self._of.items():
            mean[ranks, _kinds(work)].append(ns)
        self._mean = {key: round(statistics.fmean(values)) for key, values in mean.items()}

    def durations(self, schedule: Schedule) -> Grid:
        """Typical duration of each entry."""
        return [[self._of[_key(schedule, step)] for step in order] for order in schedule.orders]

    def equal(self, schedule: Schedule) -> Grid | None:
        """Mean over the stages instead; None for a kind of work that never ran."""
        kinds = [[(schedule.ranks, _kinds(_key(schedule, s)[1])) for s in order] for order in schedule.orders]
        if any(k not in self._mean for row in kinds for k in row):
            return None
        return [[self._mean[k] for k in row] for row in kinds]

    def share(self, schedule: Schedule, kind: str) -> float:
        """Mean over ranks of the time that one micro-batch takes through all its stages."""
        single = [ns for (ranks, work), ns in self._of.items() if ranks == schedule.ranks and _kinds(work) == kind]
        return sum(single) / schedule.ranks


def _key(schedule: Schedule, step: Step) -> Key:
    return schedule.ranks, tuple((a.kind.value, a.stage) for a in parts(step))


def _kinds(work: tuple[tuple[str, int], ...]) -> str:
    return "".join(kind for kind, _ in work)


def causes(t: Timed, ran: Schedule, ideal: Schedule | None, typical: Typical, lag: Lags) -> Causes | None:
    """Take the idle time of each rank apart; None when the order that ran cannot finish in a replay."""
    actual = t.durations
    held = _sum(actual, lag.p2p)
    late = _sum(held, lag.comm)
    stages = typical.durations(ran)
    equal = typical.equal(ran) or stages
    best = typical.equal(ideal) if ideal is not None else None
    cases: list[tuple[Schedule, Grid, Grid]] = [
        (ran, equal, equal), (ran, stages, stages), (ran, actual, actual), (ran, held, actual), (ran, late, actual),
        (ran, _sum(late, lag.launch), actual),
    ]  # fmt: skip
    cases.insert(0, (ideal, best, best) if ideal is not None and best is not None else cases[0])
    try:
        lengths = [replay(schedule, occupied).makespan_ns for schedule, occupied, _ in cases]
    except ScheduleError:
        return None
    begin, finish = t.window
    out = []
    for rank in range(ran.ranks):
        idle = [n - sum(work[rank]) for n, (_, _, work) in zip(lengths, cases, strict=True)]
        idle.append(finish - begin - sum(actual[rank]))
        out.append((idle[0], *(b - a for a, b in pairwise(idle))))
    return Causes(out, lengths[3], _closed(ideal, typical))


def _closed(ideal: Schedule | None, typical: Typical) -> int | None:
    if ideal is None:
        return None
    kinds = {_kinds(_key(ideal, s)[1]) for order in ideal.orders for s in order}
    if "FB" in kinds or "F" not in kinds:
        return None
    share = {k: typical.share(ideal, k) for k in kinds}
    try:
        times = StageTimes(share["F"], share.get("I", 0.0) + share.get("B", 0.0), share.get("W", 0.0))
        found = closed_form(ideal.name, ideal.ranks, ideal.micro_batches, times, ideal.stages // ideal.ranks)
    except NoNumber:
        return None
    return round(found.bubble_ns) if found.window == "step" else None


def _sum(a: Sequence[Sequence[int]], b: Sequence[Sequence[int]]) -> Grid:
    return [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]

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

from tracekit.analysis.pipeline.plans import Work, added, flat
from tracekit.theory.bubbles import StageTimes
from tracekit.theory.bubbles import bubble as closed_form
from tracekit.theory.errors import NoNumber

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.analysis.pipeline.plans import Plans
    from tracekit.analysis.pipeline.timed import Lags, Timed
    from tracekit.theory.schedules import Schedule

Key = tuple[int, Work]
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

    def __init__(self, steps: Iterable[tuple[Timed, Schedule]], plans: Plans) -> None:
        found: dict[Key, list[int]] = defaultdict(list)
        self.plans = plans
        for t, ran in steps:
            for work, ns in zip(plans.of(ran).work, flat(t.durations), strict=True):
                found[ran.ranks, work].append(ns)
        self._of = {key: int(statistics.median(values)) for key, values in found.items()}
        mean: dict[tuple[int, str], list[int]] = defaultdict(list)
        for (ranks, work), ns in self._of.items():
            mean[ranks, _kinds(work)].append(ns)
        self._mean = {key: round(statistics.fmean(values)) for key, values in mean.items()}

    def durations(self, schedule: Schedule) -> list[int]:
        """Typical duration of each entry."""
        return [self._of[schedule.ranks, work] for work in self.plans.of(schedule).work]

    def equal(self, schedule: Schedule) -> list[int] | None:
        """Mean over the stages instead; None for a kind of work that never ran."""
        kinds = [(schedule.ranks, _kinds(work)) for work in self.plans.of(schedule).work]
        return None if any(k not in self._mean for k in kinds) else [self._mean[k] for k in kinds]

    def share(self, schedule: Schedule, kind: str) -> float:
        """Mean over ranks of the time that one micro-batch takes through all its stages."""
        single = [ns for (ranks, work), ns in self._of.items() if ranks == schedule.ranks and _kinds(work) == kind]
        return sum(single) / schedule.ranks


def _kinds(work: Work) -> str:
    return "".join(kind for kind, _ in work)


class Asked(Struct, frozen=True):
    """Replays of one step that `causes` needs: number, and duration of each entry without what holds it up."""

    replays: list[tuple[int, list[int]]]


def ask_causes(t: Timed, ran: Schedule, ideal: Schedule | None, typical: Typical, lag: Lags) -> Asked:
    """Ask for the replays that take the idle time of each rank apart."""
    actual = flat(t.durations)
    held = added(actual, lag.p2p)
    late = added(held, lag.comm)
    stages = typical.durations(ran)
    equal = typical.equal(ran) or stages
    best = typical.equal(ideal) if ideal is not None else None
    cases: list[tuple[Schedule, list[int], list[int]]] = [
        (ran, equal, equal), (ran, stages, stages), (ran, actual, actual), (ran, held, actual), (ran, late, actual),
        (ran, added(late, lag.launch), actual),
    ]  # fmt: skip
    cases.insert(0, (ideal, best, best) if ideal is not None and best is not None else cases[0])
    return Asked([(typical.plans.ask(schedule, occupied), work) for schedule, occupied, work in cases])


def causes(asked: Asked, t: Timed, ideal: Schedule | None, typical: Typical) -> Causes | None:
    """Take the idle time of each rank apart; None when the order that ran cannot finish in a replay."""
    lengths = [typical.plans.length(number) for number, _ in asked.replays]
    begin, finish = t.window
    out = []
    first = 0
    for row in t.start:
        here = slice(first, first + len(row))
        first += len(row)
        idle = []
        for n, (_, work) in zip(lengths, asked.replays, strict=True):
            if n is None:
                return None
            idle.append(n - sum(work[here]))
        idle.append(finish - begin - sum(asked.replays[-1][1][here]))
        out.append((idle[0], *(b - a for a, b in pairwise(idle))))
    return Causes(out, lengths[3] or 0, _closed(ideal, typical))


def _closed(ideal: Schedule | None, typical: Typical) -> int | None:
    if ideal is None:
        return None
    kinds = {_kinds(work) for work in typical.plans.of(ideal).work}
    if "FB" in kinds or "F" not in kinds:
        return None
    share = {k: typical.share(ideal, k) for k in kinds}
    try:
        times = StageTimes(share["F"], share.get("I", 0.0) + share.get("B", 0.0), share.get("W", 0.0))
        found = closed_form(ideal.name, ideal.ranks, ideal.micro_batches, times, ideal.stages // ideal.ranks)
    except NoNumber:
        return None
    return round(found.bubble_ns) if found.window == "step" else None

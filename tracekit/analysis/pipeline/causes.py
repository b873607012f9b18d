"""Why a rank of a pipeline is idle: its idle time is taken apart by adding one cause after the other to a replay.

equal stages in the recognised order → in the order that ran → stages as long as they typically are → every action as
long as it was → what point-to-point calls held up → what other communication did → every other gap. Each cause gets
what the rank's idle time grows by (theory: 2.4), so the causes add up to the idle time to the ns; what the last replay
does not explain is left over.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.pipeline.plans import Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from tracekit.analysis.pipeline.plans import Plans
    from tracekit.analysis.pipeline.timed import Lags, Timed
    from tracekit.theory.schedules import Schedule

    Ints = NDArray[np.int64]

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
            for work, ns in zip(plans.of(ran).work, t.durations.tolist(), strict=True):
                found[ran.ranks, work].append(ns)
        self._of = {key: int(statistics.median(values)) for key, values in found.items()}
        mean: dict[tuple[int, str], list[int]] = defaultdict(list)
        for (ranks, work), ns in self._of.items():
            mean[ranks, _kinds(work)].append(ns)
        self._mean = {key: round(statistics.fmean(values)) for key, values in mean.items()}
        self._durations: dict[int, Ints] = {}  # by schedule, which `plans` keep
        self._equal: dict[int, Ints | None] = {}
        self._closed: dict[int, int | None] = {}

    def durations(self, schedule: Schedule) -> Ints:
        """Typical duration of each entry."""
        if id(schedule) not in self._durations:
            ranks, plan = schedule.ranks, self.plans.of(schedule)
            self._durations[id(schedule)] = np.array([self._of[ranks, work] for work in plan.work], np.int64)
        return self._durations[id(schedule)]

    def equal(self, schedule: Schedule) -> Ints | None:
        """Mean over the stages instead; None for a kind of work that never ran."""
        if id(schedule) not in self._equal:
            ranks, plan = schedule.ranks, self.plans.of(schedule)
            means = [self._mean.get((ranks, _kinds(work))) for work in plan.work]
            self._equal[id(schedule)] = None if None in means else np.array(means, np.int64)
        return self._equal[id(schedule)]

    def closed_form(self, ideal: Schedule) -> int | None:
        """Bubble of a rank by formula with the mean times, ns; None where no formula holds."""
        if id(ideal) not in self._closed:
            kinds = {_kinds(work) for work in self.plans.of(ideal).work}
            self._closed[id(ideal)] = _closed(ideal, {kind: self.share(ideal, kind) for kind in kinds})
        return self._closed[id(ideal)]

    def share(self, schedule: Schedule, kind: str) -> float:
        """Mean over ranks of the time that one micro-batch takes through all its stages."""
        single = [ns for (ranks, work), ns in self._of.items() if ranks == schedule.ranks and _kinds(work) == kind]
        return sum(single) / schedule.ranks


def _kinds(work: Work) -> str:
    return "".join(kind for kind, _ in work)


class Asked(Struct, frozen=True):
    """Replays of one step that `causes` needs: number, and duration of each entry without what holds it up."""

    replays: list[tuple[int, Ints]]


def ask_causes(t: Timed, ran: Schedule, ideal: Schedule | None, typical: Typical, lag: Lags) -> Asked:
    """Ask for the replays that take the idle time of each rank apart."""
    actual, stages = t.durations, typical.durations(ran)
    held = actual + lag.p2p
    late = held + lag.comm
    equal = typical.equal(ran)
    equal = stages if equal is None else equal
    best = typical.equal(ideal) if ideal is not None else None
    cases: list[tuple[Schedule, Ints, Ints]] = [
        (ran, equal, equal), (ran, stages, stages), (ran, actual, actual), (ran, held, actual), (ran, late, actual),
        (ran, late + lag.launch, actual),
    ]  # fmt: skip
    cases.insert(0, (ideal, best, best) if ideal is not None and best is not None else cases[0])
    return Asked([(typical.plans.ask(schedule, occupied), work) for schedule, occupied, work in cases])


def causes(asked: Asked, t: Timed, ideal: Schedule | None, typical: Typical) -> Causes | None:
    """Take the idle time of each rank apart; None when the order that ran cannot finish in a replay."""
    lengths = [n for number, _ in asked.replays if (n := typical.plans.length(number)) is not None]
    if len(lengths) < len(asked.replays):
        return None
    begin, finish = t.window
    sizes = np.array([len(row) for row in t.start], np.intp)
    first = np.cumsum(sizes) - sizes
    busy = np.stack([np.add.reduceat(work, first) for _, work in asked.replays])
    idle = np.array([*lengths, finish - begin])[:, None] - np.concatenate([busy, busy[-1:]])
    parts = np.diff(idle, axis=0, prepend=0).T.tolist()
    return Causes([tuple(row) for row in parts], lengths[3], None if ideal is None else typical.closed_form(ideal))


def _closed(ideal: Schedule, share: Mapping[str, float]) -> int | None:
    """share: of each kind of work, mean over ranks of the time that one micro-batch takes through all its stages."""
    if "FB" in share or "F" not in share or ("B" in share and share.keys() & {"I", "W"}):  # none tells halves apart
        return None
    from tracekit.theory.bubbles import StageTimes
    from tracekit.theory.bubbles import bubble as closed_form
    from tracekit.theory.errors import NoNumber

    try:
        times = StageTimes(share["F"], share.get("I", 0.0) + share.get("B", 0.0), share.get("W", 0.0))
        found = closed_form(ideal.name, ideal.ranks, ideal.micro_batches, times, ideal.stages // ideal.ranks)
    except NoNumber:
        return None
    return round(found.bubble_ns) if found.window == "step" else None

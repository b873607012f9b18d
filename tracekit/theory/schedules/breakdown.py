"""Why a simulated step is longer than its work: schedule, unequal stages, slow ranks, transfers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from tracekit.theory.schedules.simulate import replay, simulate
from tracekit.theory.schedules.times import durations, each

if TYPE_CHECKING:
    from tracekit.theory.schedules.schedule import Schedule
    from tracekit.theory.schedules.times import Times


@dataclass(frozen=True)
class Breakdown:
    """Parts of the makespan, ns; they add up to it. Each is what the makespan grows by when its cause is added.

    ideal: mean busy time of a rank; bubble: of the schedule, with all stages equal to their mean; imbalance: stages as
    they are, negative where unequal stages suit the order better; straggler: slow ranks; p2p: transfers.
    """

    ideal_ns: float
    bubble_ns: float
    imbalance_ns: float
    straggler_ns: float
    p2p_ns: float


def breakdown(schedule: Schedule, times: Times) -> Breakdown:
    """The causes of the step's length, added in the order of the fields. Raises as `simulate`."""
    without_p2p = replace(times, p2p_ns=0)
    as_built = replace(without_p2p, slowdown_ratio=1.0)
    ideal = Fraction(sum(map(sum, durations(schedule, as_built))), schedule.ranks)
    equal = _equal_stages(schedule, as_built)
    built = simulate(schedule, as_built).makespan_ns
    slowed = simulate(schedule, without_p2p).makespan_ns
    whole = simulate(schedule, times).makespan_ns
    return Breakdown(
        float(ideal), float(equal - ideal), float(built - equal), float(slowed - built), float(whole - slowed)
    )


def _equal_stages(schedule: Schedule, times: Times) -> Fraction:
    """Makespan with every stage the mean of all; exact, by simulating `scale` times as slow."""
    stages, ranks = schedule.stages, schedule.ranks
    scale = stages * ranks
    kinds = (times.forward_ns, times.backward_input_ns, times.backward_weight_ns)
    forward, inputs, weights = (sum(each(kind, stages, "durations, one a stage")) * ranks for kind in kinds)
    pair = None
    if times.overlapped_ns is not None:
        pair = sum(each(times.overlapped_ns, ranks, "overlapped_ns, one a rank")) * stages
    slow = replace(times, forward_ns=forward, backward_input_ns=inputs, backward_weight_ns=weights, overlapped_ns=pair)
    return Fraction(replay(schedule, durations(schedule, slow)).makespan_ns, scale)

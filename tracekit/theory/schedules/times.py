"""How long the actions of a schedule take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tracekit.theory.schedules.actions import Action, Kind, Overlap, Step
from tracekit.theory.schedules.errors import ScheduleError

if TYPE_CHECKING:
    from tracekit.theory.schedules.schedule import Schedule

_N = TypeVar("_N", int, float)


@dataclass(frozen=True)
class Times:
    """Durations for a simulation, integer ns: one number for all stages, or one for each stage of the model.

    A whole backward takes `backward_input_ns` + `backward_weight_ns`. `p2p_ns`: from the end of an action to the
    earliest start of the one on another rank that needs its result, for all boundaries or each (stage s to s+1, both
    ways); sends are asynchronous, and between stages of one rank it is 0. `overlapped_ns`: duration of an overlapped
    forward and backward, for all ranks or each; None: the sum of the two. `slowdown_ratio`: factor on all computations
    of a rank, for all or each; rounded to whole ns for each action.
    """

    forward_ns: int | Sequence[int]
    backward_input_ns: int | Sequence[int]
    backward_weight_ns: int | Sequence[int]
    p2p_ns: int | Sequence[int] = 0
    overlapped_ns: int | Sequence[int] | None = None
    slowdown_ratio: float | Sequence[float] = 1.0


def each(value: _N | Sequence[_N], size: int, what: str) -> list[_N]:
    """`size` values, none negative: the one given, repeated, or the ones given; ScheduleError if those do not fit."""
    values = list(value) if isinstance(value, Sequence) else [value] * size
    if len(values) != size or any(v < 0 for v in values):
        raise ScheduleError(f"{what}: expected {size} values of zero or more, or one for all; found {values[:10]}")
    return values


def durations(schedule: Schedule, times: Times) -> list[list[int]]:
    """ns of each entry of each rank's order."""
    stages = schedule.stages
    forward = each(times.forward_ns, stages, "forward_ns, one a stage")
    inputs = each(times.backward_input_ns, stages, "backward_input_ns, one a stage")
    weights = each(times.backward_weight_ns, stages, "backward_weight_ns, one a stage")
    slow = each(times.slowdown_ratio, schedule.ranks, "slowdown_ratio, one a rank")
    pair = (
        None if times.overlapped_ns is None else each(times.overlapped_ns, schedule.ranks, "overlapped_ns, one a rank")
    )
    whole = [i + w for i, w in zip(inputs, weights, strict=True)]
    table = {Kind.FORWARD: forward, Kind.BACKWARD: whole, Kind.BACKWARD_INPUT: inputs, Kind.BACKWARD_WEIGHT: weights}
    part = schedule.model_stage

    def one(step: Step, rank: int) -> int:
        if isinstance(step, Action):
            return table[step.kind][part[step.stage]]
        return both(step) if pair is None else pair[rank]

    def both(step: Overlap) -> int:
        return forward[part[step.forward.stage]] + whole[part[step.backward.stage]]

    found = [[one(step, rank) for step in order] for rank, order in enumerate(schedule.orders)]
    return [row if slow[r] == 1 else [round(ns * slow[r]) for ns in row] for r, row in enumerate(found)]


def delays(schedule: Schedule, p2p_ns: int | Sequence[int]) -> list[int]:
    """ns a result travels, by 2·stage (activations, to the stage after) and 2·stage + 1 (gradients, to that before).

    0 where there is no such stage, or it is on the same rank.
    """
    boundary = each(p2p_ns, schedule.stages - 1, "p2p_ns, one a boundary between stages")
    rank, part = schedule.stage_rank, schedule.model_stage

    def between(before: int, after: int) -> int:
        return boundary[part[before]] if min(before, after) >= 0 and rank[before] != rank[after] else 0

    ends = enumerate(schedule.neighbours)
    return [ns for stage, (before, after) in ends for ns in (between(stage, after), between(before, stage))]

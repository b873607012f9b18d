"""A pipeline schedule: which rank holds which stage, and in which order each rank works."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tracekit.theory.schedules.actions import Kind, Step, parse_step, parts
from tracekit.theory.schedules.errors import ScheduleError
from tracekit.theory.schedules.wiring import Wiring, wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Schedule:
    """The order of work of every rank of one pipeline, for one step.

    `orders[rank]` are its entries in order. `lanes` are the paths micro-batches take: one (0, 1, … S-1) in all
    schedules but DualPipe, where a second runs the other way. `stage_rank[stage]` is the rank that holds a stage;
    `model_stage[stage]` the part of the model it is (DualPipe holds each part twice), the index of its durations.
    """

    name: str
    orders: tuple[tuple[Step, ...], ...] = field(repr=False)
    stage_rank: tuple[int, ...]
    lanes: tuple[tuple[int, ...], ...]
    model_stage: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """Pipeline-parallel size."""
        return len(self.orders)

    @property
    def stages(self) -> int:
        """Stages of the model: so many durations of each kind a simulation needs."""
        return max(self.model_stage) + 1

    @cached_property
    def micro_batches(self) -> int:
        """Micro-batches of a step, over all lanes."""
        return 1 + max((a.micro_batch for order in self.orders for s in order for a in parts(s)), default=-1)

    @cached_property
    def chunk(self) -> tuple[int, ...]:
        """For each stage, how many earlier stages its rank holds: the index of its model chunk."""
        seen = [0] * self.ranks
        chunks = []
        for rank in self.stage_rank:
            chunks.append(seen[rank])
            seen[rank] += 1
        return tuple(chunks)

    @cached_property
    def neighbours(self) -> tuple[tuple[int, int], ...]:
        """(stage before, stage after) of each stage on its lane; -1 where there is none."""
        found = [(-1, -1)] * len(self.stage_rank)
        for lane in self.lanes:
            for before, stage, after in zip((-1, *lane[:-1]), lane, (*lane[1:], -1), strict=True):
                found[stage] = (before, after)
        return tuple(found)

    @cached_property
    def wiring(self) -> Wiring:
        """What each entry waits for and gives."""
        return wire(self.orders, self.neighbours, self.micro_batches)

    @cached_property
    def sends(self) -> int:
        """Transfers between ranks in one step: activations forward and gradients backward, of the whole pipeline."""
        remote = [
            (before >= 0 and self.stage_rank[before] != rank, after >= 0 and self.stage_rank[after] != rank)
            for rank, (before, after) in zip(self.stage_rank, self.neighbours, strict=True)
        ]
        out = {Kind.FORWARD: 1, Kind.BACKWARD: 0, Kind.BACKWARD_INPUT: 0}
        actions = (a for order in self.orders for step in order for a in parts(step))
        return sum(remote[a.stage][out[a.kind]] for a in actions if a.kind in out)

    @cached_property
    def peak_in_flight(self) -> tuple[int, ...]:
        """Per rank, the most (stage, micro-batch) pairs whose forward has begun and whose last backward has not ended.

        Both halves of an overlapped pair count while it runs. A rank with v stages holds 1/v of a rank's share each.
        """
        return tuple(_peak(order) for order in self.orders)


def _peak(order: Sequence[Step]) -> int:
    held = most = 0
    for step in order:
        kinds = [a.kind for a in parts(step)]
        held += kinds.count(Kind.FORWARD)
        most = max(most, held)
        held -= kinds.count(Kind.BACKWARD) + kinds.count(Kind.BACKWARD_WEIGHT)
    return most


def from_order(
    orders: Sequence[Iterable[Step | str]], name: str = "given", lanes: Sequence[Sequence[int]] | None = None
) -> Schedule:
    """The schedule with these orders, one a rank, of actions or of texts such as `3F0` (see `parse_step`).

    Each stage lives on the rank that works on it. Stages are numbered along the model, or `lanes` tells the paths of
    micro-batches; the place of a stage on its lane is its part of the model. Raises ScheduleError where the orders are
    no schedule: a stage on two ranks, an action twice or missing, half a backward.
    """
    read = tuple(tuple(parse_step(s) if isinstance(s, str) else s for s in order) for order in orders)
    home: dict[int, int] = {}
    for rank, order in enumerate(read):
        for action in (a for step in order for a in parts(step)):
            if (first := home.setdefault(action.stage, rank)) != rank:
                raise ScheduleError(f"{action} is on rank {rank}, but stage {action.stage} began on rank {first}")
    paths = (tuple(range(len(home))),) if lanes is None else tuple(map(tuple, lanes))
    on_lanes = sorted(stage for lane in paths for stage in lane)
    if not home or not sorted(home) == on_lanes == list(range(len(home))):
        raise ScheduleError(f"expected stages 0, 1, … without a gap, each on one lane; found {sorted(home)}")
    part = {stage: place for lane in paths for place, stage in enumerate(lane)}
    stages = range(len(home))
    return checked(Schedule(name, read, tuple(home[s] for s in stages), paths, tuple(part[s] for s in stages)))


def checked(schedule: Schedule) -> Schedule:
    """The schedule itself, if every micro-batch goes once through every stage of its lane; else ScheduleError."""
    done: list[dict[int, list[str]]] = [{} for _ in schedule.stage_rank]
    for order in schedule.orders:
        for step in order:
            for action in parts(step):
                done[action.stage].setdefault(action.micro_batch, []).append(action.kind.value)
    forward_only = all(kinds == ["F"] for batches in done for kinds in batches.values())
    whole = [["F"]] if forward_only else [["B", "F"], ["F", "I", "W"]]
    for lane in schedule.lanes:
        batches = sorted({m for stage in lane for m in done[stage]})
        for stage in lane:
            for micro_batch in batches:
                found = sorted(done[stage].get(micro_batch, ()))
                if found not in whole:
                    raise ScheduleError(
                        f"micro-batch {micro_batch} on stage {stage}: found {'+'.join(found) or 'nothing'}, "
                        f"expected {' or '.join('+'.join(w) for w in whole)}, each once"
                    )
    return schedule

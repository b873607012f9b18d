"""When every action of a schedule runs: event-driven, exact in integer ns.

An action starts when its rank is free and its inputs are there: a forward after the forward of the stage before plus
the latency; an input gradient, or a whole backward, after the forward of its own stage and the input gradient of the
stage after plus the latency; a weight gradient after the input gradient. An overlapped pair starts when both can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tracekit.theory.schedules.actions import Action, Kind, parts
from tracekit.theory.schedules.errors import Deadlock, ScheduleError
from tracekit.theory.schedules.timeline import Timeline
from tracekit.theory.schedules.times import Times, durations, each, latencies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.theory.schedules.schedule import Schedule

_Keys: TypeAlias = list[list[tuple[int, ...]]]


def simulate(schedule: Schedule, times: Times, start_ns: int | Sequence[int] = 0) -> Timeline:
    """Start and end of every action, each as early as the order allows; ranks begin at `start_ns`, for all or each.

    Raises ScheduleError for durations that do not fit the schedule, Deadlock for an order that cannot finish.
    """
    return replay(schedule, durations(schedule, times), times.p2p_ns, start_ns)


def replay(
    schedule: Schedule,
    durations_ns: Sequence[Sequence[int]],
    p2p_ns: int | Sequence[int] = 0,
    start_ns: int | Sequence[int] = 0,
) -> Timeline:
    """As `simulate`, with a duration (integer ns) for each entry of each rank's order, such as a trace measures."""
    if [len(row) for row in durations_ns] != [len(order) for order in schedule.orders]:
        raise ScheduleError("expected one duration for each entry of each rank's order")
    clock = each(start_ns, schedule.ranks, "start_ns, one a rank")
    needs, gives = _dependencies(schedule)
    delay = _delays(schedule, latencies(schedule, p2p_ns))
    m = schedule.micro_batches
    starts: list[list[int]] = [[] for _ in schedule.orders]
    ends: list[list[int]] = [[] for _ in schedule.orders]
    arrived = [-1] * (len(delay) * m)
    waiting: dict[int, int] = {}
    runnable = list(range(schedule.ranks - 1, -1, -1))
    while runnable:
        rank = runnable.pop()
        now, row = clock[rank], durations_ns[rank]
        for i in range(len(starts[rank]), len(row)):
            missing = -1
            for key in needs[rank][i]:
                if arrived[key] < 0:
                    missing = key
                    break
                now = max(now, arrived[key])
            if missing >= 0:
                waiting[missing] = rank
                break
            starts[rank].append(now)
            now += row[i]
            ends[rank].append(now)
            for key in gives[rank][i]:
                arrived[key] = now + delay[key // m]
                if key in waiting:
                    runnable.append(waiting.pop(key))
        clock[rank] = now
    if waiting:
        raise _deadlock(schedule, waiting, [len(row) for row in starts])
    return Timeline(schedule, tuple(map(tuple, starts)), tuple(map(tuple, ends)))


def _dependencies(schedule: Schedule) -> tuple[_Keys, _Keys]:
    """For each entry of each order: the results it waits for, and the results it gives.

    A result is numbered (2·stage)·m + micro-batch, an input gradient (2·stage + 1)·m + micro-batch. What an earlier
    entry of the same order gave to the same stage needs no waiting; if it comes later, it is listed and never arrives.
    """
    m, neighbours = schedule.micro_batches, schedule.neighbours
    needs: _Keys = []
    gives: _Keys = []
    seen = bytearray(2 * len(neighbours) * m)

    def wire(action: Action) -> tuple[list[int], int]:
        kind, stage, k = action
        before, after = neighbours[stage]
        forward = 2 * stage * m + k
        if kind is Kind.FORWARD:
            return [2 * before * m + k] if before >= 0 else [], forward
        if kind is Kind.BACKWARD_WEIGHT:
            return [] if seen[forward + m] else [forward + m], -1
        own = [] if seen[forward] else [forward]
        return [*own, (2 * after + 1) * m + k] if after >= 0 else own, forward + m

    for order in schedule.orders:
        wanted, made = [], []
        for step in order:
            wires = [wire(action) for action in parts(step)]
            wanted.append(tuple(key for keys, _ in wires for key in keys))
            made.append(tuple(key for _, key in wires if key >= 0))
            for key in made[-1]:
                seen[key] = 1
        needs.append(wanted)
        gives.append(made)
    return needs, gives


def _delays(schedule: Schedule, latency: list[int]) -> list[int]:
    """ns a result travels, by 2·stage (activations, to the stage after) and 2·stage + 1 (gradients, to that before)."""
    after = [latency[after] if after >= 0 else 0 for _, after in schedule.neighbours]
    return [ns for pair in zip(after, latency, strict=True) for ns in pair]


def _deadlock(schedule: Schedule, waiting: dict[int, int], position: list[int]) -> Deadlock:
    """The failure with every rank that waits, its next action, and the action it waits for."""
    rows = []
    for key, rank in sorted(waiting.items(), key=lambda item: item[1]):
        result, k = divmod(key, schedule.micro_batches)
        stage, gradient = divmod(result, 2)
        home = schedule.stage_rank[stage]
        made = next((s for s in schedule.orders[home] for a in parts(s) if _gives(a, stage, k, bool(gradient))), None)
        wanted = f"{made} of rank {home}" if made else f"micro-batch {k} of stage {stage}, which no rank computes"
        rows.append((rank, str(schedule.orders[rank][position[rank]]), wanted))
    return Deadlock(tuple(rows))


def _gives(action: Action, stage: int, k: int, gradient: bool) -> bool:
    kinds = (Kind.BACKWARD, Kind.BACKWARD_INPUT) if gradient else (Kind.FORWARD,)
    return action.kind in kinds and action.stage == stage and action.micro_batch == k

"""When every action of a schedule runs: event-driven, exact in integer ns.

An action starts when its rank is free and its inputs are there: a forward after the forward of the stage before plus
the latency; an input gradient, or a whole backward, after the forward of its own stage and the input gradient of the
stage after plus the latency; a weight gradient after the input gradient. An overlapped pair starts when both can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.theory.schedules.actions import Action, Kind, parts
from tracekit.theory.schedules.errors import Deadlock, ScheduleError
from tracekit.theory.schedules.timeline import Timeline
from tracekit.theory.schedules.times import Times, delays, durations, each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.theory.schedules.schedule import Schedule


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
    needs, gives = schedule.wiring
    delay = delays(schedule, p2p_ns)
    m = schedule.micro_batches
    starts: list[list[int]] = [[] for _ in schedule.orders]
    ends: list[list[int]] = [[] for _ in schedule.orders]
    arrived = [-1] * (len(delay) * m)
    waiting: dict[int, list[int]] = {}
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
                waiting.setdefault(missing, []).append(rank)
                break
            starts[rank].append(now)
            now += row[i]
            ends[rank].append(now)
            for key in gives[rank][i]:
                arrived[key] = now + delay[key // m]
                if key in waiting:
                    runnable += waiting.pop(key)
        clock[rank] = now
    if waiting:
        raise _deadlock(schedule, {rank: key for key, ranks in waiting.items() for rank in ranks}, starts)
    return Timeline(schedule, tuple(map(tuple, starts)), tuple(map(tuple, ends)))


def _deadlock(schedule: Schedule, waiting: dict[int, int], starts: Sequence[Sequence[int]]) -> Deadlock:
    """The failure with every rank that waits, its next action, and the action it waits for."""
    rows = []
    for rank, key in sorted(waiting.items()):
        result, k = divmod(key, schedule.micro_batches)
        stage, gradient = divmod(result, 2)
        home = schedule.stage_rank[stage]
        giving = (s for s in schedule.orders[home] if any(_gives(a, stage, k, bool(gradient)) for a in parts(s)))
        made = next(giving, None)
        wanted = f"{made} of rank {home}" if made else f"micro-batch {k} of stage {stage}, which no rank computes"
        rows.append((rank, str(schedule.orders[rank][len(starts[rank])]), wanted))
    return Deadlock(tuple(rows))


def _gives(action: Action, stage: int, k: int, gradient: bool) -> bool:
    kinds = (Kind.BACKWARD, Kind.BACKWARD_INPUT) if gradient else (Kind.FORWARD,)
    return action.kind in kinds and action.stage == stage and action.micro_batch == k

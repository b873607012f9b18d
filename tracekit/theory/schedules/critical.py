"""The chain of actions that makes a simulated step as long as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracekit.theory.schedules.times import delays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.theory.schedules.timeline import Timeline


class Link(NamedTuple):
    """Entry `entry` of `rank`'s order; before it, `latency_ns` of transfer from the link before."""

    rank: int
    entry: int
    latency_ns: int


def critical_path(timeline: Timeline, p2p_ns: int | Sequence[int] = 0) -> list[Link]:
    """From the first action to the last end: each starts when the one before has ended and its result has arrived.

    `p2p_ns` is the latency the timeline was simulated with. Durations and latencies of the links add up to the time
    from the start of the first link to the end of the step. Where chains are equally long, a rank's own work is
    followed. The first link is the one that only the start of its rank holds back.
    """
    schedule = timeline.schedule
    needs, made = schedule.wiring.needs, schedule.wiring.makers()
    delay, m = delays(schedule, p2p_ns), schedule.micro_batches
    end = timeline.window[1]
    rank = next(r for r, row in enumerate(timeline.end_ns) if row and row[-1] == end)
    index = len(timeline.end_ns[rank]) - 1
    path: list[Link] = []
    while True:
        start = timeline.start_ns[rank][index]
        if index and timeline.end_ns[rank][index - 1] == start:
            path.append(Link(rank, index, 0))
            index -= 1
            continue
        for key in needs[rank][index]:
            r, i = made[key]
            if timeline.end_ns[r][i] + delay[key // m] == start:
                path.append(Link(rank, index, delay[key // m]))
                rank, index = r, i
                break
        else:
            return [Link(rank, index, 0), *reversed(path)]

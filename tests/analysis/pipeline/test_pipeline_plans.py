"""Replays of many durations at once equal the event-driven one."""

from __future__ import annotations

import random

import pytest

from tracekit.analysis.pipeline.plans import Plan, Plans, flat
from tracekit.theory.schedules import ScheduleError, build, from_order, replay


@pytest.mark.parametrize(
    ("name", "ranks", "micro_batches"),
    [("1F1B", 4, 8), ("GPipe", 3, 4), ("Interleaved1F1B", 2, 8), ("InterleavedZeroBubble", 4, 8), ("ZBVZeroBubble", 2, 8)],
)  # fmt: skip
def test_lengths_equal_single_replays(name: str, ranks: int, micro_batches: int) -> None:
    schedule = build(name, ranks, micro_batches, 2 if "nterleaved" in name else None)
    rng = random.Random(name)
    grids = [[[rng.randrange(10**6) for _ in order] for order in schedule.orders] for _ in range(12)]
    plans = Plans()
    asked = [plans.ask(schedule, flat(grid)) for grid in grids]
    assert [plans.length(n) for n in asked] == [replay(schedule, grid).makespan_ns for grid in grids]


def test_an_order_that_cannot_finish_has_no_length() -> None:
    schedule = from_order([["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]], "crossed")
    with pytest.raises(ScheduleError):
        replay(schedule, [[1] * 4] * 2)
    plans = Plans()
    assert plans.length(plans.ask(schedule, [1] * 8)) is None


def test_entries_ahead_wait_for_others_only() -> None:
    """From a forward on, the next forwards could be taken first; a backward that needs one between them could not."""
    schedule = build("1F1B", 2, 4)
    plan = Plan(schedule)
    for rank, order in enumerate(schedule.orders):
        for i in range(len(order)):
            for j in plan.ahead[plan.first[rank] + i]:
                mine = order[j - plan.first[rank]]
                between = order[i : j - plan.first[rank]]
                assert not any((s.stage, s.micro_batch) == (mine.stage, mine.micro_batch) for s in between)

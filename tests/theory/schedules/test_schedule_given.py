"""Orders from elsewhere, orders that cannot be, and what the parts of a timeline say of small cases worked by hand."""

from __future__ import annotations

import doctest
from dataclasses import replace
from pathlib import Path

import pytest

from tracekit.theory import schedules
from tracekit.theory.schedules import (
    NAMES,
    Action,
    Breakdown,
    Deadlock,
    IdleSplit,
    Kind,
    Link,
    Overlap,
    ScheduleError,
    Times,
    Transfer,
    breakdown,
    build,
    canonical,
    critical_path,
    from_order,
    parse_step,
    replay,
    simulate,
    transfers,
)

PAIR = "(0F1;1B0)OVERLAP_F_B"


def texts(*orders: str) -> list[list[str]]:
    return [order.split() for order in orders]


def test_a_text_is_read_and_written_back() -> None:
    assert parse_step("12I7") == Action(Kind.BACKWARD_INPUT, 12, 7)
    assert parse_step(PAIR) == Overlap(Action(Kind.FORWARD, 0, 1), Action(Kind.BACKWARD, 1, 0))
    for text in ("0F0", "12I7", "3W11", "2B1", PAIR):
        assert str(parse_step(text)) == text


@pytest.mark.parametrize(
    "text", ["", "F0", "0X1", "0F", "0F1 0F2", "-1F0", "0SEND_F1", "(0F0;0I0)OVERLAP_F_B", "(0F0)OVERLAP_F_B"]
)
def test_no_other_text_is_an_action(text: str) -> None:
    with pytest.raises(ScheduleError, match="expected"):
        parse_step(text)


@pytest.mark.parametrize("name", NAMES)
def test_a_given_order_is_simulated_as_the_built_one(name: str) -> None:
    schedule = build(name, 4, 8)
    again = from_order([[str(step) for step in order] for order in schedule.orders], name, schedule.lanes)
    assert again == schedule
    times = Times(7, 9, 5, 2, overlapped_ns=15)
    assert simulate(again, times).end_ns == simulate(schedule, times).end_ns


def test_forward_only_has_no_drain_of_backwards() -> None:
    timeline = simulate(from_order(texts("0F0 0F1", "1F0 1F1")), Times([3, 5], 0, 0, 1))
    assert timeline.start_ns == ((0, 3), (4, 9))
    assert timeline.idle_split(0) == IdleSplit(0, 0, 8)
    assert timeline.idle_split(1) == IdleSplit(4, 0, 0)
    assert timeline.schedule.sends == 2


def test_durations_of_a_trace_are_replayed() -> None:
    timeline = replay(from_order(texts("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1")), [[2, 9, 4, 4], [3, 5, 3, 6]], 1)
    assert timeline.start_ns == ((0, 2, 12, 22), (3, 6, 12, 15))
    assert timeline.busy_ns == (19, 17)
    assert timeline.makespan_ns == 26
    assert timeline.idle_split(0) == IdleSplit(1, 0, 6)
    assert timeline.idle_split(1) == IdleSplit(3, 1, 5)
    assert timeline.gaps(0) == [(11, 12), (16, 22)]
    assert timeline.span_ns == (26, 18)
    assert timeline.bubble().imbalance_ns == 1.0
    assert timeline.bubble().over_step_ratio == 16 / 52
    assert timeline.bubble().over_ideal_ratio == 16 / 36


def test_a_pair_starts_when_both_can_and_ends_together() -> None:
    """The two stages on one rank of a V: nothing travels between them."""
    timeline = simulate(from_order(texts("0F0 1F0 (0F1;1B0)OVERLAP_F_B 1F1 1B1 0B0 0B1")), Times(10, 6, 4, 99, 13))
    assert timeline.start_ns == ((0, 10, 20, 33, 43, 53, 63),)
    assert timeline.schedule.peak_in_flight == (3,)


def test_a_slow_rank_is_slow_in_all_it_does() -> None:
    timeline = simulate(build("1F1B", 2, 2), Times(10, 20, 0, slowdown_ratio=[1.0, 1.25]))
    assert timeline.busy_ns == (60, 74)  # 12.5 ns is rounded to even
    assert timeline.end_ns == ((10, 20, 67, 104), (22, 47, 59, 84))


def test_latency_can_differ_by_boundary_and_start_by_rank() -> None:
    schedule = build("GPipe", 3, 1)
    timeline = simulate(schedule, Times(10, 10, 0, [1, 5]), [0, 20, 0])
    assert [row[0] for row in timeline.start_ns] == [0, 20, 35]
    assert [row[-1] for row in timeline.start_ns] == [71, 60, 45]


def test_causes_of_a_long_step_by_hand() -> None:
    """1F1B, p = 2, m = 2. Equal stages 30: (m+1)·30. Stage 1 takes 40: 10+80+10. Rank 0 twice as slow: 20·4+40. Latency 3."""
    schedule = build("1F1B", 2, 2)
    found = breakdown(schedule, Times([10, 20], [10, 20], 0))
    assert found == Breakdown(60.0, 30.0, 10.0, 0.0, 0.0)
    slow = Times([10, 20], [10, 20], 0, p2p_ns=3, slowdown_ratio=[2.0, 1.0])
    timeline = simulate(schedule, replace(slow, p2p_ns=0))
    assert timeline.end_ns == ((20, 40, 80, 120), (40, 60, 80, 100))
    assert breakdown(schedule, slow) == Breakdown(60.0, 30.0, 10.0, 20.0, 6.0)


def test_critical_path_by_hand() -> None:
    timeline = simulate(build("1F1B", 2, 2), Times([10, 20], [10, 20], 0, p2p_ns=3))
    assert critical_path(timeline, 3) == [
        Link(0, 0, 0),
        Link(1, 0, 3),
        *(Link(1, i, 0) for i in (1, 2, 3)),
        Link(0, 3, 3),
    ]


def test_transfers_by_hand() -> None:
    timeline = simulate(build("1F1B", 2, 2), Times([10, 20], [10, 20], 0, p2p_ns=3))
    first, second, third, fourth = transfers(timeline, 3)
    assert first == Transfer(0, 1, Action(Kind.FORWARD, 0, 0), 10, 13, 13)
    assert second == Transfer(0, 1, Action(Kind.FORWARD, 0, 1), 20, 23, 53)
    assert third == Transfer(1, 0, Action(Kind.BACKWARD, 1, 0), 53, 56, 56)
    assert fourth == Transfer(1, 0, Action(Kind.BACKWARD, 1, 1), 93, 96, 96)


@pytest.mark.parametrize("name", NAMES)
def test_every_transfer_connects_neighbours_and_arrives_in_time(name: str) -> None:
    schedule = build(name, 4, 8)
    found = transfers(simulate(schedule, Times(7, 9, 5, 2)), 2)
    assert len(found) == len(set(found)) == schedule.sends
    for t in found:
        before, after = schedule.neighbours[t.action.stage]
        other = after if t.action.kind is Kind.FORWARD else before
        assert (t.source, t.target) == (schedule.stage_rank[t.action.stage], schedule.stage_rank[other])
        assert t.sent_ns + 2 == t.arrived_ns <= t.used_ns


def test_order_against_its_own_stage_never_finishes() -> None:
    with pytest.raises(Deadlock, match="rank 1: 1B0 waits for 1F0 of rank 1") as caught:
        simulate(from_order(texts("0F0 0B0", "1B0 1F0")), Times(1, 1, 1))
    assert caught.value.waiting == ((0, "0B0", "1B0 of rank 1"), (1, "1B0", "1F0 of rank 1"))


def test_every_rank_that_waits_is_named() -> None:
    """Two ranks wait for the same forward; a pair waits for a forward of its own."""
    with pytest.raises(Deadlock) as caught:
        simulate(from_order(texts("0B0 0F0", "1F0 1B0")), Times(1, 1, 1))
    assert [(rank, action) for rank, action, _ in caught.value.waiting] == [(0, "0B0"), (1, "1F0")]
    with pytest.raises(Deadlock, match=r"waits for \(0F0;0B0\)OVERLAP_F_B of rank 0"):
        simulate(from_order(texts("(0F0;0B0)OVERLAP_F_B")), Times(1, 1, 1))


def test_weights_before_inputs_never_finish() -> None:
    with pytest.raises(Deadlock, match="rank 0: 0W0 waits for 0I0 of rank 0"):
        simulate(from_order(texts("0F0 0W0 0I0")), Times(1, 1, 1))


def test_ranks_that_wait_for_each_other_are_named() -> None:
    orders = texts("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1")
    with pytest.raises(Deadlock) as caught:
        simulate(from_order(orders), Times(1, 1, 1))
    assert caught.value.waiting == ((0, "0B0", "1B0 of rank 1"), (1, "1F1", "0F1 of rank 0"))
    pair = from_order(texts("0F0 (0F1;0B0)OVERLAP_F_B 0B1", "1F0 1F1 1B0 1B1"))
    with pytest.raises(Deadlock, match=r"rank 1: 1F1 waits for \(0F1;0B0\)OVERLAP_F_B of rank 0"):
        simulate(pair, Times(1, 1, 1))


def test_what_no_rank_computes_is_said() -> None:
    schedule = build("1F1B", 2, 2)
    short = replace(schedule, orders=(schedule.orders[0][1:], schedule.orders[1]))
    with pytest.raises(Deadlock, match="1F0 waits for micro-batch 0 of stage 0, which no rank computes"):
        simulate(short, Times(1, 1, 1))


WRONG_ORDERS = [
    (["0F0 0B0", "0F1 0B1"], "0F1 is on rank 1, but stage 0 began on rank 0"),
    (["0F0 0B0", "2F0 2B0"], "without a gap"),
    ([], "without a gap"),
    (["0F0 0B0 0B0"], r"micro-batch 0 on stage 0: found B\+B\+F"),
    (["0F0 0B0 0F1", "1F0 1B0"], "micro-batch 1 on stage 0: found F,"),
    (["0F0 0I0"], r"found F\+I, expected B\+F or F\+I\+W, each once"),
    (["0F0 0B0", "1F0 1B0 1F1 1B1"], "micro-batch 1 on stage 0: found nothing"),
]


@pytest.mark.parametrize(("orders", "message"), WRONG_ORDERS)
def test_orders_that_are_no_schedule(orders: list[str], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        from_order(texts(*orders))


WRONG_SIZES = [
    ("ZBV", 4, 8, 1, "2 stages on each rank, not 1"),
    ("1F1B", 4, 8, 2, "1 stage on each rank, not 2"),
    ("Interleaved1F1B", 4, 9, 2, "9 micro-batches do not divide into 2 rounds"),
    ("DualPipeV", 4, 7, None, "at least 8 micro-batches, not 7"),
    ("DualPipe", 3, 8, None, "even number of ranks"),
    ("DualPipe", 4, 6, None, "twice as many"),
    ("DualPipe", 4, 9, None, "even number"),
    ("DualPipe", 4, 8, 3, "3 stages a rank"),
    ("1F1B", 0, 8, None, "at least 1"),
    ("1F1B", 4, 0, None, "at least 1"),
    ("Chimera", 4, 8, None, "no schedule is called 'Chimera'; known are GPipe"),
]


@pytest.mark.parametrize(("name", "p", "m", "v", "message"), WRONG_SIZES)
def test_sizes_a_schedule_does_not_have(name: str, p: int, m: int, v: int | None, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        build(name, p, m, v)


WRONG_TIMES = [
    (Times([1, 2], 1, 1), "forward_ns, one a stage: expected 4 values"),
    (Times(1, -1, 1), "backward_input_ns"),
    (Times(1, 1, 1, p2p_ns=[1, 2, 3, 4]), "p2p_ns, one a boundary between stages: expected 3"),
    (Times(1, 1, 1, slowdown_ratio=[1.0]), "slowdown_ratio, one a rank"),
    (Times(1, 1, 1, overlapped_ns=-5), "overlapped_ns, one a rank"),
]


@pytest.mark.parametrize(("times", "message"), WRONG_TIMES)
def test_times_that_do_not_fit(times: Times, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        simulate(build("1F1B", 4, 4), times)
    with pytest.raises(ScheduleError, match="one duration for each entry"):
        replay(build("1F1B", 2, 1), [[1, 1], [1]])


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("gpipe", "GPipe"),
        ("zb h1", "ZB-H1"),
        ("zbh2", "ZB-H2"),
        ("ZB-V", "ZBVZeroBubble"),
        ("interleaved", "Interleaved1F1B"),
        ("dualpipe-v", "DualPipeV"),
    ],
)
def test_spelling_of_names_is_free(spelt: str, name: str) -> None:
    assert canonical(spelt) == name


def test_the_example_of_the_package_holds() -> None:
    found = doctest.testmod(schedules)
    assert (found.failed, found.attempted) == (0, 3)


def test_the_page_about_schedules_is_true() -> None:
    page = Path(__file__).parents[3] / "docs" / "schedules.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.failed == 0
    assert found.attempted > 8


def test_chunks_count_the_stages_of_a_rank() -> None:
    assert build("Interleaved1F1B", 2, 2, 3).chunk == (0, 0, 1, 1, 2, 2)
    assert build("ZBV", 2, 4).chunk == (0, 0, 1, 1)
    assert build("ZBV", 2, 4).stage_rank == (0, 1, 1, 0)
    assert (build("DualPipe", 2, 4).stage_rank, build("DualPipe", 2, 4).model_stage) == ((0, 1, 1, 0), (0, 1, 0, 1))


@pytest.mark.parametrize(
    ("name", "v", "sends"), [("1F1B", None, 48), ("Interleaved1F1B", 2, 112), ("ZBV", None, 96), ("DualPipe", None, 48)]
)
def test_transfers_between_ranks(name: str, v: int | None, sends: int) -> None:
    """2m(p-1), 2m(pv-1), 2m(2p-2): the turn of a V stays on its rank; p = 4, m = 8."""
    assert build(name, 4, 8, v).sends == sends

"""The simulator on random times: against a second reading of its rules, and bounds that hold for any order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracekit.theory.schedules import (
    NAMES,
    Schedule,
    Timeline,
    Times,
    breakdown,
    build,
    critical_path,
    parts,
    replay,
    simulate,
)
from tracekit.theory.schedules.times import durations

steady = settings(derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
Case: TypeAlias = tuple[Schedule, Times]


@st.composite
def cases(draw: st.DrawFn, names: tuple[str, ...] = NAMES, slow: bool = True) -> Case:
    """A schedule of up to 5 ranks, with a duration for each stage and rank."""
    name = draw(st.sampled_from(names))
    p, v = draw(st.integers(1, 5)), None
    if name in ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble"):
        v = draw(st.integers(1, 3))
    if name == "DualPipe":
        p = 2 * draw(st.integers(1, 3))
    m = p * draw(st.integers(2, 3)) if name in ("DualPipe", "DualPipeV") or v else draw(st.integers(1, 12))
    schedule = build(name, p, m, v)
    each = st.lists(st.integers(0, 40), min_size=schedule.stages, max_size=schedule.stages)
    ranks = st.lists(st.integers(0, 60), min_size=p, max_size=p)
    factors = st.lists(st.sampled_from([1.0, 1.5, 2.25]), min_size=p, max_size=p)
    links = st.lists(st.integers(0, 15), min_size=schedule.stages - 1, max_size=schedule.stages - 1)
    return schedule, Times(
        *(draw(each) for _ in range(3)), draw(links), draw(st.none() | ranks), draw(factors) if slow else 1.0
    )


def second_reading(schedule: Schedule, times: Times) -> dict[str, int]:
    """End of each action by its text: the rules of the module, applied until nothing changes."""
    owner = schedule.stage_rank
    links = times.p2p_ns if isinstance(times.p2p_ns, list) else []
    took = durations(schedule, times)
    ends: dict[str, int] = {}

    def ready(text: str) -> int | None:
        digits = text.translate(str.maketrans("FBIW", "    ")).split()
        stage, k, kind = int(digits[0]), digits[1], text.strip("0123456789")
        lane = next(lane for lane in schedule.lanes if stage in lane)
        at = lane.index(stage)
        wanted: list[tuple[list[str], int]] = []
        if kind == "W":
            wanted.append(([f"{stage}I{k}"], 0))
        elif kind == "F" and at:
            other = lane[at - 1]
            wanted.append(([f"{other}F{k}"], 0 if owner[other] == owner[stage] else links[at - 1]))
        elif kind in "BI":
            wanted.append(([f"{stage}F{k}"], 0))
            if at + 1 < len(lane):
                other = lane[at + 1]
                wanted.append(([f"{other}I{k}", f"{other}B{k}"], 0 if owner[other] == owner[stage] else links[at]))
        times_there = [[ends[n] + lag for n in names if n in ends] for names, lag in wanted]
        return None if [] in times_there else max((t[0] for t in times_there), default=0)

    position, free = [0] * schedule.ranks, [0] * schedule.ranks
    while any(position[r] < len(schedule.orders[r]) for r in range(schedule.ranks)):
        for rank, order in enumerate(schedule.orders):
            if position[rank] == len(order):
                continue
            texts = [str(a) for a in parts(order[position[rank]])]
            begins = [ready(text) for text in texts]
            if None not in begins:
                free[rank] = max(free[rank], *(b for b in begins if b is not None)) + took[rank][position[rank]]
                ends.update(dict.fromkeys(texts, free[rank]))
                position[rank] += 1
    return ends


def all_ends(timeline: Timeline) -> list[int]:
    return [end for row in timeline.end_ns for end in row]


@steady
@given(cases())
def test_every_end_is_that_of_the_second_reading(case: Case) -> None:
    schedule, times = case
    timeline = simulate(schedule, times)
    rows = zip(schedule.orders, timeline.end_ns, strict=True)
    found = {str(a): end for order, ends in rows for s, end in zip(order, ends, strict=True) for a in parts(s)}
    assert found == second_reading(schedule, times)


@steady
@given(cases())
def test_actions_take_their_duration_and_never_overlap_on_a_rank(case: Case) -> None:
    timeline = simulate(*case)
    for starts, ends, took in zip(timeline.start_ns, timeline.end_ns, durations(*case), strict=True):
        assert [e - s for s, e in zip(starts, ends, strict=True)] == took
        assert all(e <= s for e, s in zip(ends, starts[1:], strict=False))


@steady
@given(cases(slow=False))
def test_no_step_is_shorter_than_its_busiest_rank_or_the_way_of_a_micro_batch(case: Case) -> None:
    schedule, times = case
    times = replace(times, overlapped_ns=None)
    timeline = simulate(schedule, times)
    assert timeline.makespan_ns >= max(timeline.busy_ns)
    forward, inputs, links = times.forward_ns, times.backward_input_ns, times.p2p_ns
    assert isinstance(forward, list)
    assert isinstance(inputs, list)
    assert isinstance(links, list)
    for lane in schedule.lanes:
        home = [schedule.stage_rank[s] for s in lane]
        crossed = sum(ns for ns, a, b in zip(links, home, home[1:], strict=False) if a != b)
        assert timeline.window[1] >= sum(forward) + sum(inputs) + 2 * crossed


@steady
@given(cases(), st.data())
def test_a_longer_action_makes_nothing_earlier(case: Case, data: st.DataObject) -> None:
    schedule, times = case
    took = durations(schedule, times)
    before = all_ends(replay(schedule, took, times.p2p_ns))
    rank = data.draw(st.integers(0, schedule.ranks - 1))
    at, more = data.draw(st.integers(0, len(took[rank]) - 1)), data.draw(st.integers(1, 50))
    took[rank][at] += more
    after = all_ends(replay(schedule, took, times.p2p_ns))
    assert all(b <= a <= b + more for b, a in zip(before, after, strict=True))


@steady
@given(cases(), st.integers(1, 30))
def test_longer_links_make_nothing_earlier(case: Case, more: int) -> None:
    schedule, times = case
    assert isinstance(times.p2p_ns, list)
    slower = replace(times, p2p_ns=[ns + more for ns in times.p2p_ns])
    pairs = zip(all_ends(simulate(schedule, times)), all_ends(simulate(schedule, slower)), strict=True)
    assert all(a >= b for b, a in pairs)


@steady
@given(cases(), st.integers(1, 10**15))
def test_a_later_start_shifts_everything_by_as_much(case: Case, shift: int) -> None:
    schedule, times = case
    at_zero, later = simulate(schedule, times), simulate(schedule, times, shift)
    assert all_ends(later) == [end + shift for end in all_ends(at_zero)]
    assert (later.makespan_ns, later.bubble()) == (at_zero.makespan_ns, at_zero.bubble())


@steady
@given(cases(slow=False), st.integers(2, 10**9))
def test_all_times_scale_together(case: Case, by: int) -> None:
    schedule, times = case
    took = durations(schedule, times)
    assert isinstance(times.p2p_ns, list)
    scaled = replay(schedule, [[ns * by for ns in row] for row in took], [ns * by for ns in times.p2p_ns])
    assert all_ends(scaled) == [end * by for end in all_ends(simulate(schedule, times))]


@steady
@given(cases())
def test_the_critical_path_is_as_long_as_the_step(case: Case) -> None:
    schedule, times = case
    timeline, took = simulate(schedule, times), durations(schedule, times)
    path = critical_path(timeline, times.p2p_ns)
    assert sum(took[link.rank][link.entry] + link.latency_ns for link in path) == timeline.window[1]
    assert timeline.start_ns[path[0].rank][path[0].entry] == 0
    for before, link in pairwise(path):
        arrives = timeline.end_ns[before.rank][before.entry] + link.latency_ns
        assert arrives == timeline.start_ns[link.rank][link.entry]


@steady
@given(cases())
def test_the_causes_add_up_to_the_step(case: Case) -> None:
    schedule, times = case
    found = breakdown(schedule, times)
    parts_ns = (found.ideal_ns, found.bubble_ns, found.imbalance_ns, found.straggler_ns, found.p2p_ns)
    assert sum(parts_ns) == pytest.approx(simulate(schedule, times).makespan_ns)
    assert min(found.bubble_ns, found.straggler_ns, found.p2p_ns) >= 0


@steady
@given(cases())
def test_idle_adds_up(case: Case) -> None:
    timeline = simulate(*case)
    bubble = timeline.bubble()
    for rank, idle in enumerate(bubble.idle_ns):
        split = timeline.idle_split(rank)
        assert min(split.warmup_ns, split.steady_ns, split.drain_ns) >= 0
        assert split.warmup_ns + split.steady_ns + split.drain_ns == idle
        assert sum(b - a for a, b in timeline.gaps(rank)) == idle
        assert timeline.idle_in_span_ns[rank] <= idle
    ideal = bubble.over_ideal_ratio
    assert bubble.over_step_ratio == pytest.approx(ideal / (1 + ideal)) or not sum(timeline.busy_ns)
    assert timeline.bubble("span").window_ns <= bubble.window_ns


@steady
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=7), st.integers(1, 24), st.integers(0, 3))
def test_unequal_stages_under_1f1b(forward: list[int], m: int, ratio: int) -> None:
    """max_j(sum_{i<j} c_i + m c_j) ≤ T ≤ sum c + (m-1) max c for c = F + B, where B is the same multiple of F everywhere."""
    costs = [f * (1 + ratio) for f in forward]
    length = simulate(build("1F1B", len(costs), m), Times(forward, [ratio * f for f in forward], 0)).makespan_ns
    assert max(sum(costs[:j]) + m * c for j, c in enumerate(costs)) <= length <= sum(costs) + (m - 1) * max(costs)


@steady
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=7), st.integers(1, 24))
def test_unequal_stages_of_unequal_kind_under_1f1b(stages: list[tuple[int, int]], m: int) -> None:
    """With any F and B the upper bound is sum c + (m-1)(max F + max B): the longest forward and backward may differ."""
    forward, backward = [f for f, _ in stages], [b for _, b in stages]
    costs = [f + b for f, b in stages]
    length = simulate(build("1F1B", len(costs), m), Times(forward, backward, 0)).makespan_ns
    assert max(sum(costs[:j]) + m * c for j, c in enumerate(costs)) <= length
    assert length <= sum(costs) + (m - 1) * (max(forward) + max(backward))


def test_the_bound_by_costs_alone_fails_for_unequal_kinds() -> None:
    """Stages of cost 1, 2, 2, 1 that spend it on different passes: 9, where costs alone would allow 8."""
    timeline = simulate(build("1F1B", 4, 2), Times([0, 0, 2, 0], [1, 2, 0, 1], 0))
    assert timeline.makespan_ns == 9

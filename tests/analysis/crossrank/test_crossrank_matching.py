"""Matching against the generator's truth: equal to it, or refused; never wrong."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from crossrank_job import Event, Job, collectives, columns
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracekit.analysis.crossrank.matching import Matched, match
from tracekit.analysis.crossrank.streams import members_of

if TYPE_CHECKING:
    from tracekit.analysis.crossrank.columns import RankCalls

GROUPS = [(0, 1), (2, 3), (0, 2), (1, 3), (0, 1, 2, 3)]
OPS = ["all_reduce", "all_gather", "reduce_scatter"]


def check(found: Matched, events: list[list[Event]]) -> int:
    """Every match is one true call, and no call is in two; the number of matched calls."""
    seen = set()
    for m in found.matches:
        truths = {events[p][r].truth for p, r in zip(m.parts, m.rows, strict=True)}
        assert len(truths) == 1, (m.how, truths)
        assert len(set(m.parts)) == len(m.parts)
        for key in zip(m.parts, m.rows, strict=True):
            assert key not in seen
            seen.add(key)
    for p, reasons in found.unmatched.items():
        assert not {(p, r) for r in reasons} & seen
        seen |= {(p, r) for r in reasons}
    assert len(seen) == sum(map(len, events)), "every call is matched or has a reason"
    return sum(len(m.rows) for m in found.matches)


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[int, str, int]]:
    """What a step calls; few sizes, so that programs repeat themselves."""
    call = st.tuples(st.integers(0, len(GROUPS) - 1), st.sampled_from(OPS), st.sampled_from([64, 64, 64, 128]))
    return draw(st.lists(call, min_size=1, max_size=6))


@given(
    program=programs(), steps=st.integers(1, 4), seed=st.integers(0, 10**6), ids=st.booleans(), markers=st.booleans(),
    comparable=st.booleans(), hosts=st.sampled_from(["one", "each", "unknown"]), data=st.data(),
)  # fmt: skip
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_equal_to_the_truth_or_refused(program, steps, seed, ids, markers, comparable, hosts, data) -> None:
    rng = random.Random(seed)
    job = collectives(rng, GROUPS, steps, program, late={rng.randrange(4): rng.randrange(2_000_000)})
    parts: list[RankCalls] = []
    events: list[list[Event]] = []
    for rank in data.draw(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, max_size=4, unique=True)):
        own = job.ranks[rank]
        if not own:
            continue
        first = data.draw(st.integers(0, len(own) - 1))
        last = data.draw(st.integers(first + 1, len(own)))
        kept = own[first:last]
        offset = 0 if hosts == "one" else data.draw(st.integers(-5_000_000, 5_000_000))
        # a recording opens after the call before it ended, or while it ran, and closes likewise
        low = data.draw(st.integers(own[first - 1].start + 1, kept[0].start)) if first else kept[0].start
        high = data.draw(st.integers(kept[-1].end, own[last].end)) if last < len(own) else kept[-1].end
        host = {"one": "h", "each": f"h{rank}", "unknown": None}[hosts]
        whole = {s for s in range(steps) if [e for e in kept if e.step == s] == [e for e in own if e.step == s]}
        parts.append(
            columns(
                rank,
                [e if e.step in whole else replace(e, step=None) for e in kept],
                offset=offset,
                drift_ppm=0 if hosts == "one" else data.draw(st.integers(-50, 50)),
                host=host,
                comparable=comparable,
                markers=markers,
                ids=ids,
                window=(low, high),
            )
        )
        events.append(kept)
    found = match(parts)
    matched = check(found, events)
    if ids:
        there = [e.truth for one in events for e in one]
        assert matched == sum(there.count(t) > 1 for t in there)


@pytest.mark.parametrize("seed", range(20))
def test_whole_recordings_of_one_host_match_completely_by_order(seed: int) -> None:
    rng = random.Random(seed)
    program = [(rng.randrange(5), rng.choice(OPS), 64) for _ in range(6)]
    job = collectives(rng, GROUPS, 3, program, gap=5_000_000)
    own = {r: e for r, e in job.ranks.items() if e}
    parts = [columns(r, e, host="h", ids=False) for r, e in own.items()]
    assert check(match(parts), list(own.values())) == sum(map(len, own.values()))


def test_a_lone_alignment_that_shifts_by_a_step_is_refused() -> None:
    """Recordings of different steps of a loop look alike: without ids, markers or clocks nothing decides."""
    job = collectives(random.Random(1), [(0, 1)], 4, [(0, "all_reduce", 64), (0, "all_gather", 64)])
    a, b = job.ranks[0][:6], job.ranks[1][2:]
    found = match([columns(0, a, ids=False, comparable=False), columns(1, b, ids=False, comparable=False)])
    assert not found.matches
    assert set(found.unmatched[1].values()) == {"ambiguous"}
    by_steps = match([columns(0, a, ids=False, markers=True), columns(1, b, ids=False, markers=True)])
    assert check(by_steps, [a, b]) == 8


def test_two_groups_of_one_rank_set_are_told_apart_by_name() -> None:
    """The pipeline and the embedding group may have the same two ranks."""
    one = [Event(i, "all_reduce", "0,1", 100 * i, 100 * i + 50, 0, "pp", 8, i, group_size=2) for i in (1, 2)]
    two = [Event(10 + i, "all_reduce", "0,1", 400 + i, 450 + i, 0, "embd", 8, i, group_size=2) for i in (1, 2)]
    events = [[one[0], two[0], one[1], two[1]], [two[0], one[0], two[1], one[1]]]
    assert check(match([columns(r, e) for r, e in enumerate(events)]), events) == 8


def test_equal_ids_of_other_operations_are_a_conflict() -> None:
    a = [Event(1, "all_reduce", "0,1", 0, 50, 0, "g", 8, 7, group_size=2)]
    b = [Event(2, "all_gather", "0,1", 0, 50, 0, "g", 8, 7, group_size=2)]
    found = match([columns(0, a), columns(1, b)])
    assert not found.matches


def test_groups_that_only_share_a_name_are_not_matched() -> None:
    """Without members, four ranks under one name of a group of two are several groups."""
    events = [[Event(r // 2, "all_reduce", "name=tp/2", 0, 50, 0, "tp", 8, 7, group_size=2)] for r in range(4)]
    found = match([columns(r, e) for r, e in enumerate(events)])
    assert not found.matches
    assert found.unmatched[0][0] == "groups-of-one-name"


def test_messages_match_by_pair_and_order_not_by_sequence() -> None:
    """Sequence numbers of messages count on each rank for itself."""
    a, b = [], []
    for i in range(4):
        t = 1000 * i
        a.append(Event(i, "send", "0,1", t, t + 100, 0, "pp", 8, 50 + i, src=None, dst=1, group_size=2))
        b.append(Event(i, "recv", "0,1", t + 20, t + 110, 0, "pp", 8, 50 + 3 * i, src=0, group_size=2))
    found = match([columns(0, a, markers=True), columns(1, b, markers=True)])
    assert check(found, [a, b]) == 8
    assert {m.stream.pair for m in found.matches} == {(0, 1)}


def test_coalesced_calls_of_one_id_match_by_their_order() -> None:
    events = [[Event(i, "all_gather", "0,1", 0, 50, 0, "g", 8 + i, 7, 99, group_size=2) for i in range(3)]] * 2
    assert check(match([columns(r, e) for r, e in enumerate(events)]), events) == 6


def messages(rng: random.Random, steps: int, per_step: int, eager: bool) -> Job:
    """Messages of one size from rank 0 to 1, and others back; the receiver may be late, an eager send never waits."""
    job = Job({0: [], 1: []})
    free, truth = [0, 0], 0
    for step in range(steps):
        for i in range(per_step):
            truth += 1
            a, b = (0, 1) if i % 3 else (1, 0)
            sent = free[a] + rng.randrange(200_000)
            ready = free[b] + rng.randrange(200_000)
            done = max(sent, ready) + 20_000
            gone = sent + 20_000 if eager else done
            job.ranks[a].append(Event(truth, "send", "0,1", sent, gone, step, "pp", 64, truth, dst=b, group_size=2))
            job.ranks[b].append(Event(truth, "recv", "0,1", ready, done, step, "pp", 64, truth, src=a, group_size=2))
            free[a], free[b] = gone, done
        free = [max(free)] * 2 if rng.random() < 0.7 else free
    return job


@given(
    steps=st.integers(1, 4), per_step=st.integers(1, 6), seed=st.integers(0, 10**6), eager=st.booleans(),
    markers=st.booleans(), host=st.sampled_from(["h", None]), comparable=st.booleans(), data=st.data(),
)  # fmt: skip
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_messages_equal_the_truth_or_are_refused(steps, per_step, seed, eager, markers, host, comparable, data) -> None:
    job = messages(random.Random(seed), steps, per_step, eager)
    parts, events = [], []
    for rank, own in job.ranks.items():
        if not own:
            return
        first = data.draw(st.integers(0, len(own) - 1))
        last = data.draw(st.integers(first + 1, len(own)))
        kept = own[first:last]
        low = data.draw(st.integers(own[first - 1].start + 1, kept[0].start)) if first else kept[0].start
        high = data.draw(st.integers(kept[-1].start, own[last].start)) if last < len(own) else kept[-1].end
        whole = {s for s in range(steps) if [e for e in kept if e.step == s] == [e for e in own if e.step == s]}
        offset = 0 if host else data.draw(st.integers(-5_000_000, 5_000_000))
        shown = [e if e.step in whole else replace(e, step=None) for e in kept]
        parts.append(
            columns(rank, shown, offset=offset, host=host, comparable=comparable, markers=markers, window=(low, high))
        )
        events.append(kept)
    check(match(parts), events)


@pytest.mark.parametrize(
    ("text", "members"),
    [("0-6:2", {0, 2, 4, 6}), ("3-5", {3, 4, 5}), ("1,5", {1, 5}), ("7", {7}), ("name=tp/2", None), ("-1,2", None),
     ("0-4:0", None), (None, None), ("", None)],
)  # fmt: skip
def test_group_ids_name_their_ranks(text: str | None, members: set[int] | None) -> None:
    assert members_of(text) == members


def unnamed(job: Job) -> list[list[Event]]:
    """Events whose files name no group."""
    return [[replace(e, group="", name=None, group_size=None) for e in own] for own in job.ranks.values()]


@pytest.mark.parametrize("gap", [300_000, 30_000, 3_000])
@pytest.mark.parametrize("host", ["h", None])
def test_unnamed_groups_in_step_are_not_taken_for_one(gap: int, host: str | None) -> None:
    """Two pairs run the same calls side by side and meet after every twelve of them."""
    program = [(0, "all_reduce", 64), (1, "all_reduce", 64)] * 6 + [(2, "all_gather", 64)]
    for seed in range(20):
        job = collectives(random.Random(seed), [(0, 1), (2, 3), (0, 1, 2, 3)], 3, program, gap=gap)
        events = unnamed(job)
        check(match([columns(r, e, host=host, ids=False) for r, e in enumerate(events)]), events)


def test_ranks_of_one_unnamed_group_are_found_by_leaving_together() -> None:
    job = collectives(random.Random(3), [(0, 1, 2, 3)], 12, [(0, "all_reduce", 64)], gap=3_000_000)
    events = unnamed(job)
    found = match([columns(r, e, host="h", ids=False) for r, e in enumerate(events)])
    assert check(found, events) == 48
    assert {m.how for m in found.matches} == {"assumed-group"}


def test_recordings_of_other_parts_of_a_run_keep_their_sequence_numbers() -> None:
    job = collectives(random.Random(1), [(0, 1, 2)], 6, [(0, "all_reduce", 64)])
    events = [job.ranks[0][:4], job.ranks[1][2:], job.ranks[2][1:5]]
    parts = [columns(r, [replace(e, comms=None) for e in kept], markers=True) for r, kept in enumerate(events)]
    found = match(parts)
    assert check(found, events) == 10
    assert {m.how for m in found.matches} == {"seq"}


@pytest.mark.parametrize("steps", [8, 60])
def test_sequence_numbers_that_tie_calls_of_other_steps_are_not_believed(steps: int) -> None:
    job = collectives(random.Random(2), [(0, 1)], steps, [(0, "all_reduce", 64)])
    events = [
        [replace(e, comms=None) for e in job.ranks[0]],
        [replace(e, comms=None, seq=(e.seq or 0) + 1) for e in job.ranks[1]],
    ]
    found = match([columns(r, kept, host="h", markers=True) for r, kept in enumerate(events)])
    assert check(found, events) == 2 * steps
    assert {m.how for m in found.matches} == {"order"}

"""Recordings that lost calls in the middle: equal to the truth, or refused; never paired by position."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from crossrank_job import Event, collectives, columns
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_crossrank_matching import GROUPS, OPS, check, programs

from tracekit.analysis.crossrank.matches import CONFIDENCE
from tracekit.analysis.crossrank.matching import Matched, match

if TYPE_CHECKING:
    from tracekit.analysis.crossrank.columns import RankCalls

MS = 1_000_000


def thinned(rng: random.Random, events: list[Event], share: float) -> list[Event]:
    """Without some calls of the middle."""
    return [e for e in events if e in (events[0], events[-1]) or rng.random() >= share]


def common(events: list[list[Event]]) -> int:
    """Calls that more than one recording still has."""
    there = [e.truth for one in events for e in one]
    return sum(there.count(t) > 1 for t in there)


def found_of(parts: list[RankCalls], events: list[list[Event]]) -> tuple[Matched, float]:
    found = match(parts)
    return found, check(found, events) / common(events)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("ranks", [2, 4])
def test_lost_calls_leave_the_others_matched(seed: int, ranks: int) -> None:
    """A loop of equal calls: contents alone tell nothing, ends that fall together tell nearly all."""
    rng = random.Random(seed)
    group = tuple(range(ranks))
    job = collectives(rng, [group], 12, [(0, op, 64) for op in ("all_reduce", "all_gather", "all_reduce")])
    events = [thinned(rng, job.ranks[r], 0.1) for r in group]
    found, share = found_of([columns(r, e, ids=False, host="h") for r, e in enumerate(events)], events)
    assert share == 1
    assert {m.how for m in found.matches} == {"order-with-gaps"}
    assert CONFIDENCE["order-with-gaps"] < CONFIDENCE["order-in-step"]


def test_a_call_that_the_reference_lost_matches_among_the_others() -> None:
    job = collectives(random.Random(1), [(0, 1, 2)], 10, [(0, "all_reduce", 64), (0, "all_gather", 64)])
    events = [job.ranks[r][:] for r in range(3)]
    del events[0][7], events[1][3], events[2][12]
    found, share = found_of([columns(r, e, ids=False, host="h") for r, e in enumerate(events)], events)
    assert share == 1
    assert sorted(len(m.rows) for m in found.matches).count(2) == 3


def test_a_loop_as_regular_as_a_clock_is_refused() -> None:
    """Hosts whose clocks may differ by ten milliseconds, a call every two: any shift fits, so none is taken."""
    loop = [
        Event(i, "all_reduce", "0,1", 2_000_000 * i, 2_000_000 * i + 80_000, 0, "g", 64, group_size=2)
        for i in range(40)
    ]
    events = [[e for e in loop if e.truth not in lost] for lost in ((11, 25), (17,))]
    parts = [columns(r, e, ids=False, host=f"h{r}", offset=3_000_000 * r) for r, e in enumerate(events)]
    found = match(parts)
    assert not found.matches
    assert set(found.unmatched[0].values()) <= {"contents-differ", "clocks-differ", "ambiguous"}


def test_recordings_that_may_not_overlap_are_refused() -> None:
    """Steps 0 to 2 on one host and 3 to 5 on the other end alike under a clock difference of three steps."""
    loop = [Event(i, "all_reduce", "0,1", 90_000 * i, 90_000 * i + 80_000, 0, "g", 64, group_size=2) for i in range(60)]
    a, b = loop[:30], loop[30:]
    del a[10], b[20]
    assert not match([columns(r, e, ids=False, host=f"h{r}") for r, e in enumerate((a, b))]).matches


def test_calls_closer_than_their_ends_can_be_told_are_left_alone() -> None:
    job = collectives(random.Random(2), [(0, 1)], 30, [(0, "all_reduce", 64)])
    extra = [replace(e, truth=1000 + e.truth, start=e.end + 1000, end=e.end + 20_000) for e in job.ranks[0][::5]]
    a = sorted([*job.ranks[0], *extra], key=lambda e: e.start)
    b = [e for e in job.ranks[1] if e.truth != 11]
    found = match([columns(0, a, ids=False, host="h"), columns(1, b, ids=False, host="h")])
    assert check(found, [a, b]) == 2 * (30 - 6)


def test_lost_calls_in_steps_with_markers_match_in_the_other_steps_and_beyond() -> None:
    job = collectives(random.Random(4), [(0, 1)], 12, [(0, "all_reduce", 64), (0, "all_gather", 64)])
    events = [job.ranks[0], [e for e in job.ranks[1] if e.truth not in (8, 15)]]
    parts = [columns(r, e, ids=False, host="h", markers=True) for r, e in enumerate(events)]
    assert found_of(parts, events)[1] == 1
    apart = [columns(r, e, ids=False, comparable=False, markers=True) for r, e in enumerate(events)]
    found, share = found_of(apart, events)
    assert {m.how for m in found.matches} == {"order-in-step"}
    assert share == pytest.approx(20 / 22)


@given(
    program=programs(), steps=st.integers(2, 8), seed=st.integers(0, 10**6), ids=st.booleans(), markers=st.booleans(),
    comparable=st.booleans(), hosts=st.sampled_from(["one", "each", "unknown"]), lost=st.sampled_from([0, 0.03, 0.1]),
    gap=st.sampled_from([300_000, 5_000_000]), data=st.data(),
)  # fmt: skip
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_never_wrong_whatever_is_lost(program, steps, seed, ids, markers, comparable, hosts, lost, gap, data) -> None:
    """Any rank missing, any head or tail cut, any calls dropped; without comparable times only where ids tell."""
    ids = ids or not comparable
    rng = random.Random(seed)
    job = collectives(rng, GROUPS, steps, program, gap=gap)
    parts: list[RankCalls] = []
    events: list[list[Event]] = []
    for rank in data.draw(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=2, max_size=4, unique=True)):
        own = job.ranks[rank]
        if not own:
            continue
        first = rng.randrange(max(1, len(own) // 3))
        last = len(own) - rng.randrange(max(1, len(own) // 3))
        window = own[first:last]
        kept = [e for e in window if rng.random() >= lost]
        if len(kept) < 12:  # of a few calls on either side, nothing tells that some were lost
            continue
        whole = {s for s in range(steps) if [e for e in window if e.step == s] == [e for e in own if e.step == s]}
        parts.append(
            columns(
                rank, [e if e.step in whole else replace(e, step=None) for e in kept], ids=ids, markers=markers,
                offset=0 if hosts == "one" else rng.randrange(-5_000_000, 5_000_000), comparable=comparable,
                host={"one": "h", "each": f"h{rank}", "unknown": None}[hosts],
                window=(window[0].start, window[-1].end),
            )
        )  # fmt: skip
        events.append(kept)
    check(match(parts), events)


def test_signatures_matter() -> None:
    """Ends fall together, but the calls are others."""
    job = collectives(random.Random(5), [(0, 1)], 20, [(0, "all_reduce", 64)])
    b = [replace(e, op=OPS[1]) for e in job.ranks[1] if e.truth != 9]
    assert not match([columns(0, job.ranks[0], ids=False, host="h"), columns(1, b, ids=False, host="h")]).matches

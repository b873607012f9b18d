"""Unions and the sweep against sets of single nanoseconds."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis.intervals import covered, length, share_evenly, time_by_state, union

Interval = tuple[int, int]
interval = st.tuples(st.integers(-20, 60), st.integers(0, 15)).map(lambda p: (p[0], p[0] + p[1]))
intervals = st.lists(interval, max_size=12)


def spans(found: list[Interval]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([a for a, _ in found], np.int64), np.array([b for _, b in found], np.int64)


def instants(found: list[Interval]) -> set[int]:
    return {t for a, b in found for t in range(a, b)}


def naive_states(sets: list[list[Interval]], edges: list[int]) -> Counter[tuple[int, tuple[int, ...]]]:
    """Time by (window, active sets), one nanosecond at a time."""
    points = [instants(s) for s in sets]
    out: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for w, (a, b) in enumerate(itertools.pairwise(edges)):
        for t in range(a, b):
            out[w, tuple(i for i, p in enumerate(points) if t in p)] += 1
    return out


def swept(sets: list[list[Interval]], edges: list[int]) -> dict[tuple[int, tuple[int, ...]], int]:
    found = time_by_state([spans(s) for s in sets], np.array(edges, np.int64))
    rows = zip(found.window.tolist(), found.state.tolist(), found.ns.tolist(), strict=True)
    return {(w, found.members[s]): ns for w, s, ns in rows}


@given(intervals)
def test_union_holds_the_same_instants(found: list[Interval]) -> None:
    start, end = union(*spans(found))
    assert instants(list(zip(start.tolist(), end.tolist(), strict=True))) == instants(found)
    assert (end > start).all()
    assert (start[1:] > end[:-1]).all()
    assert length(*spans(found)) == len(instants(found))


@given(intervals)
def test_union_of_sorted_input_takes_the_same_way(found: list[Interval]) -> None:
    by_start = sorted(found)
    for one, other in zip(union(*spans(found)), union(*spans(by_start)), strict=True):
        assert one.tolist() == other.tolist()


@given(intervals, st.lists(st.integers(-30, 90), max_size=8))
def test_covered_is_the_time_before(found: list[Interval], times: list[int]) -> None:
    points = instants(found)
    got = covered(union(*spans(found)), np.array(times, np.int64))
    assert got.tolist() == [sum(p < t for p in points) for t in times]


@given(st.lists(intervals, max_size=5), st.lists(st.integers(-25, 80), min_size=2, max_size=6).map(sorted))
def test_sweep_equals_counting_instants(sets: list[list[Interval]], edges: list[int]) -> None:
    assert swept(sets, edges) == dict(naive_states(sets, edges))


@given(st.lists(intervals, min_size=1, max_size=4), st.integers(-(2**62), 2**61))
def test_sweep_does_not_depend_on_the_clock(sets: list[list[Interval]], shift: int) -> None:
    edges = [-20, 10, 75]
    moved = [[(a + shift, b + shift) for a, b in s] for s in sets]
    assert swept(moved, [e + shift for e in edges]) == swept(sets, edges)


@given(st.randoms(use_true_random=False), st.lists(intervals, min_size=1, max_size=4))
def test_sweep_does_not_depend_on_order(random: object, sets: list[list[Interval]]) -> None:
    shuffled = [list(s) for s in sets]
    for s in shuffled:
        random.shuffle(s)  # type: ignore[attr-defined]
    assert swept(shuffled, [-20, 75]) == swept(sets, [-20, 75])


@pytest.mark.parametrize("n", [8, 9, 16, 17, 60, 61, 64, 65, 130])
def test_any_number_of_sets(n: int) -> None:
    # Set i is active in [i, i + 3): at instant t exactly the last three that began.
    sets = [[(i, i + 3)] for i in range(n)]
    assert swept(sets, [0, n + 2]) == dict(naive_states(sets, [0, n + 2]))


def test_thousands_of_sets() -> None:
    sets = [[(10 * i, 10 * i + 15)] for i in range(3000)]
    found = swept(sets, [0, 30_005])
    assert found[0, (0,)] == 10
    assert found[0, (1998, 1999)] == 5
    assert sum(found.values()) == 30_005


def test_nothing_at_all() -> None:
    assert swept([], [0, 10]) == {(0, ()): 10}
    assert swept([[]], [5, 5]) == {}
    assert swept([[(3, 3)]], [0, 10]) == {(0, ()): 10}


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([[(0, 10)], [(0, 10)]], {(0, (0, 1)): 10}),
        ([[(0, 10), (0, 10), (2, 5)], [(10, 20)]], {(0, (0,)): 10, (0, (1,)): 10}),
        ([[(0, 20)], [(5, 5), (6, 7)]], {(0, (0,)): 19, (0, (0, 1)): 1}),
    ],
    ids=["identical", "touching and nested", "empty within"],
)
def test_edge_cases(sets: list[list[Interval]], expected: dict[tuple[int, tuple[int, ...]], int]) -> None:
    assert swept(sets, [0, 20]) == expected | ({(0, ()): 10} if (0, (0, 1)) in expected and len(expected) == 1 else {})


def test_sums_stay_exact_beyond_the_floats() -> None:
    # 2^53 + 1 is the first integer a float cannot hold; a window of 200 days is longer than that in ns.
    day = 86_400 * 10**9
    sets = [[(0, 200 * day + 1)], [(7, 8)]]
    assert swept(sets, [0, 200 * day + 1]) == {(0, (0,)): 200 * day, (0, (0, 1)): 1}


def test_times_too_far_apart_to_pack() -> None:
    far = 2**62 + 2**61
    sets = [[(-(2**62), 5)], [(0, far - 2**62)]]
    got = swept(sets, [-(2**62), far - 2**62])
    assert got == {(0, (0,)): 2**62, (0, (0, 1)): 5, (0, (1,)): far - 2**62 - 5}


@given(st.integers(0, 10**6), st.integers(1, 50))
def test_shares_are_even_and_complete(ns: int, parts: int) -> None:
    shares = share_evenly(ns, parts)
    assert sum(shares) == ns
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)

"""Exact accounting of windows, against one nanosecond at a time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import numpy as np
from analysis_builder import Act, activities
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis.accounting import Account, account
from tracekit.model import Kind

KEYS = [
    ("tp", "activation", "forward"),
    ("tp", "activation", "backward"),
    ("dp", "grad_reduce", ""),
    ("unknown", "", ""),
    ("pp", "stage_transfer", "forward"),
]


@st.composite
def _act(draw: st.DrawFn) -> Act:
    start = draw(st.integers(0, 60))
    kind = draw(st.sampled_from([Kind.COMPUTE, Kind.COMM, Kind.COMM, Kind.FUSED, Kind.COPY, Kind.SET]))
    call = draw(st.integers(-1, len(KEYS) - 1)) if kind in (Kind.COMM, Kind.FUSED) else -1
    return Act(start, start + draw(st.integers(0, 20)), kind, call, stream=draw(st.integers(0, 3)))


acts_lists = st.lists(_act(), max_size=14)
edges_lists = st.lists(st.integers(-5, 90), min_size=2, max_size=5).map(sorted)


def _account(acts: list[Act], edges: list[int], *, sort: bool = True) -> list[Account]:
    columns = activities(acts, sort=sort)
    return account(columns, np.arange(len(acts)), KEYS, np.array(edges, np.int64))


def _plain(a: Account) -> tuple[object, ...]:
    split = (a.window, a.compute_only, a.overlapped, a.exposed_comm, a.fused, a.copy, a.idle)
    rows = {k: (e.total, e.hidden, e.exposed, e.alone, e.attributed) for k, e in a.rows.items()}
    strategies = {k: (e.total, e.hidden, e.exposed, e.alone, e.attributed) for k, e in a.strategies.items()}
    return split, rows, strategies


class Naive:
    """Every instant of a window looked at on its own."""

    def __init__(self, acts: list[Act], low: int, high: int) -> None:
        self.split: dict[str, int] = defaultdict(int)
        self.total: dict[object, int] = defaultdict(int)
        self.hidden: dict[object, int] = defaultdict(int)
        self.exposed: dict[object, int] = defaultdict(int)
        self.alone: dict[object, int] = defaultdict(int)
        self.share: dict[object, Fraction] = defaultdict(Fraction)
        for t in range(low, high):
            self._instant([a for a in acts if a.start <= t < a.end])

    def _instant(self, running: list[Act]) -> None:
        kinds = {a.kind for a in running}
        keys = {KEYS[a.call] if a.call >= 0 else ("unknown", "", "") for a in running if a.kind == Kind.COMM}
        strategies = {k[0] for k in keys}
        compute = Kind.COMPUTE in kinds
        name = (
            "overlapped" if compute and keys else "compute_only" if compute else "exposed_comm" if keys
            else "fused" if Kind.FUSED in kinds else "copy" if kinds & {Kind.COPY, Kind.SET} else "idle"
        )  # fmt: skip
        self.split[name] += 1
        for level in (keys, strategies):
            for item in level:
                self.total[item] += 1
                (self.hidden if compute else self.exposed)[item] += 1
                if not compute and len(level) == 1:
                    self.alone[item] += 1
        if compute:
            return
        for strategy in strategies:
            self.share[strategy] += Fraction(1, len(strategies))
            own = [k for k in keys if k[0] == strategy]
            for key in own:
                self.share[key] += Fraction(1, len(strategies) * len(own))


@given(acts_lists, edges_lists)
def test_every_number_equals_counting_instants(acts: list[Act], edges: list[int]) -> None:
    for got, low, high in zip(_account(acts, edges), edges[:-1], edges[1:], strict=True):
        want = Naive(acts, low, high)
        names = ("compute_only", "overlapped", "exposed_comm", "fused", "copy", "idle")
        assert {n: getattr(got, n) for n in names if getattr(got, n)} == dict(want.split)
        for found in (got.rows, got.strategies):
            for key, e in found.items():
                assert (e.total, e.hidden, e.exposed) == (want.total[key], want.hidden[key], want.exposed[key])
                assert e.alone == want.alone[key]
        assert set(got.rows) | set(got.strategies) == set(want.total)


@given(acts_lists, edges_lists)
def test_classes_fill_the_window(acts: list[Act], edges: list[int]) -> None:
    for a in _account(acts, edges):
        parts = a.compute_only + a.overlapped + a.fused + a.exposed_comm + a.copy + a.idle
        assert parts == a.window
        assert a.busy == a.window - a.idle


@given(acts_lists, edges_lists)
def test_attribution_adds_up_exactly(acts: list[Act], edges: list[int]) -> None:
    for a in _account(acts, edges):
        assert sum(e.attributed for e in a.strategies.values()) == a.exposed_comm
        assert sum(e.attributed for e in a.rows.values()) == a.exposed_comm
        for name, e in a.strategies.items():
            assert sum(r.attributed for k, r in a.rows.items() if k[0] == name) == e.attributed
            assert e.alone <= e.attributed <= e.exposed
        assert sum(e.exposed for e in a.strategies.values()) >= a.exposed_comm
        assert sum(e.exposed for e in a.rows.values()) >= a.exposed_comm


@given(acts_lists, edges_lists)
def test_attribution_is_fair_to_the_ns(acts: list[Act], edges: list[int]) -> None:
    for a, low, high in zip(_account(acts, edges), edges[:-1], edges[1:], strict=True):
        want = Naive(acts, low, high)
        # Whole ns are dealt out once for each combination of labels, so each combination can shift one ns.
        slack = 2 ** len(KEYS)
        for key, e in (*a.rows.items(), *a.strategies.items()):
            assert abs(e.attributed - want.share[key]) < slack


@given(acts_lists, st.randoms(use_true_random=False))
def test_order_of_events_is_nothing(acts: list[Act], random: object) -> None:
    shuffled = list(acts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    want = [_plain(a) for a in _account(acts, [0, 30, 85])]
    assert [_plain(a) for a in _account(shuffled, [0, 30, 85], sort=False)] == want


@given(acts_lists, st.permutations(range(4)))
def test_stream_numbers_are_nothing(acts: list[Act], streams: list[int]) -> None:
    renamed = [replace(a, stream=streams[a.stream]) for a in acts]
    assert [_plain(a) for a in _account(renamed, [0, 85])] == [_plain(a) for a in _account(acts, [0, 85])]


@given(acts_lists, st.integers(-(2**60), 2**60))
def test_clock_shift_is_nothing(acts: list[Act], shift: int) -> None:
    moved = [replace(a, start=a.start + shift, end=a.end + shift) for a in acts]
    want = [_plain(a) for a in _account(acts, [0, 85])]
    assert [_plain(a) for a in _account(moved, [shift, 85 + shift])] == want


@given(acts_lists, st.integers(0, 85))
def test_parts_add_up_to_the_whole(acts: list[Act], cut: int) -> None:
    (whole,) = _account(acts, [0, 85])
    parts = Account()
    for part in _account(acts, [0, cut, 85]):
        parts.add(part)
    (split, rows, strategies), (split2, rows2, strategies2) = _plain(parts), _plain(whole)
    assert split == split2
    for one, other in ((rows, rows2), (strategies, strategies2)):
        assert {k: v[:4] for k, v in one.items()} == {k: v[:4] for k, v in other.items()}  # type: ignore[attr-defined]
    assert sum(e.attributed for e in parts.strategies.values()) == whole.exposed_comm


@given(acts_lists)
def test_an_activity_told_twice_counts_once(acts: list[Act]) -> None:
    assert [_plain(a) for a in _account(acts + acts, [0, 85])] == [_plain(a) for a in _account(acts, [0, 85])]


def test_published_example() -> None:
    # Compute [0,10) and [12,20), communication [8,14), [13,16) and [18,22): union 12, hidden 8, exposed 4.
    acts = [
        *(Act(a, b) for a, b in ((0, 10), (12, 20))),
        *(Act(a, b, Kind.COMM, 0) for a, b in ((8, 14), (13, 16), (18, 22))),
    ]
    (a,) = _account(acts, [0, 22])
    tp = a.strategies["tp"]
    assert (tp.total, tp.hidden, tp.exposed, tp.alone, tp.attributed) == (12, 8, 4, 4, 4)
    assert (a.overlapped, a.exposed_comm, a.compute_only, a.idle) == (8, 4, 10, 0)


def test_odd_ns_go_to_the_first_names() -> None:
    acts = [Act(0, 7, Kind.COMM, 2), Act(0, 7, Kind.COMM, 4)]
    (a,) = _account(acts, [0, 7])
    assert {k: e.attributed for k, e in a.strategies.items()} == {"dp": 4, "pp": 3}


def test_a_strategy_is_charged_once_however_many_rows_it_has() -> None:
    acts = [Act(0, 12, Kind.COMM, c) for c in (0, 1, 2)]
    (a,) = _account(acts, [0, 12])
    assert {k: e.attributed for k, e in a.strategies.items()} == {"tp": 6, "dp": 6}
    assert {k: e.attributed for k, e in a.rows.items()} == {KEYS[0]: 3, KEYS[1]: 3, KEYS[2]: 6}


def test_thousands_of_labels() -> None:
    keys = [(f"s{i:04d}", "", "") for i in range(2500)]
    acts = [Act(4 * i, 4 * i + 6, Kind.COMM, i) for i in range(len(keys))]
    columns = activities(acts)
    (a,) = account(columns, np.arange(len(acts)), keys, np.array([0, 4 * len(keys) + 2], np.int64))
    assert len(a.strategies) == len(keys)
    assert sum(e.attributed for e in a.strategies.values()) == a.exposed_comm == a.window
    assert a.strategies["s0001"].alone == 2

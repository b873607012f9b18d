"""Comparisons of many windows at once, against one after the other; chains of waiting of any length."""

from __future__ import annotations

import statistics
from collections import defaultdict

import numpy as np
import pytest

from tracekit.analysis.crossrank.blame import NOBODY, Blame
from tracekit.analysis.crossrank.excess import SMALL_NS, Compared, excess, longer
from tracekit.analysis.crossrank.lapse import CAUSES, UNKNOWN


def compared(rng: np.random.Generator, windows: int) -> Compared:
    """Random comparisons among windows, each with one to four others."""
    late = rng.permutation(windows)[: windows // 2]
    others = [rng.choice(np.setdiff1d(np.arange(windows), [at]), rng.integers(1, 5), replace=False) for at in late]
    owner = np.repeat(np.arange(len(late)), [len(o) for o in others])
    return Compared(late, np.concatenate(others), owner)


@pytest.mark.parametrize("seed", range(5))
def test_excess_is_that_over_the_median_of_the_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spent = rng.integers(0, 20_000, (40, len(CAUSES)))
    spent[rng.random(spent.shape) < 0.3] = 0
    them = compared(rng, len(spent))
    got = excess(spent, them)
    for n, at in enumerate(them.late.tolist()):
        rows = spent[them.other[them.owner == n]]
        more = [int(v) - statistics.median(rows[:, c].tolist()) for c, v in enumerate(spent[at].tolist())]
        more = [m if m > SMALL_NS else 0 for m in more]
        wanted = [m / sum(more) for m in more] if sum(more) else [float(c == UNKNOWN) for c in range(len(CAUSES))]
        assert got[n].tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("seed", range(5))
def test_longer_waits_are_found_call_by_call(seed: int) -> None:
    rng = np.random.default_rng(seed)
    windows, most = 40, 3
    wait = rng.integers(0, 9_000, 400)
    begin, length = rng.integers(0, 380, windows), rng.integers(0, 6, windows)
    them = compared(rng, windows)
    got: dict[int, dict[int, float]] = defaultdict(dict)
    partners: dict[tuple[int, int], list[int]] = {}
    for batch in longer(wait, begin, length, them, most):
        for n, call, row, share in zip(batch.comparison, batch.call, batch.counterparts, batch.share, strict=True):
            got[int(n)][int(call)] = float(share)
            partners[int(n), int(call)] = row.tolist()
    for n, at in enumerate(them.late.tolist()):
        same = [w for w in them.other[them.owner == n].tolist() if length[w] == length[at]]
        weight = {}
        for i in range(int(length[at])):
            usual = statistics.median([int(wait[begin[w] + i]) for w in same]) if same else 0
            weight[int(begin[at]) + i] = max(int(wait[begin[at] + i]) - usual, 0)
        first = sorted(weight, key=lambda call: -weight[call])[:most]
        assert got[n] == pytest.approx({c: weight[c] / sum(weight.values()) for c in first if weight[c]})
        for call in got[n]:
            assert partners[n, call] == [int(begin[w]) + call - int(begin[at]) for w in same]


def walker(own: dict[int, dict], ahead: dict[int, list[tuple[int, float]]]) -> Blame:
    """Only what following needs."""
    out = Blame.__new__(Blame)
    out.own, out.ahead, out.known = own, defaultdict(list, ahead), {}
    return out


def test_a_chain_longer_than_the_stack_ends_at_its_origin() -> None:
    n = 5_000
    own = {i: {} for i in range(n)} | {n: {(3, "compute"): 1.0}}
    assert walker(own, {i: [(i + 1, 1.0)] for i in range(n)}).of(0) == {(3, "compute"): 1.0}


def test_circles_and_calls_nobody_knows_are_unknown() -> None:
    own = {0: {(1, "input"): 0.25}, 1: {}}
    assert walker(own, {0: [(1, 0.75)], 1: [(0, 1.0)]}).of(0) == {(1, "input"): 0.25, (None, "unknown"): 0.75}
    assert walker({0: {}}, {0: [(-1, 1.0)]}).of(0) == NOBODY

"""Interval algebra in exact int64 ns: unions, and time by concurrency state in one sweep.

Nothing assumes that activities of a stream are serial: every total is the length of a union.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_BITS = 60
_EXACT_SUM = 1 << 53


def union(ts: NDArray[np.int64], end: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Disjoint, sorted (starts, ends) covering the same time; touching intervals are joined.

    A gap opens after the i-th smallest end exactly when the next smallest start lies beyond it, so
    starts and ends can be sorted apart. Zero-length intervals cover nothing.
    """
    keep = end > ts
    if not keep.all():
        ts, end = ts[keep], end[keep]
    if not len(ts):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    starts = ts if (ts[1:] >= ts[:-1]).all() else np.sort(ts)
    ends = np.sort(end)
    gap = np.flatnonzero(starts[1:] > ends[:-1])
    first = np.concatenate([[0], gap + 1])
    last = np.concatenate([gap, [len(ends) - 1]])
    return starts[first], ends[last]


def length(ts: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    """Length of the union, ns."""
    starts, ends = union(ts, end)
    return int((ends - starts).sum())


@dataclass(slots=True)
class States:
    """Time by (window, concurrency state).

    Row r: `ns[r]` ns of window `window[r]` in which exactly the sets `members[state[r]]` are active
    (the empty tuple: none). Times of one window sum to its length.
    """

    window: NDArray[np.int64]
    state: NDArray[np.int64]
    ns: NDArray[np.int64]
    members: list[tuple[int, ...]]


def time_by_state(
    sets: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]], edges: NDArray[np.int64]
) -> States:
    """Sweep over the sets (each: starts, ends in any order) clipped to windows [edges[i], edges[i+1]).

    edges: ascending int64, n+1 values. Cost O(n log n) in the intervals, whatever the number of sets.
    """
    unions = [union(ts, end) for ts, end in sets]
    times = np.concatenate([edges, *(a for pair in unions for a in pair)])
    order = np.argsort(times, kind="stable")
    at = times[order]
    span = np.diff(at)
    live = np.flatnonzero((span > 0) & (at[:-1] >= edges[0]) & (at[1:] <= edges[-1]))
    codes = [_masks(unions, len(edges), first, order)[live] for first in range(0, max(len(unions), 1), _BITS)]
    state, members = _states(codes)
    window = np.searchsorted(edges, at[live], "right") - 1
    key = window * len(members) + state
    ns = _sums(key, span[live], len(members) * (len(edges) - 1))
    used = np.flatnonzero(ns)
    return States(used // len(members), used % len(members), ns[used], members)


def _masks(
    unions: list[tuple[NDArray[np.int64], NDArray[np.int64]]], n_edges: int, first: int, order: NDArray[np.intp]
) -> NDArray[np.int64]:
    """Bit mask of the active sets first … first+59 after each boundary (unions are disjoint: ±2^bit adds up)."""
    parts = [np.zeros(n_edges, np.int64)]
    for i, (starts, ends) in enumerate(unions):
        bit = 1 << (i - first) if first <= i < first + _BITS else 0
        parts += [np.full(len(starts), bit, np.int64), np.full(len(ends), -bit, np.int64)]
    return np.cumsum(np.concatenate(parts)[order])


def _states(codes: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], list[tuple[int, ...]]]:
    """Dense state number of each segment, and the sets active in each state."""
    state = np.zeros(len(codes[0]), np.int64)
    members: list[tuple[int, ...]] = [()]
    for block, code in enumerate(codes):
        values, inverse = _distinct(code)
        combined, state = np.unique(state * len(values) + inverse, return_inverse=True)
        members = [
            members[c // len(values)] + _bits(int(values[c % len(values)]), block * _BITS) for c in combined.tolist()
        ]
    return state, members or [()]


def _distinct(code: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """np.unique with inverse; by counting when the codes are small numbers."""
    if len(code) and int(code.max()) < 1 << 16:
        seen = np.flatnonzero(np.bincount(code))
        number = np.zeros(int(seen[-1]) + 1, np.int64)
        number[seen] = np.arange(len(seen))
        return seen.astype(np.int64), number[code]
    values, inverse = np.unique(code, return_inverse=True)
    return values, inverse.astype(np.int64)


def _bits(mask: int, base: int) -> tuple[int, ...]:
    return tuple(base + i for i in range(mask.bit_length()) if mask >> i & 1)


def _sums(key: NDArray[np.int64], span: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Sum of span by key. Float sums of integers are exact while the total stays below 2^53 ns (104 days)."""
    if int(span.sum()) < _EXACT_SUM:
        return np.bincount(key, weights=span, minlength=size).astype(np.int64)
    out = np.zeros(size, np.int64)
    np.add.at(out, key, span)
    return out


def share_evenly(ns: int, parts: int) -> list[int]:
    """Split ns into `parts` integers that differ by at most 1 and sum to ns; earlier ones get the rest."""
    base, rest = divmod(ns, parts)
    return [base + 1] * rest + [base] * (parts - rest)

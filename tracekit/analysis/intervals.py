"""Exact interval algebra on int64 ns: unions, set operations, and time by what runs at once.

An interval is half-open, [start, end). Input may come in any order, overlap, nest, touch or be empty; intervals
without length hold no instant and vanish. Every result is an integer number of ns, never a rounded one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_EXACT_FLOAT = 2**53
_BINS = 1 << 16
"""Above this many possible states they are numbered by sorting instead of by their bits."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """A set of instants: int64 `start` and `end` of its maximal intervals, ascending, disjoint, none empty."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> int:
        """Measure of the set, ns."""
        return int((self.end - self.start).sum())


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: NDArray[np.int64], end: NDArray[np.int64]) -> Intervals:
    """Union of the intervals [start, end); arrays of equal length n, any order, end ≥ start.

    The i-th gap is where the (i+1)-th smallest start lies beyond the i-th smallest end: by then as many intervals
    have ended as have begun. So both arrays are sorted on their own, without an index between them.
    """
    if not len(start):
        return EMPTY
    start, end = _ascending(start), _ascending(end)
    gap = np.flatnonzero(start[1:] > end[:-1])
    out_start = np.empty(len(gap) + 1, np.int64)
    out_end = np.empty(len(gap) + 1, np.int64)
    out_start[0], out_end[-1] = start[0], end[-1]
    out_start[1:], out_end[:-1] = start[gap + 1], end[gap]
    full = out_end > out_start
    return Intervals(out_start, out_end) if full.all() else Intervals(out_start[full], out_end[full])


def _ascending(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return values if bool((values[1:] >= values[:-1]).all()) else np.sort(values)


def intersection(a: Intervals, b: Intervals) -> Intervals:
    """Instants in both sets."""
    return _where(a, b, {3})


def difference(a: Intervals, b: Intervals) -> Intervals:
    """Instants of `a` that are not in `b`."""
    return _where(a, b, {1})


def _where(a: Intervals, b: Intervals, wanted: set[int]) -> Intervals:
    times, state = _states((a, b), np.empty(0, np.int64))
    keep = np.isin(state[:-1], list(wanted))
    return union(times[:-1][keep], times[1:][keep])


def clip(a: Intervals, low: int, high: int) -> Intervals:
    """Instants of the set within [low, high)."""
    start, end = np.maximum(a.start, low), np.minimum(a.end, high)
    keep = end > start
    return Intervals(start[keep], end[keep])


# ------------------------------------------------------------------------------ sweep


@dataclass(frozen=True, slots=True)
class States:
    """Time by window and by which sets are active at once; one row a (window, combination) that occurs.

    window: int64[m], -1-free, ascending; ns: int64[m]; words: uint64[m, ceil(sets / 64)], set i is active where
    bit i % 64 of word i // 64 is set. For each window Σ ns is its length, the combination "none" included.
    """

    window: NDArray[np.int64]
    ns: NDArray[np.int64]
    words: NDArray[np.uint64]

    def active(self, i: int) -> NDArray[np.bool_]:
        """bool[m]: rows in which set i is active."""
        return (self.words[:, i // 64] >> np.uint64(i % 64)) & np.uint64(1) != 0

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(row, set) of every active set of every row, by row then set."""
        rows, sets = [], []
        step = 4096
        for first in range(0, len(self.words), step):
            bits = np.unpackbits(
                np.ascontiguousarray(self.words[first : first + step]).astype("<u8").view(np.uint8),
                axis=1, bitorder="little",
            )  # fmt: skip
            row, which = np.nonzero(bits)
            rows.append(row + first)
            sets.append(which)
        if not rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(rows).astype(np.int64), np.concatenate(sets).astype(np.int64)


def sweep(sets: Sequence[Intervals], bounds: NDArray[np.int64]) -> States:
    """Time by state in the windows [bounds[w], bounds[w + 1]); bounds: int64[windows + 1], ascending.

    One pass over the merged boundaries of all sets: each boundary flips the bit of its set. Time outside the
    windows is left out; windows of no length have no rows.
    """
    used = [i for i, s in enumerate(sets) if len(s)]
    n_words = max(1, -(-len(sets) // 64))
    times, state = _states([sets[i] for i in used], bounds)
    length = np.diff(times)
    at = np.searchsorted(times, bounds, "left")
    windows, totals, masks = [], [], []
    for w in range(len(bounds) - 1):
        part = slice(int(at[w]), int(at[w + 1]))
        found, ns = _time_by_state(state[part], length[part])
        windows.append(np.full(len(ns), w, np.int64))
        totals.append(ns)
        masks.append(found)
    if not windows:
        none = np.empty(0, np.int64)
        return States(none, none, np.empty((0, n_words), np.uint64))
    words = _spread(np.concatenate(masks), used, n_words)
    return States(np.concatenate(windows), np.concatenate(totals), words)


def _states(sets: Sequence[Intervals], cuts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.generic]]:
    """Sorted boundary times of all sets and `cuts`, and the state from each time to the next.

    State: one unsigned number (bit i = set i) for up to 64 sets, else rows of 64-bit words.
    """
    times, which = _boundaries(sets, cuts)
    n = len(sets)
    if n <= 64:
        kind = np.dtype(np.uint8 if n <= 8 else np.uint16 if n <= 16 else np.uint32 if n <= 32 else np.uint64)
        flips = np.zeros(n + 1, kind)
        flips[:n] = np.left_shift(np.ones(n, kind), np.arange(n, dtype=kind))
        return times, np.bitwise_xor.accumulate(flips[which])
    state = np.empty((len(times), -(-n // 64)), np.uint64)
    for word in range(state.shape[1]):
        flips64 = np.zeros(n + 1, np.uint64)
        mine = np.arange(word * 64, min(n, word * 64 + 64))
        flips64[mine] = np.left_shift(np.uint64(1), (mine % 64).astype(np.uint64))
        np.bitwise_xor.accumulate(flips64[which], out=state[:, word])
    return times, state


def _boundaries(sets: Sequence[Intervals], cuts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All boundary times in order, and the set of each (`len(sets)` for a cut); equal times in any order.

    Where it fits, the set's number rides in the low bits of the time, so that one plain sort does.
    """
    edges = [a for s in sets for a in (s.start, s.end)] + [cuts]
    owner = [i for i in range(len(sets)) for _ in (0, 1)] + [len(sets)]
    filled = [e for e in edges if len(e)]
    if not filled:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = min(int(e.min()) for e in filled), max(int(e.max()) for e in filled)
    shift = len(sets).bit_length()
    if (high - low) >> (62 - shift) == 0:
        packed = np.concatenate([((e - low) << shift) | i for e, i in zip(edges, owner, strict=True)])
        packed.sort()
        return (packed >> shift) + low, packed & ((1 << shift) - 1)
    times = np.concatenate(edges)
    which = np.repeat(np.array(owner, np.int64), [len(e) for e in edges])
    order = np.argsort(times, kind="stable")
    return times[order], which[order]


def _time_by_state(
    state: NDArray[np.generic], length: NDArray[np.int64]
) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
    """Distinct states that last, ascending, and the total length of each."""
    if state.ndim == 1 and state.dtype.itemsize <= 2:
        ns = _sums(state, length, min(_BINS, 1 << (8 * state.dtype.itemsize)))
        found = np.flatnonzero(ns)
        return found.astype(state.dtype), ns[found]
    lasting = length > 0
    found, inverse = np.unique(state[lasting], axis=0, return_inverse=True)
    return found, _sums(inverse.reshape(-1), length[lasting], len(found))


def _sums(index: NDArray[np.generic], values: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    """Exact sums by bin: through floats where every partial sum is exact in them."""
    if len(values) and int(values.sum()) >= _EXACT_FLOAT:
        out = np.zeros(bins, np.int64)
        np.add.at(out, index, values)  # type: ignore[arg-type]
        return out
    return np.bincount(index, weights=values, minlength=bins).astype(np.int64)  # type: ignore[arg-type]


def _spread(state: NDArray[np.generic], used: list[int], n_words: int) -> NDArray[np.uint64]:
    """Masks over the used sets → masks over all sets."""
    dense = state.reshape(len(state), -1).astype(np.uint64)
    if used == list(range(len(used))):
        out = np.zeros((len(state), n_words), np.uint64)
        out[:, : dense.shape[1]] = dense[:, :n_words]
        return out
    out = np.zeros((len(state), n_words), np.uint64)
    for i, target in enumerate(used):
        bit = (dense[:, i // 64] >> np.uint64(i % 64)) & np.uint64(1)
        out[:, target // 64] |= bit << np.uint64(target % 64)
    return out

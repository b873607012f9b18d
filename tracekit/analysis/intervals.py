"""Interval algebra in exact int64 ns: unions, and time by concurrency state in one sweep.

Nothing assumes that activities of a stream are serial: every total is the length of a union.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_WORD = 60
"""Sets in one word of a state mask."""
_SMALL = 16
"""Masks of up to this many bits are told apart by counting, longer ones by sorting."""
_EXACT_SUM = 1 << 53

Spans = tuple["NDArray[np.int64]", "NDArray[np.int64]"]
"""(starts, ends) of intervals [start, end), arrays of equal length."""


def union(ts: NDArray[np.int64], end: NDArray[np.int64]) -> Spans:
    """Disjoint, sorted (starts, ends) covering the same time; touching intervals are joined.

    A gap opens where the next start lies beyond every end so far, or, sorted apart, beyond the i-th smallest
    end: by then as many intervals have ended as begun. Zero-length intervals cover nothing.
    """
    if not len(ts):
        return _EMPTY, _EMPTY
    if bool((ts[1:] >= ts[:-1]).all()):
        end = np.maximum.accumulate(end)
    else:
        ts, end = np.sort(ts), np.sort(end)
    gap = np.flatnonzero(ts[1:] > end[:-1])
    starts = np.empty(len(gap) + 1, np.int64)
    ends = np.empty(len(gap) + 1, np.int64)
    starts[0], ends[-1] = ts[0], end[-1]
    starts[1:], ends[:-1] = ts[gap + 1], end[gap]
    full = ends > starts
    return (starts, ends) if full.all() else (starts[full], ends[full])


_EMPTY = np.empty(0, np.int64)


def length(ts: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    """Length of the union, ns."""
    starts, ends = union(ts, end)
    return int((ends - starts).sum())


def running(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum of all values before each position, and of all."""
    out = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=out[1:])
    return out


def covered(spans: Spans, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Length of a union (as `union` returns it) before each time, ns; |A ∩ [a, b)| is the difference of two."""
    starts, ends = spans
    before = running(ends - starts)
    at = np.searchsorted(starts, times, "right")
    if not len(starts):
        return before[at]
    into = np.minimum(times - starts[at - 1], ends[at - 1] - starts[at - 1])
    return np.where(at > 0, before[at - 1] + into, 0)


class States(Struct):
    """Time by (window, concurrency state).

    Row r: `ns[r]` ns of window `window[r]` in which exactly the sets `members[state[r]]` are active
    (the empty tuple: none). Times of one window sum to its length.
    """

    window: NDArray[np.int64]
    state: NDArray[np.int64]
    ns: NDArray[np.int64]
    members: list[tuple[int, ...]]


def time_by_state(sets: Sequence[Spans], edges: NDArray[np.int64]) -> States:
    """Sweep over the sets (each: starts, ends in any order) clipped to windows [edges[i], edges[i+1]).

    edges: ascending int64, n+1 values. Every boundary of a union flips the bit of its set, so one running
    exclusive-or over the merged boundaries is the state after each. O(n log n) in the intervals.
    """
    times, which = _boundaries([union(ts, end) for ts, end in sets], edges)
    masks = [_masks(which, len(sets), first) for first in range(0, max(len(sets), 1), _WORD)]
    words = None
    if len(masks) == 1 and masks[0].dtype.itemsize > 2:  # told apart once for all windows, then by counting
        words, code = np.unique(masks[0], return_inverse=True)
        masks = [code.astype(np.int64)]
    span = np.diff(times)
    at = np.searchsorted(times, edges, "left").tolist()
    windows, states, sums = [], [], []
    number: dict[tuple[int, ...], int] = {}
    for w, (a, b) in enumerate(pairwise(at)):
        found, ns = _time_of([m[a:b] for m in masks], span[a:b], words)
        states += [number.setdefault(mask, len(number)) for mask in found]
        windows += [w] * len(found)
        sums.append(ns)
    ns = np.concatenate(sums) if sums else _EMPTY
    return States(np.array(windows, np.int64), np.array(states, np.int64), ns, [_members(m) for m in number])


def _boundaries(unions: Sequence[Spans], edges: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All boundaries in order of time, and the set of each (`len(unions)` = an edge); equal times in any order.

    Where it fits, the number of the set rides in the low bits of the time, and one plain sort orders both.
    """
    parts = [(edge, i) for i, pair in enumerate(unions) for edge in pair if len(edge)]
    parts.append((edges, len(unions)))
    low = min((int(edge[0]) for edge, _ in parts if len(edge)), default=0)
    high = max((int(edge[-1]) for edge, _ in parts if len(edge)), default=0)
    bits = len(unions).bit_length()
    if (high - low).bit_length() + bits < 63:
        packed = np.concatenate([(edge - low << bits) | i for edge, i in parts])
        packed.sort(kind="stable")  # merges the runs, each of them sorted
        return (packed >> bits) + low, packed & (1 << bits) - 1
    times = np.concatenate([edge for edge, _ in parts])
    which = np.repeat(np.array([i for _, i in parts], np.int64), [len(edge) for edge, _ in parts])
    order = np.argsort(times, kind="stable")
    return times[order], which[order]


def _masks(which: NDArray[np.int64], n_sets: int, first: int) -> NDArray[Any]:
    """Bit mask of the active sets first … first+59 after each boundary, in the narrowest type."""
    bits = min(n_sets - first, _WORD)
    kind = np.uint8 if bits <= 8 else np.uint16 if bits <= _SMALL else np.int64
    flip = np.zeros(n_sets + 1, kind)
    flip[first : first + bits] = [1 << i for i in range(bits)]
    return np.bitwise_xor.accumulate(flip[which])


def _time_of(
    masks: list[NDArray[Any]], span: NDArray[np.int64], words: NDArray[np.int64] | None
) -> tuple[list[tuple[int, ...]], NDArray[np.int64]]:
    """Distinct states (one mask a word) of a stretch that last, ascending, and the time in each.

    words: what the masks are positions in; None = themselves.
    """
    if len(masks) == 1:
        ns = _sums(masks[0], span, 0)
        found = np.flatnonzero(ns)
        return [(m,) for m in (found if words is None else words[found]).tolist()], ns[found]
    live = np.flatnonzero(span)
    rows = np.stack([m[live].astype(np.int64) for m in masks], axis=1)
    values, inverse = np.unique(rows, axis=0, return_inverse=True)
    return [tuple(v) for v in values.tolist()], _sums(inverse.reshape(-1), span[live], len(values))


def _members(mask: tuple[int, ...]) -> tuple[int, ...]:
    """Sets of a state, ascending."""
    return tuple(word * _WORD + i for word, m in enumerate(mask) for i in range(m.bit_length()) if m >> i & 1)


def _sums(key: NDArray[Any], span: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Sum of span by key. Float sums of integers are exact while the total stays below 2^53 ns (104 days)."""
    if int(span.sum()) < _EXACT_SUM:
        return np.bincount(key, weights=span, minlength=size).astype(np.int64)
    out = np.zeros(max(size, int(key.max()) + 1), np.int64)
    np.add.at(out, key, span)
    return out


def share_evenly(ns: int, parts: int) -> list[int]:
    """Split ns into `parts` integers that differ by at most 1 and sum to ns; earlier ones get the rest."""
    base, rest = divmod(ns, parts)
    return [base + 1] * rest + [base] * (parts - rest)

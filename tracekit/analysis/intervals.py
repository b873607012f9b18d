"""Interval algebra in exact int64 ns: unions, and time by concurrency state in one sweep.

Nothing assumes that activities of a stream are serial: every total is the length of a union.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tracekit.analysis.distinct import distinct_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_WORD = 60
"""Sets in one word of a state mask."""
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


class States(Struct, dict=True):
    """Time by (window, concurrency state).

    Row r: `ns[r]` ns of window `window[r]` in which exactly the sets of row `state[r]` of `active` (states × sets)
    are active. Times of one window sum to its length.
    """

    window: NDArray[np.int64]
    state: NDArray[np.int64]
    ns: NDArray[np.int64]
    active: NDArray[np.bool_]

    @cached_property
    def members(self) -> list[tuple[int, ...]]:
        """Active sets of each state, ascending; the empty tuple: none."""
        every = np.arange(self.active.shape[1])
        return [tuple(every[row].tolist()) for row in self.active]


def time_by_state(sets: Sequence[Spans], edges: NDArray[np.int64]) -> States:
    """Sweep over the sets (each: starts, ends in any order) clipped to windows [edges[i], edges[i+1]).

    edges: ascending int64, n+1 values. Every boundary of a union flips the bit of its set, so one running
    exclusive-or over the merged boundaries is the state after each. O(n log n) in the intervals.
    """
    filled = [i for i, (ts, _) in enumerate(sets) if len(ts)]
    times, which = _boundaries([sets[i] for i in filled], edges)
    found, code = _told_apart(
        [_masks(which, len(filled), i) for i in range(0, max(len(filled), 1), _WORD)], len(filled)
    )
    span = np.diff(times)
    at = np.searchsorted(times, edges, "left").tolist()
    windows, states, sums = [], [], []
    for w, (a, b) in enumerate(pairwise(at)):
        spent = _sums(code[a:b], span[a:b], len(found))
        there = np.flatnonzero(spent)
        windows.append(np.full(len(there), w, np.int64))
        states.append(there)
        sums.append(spent[there])
    active = np.zeros((len(found), len(sets)), np.bool_)
    active[:, filled] = found[:, np.arange(len(filled)) // _WORD] >> np.arange(len(filled)) % _WORD & 1
    window, state, ns = (np.concatenate([_EMPTY, *column]) for column in (windows, states, sums))
    return States(window, state, ns, active)


def _unions(sets: Sequence[Spans]) -> list[Union]:
    """The unions of all sets: of big ones one by one, of small ones, of which there may be many, at once.

    There the number of the set rides in the high bits of the times, where they fit.
    """
    small = [i for i, (ts, _) in enumerate(sets) if len(ts) < _BIG]
    big = [i for i, (ts, _) in enumerate(sets) if len(ts) >= _BIG]
    alone: list[Union] = []
    if small:
        which = np.repeat(np.array(small, np.int64), [len(sets[i][0]) for i in small])
        ts, end = (np.concatenate(column) for column in zip(*(sets[i] for i in small), strict=True))
        low = int(min(ts.min(initial=_LATEST), end.min(initial=_LATEST)))
        bits = (int(end.max(initial=low)) - low).bit_length()
        if bits + len(sets).bit_length() < _PACKED:
            place = (which << bits) - low
            starts, ends = union(ts + place, end + place)
            owner = starts >> bits
            place = low - (owner << bits)
            alone = [(starts + place, ends + place, owner)]
        else:
            big += small
    return [*((*union(*sets[i]), i) for i in big), *alone]


Union = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.int64] | int"]
"""(starts, ends, set, or that of each) of unions."""
_BIG = 2_000


def _boundaries(sets: Sequence[Spans], edges: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All boundaries of unions in order of time, and the set of each (`len(sets)` = an edge); equal times in any order.

    Where it fits, the number of the set rides in the low bits of the time, and one plain sort orders both.
    """
    parts = [(times, which) for starts, ends, which in _unions(sets) for times in (starts, ends) if len(times)]
    parts.append((edges, len(sets)))
    low = min((int(times.min()) for times, _ in parts if len(times)), default=0)
    high = max((int(times.max()) for times, _ in parts if len(times)), default=0)
    bits = len(sets).bit_length()
    if (high - low).bit_length() + bits < _PACKED:
        packed = np.concatenate([(times - low << bits) | which for times, which in parts])
        packed.sort(kind="stable")  # merges the runs, each of them sorted
        return (packed >> bits) + low, packed & (1 << bits) - 1
    every = np.concatenate([times for times, _ in parts])
    owner = np.concatenate([np.broadcast_to(which, len(times)) for times, which in parts])
    order = np.argsort(every, kind="stable")
    return every[order], owner[order]


_LATEST = np.iinfo(np.int64).max
_PACKED = 63
"""Bits for two numbers in one int64."""


def _told_apart(masks: list[NDArray[Any]], n_sets: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """(states × words of the mask, ascending; the state after each boundary). Of few sets all states are there."""
    if n_sets <= _COUNTED:
        return np.arange(1 << n_sets)[:, None], masks[0]
    return distinct_rows(masks)


_COUNTED = 8
"""Sets whose states are few enough to count them all."""


def _masks(which: NDArray[np.int64], n_sets: int, first: int) -> NDArray[Any]:
    """Bit mask of the active sets first … first+59 after each boundary, in the narrowest type."""
    bits = min(n_sets - first, _WORD)
    kind = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.int64
    flip = np.zeros(n_sets + 1, kind)
    flip[first : first + bits] = [1 << i for i in range(bits)]
    return np.bitwise_xor.accumulate(flip[which])


def _sums(key: NDArray[Any], span: NDArray[np.int64], size: int) -> NDArray[np.int64]:
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

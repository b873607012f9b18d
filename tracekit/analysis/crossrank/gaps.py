"""The calls of one group on recordings that lost some in the middle, without identifiers and step markers.

No shift maps one such recording on another. But all ranks leave a synchronising call together: one difference of two
clocks makes the ends of equal calls (operation, element type, size) fall together, all those that both recordings have,
and any other difference only a few by accident. Where one difference stands out, calls whose ends fall together
match, if they are in one order on all ranks. What several calls might be is left alone. Position counts nowhere.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.crossrank.align import COINCIDENCES, END_SKEW_NS, believed, both_show
from tracekit.analysis.crossrank.columns import median
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.align import Sequence

COMMON, RUNNER_UP = 0.7, 0.5
"""Of the calls in the common window, the share that must fall together, and that no other difference may reach."""
RIVAL = 0.9
"""Another difference that reaches this part of the share of the own one rivals it."""
MAJORITY = 0.5
"""Share of all calls of the shorter recording that must fall together: clocks may differ more than is believed."""
MOST_PAIRS = 20_000_000
"""Pairs of calls that are looked at for one difference."""


SHARP, LEAST = 0.75, 4
"""Ranks are seen to leave calls together when this share of at least so many pairs ends together."""


def strangers(a: Sequence, b: Sequence, i: NDArray[np.intp], j: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which pairs (i of a, j of b) are not one call, though contents and order would have it.

    Where ranks are seen to leave calls together, but for one clock difference, a pair that ends as far apart as calls
    follow one another is a call that the one lost, and another that the other lost.
    """
    out = np.zeros(len(i), np.bool_)
    use = a.mutual[i] & b.mutual[j] & (a.stop[i] != NO_TIME) & (b.stop[j] != NO_TIME) & (a.slack[i] <= END_SKEW_NS)
    if not use.any():
        return out
    apart = a.stop[i[use]] - b.stop[j[use]]
    middle = _offset(a, b)
    if middle is None and len(apart) >= LEAST:
        middle = int(median(apart))
        if float((np.abs(apart - middle) <= END_SKEW_NS).mean()) < SHARP:
            return out
    if middle is not None:
        away = np.abs(apart - middle)
        between = np.minimum(_between(a, i[use]), _between(b, j[use]))
        out[use] = (away > 2 * END_SKEW_NS) & (2 * away > between)
    return out


def outside_steps(a: Sequence, b: Sequence, pairs: Mapping[int, int]) -> set[int]:
    """Messages of b, of pairs (place in a → in b), that lie outside the steps which both recordings show whole.

    Only the count tells these apart, and losses upset it; where both ends leave together, those that do so are sure.
    """
    shown = both_show(a, b)
    both = [(i, j) for i, j in pairs.items() if 0 <= i < len(a)]
    if not shown or not both:
        return set()
    i, j = (np.array(column, np.intp) for column in zip(*both, strict=True))
    sure = a.within(shown)[i] & (a.step[i] == b.step[j])
    known = (a.stop[i] != NO_TIME) & (b.stop[j] != NO_TIME)
    apart = a.stop[i] - b.stop[j]
    together = np.zeros(len(i), np.bool_)
    if int((sure & known).sum()) >= LEAST:
        away = np.abs(apart - median(apart[sure & known]))
        if float((away[sure & known] <= END_SKEW_NS).mean()) >= SHARP:
            together = known & (away <= 2 * END_SKEW_NS)
    return set(j[~sure & ~together].tolist())


def _between(s: Sequence, at: NDArray[np.intp]) -> NDArray[np.int64]:
    """Time from each call's end to the nearest other of its recording, ns."""
    ends = np.sort(s.stop[s.stop != NO_TIME])
    gap = np.diff(ends, prepend=ends[0] - FAR, append=ends[-1] + FAR)
    place = np.searchsorted(ends, s.stop[at])
    return np.asarray(np.minimum(gap[place], gap[place + 1]), np.int64)


FAR = 1 << 61


class Gapped(Struct):
    """calls: recording → its position in the call, one entry a call; offsets: ns to add to a recording's times."""

    offsets: dict[int, int]
    calls: list[dict[int, int]] = field(default_factory=list)


def match_with_gaps(sequences: Mapping[int, Sequence], base: int) -> Gapped:
    """Calls that recordings have in common with `base`, or with each other where that lost them.

    Recordings without an offset are not matched. Messages may end at different times on both sides; those that do are
    left alone, too.
    """
    out = Gapped({base: 0})
    for p, one in sequences.items():
        if p != base and (offset := _offset(sequences[base], one)) is not None:
            out.offsets[p] = offset
    if len(out.offsets) > 1:
        out.calls = _clusters(sequences, out.offsets)
    return out


def _overlap(a: Sequence, b: Sequence, bound: int) -> bool:
    """Whether two recordings have time in common, whatever their clocks' difference; then they have calls in common.

    Without that, a loop that is as regular as a clock would fit with any other part of itself.
    """
    return bound < a.window[1] - b.window[0] and bound < b.window[1] - a.window[0]


def _usable(s: Sequence) -> NDArray[np.intp]:
    """Calls whose end is known and, but for messages, binds the other ranks."""
    known = (s.stop != NO_TIME) & (s.slack <= END_SKEW_NS)
    return np.flatnonzero(known & s.mutual if s.mutual.any() else known)


def _offset(a: Sequence, b: Sequence) -> int | None:
    """The clock difference (ns to add to b's times) that stands out, or None."""
    of_a, of_b = _usable(a), _usable(b)
    bound = believed(a, b)
    if len(of_a) < COINCIDENCES or len(of_b) < COINCIDENCES or not _overlap(a, b, bound):
        return None
    apart = _differences(a, of_a, b, of_b, bound)
    if apart is None or len(apart) < COINCIDENCES:
        return None
    apart.sort()
    reach = np.searchsorted(apart, apart + END_SKEW_NS, "right")
    count = reach - np.arange(len(apart))
    best = int(count.argmax())
    middle = int(median(apart[best : reach[best]]))
    share = count / _common(a.stop[of_a], b.stop[of_b], apart)
    others = share[np.abs(apart - middle) > 2 * END_SKEW_NS]
    enough = max(COINCIDENCES, MAJORITY * min(len(of_a), len(of_b)))
    if int(count[best]) < enough or share[best] < COMMON or (len(others) and others.max() > RUNNER_UP):
        return None
    return middle


def rivalled(a: Sequence, b: Sequence, shift: int) -> bool:
    """Whether another difference of the clocks lets as many ends of equal calls fall together as a shift does.

    Asked where a recording has calls beyond the common part and no step tells, as losses in the middle look so, too.
    False where too few calls have ends to tell.
    """
    i, j = np.arange(len(a))[max(shift, 0) :], np.arange(len(b))[max(-shift, 0) :]
    n = min(len(i), len(j))
    of_a, of_b = _usable(a), _usable(b)
    if n == len(a) == len(b) or both_show(a, b) or min(len(of_a), len(of_b)) < COINCIDENCES:
        return False
    own = a.stop[i[:n]] - b.stop[j[:n]]
    own = own[(a.stop[i[:n]] != NO_TIME) & (b.stop[j[:n]] != NO_TIME)]
    apart = _differences(a, of_a, b, of_b, min(believed(a, b), FAR))
    if apart is None or not len(apart) or not len(own):
        return False
    apart.sort()
    count = np.searchsorted(apart, apart + END_SKEW_NS, "right") - np.arange(len(apart))
    share = count / _common(a.stop[of_a], b.stop[of_b], apart)
    many = count >= COINCIDENCES
    away = np.abs(apart - median(own)) > 2 * END_SKEW_NS
    mine, theirs = share[many & ~away], share[many & away]
    return bool(len(theirs) and theirs.max() > RIVAL * (mine.max() if len(mine) else 0.0))


def _common(a: NDArray[np.int64], b: NDArray[np.int64], apart: NDArray[np.int64]) -> NDArray[np.int64]:
    """Calls in the window that two recordings share under each clock difference, of the recording with fewer."""
    a, b = np.sort(a), np.sort(b)
    low = np.maximum(a[0], b[0] + apart) - END_SKEW_NS
    high = np.minimum(a[-1], b[-1] + apart) + END_SKEW_NS
    of_a = np.searchsorted(a, high, "right") - np.searchsorted(a, low, "left")
    of_b = np.searchsorted(b, high - apart, "right") - np.searchsorted(b, low - apart, "left")
    least: NDArray[np.int64] = np.maximum(np.minimum(of_a, of_b), 1)
    return least


def _differences(
    a: Sequence, of_a: NDArray[np.intp], b: Sequence, of_b: NDArray[np.intp], bound: int
) -> NDArray[np.int64] | None:
    """Differences of ends, of all pairs of equal calls that are within the bound; None when there are too many."""
    found = []
    total = 0
    for code in np.intersect1d(a.code[of_a], b.code[of_b]).tolist():
        left, right = np.sort(a.stop[of_a[a.code[of_a] == code]]), np.sort(b.stop[of_b[b.code[of_b] == code]])
        first, last = np.searchsorted(right, left - bound, "left"), np.searchsorted(right, left + bound, "right")
        many = last - first
        total += int(many.sum())
        if total > MOST_PAIRS:
            return None
        position = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)
        found.append(np.repeat(left, many) - right[position])
    return np.concatenate(found) if found else None


def _clusters(sequences: Mapping[int, Sequence], offsets: Mapping[int, int]) -> list[dict[int, int]]:
    """Equal calls whose ends fall together on the common clock; none that could be part of two."""
    order = sorted(offsets)
    used = {p: _usable(sequences[p]) for p in order}
    part = np.concatenate([np.full(len(used[p]), p, np.int64) for p in order])
    place = np.concatenate([used[p] for p in order])
    code = np.concatenate([sequences[p].code[used[p]] for p in order])
    when = np.concatenate([sequences[p].stop[used[p]] + offsets[p] for p in order])
    by = np.lexsort((when, code))
    part, place, code, when = part[by], place[by], code[by], when[by]
    edges = np.flatnonzero((np.diff(code) != 0) | (np.diff(when) > END_SKEW_NS)) + 1
    out: list[tuple[int, dict[int, int]]] = []
    for low, high in pairwise([0, *edges.tolist(), len(by)]):
        members = part[low:high].tolist()
        if high - low > 1 and len(set(members)) == len(members) and when[high - 1] - when[low] <= END_SKEW_NS:
            out.append((int(when[low]), dict(zip(members, place[low:high].tolist(), strict=True))))
    calls = [call for _, call in sorted(out, key=lambda c: c[0])]
    return calls if _one_order(calls) else []


def _one_order(calls: list[dict[int, int]]) -> bool:
    """Whether all ranks made the calls in the same order."""
    last: dict[int, int] = {}
    for call in calls:
        for p, place in call.items():
            if place <= last.get(p, -1):
                return False
            last[p] = place
    return True

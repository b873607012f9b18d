"""Align the call sequences of two recordings of one group, when no identifier ties them.

A recording is a contiguous part of what its rank called, and all ranks of a group call the same in the same order.
So one shift maps one sequence on the other, and over the common part the signatures must be equal. A shift that
survives every test below is a candidate; anything but exactly one candidate is a refusal:

* equal signatures (operation, element type, size) over the whole common part;
* equal step numbers, where both recordings have step markers;
* causality: a synchronising call ends on no rank before it began on another, for *one* clock difference within
  what the clocks can be believed to differ;
* what one recording has beyond the common part lies outside the other's window (else the other had it, too).

Where no shift or several fit, whole steps are matched one by one, if step markers delimit them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tracekit.analysis.crossrank.columns import median
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

SAME_HOST_NS = 300_000
"""Clocks of one host differ by no more than this (profilers convert device time in each process on its own)."""
HOSTS_NS = 10_000_000
"""Clocks of two hosts on Unix time are believed to differ by no more than this (NTP keeps them within a few ms)."""
END_SKEW_NS = 50_000
"""By how much the ends that the ranks see of one synchronising call may be out of order with its begins."""
COINCIDENCES = 8
"""So many ends that fall together are no accident."""
TOGETHER = 0.2
"""Ends of one call lie within this share of the time between calls, nine in ten of them."""
_ANY = 1 << 61
_SEED = 0x7ACE


class Sequence(Struct, dict=True):
    """The calls of one group in one recording, in call order.

    code: int64 signature; step: int64 (-1 = none); start, end: int64 ns (`NO_TIME` = unknown; end only where the
    call cannot end before its partners began); mutual: whether the partners, too, cannot end before it began;
    slack: ns by which a call may break these laws; window: of the recording; stop: end of
    every call that has one; error: ns, where all times
    are on a common clock already.
    """

    code: NDArray[np.int64]
    step: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    mutual: NDArray[np.bool_]
    slack: NDArray[np.int64]
    window: tuple[int, int]
    host: str | None
    comparable: bool
    stop: NDArray[np.int64]
    error: int | None = None

    def __len__(self) -> int:
        return len(self.code)

    @cached_property
    def steps(self) -> dict[int, NDArray[np.intp]]:
        """Step → its calls, in call order."""
        order = np.argsort(self.step, kind="stable")
        placed = self.step[order]
        first = np.flatnonzero(np.append(True, placed[1:] != placed[:-1])[: len(placed)])
        pieces = zip(placed[first].tolist(), np.split(order, first[1:]), strict=False)
        return {step: calls for step, calls in pieces if step >= 0}

    def within(self, steps: Iterable[int]) -> NDArray[np.bool_]:
        """Which calls are in some of its steps."""
        out = np.zeros(len(self), np.bool_)
        for step in steps:
            out[self.steps[step]] = True
        return out


def both_show(a: Sequence, b: Sequence) -> set[int]:
    """Steps of which both recordings have calls."""
    return a.steps.keys() & b.steps.keys()


class Aligned(Struct, frozen=True):
    """Call j of b is call j + shift of a; `clock`: bounds (ns) of what to add to b's times, by causality."""

    shift: int
    clock: tuple[int, int]
    candidates: int


class Refused(Struct, frozen=True):
    """No alignment, and why: `contents-differ`, `steps-differ`, `clocks-differ`, `order-differs` (on one clock) or
    `ambiguous`.
    """

    reason: str


def align(a: Sequence, b: Sequence) -> Aligned | Refused:
    """The only shift that fits, or a refusal. O(n + m) per candidate, few candidates after the first test."""
    shifts = _equal_shifts(a.code, b.code)
    if not len(shifts):
        return Refused("contents-differ")
    shifts = _equal_steps(a, b, shifts)
    if not len(shifts):
        return Refused("steps-differ")
    bound = believed(a, b)
    left = [(k, clock) for k in shifts.tolist() if (clock := _feasible(a, b, k, bound)) is not None]
    if not left:
        return Refused("order-differs" if _one_host(a, b) else "clocks-differ")
    if len(left) > 1 or _may_be_disjoint(a, b, bound):
        return Refused("ambiguous")
    shift = left[0][0]
    if _ends_apart(a, b, shift, bound):
        return Refused("ambiguous")
    # where the clocks say little, a few calls at either end are no common part: more likely, some were lost between
    few = bound > min(s.window[1] - s.window[0] for s in (a, b)) // 2 and 2 * len(
        _common(a.code, b.code, shift)[0]
    ) < min(len(a), len(b))
    if few:
        return Refused("contents-differ")
    return Aligned(shift, left[0][1], len(shifts))


def _ends_apart(a: Sequence, b: Sequence, k: int, bound: int) -> bool:
    """Whether a shift pairs calls whose ends lie apart, as those of different calls do; or too few to tell.

    Asked where a recording has calls beyond the common part and no step tells: losses in the middle look so, too.
    bound: how far the clocks may differ.
    """
    i, j = np.arange(len(a))[max(k, 0) :], np.arange(len(b))[max(-k, 0) :]
    common = min(len(i), len(j))
    i, j = i[:common], j[:common]
    if common == len(a) == len(b) or both_show(a, b):
        return False
    if common < COINCIDENCES and bound > TOGETHER * min(_between(a), _between(b)):
        return True  # by accident a few fall together anywhere
    sharp = np.maximum(a.slack[i], b.slack[j]) <= END_SKEW_NS  # kernels of expert traffic end less sharply
    use = sharp & a.mutual[i] & b.mutual[j] & (a.stop[i] != NO_TIME) & (b.stop[j] != NO_TIME)
    if int(use.sum()) < 2:
        return False
    left, right = a.stop[i][use], b.stop[j][use]
    apart = left - right
    low, high = np.percentile(apart, [5, 95])
    if high - low > TOGETHER * median(np.diff(left)):
        return True
    line = np.polyfit(left - left[0], apart - apart[0], 1) if len(left) >= COINCIDENCES else (0.0, 0.0)
    away = apart - apart[0] - np.polyval(line, left - left[0])  # clocks may run apart
    low, high = np.percentile(away, [5, 95])
    return bool(high - low > 2 * END_SKEW_NS)


def _between(s: Sequence) -> float:
    """Usual time from one call's end to the next, ns."""
    stops = np.sort(s.stop[s.stop != NO_TIME])
    return median(np.diff(stops)) if len(stops) > 1 else float("inf")


def _may_be_disjoint(a: Sequence, b: Sequence, bound: int) -> bool:
    """Whether one recording may lie wholly before the other, without any common call.

    Not when both hold the marker of one step; else only when the clocks allow it.
    """
    if both_show(a, b):
        return False
    return any(_feasible(a, b, k, bound) is not None for k in (len(a), -len(b)))


def believed(a: Sequence, b: Sequence) -> int:
    """How far the clocks of two recordings may differ, ns."""
    if a.error is not None and b.error is not None:
        return 3 * (a.error + b.error) + END_SKEW_NS
    if not (a.comparable and b.comparable):
        return _ANY
    return SAME_HOST_NS if _one_host(a, b) else HOSTS_NS


def _one_host(a: Sequence, b: Sequence) -> bool:
    return a.host is not None and a.host == b.host and a.comparable and b.comparable


def _equal_shifts(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """All shifts k with a[i] == b[i - k] over their whole (non-empty) common part.

    Compared by polynomial hashes of all prefixes modulo 2^64 (codes replaced by random words), all shifts at once;
    then checked in full.
    """
    n, m = len(a), len(b)
    if not n or not m:
        return np.empty(0, np.int64)
    values, inverse = np.unique(np.concatenate([a, b]), return_inverse=True)
    rng = np.random.default_rng(_SEED)
    words = rng.integers(1, 1 << 63, len(values), np.int64).astype(np.uint64)[inverse.reshape(-1)]
    power = np.full(max(n, m) + 1, 0x9E3779B97F4A7C15 | 1, np.uint64)
    power[0] = 1
    power = np.multiply.accumulate(power)
    ha, hb = _prefix(words[:n], power), _prefix(words[n:], power)
    k = np.arange(1 - m, n)
    low, high = np.maximum(k, 0), np.minimum(n, m + k)
    left, right = ha[high] - ha[low], hb[high - k] - hb[low - k]
    # bring both to the same power: the sum over a starts at `low`, that over b at `low - k`
    scale_a, scale_b = power[np.maximum(-k, 0)], power[np.maximum(k, 0)]
    found = k[left * scale_a == right * scale_b]
    keep = [s for s in found.tolist() if (a[max(s, 0) : min(n, m + s)] == b[max(-s, 0) : min(m, n - s)]).all()]
    return np.array(keep, np.int64)


def _prefix(words: NDArray[np.uint64], power: NDArray[np.uint64]) -> NDArray[np.uint64]:
    out = np.zeros(len(words) + 1, np.uint64)
    np.cumsum(words * power[: len(words)], out=out[1:])
    return out


def _equal_steps(a: Sequence, b: Sequence, shifts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The shifts that give every common call one step number, and leave none of a step that both show beyond it.

    All of them when a side has no step numbers.
    """
    if not (a.steps and b.steps):
        return shifts
    shown = both_show(a, b)
    within = a.within(shown), b.within(shown)
    many = int(within[0].sum()), int(within[1].sum())
    keep = []
    for k in shifts.tolist():
        left, right = _common(a.step, b.step, k)
        both = (left >= 0) & (right >= 0)
        inside = tuple(int(part.sum()) for part in _common(*within, k))
        if (left[both] == right[both]).all() and inside == many:
            keep.append(k)
    return np.array(keep, np.int64)


def _common(a: NDArray[Any], b: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    n, m = len(a), len(b)
    return a[max(k, 0) : min(n, m + k)], b[max(-k, 0) : min(m, n - k)]


def _feasible(a: Sequence, b: Sequence, k: int, bound: int) -> tuple[int, int] | None:
    """Clock differences (to add to b's times) under which shift k breaks no law; None when there is none."""
    start_a, start_b = _common(a.start, b.start, k)
    end_a, end_b = _common(a.end, b.end, k)
    slack = np.maximum(*_common(a.slack, b.slack, k))
    low, high = -bound, bound
    if len(rise := (start_a - end_b - slack)[(start_a != NO_TIME) & (end_b != NO_TIME)]):
        low = max(low, int(rise.max()))
    if len(fall := (end_a - start_b + slack)[(end_a != NO_TIME) & (start_b != NO_TIME)]):
        high = min(high, int(fall.min()))
    low, high = _outside(a, b, k, low, high)
    return (low, high) if low <= high else None


def _outside(a: Sequence, b: Sequence, k: int, low: int, high: int) -> tuple[int, int]:
    """Narrow the clock difference so that calls without a partner lie outside the other recording's window.

    The partner of such a call was over when the window opened, or began after it closed; only the one next to the
    common part may have been under way. Causality carries that over to the call itself: it began before its partner
    ended, and ended after its partner began. And since a synchronising call ends on all ranks together, the one next
    to the common part was over on either rank before the other's first call beyond it began.
    """
    n, m = len(a), len(b)
    if (t := _last(a, slice(0, max(k - 1, 0)))) is not None:  # a has more at the head
        low = max(low, t - b.window[0])
    if (t := _last(b, slice(0, max(-k - 1, 0)))) is not None:
        high = min(high, a.window[0] - t)
    if (t := _first(a, slice(m + k + 1, None))) is not None:  # a has more at the tail
        high = min(high, t - b.window[1])
    if (t := _first(b, slice(n - k + 1, None))) is not None:
        low = max(low, a.window[1] - t)
    if k > 0 and (gap := _over(a, k - 1, b, 0)) is not None:
        low = max(low, gap)
    if k < 0 and (gap := _over(b, -k - 1, a, 0)) is not None:
        high = min(high, -gap)
    if 0 <= m + k < n and (gap := _over(b, m - 1, a, m + k)) is not None:
        high = min(high, -gap)
    if 0 <= n - k < m and (gap := _over(a, n - 1, b, n - k)) is not None:
        low = max(low, gap)
    return low, high


def _over(s: Sequence, i: int, t: Sequence, j: int) -> int | None:
    """By how much t's clock must be put forward for call i of s to be over when call j of t begins."""
    if s.end[i] == NO_TIME or t.start[j] == NO_TIME or not s.mutual[i]:
        return None
    return int(s.end[i] - t.start[j] - s.slack[i])


def _last(s: Sequence, part: slice) -> int | None:
    """Latest begin among calls that no partner may outrun."""
    known = (s.start[part] - s.slack[part])[(s.start[part] != NO_TIME) & s.mutual[part]]
    return int(known.max()) if len(known) else None


def _first(s: Sequence, part: slice) -> int | None:
    """Earliest end among calls that end after their partners began."""
    known = (s.end[part] + s.slack[part])[s.end[part] != NO_TIME]
    return int(known.min()) if len(known) else None


def align_by_ends(a: Sequence, b: Sequence) -> Aligned | Refused:
    """The only shift under which the calls end together on both sides, many of them and each within a hair.

    For messages that sender and receiver leave together (no law says so; what was buffered ends apart, and is refused).
    """
    found = []
    bound = believed(a, b)
    for k in _equal_steps(a, b, _equal_shifts(a.code, b.code)).tolist():
        left, right = _common(a.stop, b.stop, k)
        if len(left) < COINCIDENCES or (left == NO_TIME).any() or (right == NO_TIME).any():
            continue
        apart = left - right
        middle = int(median(apart))
        if abs(middle) <= bound and int(np.abs(apart - middle).max()) <= END_SKEW_NS:
            found.append(Aligned(k, (middle, middle), 1))
    return found[0] if len(found) == 1 else Refused("ambiguous")


def equal_steps(a: Sequence, b: Sequence) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Positions (in a, in b) of the calls of each step that both recordings show with the same contents.

    Both hold the marker of such a step, so both hold all its calls; in a step with other contents some are lost.
    """
    out = []
    for step in sorted(both_show(a, b)):
        left, right = a.steps[step], b.steps[step]
        if len(left) == len(right) and (a.code[left] == b.code[right]).all():
            out.append((left, right))
    return out

"""Where in another account's numbering a sequence of calls begins: by operation and size, then time, then duration.

Both sides hold the calls of one group of one process in order of issue, the other one perhaps many more of them or with
gaps. The calls agree for few shifts of the numbering: for one, if the job does not repeat itself; in a job that does
(steps) other facts have to tell the shifts apart, or the shift stays open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEQ, ORDER, TIME, DURATION, ALIKE = "seq", "order", "time", "duration", "alike"
UNTOLD = -1
_SAMPLE = 96
_MAX_SHIFTS = 1 << 16
_BLOCK = 1 << 22
_MAX_SPREAD = 8
_WORSE = 0.05
"""Share of calls that may contradict a shift: they are reported, not tied."""
_NEAR_NS = 5_000_000
_ROUNDED_NS = 1_000
_FEW = 3
_ALIKE_RATIO, _APART_RATIO, _REFUTED_RATIO = 0.1, 0.02, 0.75


class Lane(Struct):
    """Calls of one side, ascending in `number` (int64); n of each.

    op: int32 code; size: int64 bytes, `UNTOLD` where it is not known; dur: int64 ns on the device, at: int64 Unix ns
    when it was issued, both `UNTOLD` where not known. whole: nothing is missing, neither between its first and its last
    number nor before or after.
    """

    op: NDArray[np.int32]
    size: NDArray[np.int64]
    number: NDArray[np.int64]
    dur: NDArray[np.int64]
    at: NDArray[np.int64]
    whole: bool = False

    def __len__(self) -> int:
        return len(self.op)


class Alignment(Struct):
    """way: how the shift was told (`ALIKE` = it was not: all of `shifts` fit). agree, odd: calls that agree with and
    contradict the first of `shifts`; refuted: durations on both sides have nothing to do with each other.
    """

    way: str
    shifts: list[int] = field(default_factory=list)
    agree: int = 0
    odd: int = 0
    refuted: bool = False


class Aligner:
    """Finds the shift s so that my call of number k is their call of number k + s."""

    def __init__(self, mine: Lane, theirs: Lane) -> None:
        self.mine, self.theirs = mine, theirs
        first, last = (int(theirs.number[0]), int(theirs.number[-1])) if len(theirs) else (0, -1)
        if last - first >= _MAX_SPREAD * len(theirs) + 1024:  # numbers that say little: their order has to do
            theirs.number = np.arange(len(theirs), dtype=np.int64)
            first, last = 0, len(theirs) - 1
        self.base = first
        self.place = np.full(last - first + 1, -1, np.int64)
        self.place[theirs.number - first] = np.arange(len(theirs))

    def pairs(self, shift: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions (mine, theirs) that one shift puts together and that agree."""
        mine = np.arange(len(self.mine))
        theirs = self._theirs(np.array([shift]), mine)[0]
        good = self._agree(mine, theirs)
        return mine[good], theirs[good]

    def _theirs(self, shifts: NDArray[np.int64], which: NDArray[np.int64]) -> NDArray[np.int64]:
        """(shift, call of mine in `which`) → position of the other side's call, -1 for none."""
        at = self.mine.number[which][None, :] + (shifts - self.base)[:, None]
        inside = (at >= 0) & (at < len(self.place))
        out: NDArray[np.int64] = np.where(inside, self.place[np.where(inside, at, 0)], -1)
        return out

    def _agree(self, mine: NDArray[np.int64], theirs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether calls put together are the same; False where there is none. theirs: any shape that ends as `mine`."""
        a, b = self.mine, self.theirs
        sizes = (a.size[mine] == b.size[theirs]) | (a.size[mine] == UNTOLD) | (b.size[theirs] == UNTOLD)
        out: NDArray[np.bool_] = (theirs >= 0) & (a.op[mine] == b.op[theirs]) & sizes
        return out

    def align(self, expected: tuple[int, ...] = ()) -> Alignment | None:
        """The best shift; None when nothing fits. expected: shifts that the sequence numbers propose."""
        if not len(self.mine) or not len(self.theirs):
            return None
        every = np.arange(len(self.mine))
        told = self._fitting(np.array(sorted(set(expected)), np.int64), every, whole=self.theirs.whole)
        if len(told) == 1:
            return self._result(SEQ, told)
        sample = np.unique(np.linspace(0, len(every) - 1, min(_SAMPLE, len(every))).astype(np.int64))
        proposed = self._proposed()
        found = self._fitting(proposed, sample, whole=self.theirs.whole)
        if not len(found) and self.theirs.whole:
            found = self._fitting(proposed, sample, whole=False)
        if self.theirs.whole and len(expected):  # its end may be lost: order alone must not outvote the numbers
            told = self._fitting(np.array(sorted(set(expected)), np.int64), every, whole=False)
            found = np.union1d(found, told)
            if len(told) == 1 and len(found) == 1:
                return self._result(SEQ, told)
        if not len(found):
            return None
        return self._result(*self._choose(found, sample))

    def _result(self, way: str, shifts: NDArray[np.int64]) -> Alignment | None:
        """The outcome over all calls; a shift that only the sample agreed with fits nothing after all."""
        theirs = self._theirs(shifts[:1], np.arange(len(self.mine)))[0]
        agree = int(self._agree(np.arange(len(self.mine)), theirs).sum())
        odd = int((theirs >= 0).sum()) - agree
        if odd > _WORSE * (agree + odd):
            return None
        refuted = len(shifts) == 1 and self._refuted(int(shifts[0]))
        return Alignment(way, shifts.tolist(), agree, odd, refuted)

    def _fitting(self, shifts: NDArray[np.int64], which: NDArray[np.int64], *, whole: bool) -> NDArray[np.int64]:
        """The shifts that fit the calls `which`: hardly any contradicts, none is missing where all should be there, and
        at least half as many agree as under the best of them.
        """
        counts = [np.zeros((0, 2), np.int64)]
        for part in np.array_split(shifts, max(1, len(shifts) * len(which) // _BLOCK)) if len(shifts) else ():
            theirs = self._theirs(part, which)
            there = (theirs >= 0).sum(axis=1)
            counts.append(np.stack([there, self._agree(which, theirs).sum(axis=1)], axis=1))
        there, agree = np.concatenate(counts).T
        good = (agree > 0) & (there - agree <= _WORSE * there)
        if whole:
            good &= len(which) - there <= _WORSE * len(which)
        if good.any():
            good &= 2 * agree >= agree[good].max()
        out: NDArray[np.int64] = shifts[good]
        return out

    def _proposed(self) -> NDArray[np.int64]:
        """Shifts under which one of my rarest calls finds its like."""
        mine, theirs = self.mine, self.theirs
        keys = np.stack([theirs.op, theirs.size])
        kinds, counts = np.unique(keys, axis=1, return_counts=True)
        known = {(int(o), int(z)): int(n) for o, z, n in zip(*kinds, counts, strict=True)}
        own = np.unique(np.stack([mine.op, mine.size]), axis=1, return_index=True)
        kinds_of_mine = ((int(o), int(z), int(i)) for o, z, i in zip(*own[0], own[1], strict=True))
        rarity = sorted((known[o, z], i) for o, z, i in kinds_of_mine if (o, z) in known)
        proposed = []
        for _, i in rarity[:3] or [(0, 0)]:
            same = theirs.op == mine.op[i]
            if rarity:
                same &= theirs.size == mine.size[i]
            proposed.append(theirs.number[same] - mine.number[i])
        return np.unique(np.concatenate(proposed))

    def _choose(self, shifts: NDArray[np.int64], sample: NDArray[np.int64]) -> tuple[str, NDArray[np.int64]]:
        if len(shifts) == 1:
            return ORDER, shifts
        shown = shifts[:_MAX_SHIFTS]
        theirs = self._theirs(shown, sample)
        agree = self._agree(sample, theirs)
        for way, tell in ((TIME, self._by_time), (DURATION, self._by_duration)):
            chosen = tell(sample, theirs, agree) if len(shown) == len(shifts) else None
            if chosen is not None:
                return way, shown[chosen : chosen + 1]
        return ALIKE, shifts

    def _by_time(self, sample: NDArray[np.int64], theirs: NDArray[np.int64], agree: NDArray[np.bool_]) -> int | None:
        """Number of the shift that puts calls closest: at the same time, or always apart by the same time."""
        mine_at, their_at = self.mine.at[sample][None, :], self.theirs.at[theirs]
        known = agree & (mine_at != UNTOLD) & (their_at != UNTOLD)
        if not known.any(axis=1).all():
            return None
        gaps = np.where(known, their_at - mine_at, 0).astype(np.float64)
        gaps[~known] = np.nan
        middle = np.nanmedian(gaps, axis=1)
        spread = np.nanmedian(np.abs(gaps - middle[:, None]), axis=1)
        spread[known.sum(axis=1) < _FEW] = np.inf
        calm = np.isinf(spread) | (spread <= 4 * spread.min() + _ROUNDED_NS)
        distance = np.where(calm, np.abs(middle), np.inf)
        first, second = np.argsort(distance, kind="stable")[:2].tolist()
        if distance[first] <= _NEAR_NS and (distance[second] > _NEAR_NS or 10 * distance[first] < distance[second]):
            return int(first)
        first, second = np.argsort(spread, kind="stable")[:2].tolist()
        steady = spread[first] < np.inf and 4 * spread[first] + _ROUNDED_NS < spread[second]
        return int(first) if steady else None

    def _by_duration(
        self, sample: NDArray[np.int64], theirs: NDArray[np.int64], agree: NDArray[np.bool_]
    ) -> int | None:
        """Number of the shift under which both measured the same durations."""
        mine, other = self.mine.dur[sample][None, :], self.theirs.dur[theirs]
        known = agree & (mine > 0) & (other > 0)
        if not known.any(axis=1).all():
            return None
        wrong = np.where(known, _difference(mine, other), np.nan)
        median = np.nanmedian(wrong, axis=1)
        first, second = np.argsort(median, kind="stable")[:2].tolist()
        sure = known[first].sum() >= _FEW and median[first] <= _ALIKE_RATIO
        return int(first) if sure and median[second] >= 3 * median[first] + _APART_RATIO else None

    def _refuted(self, shift: int) -> bool:
        """Whether the durations of what is put together have nothing to do with each other."""
        mine, theirs = self.pairs(shift)
        a, b = self.mine.dur[mine], self.theirs.dur[theirs]
        known = (a > 0) & (b > 0)
        if known.sum() < _FEW:
            return False
        return float(np.median(_difference(a[known], b[known]))) > _REFUTED_RATIO


def _difference(mine: NDArray[np.int64], theirs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Relative difference of durations beyond what rounding to µs explains."""
    out: NDArray[np.float64] = np.maximum(np.abs(mine - theirs) - _ROUNDED_NS, 0) / np.maximum(mine, 1)
    return out

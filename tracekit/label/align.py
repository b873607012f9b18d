"""Where in another account's numbering a sequence of calls begins: by operation and size, then time, then duration.

Both sides hold the calls of one group of one process in order of issue, the other one perhaps many more of them or with
gaps. The calls agree for few shifts of the numbering: for one, if the job does not repeat itself; in a job that does
(steps) other facts have to tell the shifts apart, or the shift stays open.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEQ, ORDER, TIME, DURATION, ALIKE = "seq", "order", "time", "duration", "alike"
UNTOLD = -1
_SAMPLE = 96
_MAX_SHIFTS = 4096
_MAX_SPREAD = 8
_WORSE = 0.05
"""Share of calls that may contradict a shift: they are reported, not tied."""
_NEAR_NS = 5_000_000
_ROUNDED_NS = 1_000
_FEW = 3
_ALIKE_RATIO, _APART_RATIO, _REFUTED_RATIO = 0.1, 0.02, 0.75


@dataclass(slots=True)
class Lane:
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


@dataclass(slots=True)
class Alignment:
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
        mine, theirs = self._together(np.arange(len(self.mine)), shift)
        good = self._agree(mine, theirs)
        return mine[good], theirs[good]

    def _together(self, which: NDArray[np.int64], shift: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        at = self.mine.number[which] + (shift - self.base)
        inside = (at >= 0) & (at < len(self.place))
        theirs = np.full(len(which), -1, np.int64)
        theirs[inside] = self.place[at[inside]]
        there = theirs >= 0
        return which[there], theirs[there]

    def _agree(self, mine: NDArray[np.int64], theirs: NDArray[np.int64]) -> NDArray[np.bool_]:
        a, b = self.mine, self.theirs
        sizes = (a.size[mine] == b.size[theirs]) | (a.size[mine] == UNTOLD) | (b.size[theirs] == UNTOLD)
        out: NDArray[np.bool_] = (a.op[mine] == b.op[theirs]) & sizes
        return out

    def align(self, expected: tuple[int, ...] = ()) -> Alignment | None:
        """The best shift; None when nothing fits. expected: shifts that the sequence numbers propose."""
        if not len(self.mine) or not len(self.theirs):
            return None
        found = self._fitting(whole=self.theirs.whole)
        if not found and self.theirs.whole:
            found = self._fitting(whole=False)
        if not found:
            return None
        agree = max(a for _, a, _ in found)
        kept = [(s, a, o) for s, a, o in found if 2 * a >= agree]
        way, shifts = self._choose([s for s, _, _ in kept], expected)
        first = next((a, o) for s, a, o in kept if s == shifts[0])
        return Alignment(way, shifts, first[0], first[1], refuted=len(shifts) == 1 and self._refuted(shifts[0]))

    def _fitting(self, *, whole: bool) -> list[tuple[int, int, int]]:
        """(shift, agreeing, contradicting) of every shift that fits."""
        out = []
        every = np.arange(len(self.mine))
        for shift in self._proposed():
            mine, theirs = self._together(every, shift)
            agree = int(self._agree(mine, theirs).sum())
            odd = len(mine) - agree
            missing = len(every) - len(mine) if whole else 0
            if agree and odd <= _WORSE * len(mine) and missing <= _WORSE * len(every):
                out.append((shift, agree, odd))
        return out

    def _proposed(self) -> list[int]:
        """Shifts under which a sample of my calls does not contradict theirs; the rarest calls propose."""
        mine, theirs = self.mine, self.theirs
        keys = np.stack([theirs.op, theirs.size])
        kinds, counts = np.unique(keys, axis=1, return_counts=True)
        known = {(int(o), int(z)): int(n) for o, z, n in zip(*kinds, counts, strict=True)}
        own = np.unique(np.stack([mine.op, mine.size]), axis=1, return_index=True)
        rarity = sorted(
            (known[key], i) for o, z, i in zip(*own[0], own[1], strict=True) if (key := (int(o), int(z))) in known
        )
        proposed: set[int] = set()
        for _, i in rarity[:3] or [(0, 0)]:
            same = theirs.op == mine.op[i]
            if rarity:
                same &= theirs.size == mine.size[i]
            proposed.update((theirs.number[same] - mine.number[i]).tolist())
        shifts = np.array(sorted(proposed), np.int64)
        sample = np.unique(np.linspace(0, len(mine) - 1, min(_SAMPLE, len(mine))).astype(np.int64))
        good = []
        for shift in shifts.tolist():
            a, b = self._together(sample, shift)
            if len(a) and int((~self._agree(a, b)).sum()) <= max(1, _WORSE * 2 * len(a)):
                good.append(shift)
        return good[:_MAX_SHIFTS]

    def _choose(self, shifts: list[int], expected: tuple[int, ...]) -> tuple[str, list[int]]:
        if len(shifts) == 1:
            return (SEQ if shifts[0] in expected else ORDER), shifts
        told = [s for s in shifts if s in expected]
        if len(told) == 1:
            return SEQ, told
        for way, tell in ((TIME, self._by_time), (DURATION, self._by_duration)):
            shift = tell(shifts)
            if shift is not None:
                return way, [shift]
        return ALIKE, shifts

    def _by_time(self, shifts: list[int]) -> int | None:
        """The shift that puts calls closest: at the same time by the same clock, or always apart by the same time."""
        apart: list[tuple[float, float, int]] = []
        for shift in shifts:
            mine, theirs = self.pairs(shift)
            known = (self.mine.at[mine] != UNTOLD) & (self.theirs.at[theirs] != UNTOLD)
            if known.sum() < 1:
                return None
            gaps = (self.theirs.at[theirs[known]] - self.mine.at[mine[known]]).astype(np.float64)
            middle = float(np.median(gaps))
            spread = float(np.median(np.abs(gaps - middle))) if len(gaps) >= _FEW else np.inf
            apart.append((abs(middle), spread, shift))
        calmest = min(a[1] for a in apart)
        near = sorted(a for a in apart if a[0] <= _NEAR_NS and (a[1] == np.inf or a[1] <= 4 * calmest + _ROUNDED_NS))
        if len(near) == 1 or (near and 10 * near[0][0] < near[1][0]):
            return near[0][2]
        steady = sorted(apart, key=lambda a: a[1])
        return steady[0][2] if steady[0][1] < np.inf and 4 * steady[0][1] + _ROUNDED_NS < steady[1][1] else None

    def _by_duration(self, shifts: list[int]) -> int | None:
        """The shift under which both measured the same durations."""
        wrong = sorted((w, s) for s in shifts if (w := self._difference(s, 1)) is not None)
        if len(wrong) < len(shifts):
            return None
        (best, shift), (second, _) = wrong[0], wrong[1]
        sure = self._difference(shift) is not None and best <= _ALIKE_RATIO and second >= 3 * best + _APART_RATIO
        return shift if sure else None

    def _difference(self, shift: int, least: int = _FEW) -> float | None:
        """Median relative difference of durations beyond what rounding to µs explains; None for too few."""
        mine, theirs = self.pairs(shift)
        a, b = self.mine.dur[mine], self.theirs.dur[theirs]
        known = (a > 0) & (b > 0)
        if known.sum() < least:
            return None
        off = np.maximum(np.abs(a[known] - b[known]) - _ROUNDED_NS, 0) / a[known]
        return float(np.median(off))

    def _refuted(self, shift: int) -> bool:
        wrong = self._difference(shift)
        return wrong is not None and wrong > _REFUTED_RATIO

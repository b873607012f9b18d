"""What one recording did in a time: computed, transferred, waited for others, or nothing. ns, on its own clock."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracekit.analysis.crossrank.busy import COMPUTE, FUSED
from tracekit.analysis.crossrank.columns import plain
from tracekit.analysis.intervals import covered, union
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.columns import RankCalls, RankInput

COMPUTING, TRANSFER, WAITING, INPUT, LAUNCH, UNKNOWN = "compute", "transfer", "waiting", "input", "launch", "unknown"
CAUSES = (COMPUTING, TRANSFER, INPUT, LAUNCH, UNKNOWN)
SMALL_NS = 1_000
"""A difference below this is none: device times are rounded to as much."""


class Lapse:
    """Measures times of one recording. wait: of each call, ns (`NO_TIME` = not split), in call order."""

    def __init__(self, one: RankInput, part: RankCalls, wait: NDArray[np.int64]) -> None:
        self.compute = _compute(one)
        length = self.compute[1] - self.compute[0]
        self._begins, self._lengths = self.compute[0].tolist(), length.tolist()
        self._before = _running(length).tolist()
        firsts = sorted(s["ts_ns"] + one.shift for s in one.steps)
        self.firsts = firsts
        start, end = part.start, part.end
        known = np.flatnonzero((start != NO_TIME) & (end != NO_TIME))
        self.rows = known[np.argsort(start[known], kind="stable")]
        s, e = start[self.rows], end[self.rows]
        split = wait[self.rows] != NO_TIME
        middle = np.where(split, s + wait[self.rows], s)
        waited, moved = self._exposed(s, middle), self._exposed(middle, e)
        self.starts = s
        self._starts = s.tolist()
        self.wait = np.where(split, waited, 0)
        other = np.where(split | (part.number["coalesced_into"][self.rows] != NO_TIME), 0, moved)
        sums = {WAITING: self.wait, TRANSFER: np.where(split, moved, 0), UNKNOWN: other}
        self.sums = {name: _running(values).tolist() for name, values in sums.items()}

    def _exposed(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
        """Time in [low, high) without compute."""
        return np.asarray(high - low - (covered(self.compute, high) - covered(self.compute, low)), np.int64)

    def _computed(self, t: int) -> int:
        """Compute before a time."""
        at = bisect_right(self._begins, t) - 1
        return self._before[at] + min(t - self._begins[at], self._lengths[at]) if at >= 0 else 0

    def _calls(self, low: int, high: int) -> tuple[int, int]:
        return bisect_left(self._starts, low), bisect_left(self._starts, high)

    def spent(self, low: int, high: int) -> dict[str, int]:
        """ns of [low, high) by what was done; calls count from their start on, whole."""
        compute = self._computed(high) - self._computed(low)
        a, b = self._calls(low, high)
        out = {COMPUTING: compute} | {name: sums[b] - sums[a] for name, sums in self.sums.items()}
        idle = max(0, high - low - sum(out.values()))
        at = bisect_right(self.firsts, high) - 1
        before = 0
        if at >= 0 and (first := self.firsts[at]) > low:  # a step began in it: what was idle up to that, is input
            before = self._idle_before(low, first)
        return out | {INPUT: min(idle, before), LAUNCH: idle - min(idle, before)}

    def _idle_before(self, low: int, first: int) -> int:
        """Idle time right before a step's first device work: since the last activity, not before `low`."""
        at = bisect_left(self._begins, first) - 1
        done = self._begins[at] + self._lengths[at] if at >= 0 else low
        a, b = self._calls(low, first)
        if b > a:
            done = max(done, self._starts[b - 1])
        return max(0, first - max(low, done))

    def waited(self, low: int, high: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """(rows, exposed waiting ns) of the calls that began in [low, high)."""
        a, b = self._calls(low, high)
        return self.rows[a:b], self.wait[a:b]


def _compute(one: RankInput) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Union of compute on all devices of a recording, on the run's axis."""
    with pa.memory_map(one.files["busy"]) as source:
        table = pa.ipc.open_file(source).read_all()
        code, _ = plain(table.column("call"), np.dtype(np.int32))
        start, _ = plain(table.column("ts_ns"), np.dtype(np.int64))
        dur, _ = plain(table.column("dur_ns"), np.dtype(np.int64))
    rows = np.isin(code, (COMPUTE, FUSED))
    return union(start[rows] + one.shift, start[rows] + dur[rows] + one.shift)


def _running(values: NDArray[np.int64]) -> NDArray[np.int64]:
    out = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=out[1:])
    return out


def excess(lapse: Lapse, own: tuple[int, int], theirs: Sequence[tuple[Lapse, tuple[int, int]]]) -> dict[str, float]:
    """Shares of what a recording did more in its time than the median of others in theirs; they add up to 1."""
    mine = lapse.spent(*own)
    others = [other.spent(*window) for other, window in theirs]
    more = {name: ns - median([o[name] for o in others]) for name, ns in mine.items()}
    more = {name: ns for name, ns in more.items() if ns > SMALL_NS}
    total = sum(more.values())
    return {name: ns / total for name, ns in more.items()} if total else {UNKNOWN: 1.0}

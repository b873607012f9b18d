"""What one recording did in a time: computed, transferred, waited for others, or nothing. ns, on its own clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.crossrank.busy import COMPUTE, FUSED
from tracekit.analysis.intervals import covered, running, union
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.columns import RankCalls, RankInput

CAUSES = ("compute", "waiting", "transfer", "unknown", "input", "launch")
COMPUTING, WAITING, TRANSFER, UNKNOWN, INPUT, LAUNCH = range(len(CAUSES))
"""What a recording does in a time: columns of `Lapse.spent`."""


class Lapse:
    """Measures times of one recording. wait: of each call, ns (`NO_TIME` = not split), in call order."""

    def __init__(self, one: RankInput, part: RankCalls, wait: NDArray[np.int64]) -> None:
        self.compute = _compute(one)
        self.firsts = np.sort(np.array([s["ts_ns"] + one.shift for s in one.steps], np.int64))
        start, end = part.start, part.end
        known = np.flatnonzero((start != NO_TIME) & (end != NO_TIME))
        self.rows = known[np.argsort(start[known], kind="stable")]
        s, e = start[self.rows], end[self.rows]
        split = wait[self.rows] != NO_TIME
        middle = np.where(split, s + wait[self.rows], s)
        before = [t - covered(self.compute, t) for t in (s, middle, e)]  # time without compute
        waited, moved = before[1] - before[0], before[2] - before[1]
        self.starts = s
        self.wait = np.where(split, waited, 0)
        other = np.where(split | (part.number["coalesced_into"][self.rows] != NO_TIME), 0, moved)
        self.sums = {
            WAITING: running(self.wait), TRANSFER: running(np.where(split, moved, 0)), UNKNOWN: running(other),
        }  # fmt: skip

    def calls(self, times: NDArray[np.int64]) -> NDArray[np.intp]:
        """Calls that began before each time."""
        return np.searchsorted(self.starts, times, "left")

    def spent(
        self, low: NDArray[np.int64], high: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.intp], NDArray[np.intp]]:
        """ns of each [low, high) by what was done, a column each of CAUSES; calls count from their start on, whole.

        Beside it the calls that began before it, and before its end.
        """
        out = np.zeros((len(low), len(CAUSES)), np.int64)
        out[:, COMPUTING] = covered(self.compute, high) - covered(self.compute, low)
        a, b = self.calls(low), self.calls(high)
        for cause, sums in self.sums.items():
            out[:, cause] = sums[b] - sums[a]
        idle = np.maximum(high - low - out.sum(axis=1), 0)
        at = np.searchsorted(self.firsts, high, "right") - 1
        first = np.append(self.firsts, 0)[at]
        began = np.flatnonzero((at >= 0) & (first > low))  # a step began in it: what was idle up to that, is input
        out[began, INPUT] = np.minimum(idle[began], self._idle_before(low[began], first[began]))
        out[:, LAUNCH] = idle - out[:, INPUT]
        return out, a, b

    def _idle_before(self, low: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int64]:
        """Idle time right before a step's first device work: since the last activity, not before `low`."""
        begins, ends = self.compute
        at = np.searchsorted(begins, first, "left") - 1
        done = np.where(at >= 0, np.append(ends, 0)[at], low)
        a, b = self.calls(low), self.calls(first)
        done = np.where(b > a, np.maximum(done, np.append(self.starts, 0)[b - 1]), done)
        return np.maximum(first - np.maximum(low, done), 0)


def _compute(one: RankInput) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Union of compute on all devices of a recording, on the run's axis."""
    busy = one.busy
    rows = (busy.call == COMPUTE) | (busy.call == FUSED)
    start = busy.ts[rows] + one.shift
    return union(start, start + busy.dur[rows])

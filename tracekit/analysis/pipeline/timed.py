"""One step of one pipeline on a common clock: what ran when, and why a rank did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.intervals import covered, union
from tracekit.analysis.pipeline.plans import flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.pipeline.parts import Chunk
    from tracekit.analysis.pipeline.plans import Plan

    Ints = NDArray[np.int64]

Grid = list[list[int]]


class Timed(Struct, frozen=True):
    """`start[rank][i]`, `end[rank][i]` of entry i of a rank's order, ns; entries of a rank never overlap."""

    kinds: list[list[str]]
    start: Grid
    end: Grid

    @property
    def window(self) -> tuple[int, int]:
        """First start and last end over all ranks, ns."""
        return min(row[0] for row in self.start), max(row[-1] for row in self.end)

    @property
    def durations(self) -> Ints:
        """ns of each entry, rank after rank."""
        return np.array(flat(self.end), np.int64) - np.array(flat(self.start), np.int64)

    @property
    def backwards(self) -> bool:
        """Whether anything but forwards ran."""
        return any(kinds.strip("F") for row in self.kinds for kinds in row)

    def whole(self) -> bool:
        """Whether as many forwards ran on every rank as backwards (or none of those), so that nothing seems cut."""
        counts = {tuple("".join(row).count(k) for k in "FBIW") for row in self.kinds}
        if len({f for f, *_ in counts}) != 1:
            return False
        return all(f and (b + i == f or not b + i + w) and i == w for f, b, i, w in counts)


def timed(chunks: Sequence[Sequence[Chunk]], shift: Sequence[int]) -> Timed:
    """Entries of each rank on the common clock; `shift`: ns to add to the times of each rank.

    Where the device still worked on one entry when the next began, the next counts from the end of the one before.
    """
    out = Timed([[c.kinds for c in row] for row in chunks], [], [])
    for row, offset in zip(chunks, shift, strict=True):
        free = None
        starts, ends = [], []
        for c in row:
            start = c.ts + offset if free is None else max(free, c.ts + offset)
            free = max(start, c.ts + c.dur + offset)
            starts.append(start)
            ends.append(free)
        out.start.append(starts)
        out.end.append(ends)
    return out


def idle_split(t: Timed, rank: int) -> tuple[int, int, int]:
    """Idle ns of a rank in the common window: until its first backward, up to its last forward, and after that."""
    begin, finish = t.window
    rows = list(zip(t.kinds[rank], t.start[rank], t.end[rank], strict=True))
    first = min((a for k, a, _ in rows if k.strip("F")), default=t.start[rank][0])
    last = max(first, max((b for k, _, b in rows if "F" in k), default=first))

    def idle(low: int, high: int) -> int:
        return high - low - sum(b - a for _, a, b in rows if a >= low and b <= high)

    whole = idle(begin, finish)
    warmup, drain = idle(begin, first), idle(last, finish)
    return warmup, whole - warmup - drain, drain


class Lags(Struct, frozen=True):
    """Per entry (rank after rank), ns between the moment it could start and its start: `p2p` in point-to-point calls of
    the pipeline, else `comm` with other communication active, else `launch`; int64.

    held: per rank, ns of waiting for one message while that of a later entry was already there (head of line).
    """

    p2p: Ints
    comm: Ints
    launch: Ints
    held: list[int]


def lags(t: Timed, plan: Plan, blocked: Sequence[Ints], comm: Sequence[Ints]) -> Lags:
    """What came between entries besides waiting for the work of other ranks.

    plan: of the order that ran, entry by entry as in `t`; blocked: per rank, [start, end) ns in point-to-point calls,
    int64 [k, 2]; comm: in other communication.
    An entry can start when the one before it and all that it needs from other ranks have ended.
    """
    begin, first = t.window[0], np.array(plan.first)
    start, end = np.array(flat(t.start), np.int64), np.array(flat(t.end), np.int64)
    free = np.append(begin, end[:-1])
    free[first] = begin
    ready = plan.ready(end, begin)
    low = np.maximum(free, ready)
    high = np.maximum(low, start)
    rank = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(end))))
    p2p = _inside(blocked, rank, low, high)
    either = _inside([np.concatenate(both) for both in zip(blocked, comm, strict=True)], rank, low, high)
    waited = np.where(ready > free, np.maximum(ready - np.maximum(free, plan.there(ready)), 0), 0)
    return Lags(p2p, either - p2p, high - low - either, np.add.reduceat(waited, first).tolist())


def _inside(spans: Sequence[Ints], rank: NDArray[np.intp], low: Ints, high: Ints) -> Ints:
    """ns of [low, high) of entries that the spans of their ranks cover; all ranks at once, one behind the other."""
    every = np.concatenate(spans)
    begin = min(int(every.min(initial=low.min())), int(low.min()))
    room = max(int(every.max(initial=high.max())), int(high.max())) - begin + 1
    every += (np.repeat(np.arange(len(spans)) * room, [len(rows) for rows in spans]) - begin)[:, None]
    over = union(every[:, 0], every[:, 1])
    at = rank * room - begin
    return covered(over, high + at) - covered(over, low + at)

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
    def durations(self) -> Grid:
        """ns of each entry."""
        return [[b - a for a, b in zip(*rows, strict=True)] for rows in zip(self.start, self.end, strict=True)]

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
    the pipeline, else `comm` with other communication active, else `launch`.

    held: per rank, ns of waiting for one message while that of a later entry was already there (head of line).
    """

    p2p: list[int]
    comm: list[int]
    launch: list[int]
    held: list[int]


def lags(t: Timed, plan: Plan, blocked: Sequence[NDArray[np.int64]], comm: Sequence[NDArray[np.int64]]) -> Lags:
    """What came between entries besides waiting for the work of other ranks.

    plan: of the order that ran, entry by entry as in `t`; blocked: per rank, [start, end) ns in point-to-point calls,
    int64 [k, 2]; comm: in other communication.
    An entry can start when the one before it and all that it needs from other ranks have ended.
    """
    begin = t.window[0]
    ready = plan.ready(flat(t.end), begin)
    out = Lags([], [], [], [])
    for rank, starts in enumerate(t.start):
        first = plan.first[rank]
        frees = [begin, *t.end[rank][:-1]]
        could = [max(free, r) for free, r in zip(frees, ready[first:], strict=False)]
        low = np.array(could, np.int64)
        high = np.maximum(low, starts)
        both = np.concatenate([blocked[rank], comm[rank]])
        p2p, either = (
            covered(spans, high) - covered(spans, low) for spans in (union(*rows.T) for rows in (blocked[rank], both))
        )
        out.p2p.extend(p2p.tolist())
        out.comm.extend((either - p2p).tolist())
        out.launch.extend((high - low - either).tolist())
        held = 0
        for entry, free in enumerate(frees, first):
            if ready[entry] > free:
                there = min((ready[j] for j in plan.ahead[entry]), default=ready[entry])
                held += max(0, ready[entry] - max(free, there))
        out.held.append(held)
    return out

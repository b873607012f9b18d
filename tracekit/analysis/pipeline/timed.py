"""One step of one pipeline on a common clock: what ran when, and why a rank did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.intervals import covered, union
from tracekit.theory.schedules import parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.pipeline.parts import Chunk
    from tracekit.theory.schedules import Schedule

Grid = list[list[int]]
Span = tuple[int, int]
AHEAD = 64
"""How many entries further on are looked at for one whose message is already there."""


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
    """Per entry, ns between the moment it could start and its start: `p2p` in point-to-point calls of the pipeline,
    else `comm` with other communication active, else `launch`.

    held: per rank, ns of waiting for one message while that of a later entry was already there (head of line).
    """

    p2p: Grid
    comm: Grid
    launch: Grid
    held: list[int]


def lags(t: Timed, schedule: Schedule, blocked: Sequence[Sequence[Span]], comm: Sequence[Sequence[Span]]) -> Lags:
    """What came between entries besides waiting for the work of other ranks.

    schedule: the order that ran, entry by entry as in `t`; blocked: per rank, [start, end) ns in point-to-point calls;
    comm: in other communication.
    An entry can start when the one before it and all that it needs from other ranks have ended.
    """
    needs, made = schedule.wiring.needs, schedule.wiring.makers()
    begin = t.window[0]
    out = Lags([], [], [], [])
    for rank, starts in enumerate(t.start):
        ready = [max((t.end[r][i] for r, i in (made[k] for k in keys)), default=begin) for keys in needs[rank]]
        remote = [any(made[k][0] != rank for k in keys) for keys in needs[rank]]
        own, both = _union(blocked[rank]), _union([*blocked[rank], *comm[rank]])
        split: list[tuple[int, int, int]] = []
        held = 0
        free = begin
        for i, start in enumerate(starts):
            could = max(free, ready[i])
            edges = np.array([could, max(could, start)], np.int64)
            p2p, either = (int(np.diff(covered(spans, edges))[0]) for spans in (own, both))
            split.append((p2p, either - p2p, int(edges[1] - edges[0]) - either))
            if ready[i] > free:
                there = min((ready[j] for j in range(i + 1, min(len(ready), i + AHEAD)) if remote[j]
                             and _free_of_own(schedule, rank, i, j)), default=ready[i])  # fmt: skip
                held += max(0, ready[i] - max(free, there))
            free = t.end[rank][i]
        for column, values in zip((out.p2p, out.comm, out.launch), zip(*split, strict=True), strict=True):
            column.append(list(values))
        out.held.append(held)
    return out


def _union(spans: Sequence[Span]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    low, high = (np.array([s[n] for s in spans], np.int64) for n in (0, 1))
    return union(low, high)


def _free_of_own(schedule: Schedule, rank: int, i: int, j: int) -> bool:
    """Whether entry j needs nothing that its own rank makes in entries i to j-1."""
    order = schedule.orders[rank]
    mine = {(a.stage, a.micro_batch) for a in parts(order[j])}
    return not any((a.stage, a.micro_batch) in mine for step in order[i:j] for a in parts(step))

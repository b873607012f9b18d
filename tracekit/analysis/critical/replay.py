"""The graph run again with other durations: each node as late as what it waits for, level by level."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.critical.joint import Joint
    from tracekit.analysis.critical.parts import Flags, Ints

Change = tuple["NDArray[np.intp]", "Ints"]
"""Edges within steps, and their new ns."""
CELLS, FEWEST = 1 << 22, 4
"""Runs at a time: as many as keep so few times of nodes at hand, but these at least."""
BLOCK = 1 << 13
"""Edges whose durations are at hand at a time, or those of one level."""


class Replay:
    """Longest paths through a graph; each step starts from what was measured before it.

    An edge from another step brings its measured time. Raises ValueError where calls wait for each other in a circle.
    """

    def __init__(self, joint: Joint) -> None:
        n = len(joint.time)
        inside = joint.step[joint.dst] >= 0
        free = inside & (joint.step[joint.src] == joint.step[joint.dst]) & ~_starts(joint)[joint.src]
        levels = _levels(n, joint.src[free], joint.dst[free])
        given = np.ones(n, np.bool_)  # nothing changes their time
        given[joint.dst[inside]] = False
        levels = [np.flatnonzero(given), levels[0][~given[levels[0]]], *levels[1:]] if n else []
        order = np.concatenate([*levels, np.empty(0, np.intp)])
        self.place = np.empty(n, np.int32)
        self.place[order] = np.arange(n, dtype=np.int32)
        self.given = joint.time[np.flatnonzero(given)]
        active = np.flatnonzero(inside)
        into = self.place[joint.dst[active]]
        by_target = np.argsort(into)
        self.edges, into = active[by_target], into[by_target]
        self.position = np.empty(len(joint.src), np.int32)
        self.position[self.edges] = np.arange(len(self.edges), dtype=np.int32)
        free, src = free[self.edges], joint.src[self.edges]
        self.fixed = np.where(free, 0, joint.time[src])
        self._sweep(np.where(free, self.place[src], n), into, np.cumsum([len(level) for level in levels]).tolist())

    def _sweep(self, src: NDArray[np.int32], into: NDArray[np.int32], ends: list[int]) -> None:
        """What `run` does one after the other: (edges from, to, levels), and of each level (sources, edges from, to,
        first edge of each node, nodes from, to).
        """
        bounds = np.append(0, np.cumsum(np.bincount(into, minlength=len(self.place))))
        self.blocks: list[tuple[int, int, list[Any]]] = []
        start, levels = 0, []
        for a, b in pairwise(ends):
            low, high = int(bounds[a]), int(bounds[b])
            if a < b:
                levels.append((src[low:high], low - start, high - start, bounds[a:b] - low, a, b))
            if high - start >= BLOCK or b == ends[-1]:
                self.blocks.append((start, high, levels))
                start, levels = high, []

    def run(self, weight: Ints) -> Ints:
        """Times of all nodes (N) ns; weight: (M) ns of each edge."""
        (times,) = self.runs(weight, [unchanged], np.arange(len(self.place)))
        return times

    def runs(self, weight: Ints, changes: Sequence[Callable[[], Change]], nodes: Ints) -> Iterator[Ints]:
        """Times of some nodes with each of the changes, in order."""
        known = weight[self.edges] + self.fixed
        size = max(CELLS // max(len(self.place), 1), FEWEST)
        for at in range(0, len(changes), size):
            some = [self._sorted(*change()) for change in changes[at : at + size]]
            yield from self._run(known, some)[self.place[nodes]].T

    def _sorted(self, edges: NDArray[np.intp], ns: Ints) -> tuple[NDArray[np.int32], Ints]:
        """A change in the order of edges here, with the time of what is fixed."""
        where = self.position[edges]
        order = np.argsort(where)
        where = where[order]
        return where, self.fixed[where] + ns[order]

    def _run(self, known: Ints, changes: Sequence[tuple[NDArray[np.int32], Ints]]) -> Ints:
        """Times (N + 1, runs) in order of level; known: ns of each edge of these, and the time of what is fixed."""
        out = np.empty((len(self.place) + 1, len(changes)), np.int64)
        out[: len(self.given)], out[-1] = self.given[:, None], 0  # a node more, at 0
        bounds = [low for low, _, _ in self.blocks] + [len(known)]
        cuts = [np.searchsorted(where, bounds).tolist() for where, _ in changes]
        for i, (low, high, levels) in enumerate(self.blocks):
            ns = np.repeat(known[low:high], len(changes)).reshape(-1, len(changes))
            for run, ((where, changed), cut) in enumerate(zip(changes, cuts, strict=True)):
                some = slice(cut[i], cut[i + 1])
                ns[where[some] - low, run] = changed[some]
            for src, first_edge, last_edge, first, a, b in levels:
                through = out.take(src, axis=0)
                through += ns[first_edge:last_edge]
                np.maximum.reduceat(through, first, axis=0, out=out[a:b])
        return out


def unchanged() -> Change:
    """No change."""
    return np.empty(0, np.intp), np.empty(0, np.int64)


def _starts(joint: Joint) -> Flags:
    """Nodes at which a step starts: what follows takes their measured time."""
    out = np.zeros(len(joint.time), np.bool_)
    for found in joint.starts:
        out[list(found.values())] = True
    return out


def _levels(n: int, src: NDArray[np.int32], dst: NDArray[np.int32]) -> list[NDArray[np.intp]]:
    """Nodes by the length of the longest chain of edges before them."""
    waiting = np.bincount(dst, minlength=n)
    dst = dst[np.argsort(src, kind="stable")]
    count = np.bincount(src, minlength=n)
    first = np.cumsum(count) - count
    numbers = np.arange(len(dst))
    mark = np.empty(n, np.intp)
    front = np.flatnonzero(waiting == 0)
    out = [front]
    while len(front):
        counts = count[front]
        ends = counts.cumsum()
        reached = dst[np.repeat(first[front] - ends + counts, counts) + numbers[: ends[-1]]]
        np.subtract.at(waiting, reached, 1)
        ready = reached[waiting[reached] == 0]
        once = numbers[: len(ready)]
        mark[ready] = once
        front = ready[mark[ready] == once]
        out.append(front)
    if sum(map(len, out)) < n:
        raise ValueError("calls wait for each other in a circle")
    return out

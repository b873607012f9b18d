"""The graph run again with other durations: each node as late as what it waits for, level by level."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.critical.joint import HUB
from tracekit.analysis.critical.parts import NodeKind, stable_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.critical.joint import Joint
    from tracekit.analysis.critical.parts import Flags, Ints

Change = tuple["NDArray[np.intp]", "Ints"]
"""Edges within steps, and their new ns."""
Groups = list[tuple[int, int, int]]
"""(level, number of edges into each, number of nodes), in order."""
CELLS, FEWEST = 3 << 21, 4
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
        inside[_spare(joint)] = False
        free = inside & (joint.step[joint.src] == joint.step[joint.dst]) & ~_starts(joint)[joint.src]
        active = np.flatnonzero(inside)
        dst = joint.dst[active]
        degree = np.bincount(dst, minlength=n)  # 0: nothing changes their time
        order, groups = _groups(_order(joint, free), degree)
        self.place = np.empty(n, np.int32)
        self.place[order] = np.arange(n, dtype=np.int32)
        self.given = joint.time[order[: n - np.count_nonzero(degree)]]
        self.edges = active[stable_order(self.place[dst])]
        _turn(self.edges, groups)
        self.position = np.full(len(inside), -1, np.int32)
        self.position[self.edges] = np.arange(len(active), dtype=np.int32)
        free, src = free[self.edges], joint.src[self.edges]
        self.fixed = joint.time[src]
        self.fixed[free] = 0
        self._sweep(np.where(free, self.place[src], n), groups)

    def _sweep(self, src: NDArray[np.int32], groups: Groups) -> None:
        """What `_run` does one after the other: (edges from, to, levels), and of each level (sources, edges from, to,
        groups), of these (number in, edges from, nodes from, to).
        """
        self.blocks: list[tuple[int, int, list[Any]]] = []
        start = at = node = 0
        levels: list[Any] = []
        for level, same in groupby(groups, key=itemgetter(0)):
            low, own = at, []
            for _, degree, size in same:
                if degree:
                    own.append((degree, at - low, node, node + size))
                at, node = at + degree * size, node + size
            levels.append((src[low:at], low - start, at - start, own))
            if at - start >= BLOCK or level == groups[-1][0]:
                self.blocks.append((start, at, levels))
                start, levels = at, []

    def run(self, weight: Ints) -> Ints:
        """Times of all nodes (N) ns; weight: (M) ns of each edge."""
        (times,) = self.runs(weight, [unchanged], np.arange(len(self.place)))
        return times

    def runs(self, weight: Ints, changes: Sequence[Callable[[], Change]], nodes: Ints) -> Iterator[Ints]:
        """Times of some nodes with each of the changes, in order."""
        known = weight[self.edges] + self.fixed
        size = max(CELLS // max(len(self.place), 1), FEWEST)
        for at in range(0, len(changes), size):
            some, which = _distinct([change() for change in changes[at : at + size]])
            times = self._run(known, [self._sorted(*change) for change in some])[self.place[nodes]]
            yield from times.T[which]

    def _sorted(self, edges: NDArray[np.intp], ns: Ints) -> tuple[NDArray[np.intp], Ints]:
        """A change in the order of edges here, with the time of what is fixed."""
        at = self.position[edges]
        at, ns = at[at >= 0], ns[at >= 0]
        changed, new = np.zeros(len(self.edges), np.bool_), np.empty(len(self.edges), np.int64)
        changed[at], new[at] = True, ns
        where = np.flatnonzero(changed)  # faster than to sort them
        return where, self.fixed[where] + new[where]

    def _run(self, known: Ints, changes: Sequence[tuple[NDArray[np.intp], Ints]]) -> Ints:
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
            for src, first, last, groups in levels:
                through = out.take(src, axis=0)
                through += ns[first:last]
                for degree, edge, a, b in groups:
                    end, size = edge + degree * (b - a), b - a
                    if degree <= 2:  # most; one is the larger of itself and itself
                        np.maximum(through[edge : edge + size], through[end - size : end], out=out[a:b])
                    else:
                        np.maximum.reduce(through[edge:end].reshape(degree, size, -1), axis=0, out=out[a:b])
        return out


def unchanged() -> Change:
    """No change."""
    return np.empty(0, np.intp), np.empty(0, np.int64)


def _distinct(changes: Sequence[Change]) -> tuple[list[Change], list[int]]:
    """Changes without those that are the same as one before, and which of these each is."""
    out: list[Change] = []
    which = []
    for change in changes:
        same = (i for i, one in enumerate(out) if all(map(np.array_equal, one, change)))
        which.append(next(same, len(out)))
        if which[-1] == len(out):
            out.append(change)
    return out, which


def _spare(joint: Joint) -> NDArray[np.intp]:
    """Edges from arrivals to the ends of calls that wait at a hub, which lets them end no earlier."""
    own = np.flatnonzero(joint.why >= -1)
    spare: Flags = joint.kind[joint.meet[joint.dst[own]]] == HUB
    spare &= joint.kind[joint.src[own]] == NodeKind.ARRIVAL
    return own[spare]


def _starts(joint: Joint) -> Flags:
    """Nodes at which a step starts: what follows takes their measured time."""
    out = np.zeros(len(joint.time), np.bool_)
    for found in joint.starts:
        out[list(found.values())] = True
    return out


def _groups(level: Ints, degree: NDArray[np.intp]) -> tuple[NDArray[np.intp], Groups]:
    """Nodes in order of level and of the number of edges into them; groups of such.

    Numpy goes through the edges into nodes that have equally many by far faster than through those of unequal ones.
    """
    number = int(degree.max(initial=0)) + 1
    key = np.where(degree == 0, -1, level) * number + degree
    order = stable_order(key)
    key = key[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.empty(0, np.intp)
    size = np.diff(np.append(first, len(key)))
    return order, list(zip((key[first] // number).tolist(), (key[first] % number).tolist(), size.tolist(), strict=True))


def _turn(edges: NDArray[np.intp], groups: Groups) -> None:
    """Reorder edges from node by node: in each group the first ones of all nodes come first, then the second ones."""
    at = 0
    for _, degree, size in groups:
        own = edges[at : at + degree * size]
        if degree > 1 and size > 1:
            own[:] = own.reshape(size, degree).T.ravel()
        at += degree * size


def _order(joint: Joint, free: Flags) -> Ints:
    """A level of each node (N) above those of all that it waits for along `free` edges.

    All ends of a call that waits for others come at once, so it is one with its hub while levels are looked for.
    """
    src, dst = joint.meet[joint.src[free]], joint.meet[joint.dst[free]]
    between = src != dst
    level = _levels(len(joint.time), src[between], dst[between])[joint.meet] * 3
    level += _WITHIN[joint.kind]
    return level


_WITHIN = np.zeros(len(NodeKind) + 2, np.int64)
"""Arrivals, then their hub, then the ends of the calls."""
_WITHIN[[HUB, NodeKind.DONE]] = 1, 2


def _levels(n: int, src: NDArray[np.int32], dst: NDArray[np.int32]) -> Ints:
    """The length of the longest chain of edges before each of n nodes."""
    waiting = np.bincount(dst, minlength=n)
    after = dst[stable_order(src)].astype(np.intp)
    count = np.bincount(src, minlength=n)
    first = np.cumsum(count) - count
    numbers = np.arange(len(after))
    mark = np.empty(n, np.intp)
    out = np.full(n, -1, np.int64)
    front, level = np.flatnonzero(waiting == 0), 0
    while front.size:  # `take` has less to do than an index
        out[front] = level
        level += 1
        counts = count.take(front)
        edges = first.take(front) - counts.cumsum() + counts
        edges = edges.repeat(counts)
        edges += numbers[: edges.size]
        reached = after.take(edges)
        np.subtract.at(waiting, reached, 1)
        ready = reached[waiting.take(reached) == 0]
        once = numbers[: ready.size]
        mark[ready] = once
        front = ready[mark.take(ready) == once]
    if (out < 0).any():
        raise ValueError("calls wait for each other in a circle")
    return out

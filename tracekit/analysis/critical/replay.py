"""The graph run again with other durations: each node as late as what it waits for, level by level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.analysis.critical.joint import Joint
    from tracekit.analysis.critical.parts import Ints


class Replay:
    """Longest paths through a graph; each step starts from what was measured before it.

    An edge from another step brings its measured time. Raises ValueError where calls wait for each other in a circle.
    """

    def __init__(self, joint: Joint) -> None:
        self.time = joint.time
        n = len(joint.time)
        free = (joint.step[joint.dst] >= 0) & (joint.step[joint.src] == joint.step[joint.dst])
        free &= ~_starts(joint)[joint.src]
        level = _levels(n, joint.src[free], joint.dst[free])
        active = np.flatnonzero(joint.step[joint.dst] >= 0)
        key = level[joint.dst[active]].astype(np.int64) * n + joint.dst[active]
        self.order = active[np.argsort(key, kind="stable")]
        src, dst, free = joint.src[self.order], joint.dst[self.order], free[self.order]
        self.fixed = np.where(free, 0, joint.time[src])
        src = np.where(free, src, n)  # a node more, at 0
        first = np.flatnonzero(np.append(True, dst[1:] != dst[:-1])) if len(dst) else np.empty(0, np.intp)
        node = dst[first]
        nodes = np.searchsorted(level[node], np.arange(int(level.max(initial=0)) + 2))
        bounds = np.append(first, len(dst))
        self.levels = []
        for a, b in zip(nodes[:-1].tolist(), nodes[1:].tolist(), strict=True):
            if a < b:
                low, high = int(bounds[a]), int(bounds[b])
                self.levels.append((src[low:high], low, high, bounds[a:b] - low, node[a:b]))

    def run(self, weight: Ints) -> Ints:
        """Times of all nodes (N) ns; weight: (M) ns of each edge."""
        out = np.append(self.time, 0)
        known = weight[self.order] + self.fixed
        for src, low, high, first, node in self.levels:
            out[node] = np.maximum.reduceat(out[src] + known[low:high], first)
        return out[:-1]


def _starts(joint: Joint) -> NDArray[np.bool_]:
    """Nodes at which a step starts: what follows takes their measured time."""
    out = np.zeros(len(joint.time), np.bool_)
    for found in joint.starts:
        out[list(found.values())] = True
    return out


def _levels(n: int, src: Ints, dst: Ints) -> NDArray[np.int32]:
    """Length of the longest chain of edges before each node."""
    level = np.zeros(n, np.int32)
    waiting = np.bincount(dst, minlength=n)
    order = np.argsort(src, kind="stable")
    src, dst = src[order], dst[order]
    first = np.searchsorted(src, np.arange(n + 1))
    front = np.flatnonzero(waiting == 0)
    done, at = len(front), 0
    while len(front):
        counts = first[front + 1] - first[front]
        total = int(counts.sum())
        if not total:
            break
        rows = np.repeat(first[front] - (np.cumsum(counts) - counts), counts) + np.arange(total)
        reached = dst[rows]
        np.subtract.at(waiting, reached, 1)
        at += 1
        front = np.sort(reached[waiting[reached] == 0])
        front = front[np.append(True, front[1:] != front[:-1])] if len(front) else front
        level[front] = at
        done += len(front)
    if done < n:
        raise ValueError("calls wait for each other in a circle")
    return level

"""The graph run again with other durations: each node as late as what it waits for, by levels, all cases at once."""

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
        self.level = _levels(n, joint.src[free], joint.dst[free])
        active = np.flatnonzero(joint.step[joint.dst] >= 0)
        key = self.level[joint.dst[active]].astype(np.int64) * n + joint.dst[active]
        self.order = active[np.argsort(key, kind="stable")]
        self.src, self.dst = joint.src[self.order], joint.dst[self.order]
        self.free = free[self.order]
        self.node_first = np.flatnonzero(np.append(True, self.dst[1:] != self.dst[:-1])) if len(self.dst) else self.dst
        self.node = self.dst[self.node_first]
        self.count = int(self.level.max(initial=0)) + 1

    def run(self, weight: NDArray[np.int64]) -> Ints:
        """Times of all nodes (N, V) ns for V cases; weight: (M, V) ns of each edge."""
        cases = weight.shape[1]
        out: Ints = np.repeat(self.time[:, None], cases, axis=1)
        weight = weight[self.order]
        weight[~self.free] += self.time[self.src[~self.free], None]
        levels = self.level[self.node]
        nodes = np.searchsorted(levels, np.arange(self.count + 1))
        bounds = np.append(self.node_first, len(self.dst))
        held = np.where(self.free, self.src, -1)
        zero = np.zeros(cases, np.int64)
        for a, b in zip(nodes[:-1].tolist(), nodes[1:].tolist(), strict=True):
            if a == b:
                continue
            low, high = int(bounds[a]), int(bounds[b])
            sources = held[low:high]
            value = np.where((sources >= 0)[:, None], out[sources], zero) + weight[low:high]
            out[self.node[a:b]] = np.maximum.reduceat(value, bounds[a:b] - low, axis=0)
        return out


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
        front = np.unique(reached[waiting[reached] == 0])
        level[front] = at
        done += len(front)
    if done < n:
        raise ValueError("calls wait for each other in a circle")
    return level

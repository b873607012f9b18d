"""What must end before what: the dependency graph of one model-parallel group, shared by all steps and DP ranks.

Rules (what-if of "Understanding Stragglers in Large Model Training", OSDI'25, arXiv 2505.05713, §3):

* one stream computes, in the measured order; each of the four p2p directions and the DP communication is a stream;
* compute → its send; recv → its compute; the recv is posted after the compute before (same direction) has ended;
* the first backward transfers are posted two computes before the first backward;
* parameters are gathered before the first forward of their chunk; gradients are reduced after the last backward
  (of their chunk, when the reduction overlaps with the backward);
* after the last compute: gc → norm gradients → embedding gradients → gradient reduction → clip → optimizer;
* members of a group (p2p pair, DP group, first and last stage for the embedding, all for the clip) end together:
  latest start + their own transfer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.stragglers import optypes as t
from tracekit.analysis.stragglers.optable import NotReplayableError
from tracekit.analysis.stragglers.p2p import match

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.stragglers.optable import OpGrid


class Group(Struct, frozen=True):
    """Operations that end together; over_dp: of all data-parallel ranks, else of each one's own."""

    members: tuple[int, ...]
    over_dp: bool


class Graph(Struct, frozen=True):
    """`order`: nodes, each after everything it waits for; deps[i]: nodes that end before i starts.

    group_of[i]: index into `groups`, or -1; sinks: nodes nothing waits for.
    """

    deps: tuple[tuple[int, ...], ...]
    groups: tuple[Group, ...]
    group_of: NDArray[np.int32]
    order: tuple[int, ...]
    sinks: tuple[int, ...]


def graph_of(grid: OpGrid) -> Graph:
    """Dependencies of a grid. Raises NotReplayableError: `unpaired`, `cycle`, `no-compute`."""
    builder = _Builder(grid)
    for stage in range(grid.stages):
        builder.stage(stage)
    builder.pair()
    return builder.finish()


class _Builder:
    """Collects edges and groups; a node is its index in the grid."""

    def __init__(self, grid: OpGrid) -> None:
        self.grid = grid
        self.deps: list[list[int]] = [[] for _ in grid.nodes]
        self.groups: list[Group] = []
        start = grid.start[:, 0, 0]
        self.sorted = sorted(range(len(grid.nodes)), key=lambda i: (int(start[i]), grid.nodes[i].seq))
        self.overlapped = any(n.op == t.GRADS_REDUCE for n in grid.nodes)

    def of(self, stage: int, *ops: str) -> list[int]:
        """Nodes of a stage in the order of their starts."""
        return [i for i in self.sorted if self.grid.nodes[i].stage == stage and self.grid.nodes[i].op in ops]

    def chain(self, nodes: Sequence[int], after: Sequence[int] = ()) -> None:
        """Each node after the one before; the first after `after`."""
        last = list(after)
        for i in nodes:
            self.deps[i] += last
            last = [i]

    def stage(self, stage: int) -> None:
        """Edges within a stage, and the groups of its DP communication."""
        compute = self.of(stage, *t.COMPUTE)
        if not compute:
            raise NotReplayableError("no-compute", f"stage {stage} has no forward or backward compute")
        self.chain(compute)
        for op in t.P2P:
            self.chain(self.of(stage, op))
        self.first_backward(stage, compute)
        self.chain(self.of(stage, t.PARAMS_GATHER, t.GRADS_SCATTER))
        self.gather(stage, compute)
        if self.overlapped:
            self.scatter(stage, compute)
        self.tail(stage, compute)
        self.groups += [
            Group((i,), over_dp=True) for i in self.of(stage, t.PARAMS_GATHER, t.GRADS_SCATTER, t.GRADS_REDUCE)
        ]

    def first_backward(self, stage: int, compute: list[int]) -> None:
        """The first backward transfers are posted before the last warm-up forward."""
        first = next((k for k, i in enumerate(compute) if self.grid.nodes[i].op == t.BACKWARD), 0)
        if first >= 2:
            for op in ("backward-recv", "backward-send"):
                for i in self.of(stage, op)[:1]:
                    self.deps[i].append(compute[first - 2])

    def gather(self, stage: int, compute: list[int]) -> None:
        """The last gather of each chunk comes before the chunk's first forward."""
        last = {self.grid.nodes[i].chunk: i for i in self.of(stage, t.PARAMS_GATHER)}
        for chunk, i in last.items():
            mine = [c for c in compute if self.grid.nodes[c].op == t.FORWARD and self._in(c, chunk)]
            if mine:
                self.deps[mine[0]].append(i)

    def scatter(self, stage: int, compute: list[int]) -> None:
        """The first reduction of each chunk comes after the chunk's last backward."""
        first: dict[int, int] = {}
        for i in self.of(stage, t.GRADS_SCATTER):
            first.setdefault(self.grid.nodes[i].chunk, i)
        for chunk, i in first.items():
            mine = [c for c in compute if self.grid.nodes[c].op == t.BACKWARD and self._in(c, chunk)]
            if mine:
                self.deps[i].append(mine[-1])

    def _in(self, node: int, chunk: int) -> bool:
        return chunk < 0 or self.grid.nodes[node].chunk in (chunk, -1)

    def tail(self, stage: int, compute: list[int]) -> None:
        """What follows the last compute, one after the other."""
        collected = self.of(stage, t.GC)
        self.chain(collected, compute[-1:])
        after = collected[-1:] or compute[-1:]
        scatters = self.of(stage, t.GRADS_SCATTER)
        reduce = self.of(stage, t.NORM_REDUCE) + self.of(stage, t.EMBEDDING_REDUCE)
        if self.overlapped:
            after = scatters[-1:] + after
            reduce += self.of(stage, t.GRADS_REDUCE)
        else:
            reduce += scatters
        self.chain([*reduce, *self.of(stage, t.CLIP), *self.of(stage, t.OPTIMIZER)], after)

    def pair(self) -> None:
        """Groups across stages: p2p pairs, embedding gradients, clip."""
        matched = match(self.grid, self.sorted)
        for edge in matched.edges:
            self.deps[edge[1]].append(edge[0])
        self.groups += [Group(pair, over_dp=False) for pair in matched.groups]
        for op, over_dp in ((t.EMBEDDING_REDUCE, False), (t.CLIP, True)):
            by_seq: dict[int, list[int]] = {}
            for i in self.sorted:
                if self.grid.nodes[i].op == op:
                    by_seq.setdefault(self.grid.nodes[i].seq, []).append(i)
            self.groups += [Group(tuple(sorted(m)), over_dp) for _, m in sorted(by_seq.items())]

    def finish(self) -> Graph:
        """Order the nodes; a group ends when its last member has started."""
        group_of = np.full(len(self.deps), -1, np.int32)
        for g, group in enumerate(self.groups):
            group_of[list(group.members)] = g
        waited = {d for deps in self.deps for d in deps}
        deps = tuple(tuple(sorted(set(d))) for d in self.deps)
        sinks = tuple(i for i in range(len(deps)) if i not in waited)
        return Graph(deps, tuple(self.groups), group_of, self._order(deps, group_of), sinks)

    def _order(self, deps: tuple[tuple[int, ...], ...], group_of: NDArray[np.int32]) -> tuple[int, ...]:
        left = [len(d) for d in deps]
        unstarted = [len(g.members) for g in self.groups]
        followers: list[list[int]] = [[] for _ in deps]
        for i, before in enumerate(deps):
            for d in before:
                followers[d].append(i)
        ready = [i for i, n in enumerate(left) if n == 0]
        order: list[int] = []
        while ready:
            i = ready.pop()
            order.append(i)
            g = int(group_of[i])
            ended: tuple[int, ...] = (i,)
            if g >= 0:
                unstarted[g] -= 1
                ended = self.groups[g].members if unstarted[g] == 0 else ()
            for e in ended:
                for f in followers[e]:
                    left[f] -= 1
                    if left[f] == 0:
                        ready.append(f)
        if len(order) < len(deps):
            stuck = self.grid.nodes[next(i for i, n in enumerate(left) if n > 0)]
            raise NotReplayableError("cycle", f"operations wait for each other in a circle, e.g. {stuck}")
        return tuple(order)

"""Replays of a grid: step times under other durations, many scenarios at once, exact in int64 ns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.stragglers.optypes import COMMUNICATION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.stragglers.graph import Graph
    from tracekit.analysis.stragglers.optable import OpGrid

MEMORY_BYTES = 256 << 20
"""Scenarios are replayed in batches whose ends fit into this."""


class Work(Struct, frozen=True):
    """What each operation takes once its group is there: ns [n, steps, dp] as measured, ns [n] as ideal.

    delay: ns [n, steps, dp] from the end of everything an operation waits for to its start (may be negative).
    wait: ns [n, steps, dp] within the measured duration, for operations with a group; 0 elsewhere.
    """

    measured: NDArray[np.int64]
    ideal: NDArray[np.int64]
    delay: NDArray[np.int64]
    wait: NDArray[np.int64]


class Scenario(Struct, frozen=True):
    """Operations that keep their measured duration (and those that keep their delay); all others are ideal.

    workers, delayed: bool [stages, dp]; nodes: bool [n] narrows `workers` to some operations.
    """

    workers: NDArray[np.bool_]
    nodes: NDArray[np.bool_] | None = None
    delayed: NDArray[np.bool_] | None = None


def replay(grid: OpGrid, graph: Graph, work: Work, scenarios: Sequence[Scenario]) -> NDArray[np.int64]:
    """Step times, ns [scenarios, steps]: latest end over all operations and workers, steps starting at 0."""
    lanes = len(grid.steps) * grid.dp
    batch = max(1, MEMORY_BYTES // max(8 * lanes * len(grid.nodes), 1))
    parts = [_run(grid, graph, work, scenarios[i : i + batch])[0] for i in range(0, len(scenarios), batch)]
    return np.concatenate(parts) if parts else np.zeros((0, len(grid.steps)), np.int64)


def timeline(grid: OpGrid, graph: Graph, work: Work, scenario: Scenario) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(starts, ends) of every operation under one scenario, ns [n, steps, dp]."""
    _, starts, ends = _run(grid, graph, work, [scenario])
    return np.concatenate(starts), np.concatenate(ends)


def _run(
    grid: OpGrid, graph: Graph, work: Work, scenarios: Sequence[Scenario]
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    shape = (len(scenarios), len(grid.steps), grid.dp)
    nothing = np.zeros(shape, np.int64)
    starts, ends = [nothing] * len(grid.nodes), [nothing] * len(grid.nodes)
    missing = [len(g.members) for g in graph.groups]
    takes = _Takes(grid, work, scenarios)
    for i in graph.order:
        before = [ends[d] for d in graph.deps[i]]
        start = np.maximum.reduce(before) if len(before) > 1 else before[0] if before else nothing
        starts[i] = start if (delay := takes.delay(i)) is None else start + delay
        g = int(graph.group_of[i])
        if g < 0:
            ends[i] = starts[i] + takes.duration(i)
            continue
        missing[g] -= 1
        if missing[g] == 0:
            group = graph.groups[g]
            latest = np.maximum.reduce([starts[m] for m in group.members])
            if group.over_dp:
                latest = latest.max(axis=2, keepdims=True)
            for m in group.members:
                ends[m] = latest + takes.duration(m)
    last = np.maximum.reduce([ends[i] for i in graph.sinks])
    times: NDArray[np.int64] = last.max(axis=2)
    return times, starts, ends


class _Takes:
    """Durations and delays of one node under every scenario, broadcastable to [scenarios, steps, dp]."""

    def __init__(self, grid: OpGrid, work: Work, scenarios: Sequence[Scenario]) -> None:
        self.grid, self.work = grid, work
        none = np.zeros(grid.ranks.shape, np.bool_)
        all_nodes = np.ones(len(grid.nodes), np.bool_)
        self.workers = np.stack([s.workers for s in scenarios])
        self.nodes = np.stack([all_nodes if s.nodes is None else s.nodes for s in scenarios])
        self.delayed = np.stack([none if s.delayed is None else s.delayed for s in scenarios])
        self.any_delay = bool(self.delayed.any())

    def duration(self, i: int) -> NDArray[np.int64]:
        keep = self.workers[:, self.grid.nodes[i].stage] & self.nodes[:, i, None]
        taken: NDArray[np.int64] = np.where(keep[:, None, :], self.work.measured[i][None], self.work.ideal[i])
        return taken

    def delay(self, i: int) -> NDArray[np.int64] | None:
        if not self.any_delay:
            return None
        keep = self.delayed[:, self.grid.nodes[i].stage]
        kept: NDArray[np.int64] = np.where(keep[:, None, :], self.work.delay[i][None], 0)
        return kept


def measure(grid: OpGrid, graph: Graph) -> Work:
    """Split measured durations into waiting and work, and find ideal durations and delays.

    Of a group: transfer = end - latest start (never below 0: a send that ended before its recv began moved nothing
    that can be seen; never above the duration), wait = duration - transfer. Ideal duration of an operation type: mean
    for compute, median of the transfer for communication, over all steps and workers (OSDI'25 §3.2).
    """
    measured = grid.dur.copy()
    for group in graph.groups:
        members = list(group.members)
        latest = grid.start[members].max(axis=0)
        if group.over_dp:
            latest = latest.max(axis=1, keepdims=True)
        measured[members] = np.clip(grid.end[members] - latest, 0, grid.dur[members])
    wait = grid.dur - measured
    return Work(measured, _ideal(grid, measured), _delays(grid, graph, measured), wait)


def _ideal(grid: OpGrid, measured: NDArray[np.int64]) -> NDArray[np.int64]:
    ideal = np.zeros(len(grid.nodes), np.int64)
    for op in {n.op for n in grid.nodes}:
        mine = [i for i, n in enumerate(grid.nodes) if n.op == op]
        middle = np.median(measured[mine]) if op in COMMUNICATION else np.mean(measured[mine])
        ideal[mine] = round(float(middle))
    return ideal


def _delays(grid: OpGrid, graph: Graph, measured: NDArray[np.int64]) -> NDArray[np.int64]:
    """Start minus the replayed ends of what it waited for; with all of them a replay gives the measured starts."""
    ends = grid.start + measured
    for group in graph.groups:
        members = list(group.members)
        latest = grid.start[members].max(axis=0)
        if group.over_dp:
            latest = latest.max(axis=1, keepdims=True)
        ends[members] = latest + measured[members]
    delay = grid.start.copy()
    for i, deps in enumerate(graph.deps):
        if deps:
            delay[i] -= ends[list(deps)].max(axis=0)
    return delay

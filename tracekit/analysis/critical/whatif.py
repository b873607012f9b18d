"""What a step would take with one thing changed: cases of changed edges for the replay."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.critical.joint import HUB
from tracekit.analysis.critical.parts import NodeKind, Part
from tracekit.analysis.critical.replay import Replay
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.analysis.critical.joint import Joint
    from tracekit.analysis.critical.parts import Ints

Row = dict[str, Any]
MOST_ERROR = 0.05
"""A replay that misses the measured step by more says nothing about other steps."""
MOST_UNSPLIT = 0.05
"""Share of a strategy's time that may contain waiting, when its transfers are changed."""
MOST_SUBJECTS = 8
"""Strategies, or strategies with an operation, that get a case of their own."""


@dataclass(slots=True)
class Case:
    """One change: `weight` (M) ns of each edge; floor: (recording, step) → ns that its transfers take at least."""

    what: str
    subject: str | None
    weight: Ints | None = None
    reason: str | None = None
    floor: dict[int, int] | None = None


class Changes:
    """The cases of a job. stages: rank → place in its pipeline; empty without pipelines."""

    def __init__(self, joint: Joint, stages: Mapping[int, int]) -> None:
        self.joint, self.stages = joint, stages
        self.weight = joint.weight
        self.compute = joint.parts[:, Part.COMPUTE]
        self.part, self.step = joint.part[joint.dst], joint.step[joint.dst]
        self.label = self._labels()
        self.loads = self._loads()

    def cases(self) -> list[Case]:
        """Every case, with the reason where it cannot be told."""
        return [*self._stragglers(), *self._stages(), *self._transfers()]

    def _labels(self) -> list[tuple[str, str] | None]:
        """Strategy and operation of each edge that is a call's own time."""
        j = self.joint
        out: list[tuple[str, str] | None] = [None] * len(j.dst)
        for edge in np.flatnonzero(j.why >= -1).tolist():
            g = j.inputs[self.part[edge]].graph
            call = int(g.call[j.local[j.dst[edge]]])
            out[edge] = (g.strategies[call], g.ops[call]) if call >= 0 else ("unknown", "unknown")
        return out

    def _loads(self) -> dict[int, dict[int, int]]:
        """step → recording → compute ns of its busiest stream."""
        j = self.joint
        out: dict[int, dict[int, int]] = defaultdict(dict)
        own = np.flatnonzero((self.part >= 0) & (self.step >= 0) & (self.compute > 0) & self._in_lane())
        lanes = np.array([j.inputs[p].graph.lane[n] for p, n in zip(self.part[own], j.local[j.dst[own]], strict=True)])
        sums: dict[tuple[int, int, int], int] = defaultdict(int)
        for p, s, lane, ns in zip(
            self.part[own].tolist(), self.step[own].tolist(), lanes.tolist(), self.compute[own].tolist(), strict=True
        ):
            sums[s, p, lane] += ns
        for (s, p, _), ns in sums.items():
            out[s][p] = max(out[s].get(p, 0), ns)
        return out

    def _in_lane(self) -> NDArray[np.bool_]:
        """One edge for each run: every run has its work on each of its edges, the largest is the whole of it."""
        j = self.joint
        order = np.lexsort((-self.compute, j.dst))
        first = np.append(True, np.diff(j.dst[order]) != 0)
        out = np.zeros(len(j.dst), np.bool_)
        out[order[first]] = True
        return out

    def _peers(self) -> dict[int, list[int]]:
        """place in the pipeline → recordings; all are peers without pipelines."""
        out: dict[int, list[int]] = defaultdict(list)
        for p, one in enumerate(self.joint.inputs):
            out[self.stages.get(one.rank if one.rank is not None else -1, 0)].append(p)
        return out

    def _scaled(self, factors: Mapping[tuple[int, int], float]) -> Ints:
        """Edges with the compute of (recording, step) times a factor."""
        out = self.weight.copy()
        for (p, s), factor in factors.items():
            rows = np.flatnonzero((self.part == p) & (self.step == s))
            out[rows] += np.rint(self.compute[rows] * (factor - 1)).astype(np.int64)
        return out

    def _stragglers(self) -> list[Case]:
        peers = self._peers()
        if max(map(len, peers.values())) < 2:
            return [Case("no-stragglers", None, reason="no-peers")]
        factors: dict[tuple[int, int], float] = {}
        over: dict[int, list[float]] = defaultdict(list)
        for s, loads in self.loads.items():
            for group in peers.values():
                typical = statistics.median([loads.get(p, 0) for p in group])
                for p in group:
                    if len(group) > 1 and loads.get(p, 0) > typical > 0:
                        factors[p, s] = typical / loads[p]
                        over[p].append(loads[p] / typical)
        if not factors:
            return [Case("no-stragglers", None, self.weight)]
        out = [Case("no-stragglers", None, self._scaled(factors))]
        worst = max(over, key=lambda p: (sum(over[p]), -p))
        own = {key: f for key, f in factors.items() if key[0] == worst}
        out.append(Case("no-straggler", f"rank {self.joint.inputs[worst].rank}", self._scaled(own)))
        return out

    def _stages(self) -> list[Case]:
        places = self._peers()
        if len(places) < 2:
            return []
        factors: dict[tuple[int, int], float] = {}
        for s, loads in self.loads.items():
            typical = {place: statistics.median([loads.get(p, 0) for p in group]) for place, group in places.items()}
            mean = statistics.fmean(typical.values())
            for place, group in places.items():
                if typical[place] > 0:
                    factors |= {(p, s): mean / typical[place] for p in group}
        return [Case("balanced-stages", None, self._scaled(factors))]

    def _transfers(self) -> list[Case]:
        j = self.joint
        total: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        rows: dict[tuple[str, str], list[int]] = defaultdict(list)
        for edge, label in enumerate(self.label):
            if label is not None and j.step[j.dst[edge]] >= 0:
                rows[label].append(edge)
                total[label][0] += int(self.weight[edge])
                if j.why[edge] >= 0 and j.reasons[j.why[edge]] != "eager-send":
                    total[label][1] += int(self.weight[edge])
        labels = sorted((k for k in total if total[k][0]), key=lambda k: (-total[k][0], k))
        out = [self._at_theory(k, np.array(rows[k]), total[k]) for k in labels[:MOST_SUBJECTS]]
        by_strategy: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for label in labels:
            by_strategy[label[0]].append(label)
        for strategy, own in list(by_strategy.items())[:MOST_SUBJECTS]:
            edges = np.concatenate([rows[k] for k in own])
            whole, unsplit = (sum(total[k][i] for k in own) for i in (0, 1))
            out.append(self._hidden(strategy, edges, unsplit > MOST_UNSPLIT * whole))
        return out

    def _at_theory(self, label: tuple[str, str], edges: NDArray[np.int64], total: list[int]) -> Case:
        """Transfers that take as long as theory expects; those without an expectation stay."""
        j = self.joint
        subject = " ".join(label)
        if total[1] > MOST_UNSPLIT * total[0]:
            return Case("theory-speed", subject, reason="unsplit")
        out = self.weight.copy()
        found = False
        for edge in edges.tolist():
            p, node = int(self.part[edge]), int(j.local[j.dst[edge]])
            expected = j.inputs[p].expected
            call = int(j.inputs[p].graph.call[node])
            if expected is not None and call >= 0 and expected[call] != NO_TIME:
                out[edge], found = expected[call], True
        return Case("theory-speed", subject, out) if found else Case("theory-speed", subject, reason="no-expectation")

    def _hidden(self, strategy: str, edges: NDArray[np.int64], unsplit: bool) -> Case:
        """Transfers that nobody waits for, while waiting for ranks stays; they still need their time on each rank."""
        if unsplit:
            return Case("perfect-overlap", strategy, reason="unsplit")
        j = self.joint
        out = self.weight.copy()
        out[edges] = 0
        once = edges[(j.kind[j.src[edges]] != HUB) & (j.kind[j.dst[edges]] == NodeKind.DONE)]
        busy: dict[tuple[int, int], int] = defaultdict(int)
        for edge in once.tolist():
            busy[int(self.step[edge]), int(self.part[edge])] += int(self.weight[edge])
        floor: dict[int, int] = {}
        for (s, _), ns in busy.items():
            floor[s] = max(floor.get(s, 0), ns)
        return Case("perfect-overlap", strategy, out, floor=floor)


@dataclass(slots=True)
class Replayed:
    """Per step: the unchanged replay (ns, None where it cannot run), and each case's length."""

    base: list[int | None]
    cases: list[Case]
    lengths: list[list[int]]


def replayed(joint: Joint, stages: Mapping[int, int]) -> Replayed:
    """Lengths of all steps, unchanged and changed."""
    cases = Changes(joint, stages).cases()
    ready = [c for c in cases if c.weight is not None]
    try:
        replay = Replay(joint)
    except ValueError:
        return Replayed([None] * len(joint.steps), [], [])
    weights = [joint.weight, *(c.weight for c in ready if c.weight is not None)]
    times = replay.run(np.stack(weights, axis=1))
    found = []
    for s in range(len(joint.steps)):
        begin = int(joint.time[list(joint.starts[s].values())].min())
        found.append((times[list(joint.ends[s].values())].max(axis=0) - begin).tolist())
    lengths = []
    for i, case in enumerate(ready, 1):
        least = case.floor or {}
        lengths.append([max(row[i], least.get(s, 0)) for s, row in enumerate(found)])
    whole = iter(lengths)
    return Replayed([row[0] for row in found], cases, [next(whole) if c.weight is not None else [] for c in cases])

"""What a step would take with one thing changed: cases of changed edges for the replay."""

from __future__ import annotations

import statistics
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tracekit.analysis.critical.joint import HUB
from tracekit.analysis.critical.parts import NodeKind
from tracekit.analysis.critical.path import NOT_WAITING
from tracekit.analysis.critical.replay import Replay, unchanged
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tracekit.analysis.critical.joint import Joint
    from tracekit.analysis.critical.parts import Ints
    from tracekit.analysis.critical.replay import Change

Row = dict[str, Any]
MOST_ERROR = 0.05
"""A replay that misses the measured step by more says nothing about other steps."""
MOST_UNSPLIT = 0.05
"""Share of a strategy's time that may contain waiting, when its transfers are changed."""
MOST_ORDINARY = 1.03
"""A rank with more compute in a step than this times the median of its peers is a straggler."""
REST = -2
"""Place of all work without a factor of its own."""
MOST_SUBJECTS = 8
"""Strategies, or strategies with an operation, that get a case of their own."""


class Case(Struct):
    """One change: `change` makes edges and their new ns; floor: step → ns that a step takes at least."""

    what: str
    subject: str | None
    change: Callable[[], Change] | None = None
    reason: str | None = None
    floor: dict[int, int] | None = None


class Changes:
    """The cases of a job. stages: rank → place in its pipeline; empty without pipelines."""

    def __init__(self, joint: Joint, stages: Mapping[int, int]) -> None:
        self.joint, self.stages = joint, stages
        both = (joint.part >= 0) & (joint.step >= 0)
        self.group = np.where(both, joint.part.astype(np.int64) * len(joint.steps) + joint.step, -1)  # of nodes
        self._label_calls()

    def cases(self) -> list[Case]:
        """Every case, with the reason where it cannot be told."""
        return [*self._stragglers(), *self._stages(), *self._transfers()]

    def _label_calls(self) -> None:
        """Edges to the ends of calls within steps (`calls`), strategy and operation (into `labels`) and expected ns."""
        j = self.joint
        number: dict[tuple[str, str], int] = {}
        label, expected = np.full(len(j.time), -1, np.int64), np.full(len(j.time), NO_TIME, np.int64)
        done = np.flatnonzero(j.kind == NodeKind.DONE)
        bounds = np.searchsorted(j.part[done], np.arange(len(j.inputs) + 1))  # nodes of a recording follow one another
        for p, one in enumerate(j.inputs):
            mine = done[bounds[p] : bounds[p + 1]]
            g = one.graph
            codes = np.array([number.setdefault(k, len(number)) for k in (*g.labels, ("unknown", "unknown"))], np.int64)
            call = g.call[j.local[mine]]
            label[mine] = codes[np.append(g.label, -1)[call]]
            if one.expected is not None:
                expected[mine] = np.append(one.expected, NO_TIME)[call]
        self.labels = list(number)
        own = np.flatnonzero(j.why >= -1)
        self.calls = own[j.step[j.dst[own]] >= 0]
        self.label, self.expected = label[j.dst[self.calls]], expected[j.dst[self.calls]]

    @cached_property
    def loads(self) -> dict[int, dict[int, dict[int, int]]]:
        """step → recording → calls made before (in the step) → compute ns of the busiest stream; -1 = unknown."""
        j = self.joint
        work = np.zeros(len(j.time), np.int64)  # on each edge into a run is its work; on the largest the whole of it
        np.maximum.at(work, j.dst, j.compute)
        own = np.flatnonzero((work > 0) & (self.group >= 0))
        lane = self._of_nodes("lane")[own]
        places, lanes_most = int(self.issued.max(initial=0)) + 2, int(lane.max(initial=0)) + 2
        key = (self.group[own] * lanes_most + lane + 1) * places + self.issued[own] + 1
        found, of = np.unique(key, return_inverse=True)
        ns = np.zeros(len(found), np.int64)
        np.add.at(ns, of.reshape(-1), work[own])
        of_lane, place = found // places, (found % places - 1).tolist()
        first = np.flatnonzero(np.append(True, of_lane[1:] != of_lane[:-1])) if len(found) else np.empty(0, np.intp)
        total = np.add.reduceat(ns, first).tolist() if len(found) else []
        best: dict[int, tuple[int, int, int]] = {}  # of each group: total, lane, where it is
        for i, lane_of in enumerate(of_lane[first].tolist()):
            group, on = divmod(lane_of, lanes_most)
            best[group] = max(best.get(group, (-1, -1, -1)), (total[i], on, i))
        bounds, values = [*first.tolist(), len(found)], ns.tolist()
        out: dict[int, dict[int, dict[int, int]]] = defaultdict(dict)
        for group, (_, _, i) in best.items():
            p, s = divmod(group, len(j.steps))
            low, high = bounds[i], bounds[i + 1]
            out[s][p] = dict(zip(place[low:high], values[low:high], strict=True))
        return out

    @cached_property
    def issued(self) -> Ints:
        """Calls that had been made when the work of each node was issued, counted from the rank's first of the step."""
        out = self._of_nodes("issued")
        reached = np.zeros(len(out), np.bool_)
        reached[self.joint.dst] = True
        known = np.flatnonzero((out >= 0) & (self.group >= 0) & reached)
        least = np.full(int(self.group.max(initial=-1)) + 1, np.iinfo(np.int64).max, np.int64)
        np.minimum.at(least, self.group[known], out[known])
        out[known] -= least[self.group[known]]
        return out

    def _of_nodes(self, name: str) -> Ints:
        """A column of the recordings' nodes; -1 for other nodes."""
        j = self.joint
        out = np.full(len(j.time), -1, np.int64)
        own = np.concatenate([np.append(getattr(one.graph, name), np.int32(-1)) for one in j.inputs])
        out[: len(own)] = own
        return out

    def _peers(self) -> dict[int, list[int]]:
        """place in the pipeline → recordings; all are peers without pipelines."""
        out: dict[int, list[int]] = defaultdict(list)
        for p, one in enumerate(self.joint.inputs):
            out[self.stages.get(one.rank if one.rank is not None else -1, 0)].append(p)
        return out

    @cached_property
    def _by_group(self) -> tuple[NDArray[np.intp], Ints]:
        """Edges with compute in order of recording and step, and the number of these."""
        j = self.joint
        rows = np.flatnonzero(j.compute)
        group = self.group[j.dst[rows]]
        inside = np.flatnonzero((group >= 0) & (j.compute[rows] > 0))
        inside = inside[np.argsort(group[inside], kind="stable")]
        return rows[inside], group[inside]

    def _scaled(self, factors: Mapping[tuple[int, int], dict[int, float]]) -> Change:
        """Edges with the compute of (recording, step) times a factor, by calls made before (`REST`: all others)."""
        j = self.joint
        rows, groups = self._by_group
        edges, added = [np.empty(0, np.intp)], [np.empty(0, np.int64)]
        for (p, s), by_place in factors.items():
            group = p * len(j.steps) + s
            mine = rows[np.searchsorted(groups, group, "left") : np.searchsorted(groups, group, "right")]
            rest = by_place.get(REST, 1.0)
            factor: Any = rest
            if by_place.keys() != {REST}:
                factor = np.array([by_place.get(place, rest) for place in self.issued[j.dst[mine]].tolist()])
            edges.append(mine)
            added.append(np.rint(j.compute[mine] * (factor - 1)).astype(np.int64))
        changed = np.concatenate(edges)
        return changed, j.weight[changed] + np.concatenate(added)

    def _stragglers(self) -> list[Case]:
        peers = self._peers()
        if max(map(len, peers.values())) < 2:
            return [Case("no-stragglers", None, reason="no-peers")]
        factors: dict[tuple[int, int], dict[int, float]] = {}
        over: dict[int, int] = defaultdict(int)
        j = self.joint
        ends = (j.kind == NodeKind.DONE) & (j.step >= 0)
        made = np.bincount(j.part[ends] * len(j.steps) + j.step[ends], minlength=len(j.inputs) * len(j.steps)).tolist()
        for s, loads in self.loads.items():
            for group in peers.values():
                here = {p: loads[p] for p in group if p in loads}
                alike = len({made[p * len(j.steps) + s] for p in here}) == 1
                for p, by_place, excess in _slow(here, alike=alike):
                    factors[p, s] = by_place
                    over[p] += excess
        if not factors:
            return [Case("no-stragglers", None, lambda: self._scaled({}))]
        out = [Case("no-stragglers", None, lambda: self._scaled(factors))]
        worst = max(over, key=lambda p: (over[p], -p))
        own = {key: f for key, f in factors.items() if key[0] == worst}
        out.append(Case("no-straggler", f"rank {self.joint.inputs[worst].rank}", lambda: self._scaled(own)))
        return out

    def _stages(self) -> list[Case]:
        places = self._peers()
        if len(places) < 2:
            return []
        factors: dict[tuple[int, int], dict[int, float]] = {}
        for s, loads in self.loads.items():
            total = {p: sum(found.values()) for p, found in loads.items()}
            typical = {place: statistics.median([total.get(p, 0) for p in group]) for place, group in places.items()}
            mean = statistics.fmean(typical.values())
            for place, group in places.items():
                if typical[place] > 0:
                    factors |= {(p, s): {REST: mean / typical[place]} for p in group}
        return [Case("balanced-stages", None, lambda: self._scaled(factors))]

    def _transfers(self) -> list[Case]:
        j = self.joint
        ns = j.weight[self.calls]
        maybe = np.array([r not in NOT_WAITING for r in j.reasons] + [False, False], np.bool_)[j.why[self.calls]]
        size = len(self.labels)
        total, unsplit = np.zeros(size, np.int64), np.zeros(size, np.int64)
        np.add.at(total, self.label, ns)
        np.add.at(unsplit, self.label[maybe], ns[maybe])
        if not total.any():
            return []
        too_unsure = bool(unsplit.sum() > MOST_UNSPLIT * total.sum())
        own = np.arange(len(self.calls))
        out = [self._at_theory(None, own, too_unsure), self._hidden(None, own, too_unsure)]
        order = sorted(np.flatnonzero(total).tolist(), key=lambda k: (-total[k], self.labels[k]))
        out += [
            self._at_theory(k, np.flatnonzero(self.label == k), bool(unsplit[k] > MOST_UNSPLIT * total[k]))
            for k in order[:MOST_SUBJECTS]
        ]
        by_strategy: dict[str, list[int]] = defaultdict(list)
        for k in order:
            by_strategy[self.labels[k][0]].append(k)
        for strategy, kinds in list(by_strategy.items())[:MOST_SUBJECTS]:
            there = np.zeros(size, np.bool_)
            there[kinds] = True
            calls = np.flatnonzero(there[self.label])
            out.append(self._hidden(strategy, calls, bool(unsplit[kinds].sum() > MOST_UNSPLIT * total[kinds].sum())))
        return out

    def _at_theory(self, kind: int | None, calls: NDArray[np.intp], unsplit: bool) -> Case:
        """Transfers that take as long as theory expects; those without an expectation stay."""
        subject = None if kind is None else " ".join(self.labels[kind])
        known = calls[(self.expected[calls] != NO_TIME) & (self.joint.why[self.calls[calls]] == -1)]
        if unsplit or not len(known):
            return Case("theory-speed", subject, reason="unsplit" if unsplit else "no-expectation")
        return Case("theory-speed", subject, lambda: (self.calls[known], self.expected[known]))

    def _hidden(self, strategy: str | None, calls: NDArray[np.intp], unsplit: bool) -> Case:
        """Transfers that nobody waits for, while waiting for ranks stays; they still need their time on each rank."""
        if unsplit:
            return Case("perfect-overlap", strategy, reason="unsplit")
        j = self.joint
        edges = self.calls[calls]
        once = edges[j.kind[j.src[edges]] != HUB]
        busy = np.zeros(len(j.inputs) * len(j.steps), np.int64)
        np.add.at(busy, self.group[j.dst[once]], j.weight[once])
        floor = busy.reshape(len(j.inputs), len(j.steps)).max(axis=0)
        return Case(
            "perfect-overlap", strategy, lambda: (self.calls[calls], np.zeros(len(calls), np.int64)),
            floor=dict(enumerate(floor.tolist())),
        )  # fmt: skip


def _slow(loads: Mapping[int, dict[int, int]], *, alike: bool) -> list[tuple[int, dict[int, float], int]]:
    """Recordings with more compute than is typical of these: (recording, factors by place, ns too much).

    Where all make equally many calls (`alike`), work after equally many of them is the same work, so each piece becomes
    what it typically is on those that are not slow; else the whole is scaled.
    """
    total = {p: sum(found.values()) for p, found in loads.items()}
    if len(total) < 2:
        return []
    typical = statistics.median_low(total.values())
    slow = [p for p in total if total[p] > MOST_ORDINARY * typical]
    fine = [loads[p] for p in loads if p not in slow]
    out = []
    for p in slow:
        own = loads[p]
        if alike and not any(-1 in found for found in (own, *fine)):
            factors = {k: statistics.median(found.get(k, 0) for found in fine) / ns for k, ns in own.items()}
        else:
            factors = {REST: typical / total[p]}
        out.append((p, factors, total[p] - typical))
    return out


class Replayed(Struct):
    """Per step: the unchanged replay (ns, None where it cannot run), ns by which it misses the end of the rank that it
    misses most, and each case's length.
    """

    base: list[int | None]
    missed: list[int]
    cases: list[Case]
    lengths: list[list[int]]


def replayed(joint: Joint, stages: Mapping[int, int]) -> Replayed:
    """Lengths of all steps, unchanged and changed."""
    cases = Changes(joint, stages).cases()
    try:
        replay = Replay(joint)
    except ValueError:
        return Replayed([None] * len(joint.steps), [0] * len(joint.steps), [], [])
    begins = [joint.window(s)[0] for s in range(len(joint.steps))]
    ends = [list(found.values()) for found in joint.ends]
    first = np.cumsum([0, *map(len, ends)])[:-1]
    all_ends = np.array([node for own in ends for node in own], np.int64)
    runs = replay.runs(joint.weight, [unchanged, *(c.change for c in cases if c.change is not None)], all_ends)
    times = next(runs)
    missed = np.maximum.reduceat(np.abs(times - joint.time[all_ends]), first).tolist()
    lasts = np.maximum.reduceat(times, first).tolist()
    base: list[int | None] = [last - begin for last, begin in zip(lasts, begins, strict=True)]
    lengths: list[list[int]] = []
    for case in cases:
        lengths.append([])
        if case.change is not None:
            last = np.maximum.reduceat(next(runs), first).tolist()
            least = case.floor or {}
            lengths[-1] += [max(last[s] - begin, least.get(s, 0)) for s, begin in enumerate(begins)]
    return Replayed(base, missed, cases, lengths)

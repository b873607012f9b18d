"""The graphs of all ranks as one: times on the common clock, calls tied where all their ranks have to be there."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.arrays import codes_of, numbers_of
from tracekit.analysis.critical.parts import PARTS, NodeKind, Part
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from tracekit.analysis.critical.parts import Flags, Ints, RankGraph
    from tracekit.analysis.crossrank.clocks import Clock


class RankInput(Struct):
    """One recording: its graph, ns from its times to the run's axis, and the clock from there to the common one.

    match: position in `matches` of each call (NO_TIME = none), why: reason for which a call has no waiting (None =
    it has, or it has no match); expected: ns theory expects of each call (NO_TIME = nothing).
    """

    rank: int | None
    graph: RankGraph
    shift: int = 0
    clock: Clock | None = None
    match: Ints | None = None
    why: Sequence[str | None] | None = None
    expected: Ints | None = None


class Joint(Struct):
    """All ranks: N nodes and M edges, times int64 ns on the common clock.

    time (N); kind (N): `NodeKind`, -1 = all ranks of a call have come (hub), -2 = beginning of a recording; part (N):
    position in `inputs` (-1 for a hub); local (N): node in its rank's graph (-1); step (N): position in `steps` of
    the step that has it, a step's end included. src, dst (M): those of the recordings in the order of `inputs`, then
    those of calls, all of communication; weight, compute (M): ns of each, and of compute in it; why (M): index into
    `reasons` of a call's edge (-1 = split), -2 = no call. meet (N): the hub of a call's nodes that waits there, the
    arrival of other calls' ends, both in the same step; else the node itself. starts, ends: of each step recording →
    node.
    """

    inputs: list[RankInput]
    time: Ints
    kind: NDArray[np.int8]
    part: NDArray[np.int32]
    local: NDArray[np.int32]
    step: NDArray[np.int32]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    weight: Ints
    compute: Ints
    why: NDArray[np.int16]
    reasons: list[str]
    match: Ints
    steps: list[int]
    whole: list[bool]
    starts: list[dict[int, int]] = field(default_factory=list)
    ends: list[dict[int, int]] = field(default_factory=list)
    meet: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def window(self, s: int) -> tuple[int, int]:
        """A step on the recording that is the last to end it: when it started there, and the node of its end.

        Where no step follows, ranks end one after the other; there it goes from the first start on any of them.
        """
        last = max(self.ends[s], key=lambda p: (int(self.time[self.ends[s][p]]), -p))
        end = self.ends[s][last]
        if self.kind[end] == NodeKind.END:
            return int(self.time[list(self.starts[s].values())].min()), end
        return int(self.time[self.starts[s][last]]), end

    def parts(self, edges: Ints) -> Ints:
        """ns of each `Part` of some edges (negative = none): (n, PARTS)."""
        out = np.zeros((len(edges), PARTS), np.int64)
        first = np.cumsum([0, *(len(one.graph.src) for one in self.inputs)])
        of = np.searchsorted(first, edges, "right") - 1
        for p in np.unique(of[of >= 0]).tolist():
            rows = np.flatnonzero(of == p)
            if p < len(self.inputs):
                out[rows] = self.inputs[p].graph.parts[edges[rows] - first[p]]
            else:
                out[rows, Part.COMM] = self.weight[edges[rows]]
        return out


HUB, BEGIN = -1, -2


def on_one_clock(inputs: Sequence[RankInput]) -> list[RankInput]:
    """The recordings that share a clock: those of the largest such set; a single one needs none."""
    if len(inputs) <= 1:
        return list(inputs)
    aligned = [one for one in inputs if one.clock is not None and one.clock.aligned]
    count = Counter(one.clock.component for one in aligned if one.clock is not None)
    if not count:
        return []
    best = max(count, key=lambda c: (count[c], -c))
    return [one for one in aligned if one.clock is not None and one.clock.component == best]


def join(inputs: Sequence[RankInput], matches: pa.Table) -> Joint:
    """One graph of recordings with one clock. matches: that table."""
    numbers = sorted({s[0] for one in inputs for s in one.graph.steps}, key=lambda n: _when(inputs, n))
    times, kinds, parts, locals_, steps = [], [], [], [], []
    for p, one in enumerate(inputs):
        g = one.graph
        n = len(g.time)
        times.append(_placed(one, np.append(g.time, g.begin)))
        kinds.append(np.append(g.kind, np.int8(BEGIN)))
        parts.append(np.full(n + 1, p, np.int32))
        locals_.append(np.append(np.arange(n, dtype=np.int32), np.int32(-1)))
        steps.append(np.append(_home(g, numbers), np.int32(-1)))
    nobody, none = np.empty(0, np.int32), np.empty(0, np.int64)
    out = Joint(
        list(inputs), np.concatenate(times), np.concatenate(kinds), np.concatenate(parts), np.concatenate(locals_),
        np.concatenate(steps), nobody, nobody, none, none, np.empty(0, np.int16), [],
        np.full(sum(map(len, times)), NO_TIME, np.int64), numbers, [],
    )  # fmt: skip
    _mark_steps(out)
    _connect(out, _tie(out, matches))
    return out


def _when(inputs: Sequence[RankInput], number: int) -> tuple[int, int]:
    starts = [s[1] + one.shift for one in inputs for s in one.graph.steps if s[0] == number]
    return min(starts), number


def _placed(one: RankInput, times: Ints) -> Ints:
    moved: Ints = times + one.shift
    return one.clock.place(moved) if one.clock is not None and one.clock.aligned else moved


def _home(g: RankGraph, numbers: list[int]) -> NDArray[np.int32]:
    """Position of the step in which each node is replayed: a step's first start ends the step before."""
    place = {n: i for i, n in enumerate(numbers)}
    of = np.array([place[s[0]] for s in g.steps] + [-1], np.int32)
    out: NDArray[np.int32] = of[g.step]
    edges = g.kind == NodeKind.EDGE
    out[edges] = of[np.where(g.step[edges] > 0, g.step[edges] - 1, -1)]
    return out


def _mark_steps(j: Joint) -> None:
    """Where each step starts and ends on each recording."""
    place = {n: i for i, n in enumerate(j.steps)}
    j.starts, j.ends = [{} for _ in j.steps], [{} for _ in j.steps]
    whole = [True] * len(j.steps)
    base = 0
    for p, one in enumerate(j.inputs):
        g = one.graph
        edges = (base + np.flatnonzero(g.kind == NodeKind.EDGE)).tolist()
        ends = [*edges[1:], base + int(np.flatnonzero(g.kind == NodeKind.END)[0])]
        for (number, _, _, complete), first, last in zip(g.steps, edges, ends, strict=True):
            j.starts[place[number]][p], j.ends[place[number]][p] = first, last
            whole[place[number]] &= complete
        base += len(g.time) + 1
    j.whole = whole


class _Calls(Struct):
    """Calls of all recordings in one row: base (recording → its first), arrival and done: nodes, -1 = none."""

    base: list[int]
    part: NDArray[np.int32]
    arrival: Ints
    done: Ints


def _calls(j: Joint) -> _Calls:
    sizes = [len(one.graph.label) for one in j.inputs]
    base = np.cumsum([0, *sizes]).tolist()
    out = _Calls(base, np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), *np.full((2, base[-1]), -1, np.int64))
    at = 0
    for p, one in enumerate(j.inputs):
        g = one.graph
        for kind, into in ((NodeKind.ARRIVAL, out.arrival), (NodeKind.DONE, out.done)):
            rows = np.flatnonzero((g.kind == kind) & (g.call >= 0))
            into[base[p] + g.call[rows]] = at + rows
        at += len(g.time) + 1
    return out


class _Edges(Struct):
    """Edges of communication: nodes, ns, and `Joint.why`."""

    src: Ints
    dst: Ints
    ns: Ints
    why: NDArray[np.int16]


def _tie(j: Joint, matches: pa.Table) -> list[_Edges]:
    """Add a hub for the last arrival of each match; the edges into hubs, and from there to the ends of calls."""
    calls = _calls(j)
    match, call = _members(j, calls)
    first = np.flatnonzero(np.append(True, match[1:] != match[:-1])) if len(match) else np.empty(0, np.intp)
    size = np.diff(np.append(first, len(match)))
    last = np.maximum.reduceat(j.time[calls.arrival[call]], first) if len(first) else np.empty(0, np.int64)
    tied = _tied(j, matches, calls, match, call, size, last)
    kept = np.logical_or.reduceat(tied, first) if len(first) else np.empty(0, np.bool_)
    hub = len(j.time) + np.cumsum(kept) - 1
    of_entry, in_hub = np.repeat(hub, size), np.repeat(kept, size)
    j.time, j.match = np.append(j.time, last[kept]), np.append(j.match, match[first][kept])
    src, dst = calls.arrival[call[in_hub]], of_entry[in_hub]
    home = np.full(int(kept.sum()), -1, np.int32)
    np.maximum.at(home, dst - len(j.kind), j.step[src])
    for name, value in (("kind", HUB), ("part", -1), ("local", -1)):
        old = getattr(j, name)
        setattr(j, name, np.append(old, np.full(len(home), value, old.dtype)))
    j.step = np.append(j.step, home)
    into = _Edges(src, dst, np.zeros(len(src), np.int64), np.full(len(src), -2, np.int16))
    hubs, ends = of_entry[tied], calls.done[call[tied]]
    j.meet = _meet(j, hubs, ends)
    return [into, *_finish(j, hubs, ends)]


def _members(j: Joint, calls: _Calls) -> tuple[Ints, Ints]:
    """(match, call that stands for the matched one) of all who are here, by match."""
    match, call = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for p, one in enumerate(j.inputs):
        if one.match is not None:
            rows = np.flatnonzero((one.match != NO_TIME) & (one.graph.owner >= 0))
            match.append(one.match[rows])
            call.append(calls.base[p] + one.graph.owner[rows].astype(np.int64))
    total = max(len(calls.done), 1)
    owned = np.concatenate(call)
    key = np.concatenate(match) * total + owned
    key = np.sort(key[calls.done[owned] >= 0])
    key = key[np.append(True, key[1:] != key[:-1])] if len(key) else key  # `np.unique` hashes: slower by far
    return key // total, key % total


def _tied(
    j: Joint, matches: pa.Table, calls: _Calls, match: Ints, call: Ints, size: NDArray[np.intp], last: Ints
) -> Flags:
    """Which calls cannot end before all of their match have come: all of a synchronising one; no buffered send.

    size, last: of each match, how many are here and when the last came.
    """
    here, last = np.repeat(size, size), np.repeat(last, size)
    kind, kinds = codes_of(matches.column("kind"))
    p2p = np.array([name == "p2p" for name in kinds], np.bool_)[kind[match]]
    split = codes_of(matches.column("reason"))[0][match] < 0
    sender = numbers_of(matches.column("src_rank"))[match]
    ranks = np.array([NO_TIME if one.rank is None else one.rank for one in j.inputs], np.int64)
    sends = ranks[calls.part[call]] == sender
    out: Flags = np.where(p2p, (here > 1) & (~sends | (j.time[calls.done[call]] >= last)), split)
    return out


def _meet(j: Joint, hub: Ints, tied: Ints) -> NDArray[np.int32]:
    """`Joint.meet`; tied: ends of calls, with the hub of each. Those with several (coalesced) meet in none."""
    out = np.arange(len(j.time), dtype=np.int32)
    done = np.flatnonzero(j.kind == NodeKind.DONE)
    done = done[j.step[done] == j.step[done - 1]]
    out[done] = done - 1  # the arrival: `compress` numbers them side by side
    out[tied], arrival = tied, tied - 1
    once = np.bincount(tied, minlength=len(out))[tied] == 1
    once &= (j.step[tied] == j.step[hub]) & (j.step[arrival] == j.step[hub])
    out[tied[once]] = out[arrival[once]] = hub[once]
    return out


def _finish(j: Joint, hub: Ints, tied: Ints) -> list[_Edges]:
    """Edges to the end of every call: from its arrival and the hubs (of coalesced calls several) that it waits for."""
    done = np.flatnonzero(j.kind == NodeKind.DONE)
    arrival = done - 1  # `compress` numbers them side by side
    last = j.time.copy()
    last[done] = j.time[arrival]
    np.maximum.at(last, tied, j.time[hub])
    waits = np.zeros(len(j.time), np.bool_)
    waits[tied] = True
    why = _reasons(j, done, ~waits[done])
    transfer = np.maximum(j.time - last, 0, out=last)
    return [
        _Edges(arrival, done, transfer[done], why),
        _Edges(hub, tied, transfer[tied], np.full(len(hub), -1, np.int16)),
    ]


def _reasons(j: Joint, done: Ints, alone: Flags) -> NDArray[np.int16]:
    """Why calls that are `alone` wait for nobody (into `reasons`, made here), by their ends; -1 for the others."""
    out = np.full(len(done), -1, np.int16)
    number = {"no-call": 0, "one-rank": 1}
    bounds = np.searchsorted(j.part[done], np.arange(len(j.inputs) + 1))  # the nodes of a recording follow one another
    for p, one in enumerate(j.inputs):
        rows = bounds[p] + np.flatnonzero(alone[bounds[p] : bounds[p + 1]])
        g = one.graph
        call = g.call[j.local[done[rows]]]
        out[rows] = call >= 0
        if one.why is not None:
            known = call[call >= 0]
            sends = np.array([op == "send" for _, op in g.labels], np.bool_)[g.label[known]].tolist()
            columns = zip(known.tolist(), sends, strict=True)
            texts = [one.why[c] or ("eager-send" if send else "unmatched") for c, send in columns]
            out[rows[call >= 0]] = [number.setdefault(text, len(number)) for text in texts]
    j.reasons = list(number)
    return out


def _connect(j: Joint, calls: Sequence[_Edges]) -> None:
    """All edges: those of the recordings and of calls."""
    graphs = [one.graph for one in j.inputs]
    base = np.cumsum([0, *(len(g.time) + 1 for g in graphs)], dtype=np.int32)
    begins = [np.where(g.src < 0, np.int32(len(g.time)), g.src) + at for g, at in zip(graphs, base, strict=False)]
    ends = [g.dst + at for g, at in zip(graphs, base, strict=False)]
    j.src = np.concatenate([*begins, *(e.src.astype(np.int32) for e in calls)])
    j.dst = np.concatenate([*ends, *(e.dst.astype(np.int32) for e in calls)])
    j.weight = np.concatenate([*(np.einsum("ij->i", g.parts.astype(np.int64)) for g in graphs), *(e.ns for e in calls)])
    j.compute = np.zeros(len(j.src), np.int64)
    own = sum(len(g.src) for g in graphs)
    np.concatenate([g.parts[:, Part.COMPUTE] for g in graphs], out=j.compute[:own])
    j.why = np.concatenate([np.full(own, -2, np.int16), *(e.why for e in calls)])

"""The graphs of all ranks as one: times on the common clock, calls tied where all their ranks have to be there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.critical.parts import PARTS, NodeKind, Part
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.critical.parts import Flags, Ints, RankGraph
    from tracekit.analysis.crossrank.clocks import Clock

Row = dict[str, Any]


@dataclass(slots=True)
class RankInput:
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


@dataclass(slots=True)
class Joint:
    """All ranks: N nodes and M edges, times int64 ns on the common clock.

    time (N); kind (N): `NodeKind`, -1 = all ranks of a call have come (hub), -2 = beginning of a recording; part (N):
    position in `inputs` (-1 for a hub); local (N): node in its rank's graph (-1); step (N): position in `steps` of
    the step that has it, a step's end included. src, dst (M); parts (M, PARTS); why (M): index into `reasons` of a
    call's edge (-1 = split), -2 = no call. terminals: step → (node per recording), edges: step → first node per
    recording.
    """

    inputs: list[RankInput]
    time: Ints
    kind: NDArray[np.int8]
    part: NDArray[np.int32]
    local: NDArray[np.int32]
    step: NDArray[np.int32]
    src: Ints
    dst: Ints
    parts: Ints
    why: NDArray[np.int16]
    reasons: list[str]
    match: Ints
    steps: list[int]
    whole: list[bool]
    starts: list[dict[int, int]] = field(default_factory=list)
    ends: list[dict[int, int]] = field(default_factory=list)

    @property
    def weight(self) -> Ints:
        """ns of each edge."""
        out: Ints = self.parts.sum(axis=1)
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


def join(inputs: Sequence[RankInput], matches: Sequence[Row]) -> Joint:
    """One graph of recordings with one clock. matches: rows of that table."""
    numbers = sorted({s[0] for one in inputs for s in one.graph.steps}, key=lambda n: _when(inputs, n))
    times, kinds, parts_, locals_, steps = [], [], [], [], []
    src, dst, weights = [], [], []
    at = 0
    for p, one in enumerate(inputs):
        g = one.graph
        n = len(g.time)
        times.append(_placed(one, np.append(g.time, g.begin)))
        kinds.append(np.append(g.kind, np.int8(BEGIN)))
        parts_.append(np.full(n + 1, p, np.int32))
        locals_.append(np.append(np.arange(n), -1).astype(np.int32))
        steps.append(np.append(_home(g, numbers), np.int32(-1)))
        src.append(np.where(g.src < 0, at + n, at + g.src.astype(np.int64)))
        dst.append(at + g.dst.astype(np.int64))
        weights.append(g.parts)
        at += n + 1
    out = Joint(
        list(inputs), np.concatenate(times), np.concatenate(kinds), np.concatenate(parts_), np.concatenate(locals_),
        np.concatenate(steps), np.concatenate(src), np.concatenate(dst), np.concatenate(weights),
        np.full(sum(map(len, src)), -2, np.int16), [], np.full(at, NO_TIME, np.int64), numbers, [],
    )  # fmt: skip
    _mark_steps(out)
    _tie(out, matches)
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


@dataclass(slots=True)
class _Calls:
    """Arrival and end node of the calls of all recordings: (recording, call) → nodes."""

    arrival: dict[tuple[int, int], int]
    done: dict[tuple[int, int], int]


def _calls(j: Joint) -> _Calls:
    out = _Calls({}, {})
    base = 0
    for p, one in enumerate(j.inputs):
        g = one.graph
        for kind, into in ((NodeKind.ARRIVAL, out.arrival), (NodeKind.DONE, out.done)):
            rows = np.flatnonzero(g.kind == kind)
            lone = g.call[rows] < 0
            keys = np.where(lone, -2 - np.arange(len(rows)), g.call[rows])
            into.update(zip(((p, c) for c in keys.tolist()), (base + rows).tolist(), strict=True))
        base += len(g.time) + 1
    return out


def _tie(j: Joint, matches: Sequence[Row]) -> None:
    """Add what ends a call: the last arrival and the transfer; on its own the whole call, with the reason."""
    calls = _calls(j)
    members = _members(j, calls)
    hubs: list[int] = []
    time, src, dst = [], [], []
    by_call: dict[tuple[int, int], list[int]] = {}
    n = len(j.time)
    for match, who in members.items():
        tied = _tied(j, matches[match], who, calls)
        if not tied:
            continue
        hub = n + len(hubs)
        hubs.append(match)
        arrivals = [calls.arrival[k] for k in who]
        time.append(int(j.time[arrivals].max()))
        src += arrivals
        dst += [hub] * len(arrivals)
        for key in tied:
            by_call.setdefault(key, []).append(hub)
    j.time = np.append(j.time, np.array(time, np.int64))
    j.match = np.append(j.match, np.array(hubs, np.int64))
    for name, value in (("kind", HUB), ("part", -1), ("local", -1)):
        old = getattr(j, name)
        setattr(j, name, np.append(old, np.full(len(hubs), value, old.dtype)))
    hub_src = np.array(src, np.int64)
    home = np.full(len(hubs), -1, np.int32)
    np.maximum.at(home, np.array(dst, np.int64) - n, j.step[hub_src])
    j.step = np.append(j.step, home)
    _add(j, hub_src, np.array(dst, np.int64), np.zeros(len(src), np.int64), np.full(len(src), -2, np.int16))
    _finish(j, calls, by_call)


def _members(j: Joint, calls: _Calls) -> dict[int, list[tuple[int, int]]]:
    """match → (recording, call that stands for the matched one) of all who are here."""
    out: dict[int, list[tuple[int, int]]] = {}
    for p, one in enumerate(j.inputs):
        if one.match is None:
            continue
        for call in np.flatnonzero(one.match != NO_TIME).tolist():
            key = (p, int(one.graph.owner[call]))
            if key in calls.done:
                out.setdefault(int(one.match[call]), []).append(key)
    return out


def _tied(j: Joint, match: Row, who: list[tuple[int, int]], calls: _Calls) -> list[tuple[int, int]]:
    """Which calls of a match cannot end before all have come: all of a synchronising one; no buffered send."""
    if match["kind"] != "p2p":
        return who if match["reason"] is None else []
    ranks = [j.inputs[p].rank for p, _ in who]
    if len(who) < 2 or None in ranks:
        return []
    last = max(int(j.time[calls.arrival[k]]) for k in who)
    return [k for k, r in zip(who, ranks, strict=True) if r != match["src_rank"] or int(j.time[calls.done[k]]) >= last]


def _finish(j: Joint, calls: _Calls, by_call: dict[tuple[int, int], list[int]]) -> None:
    reasons: dict[str, int] = {}
    src, dst, ns, why = [], [], [], []
    for key, done in calls.done.items():
        arrival = calls.arrival[key]
        hubs = by_call.get(key, [])
        last = max([int(j.time[h]) for h in hubs], default=int(j.time[arrival]))
        transfer = max(int(j.time[done]) - last, 0)
        reason = -1 if hubs else _reason(j, key, reasons)
        for node in (arrival, *hubs):
            src.append(node)
            dst.append(done)
            ns.append(transfer)
            why.append(reason)
    j.reasons = list(reasons)
    _add(j, np.array(src, np.int64), np.array(dst, np.int64), np.array(ns, np.int64), np.array(why, np.int16))


def _reason(j: Joint, key: tuple[int, int], reasons: dict[str, int]) -> int:
    one = j.inputs[key[0]]
    text: str | None = "one-rank"
    if key[1] < 0:
        text = "no-call"
    elif one.why is not None:
        text = one.why[key[1]] or ("eager-send" if one.graph.ops[key[1]] == "send" else "unmatched")
    return reasons.setdefault(text or "unmatched", len(reasons))


def _add(j: Joint, src: Ints, dst: Ints, ns: Ints, why: NDArray[np.int16]) -> None:
    parts = np.zeros((len(src), PARTS), np.int64)
    parts[:, Part.COMM] = ns
    j.src, j.dst = np.append(j.src, src), np.append(j.dst, dst)
    j.parts = np.concatenate([j.parts, parts])
    j.why = np.append(j.why, why)


def split(j: Joint) -> Flags:
    """Edges of calls whose waiting is known."""
    out: Flags = j.why == -1
    return out

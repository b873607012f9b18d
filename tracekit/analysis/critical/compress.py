"""Items and what they waited for → few nodes, and edges that hold the longest chain between them by kind of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.alike import call_kinds
from tracekit.analysis.critical.depend import NEVER, Dependencies, depend
from tracekit.analysis.critical.items import Items, items_of
from tracekit.analysis.critical.parts import PARTS, NodeKind, Part, RankGraph, position_of_max
from tracekit.analysis.distinct import distinct_rows
from tracekit.analysis.intervals import running
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.alike import CallKinds
    from tracekit.analysis.critical.parts import Ints
    from tracekit.model import HostTimes, LabelledRank

Row = dict[str, Any]
HOST_GAP_NS = 50_000
"""Longer gaps between operators of a host trace get a segment of their own."""


def rank_graph(
    labelled: LabelledRank, steps: Sequence[Row], origin: int, kinds: CallKinds | None = None
) -> RankGraph | None:
    """The compressed graph of one rank; None where its files show no work.

    steps: its rows of the table `steps`; kinds: of its calls, where known already.
    """
    kinds = kinds or call_kinds(labelled.calls)
    items = items_of(labelled, kinds)
    if items is None or not len(items.ts):
        return None
    links = depend(items, kinds, labelled.host)
    edges = _edge_items(items, steps, origin)
    runs = _runs(items, links, [i for i, *_ in edges])
    build = _Builder(items, links, runs, labelled.host)
    build.nodes([i for i, *_ in edges])
    build.connect()
    return build.graph(labelled, kinds, [step for _, step in edges], origin)


def _edge_items(items: Items, steps: Sequence[Row], origin: int) -> list[tuple[int, tuple[int, int, int, bool]]]:
    """The first item of each step and the step (number, start, end, complete), in order of time."""
    found: dict[int, list[Row]] = {}
    for row in steps:
        if row["dur_ns"] > 0:
            found.setdefault(row["step"], []).append(row)
    order = np.argsort(items.ts, kind="stable")
    out: dict[int, tuple[int, int, int, bool]] = {}
    for number, rows in found.items():
        start = min(r["ts_ns"] for r in rows) + origin
        at = int(np.searchsorted(items.ts[order], start, "left"))
        if at < len(order):
            item = int(order[at])
            end = max(r["ts_ns"] + r["dur_ns"] for r in rows) + origin
            out.setdefault(item, (number, int(items.ts[item]), end, all(r["complete"] for r in rows)))
    return sorted(out.items(), key=lambda pair: pair[1][1])


class _Runs(Struct):
    """Items cut into runs: first and last item of each, and the run of each item."""

    first: NDArray[np.intp]
    last: NDArray[np.intp]
    of: NDArray[np.intp]


def _runs(items: Items, links: Dependencies, edges: Sequence[int]) -> _Runs:
    """Cut where something outside the stream comes in or goes out."""
    n = len(items)
    cut = items.first | items.comm | (links.excess > 0)
    cut[links.target] = True
    cut[list(edges)] = True
    if items.on_host:
        cut |= links.delay > HOST_GAP_NS
    after = items.comm.copy()
    after[list(edges)] = True
    after[links.source] = True
    after[links.wait_source] = True
    cut[1:] |= after[:-1]
    launched = np.flatnonzero(links.ready > NEVER)
    moved = np.flatnonzero(np.diff(links.anchor[launched]) != 0) + 1
    cut[launched[moved]] = True
    first = np.flatnonzero(cut)
    return _Runs(first, np.append(first[1:], n) - 1, np.cumsum(cut) - 1)


class _Builder(Struct, dict=True):
    """Nodes and edges under construction; -1 stands for the beginning of the recording."""

    items: Items
    links: Dependencies
    runs: _Runs
    host: HostTimes | None
    fields: dict[str, Any] = field(default_factory=dict)
    src: list[Ints] = field(default_factory=list)
    dst: list[Ints] = field(default_factory=list)
    parts: list[Ints] = field(default_factory=list)

    def nodes(self, edges: Sequence[int]) -> None:
        """Number the nodes: for each run its end (a call: arrival and end), step edges, host waits, the end of all."""
        items, runs = self.items, self.runs
        n = len(runs.first)
        self.comm = items.comm[runs.first]
        size = np.where(self.comm, 2, 1)
        self.out = np.cumsum(size) - 1  # what later work waits for
        self.entry = np.where(self.comm, self.out - 1, self.out)  # what has to wait
        total = int(size.sum())
        self.edge = np.full(n, -1, np.int64)
        self.edge[runs.of[list(edges)]] = total + np.arange(len(edges))
        self.wait = total + len(edges) + np.arange(len(self.links.waits))
        self.end = total + len(edges) + len(self.links.waits)
        first, last = runs.first, runs.last
        run_out = np.where(self.comm, items.end[first], items.reach[last])
        longest = position_of_max(np.where(items.advance > 0, items.end - items.ts, 0), first)
        count = self.end + 1
        time, kind = np.zeros(count, np.int64), np.full(count, NodeKind.RUN, np.int8)
        name, lane, call = (np.full(count, -1, np.int32) for _ in range(3))
        many, thread = np.zeros(count, np.int32), np.full(count, -1, np.int32)
        time[self.entry], time[self.out] = items.ts[first], run_out
        kind[self.entry[self.comm]], kind[self.out[self.comm]] = NodeKind.ARRIVAL, NodeKind.DONE
        for nodes in (self.entry, self.out):
            name[nodes], lane[nodes], call[nodes] = items.name[longest], items.lane[first], items.call[first]
            many[nodes] = np.where(self.comm, 1, last - first + 1)
        time[total : total + len(edges)], kind[total : total + len(edges)] = items.ts[list(edges)], NodeKind.EDGE
        lane[total : total + len(edges)] = items.lane[list(edges)]
        kind[self.wait], kind[self.end], time[self.end] = NodeKind.HOST, NodeKind.END, items.reach.max()
        if self.host is not None:
            time[self.wait] = self.host.sync_end[self.links.waits]
            thread[self.wait] = self.host.sync_thread[self.links.waits]
        self.fields = {"time": time, "kind": kind, "name": name, "lane": lane, "thread": thread, "call": call,
                       "count": many}  # fmt: skip
        launches = items.launch[items.launch != NO_TIME]
        self.begin = int(min(items.ts.min(), launches.min(initial=items.ts.min()), time.min()))

    def connect(self) -> None:
        """All edges."""
        self._sums()
        stepped = np.flatnonzero(self.edge >= 0)
        chain = self._chain(self.runs.first[stepped], stepped)
        self._add(self.edge[stepped], self.entry[stepped], chain)
        # before a step's edge stands only what its first item waited for, not its own time
        own = self._chain(self.runs.first, np.arange(len(self.runs.first)))
        own[self.comm | (self.edge >= 0)] = 0
        into = np.where(self.edge >= 0, self.edge, self.entry)
        self._within_lanes(own, into)
        self._across(own, into)
        self._launches(into)
        self._waits()
        ends = np.flatnonzero(np.append(self.items.first[self.runs.first[1:]], True))
        self._add(self.out[ends], np.full(len(ends), self.end), np.zeros((len(ends), PARTS), np.int64))

    def _add(self, src: Ints, dst: Ints, parts: Ints) -> None:
        self.src.append(np.asarray(src, np.int64))
        self.dst.append(np.asarray(dst, np.int64))
        self.parts.append(parts)

    def _sums(self) -> None:
        """Running sums over all items of what each adds to a chain, and of the gaps before them."""
        items, links = self.items, self.links
        self.compute = running(np.where(items.comm | items.copy, 0, items.advance))
        self.copy = running(np.where(items.copy, items.advance, 0))
        self.gaps = running(links.delay)

    def _chain(self, start: NDArray[np.intp], run: NDArray[np.intp]) -> Ints:
        """Parts from the start of item `start` to the end of its run."""
        last = self.runs.last[run]
        out = np.zeros((len(start), PARTS), np.int64)
        out[:, Part.COMPUTE] = self.compute[last + 1] - self.compute[start]
        out[:, Part.COPY] = self.copy[last + 1] - self.copy[start]
        out[:, Part.GAP] = self.gaps[last + 1] - self.gaps[start + 1]
        out[self.comm[run]] = 0
        return out

    def _within_lanes(self, own: Ints, into: Ints) -> None:
        """Edges from the run before in the lane; from the beginning where nothing is known to come before."""
        items, first = self.items, self.runs.first
        inner = np.flatnonzero(~items.first[first])
        inner = inner[(items.before[first[inner]] <= items.ts[first[inner]]) | ~self.comm[inner]]
        parts = own[inner].copy()
        parts[:, Part.HOST if items.on_host else Part.GAP] += self.links.delay[first[inner]]
        self._add(self.out[inner - 1], into[inner], parts)
        alone = np.flatnonzero(items.first[first] & (self.links.ready[first] == NEVER))
        alone = alone[~np.isin(first[alone], self.links.target)]
        self._add(np.full(len(alone), -1), into[alone], own[alone])

    def _across(self, own: Ints, into: Ints) -> None:
        source, target = self.runs.of[self.links.source], self.runs.of[self.links.target]
        parts = own[target].copy()
        parts[:, Part.HOST if self.items.on_host else Part.LAUNCH] += self.links.delay[self.links.target]
        if self.items.on_host:  # the thread goes on until it makes the call, a worker takes it up
            calls = self.items.comm[self.links.target]
            at = self.links.target[calls]
            start = self.fields["time"][self.out[source[calls]]]
            parts[calls, Part.HOST] = np.maximum(self.items.launch[at] - start, 0)
            parts[calls, Part.LAUNCH] = self.items.ts[at] - start - parts[calls, Part.HOST]
        self._add(self.out[source], into[target], parts)

    def _launches(self, into: Ints) -> None:
        """Edges from the host: to each run from the launch in it that lets it end last."""
        items, links, runs = self.items, self.links, self.runs
        ready = links.ready + links.delay
        done = self.compute + self.copy + self.gaps
        value = np.where(links.ready > NEVER, ready + items.advance - done[1:], NEVER)
        at = position_of_max(value, runs.first)
        bare = self.comm | (self.edge >= 0)
        at = np.where(bare, runs.first, at)
        run = np.flatnonzero(links.ready[at] > NEVER)
        at = at[run]
        if items.on_host:
            run, at = run[np.isin(at, links.target, invert=True)], at[np.isin(at, links.target, invert=True)]
        parts = self._chain(at, run)
        parts[bare[run]] = 0
        anchor = links.anchor[at] if len(self.wait) else np.full(len(at), -1)
        source = np.where(anchor >= 0, self.wait[anchor] if len(self.wait) else -1, -1)
        since = np.where(source >= 0, self.fields["time"][source], self.begin)
        parts[:, Part.HOST] += items.launch[at] - since
        parts[:, Part.LAUNCH] += links.ready[at] - items.launch[at] + links.delay[at]
        self._add(source, into[run], parts)
        if self.host is not None and len(self.host.launch_ts):
            row = np.searchsorted(self.host.launch_ts, items.launch[at], "right") - 1
            self.fields["thread"][into[run]] = self.host.launch_thread[np.maximum(row, 0)]

    def _waits(self) -> None:
        """Edges to the returns of host waits: from the work waited for, and along the host."""
        if self.host is None or not len(self.wait):
            return
        source = self.out[self.runs.of[self.links.wait_source]]
        back = self.fields["time"][self.wait]
        parts = np.zeros((len(source), PARTS), np.int64)
        parts[:, Part.SYNC] = np.maximum(back - self.fields["time"][source], 0)
        self._add(source, self.wait, parts)
        called = self.host.sync_ts[self.links.waits]
        since = np.concatenate([[self.begin], back[:-1]])
        parts = np.zeros((len(source), PARTS), np.int64)
        parts[:, Part.HOST] = np.maximum(called - since, 0)
        self._add(np.concatenate([[-1], self.wait[:-1]]), self.wait, parts)

    def _issued(self, called: Ints) -> NDArray[np.int32]:
        """Calls that the host had made when it issued the first item of each run. called: when (`NO_TIME` = never)."""
        made = np.sort(called[called != NO_TIME])
        items, first = self.items, self.runs.first
        when = np.where((items.launch == NO_TIME) & items.on_host, items.ts, items.launch)[first]
        out = np.full(len(self.fields["time"]), -1, np.int32)
        out[self.out] = np.where(when == NO_TIME, -1, np.searchsorted(made, when, "right"))
        return out

    def graph(
        self, labelled: LabelledRank, kinds: CallKinds, steps: list[tuple[int, int, int, bool]], origin: int
    ) -> RankGraph:
        """The graph with times from the origin, and only the names that it uses."""
        f = self.fields
        del self.compute, self.copy, self.gaps
        src, dst, parts = (_joined(pieces) for pieces in (self.src, self.dst, self.parts))
        used, name = distinct_rows([f["name"].astype(np.int64)])
        names = ["" if i < 0 else labelled.activities.names[i][:160] for i in used[:, 0].tolist()]
        starts = np.array([s[1] for s in steps], np.int64)
        step = np.searchsorted(starts, f["time"], "right") - 1
        node_of = np.full(len(labelled.calls), -1, np.int32)
        has = f["call"] >= 0
        node_of[f["call"][has]] = f["call"][has]
        owner = kinds.numbers("coalesced_into")
        owner = np.where(owner == NO_TIME, np.arange(len(owner)), owner)
        return RankGraph(
            self.begin - origin, f["time"] - origin, f["kind"], step.astype(np.int32),
            name.astype(np.int32),
            f["lane"], f["thread"], f["call"], f["count"], self._issued(kinds.numbers("call_ts")),
            src.astype(np.int32), dst.astype(np.int32), _narrow(parts),
            [(number, start - origin, end - origin, whole) for number, start, end, whole in steps], names,
            self.items.lanes, labelled.host.threads if labelled.host is not None else [],
            node_of[owner],
            kinds.which, [(c.label.strategy, c.op) for c in kinds.examples], self.items.on_host,
        )  # fmt: skip


def _joined(pieces: list[Ints]) -> Ints:
    """The pieces in one; the list is emptied, to keep the peak low."""
    out = np.concatenate(pieces)
    pieces.clear()
    return out


def _narrow(parts: Ints) -> NDArray[np.signedinteger[Any]]:
    """In half the bytes where they fit: these are most of what is kept of a rank."""
    limit = np.iinfo(np.int32)
    fits = parts.max(initial=0) <= limit.max and parts.min(initial=0) >= limit.min
    return parts.astype(np.int32) if fits else parts

"""Back from the end of a step to its start, along what each thing waited for last: segments that add up to the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.critical.joint import HUB
from tracekit.analysis.critical.parts import position_of_max
from tracekit.analysis.critical.pieces import COMM, COPY, HOST, LAUNCH, UNSPLIT, WAIT, Piece, pieces_of
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.critical.joint import Joint
    from tracekit.analysis.critical.parts import Flags, Ints
    from tracekit.analysis.critical.pieces import Pieces

NOT_WAITING = ("eager-send",)
"""Reasons for which a call is not split, because it waits for nobody."""


class Segments(Struct):
    """Stretches of paths, each on one recording, path after path and in order of time; int64 (n) each.

    path: position among the paths asked for; part: recording (-1 = none); kind: position in `KINDS`; start, end: ns on
    the common clock, a segment ends where the next one starts; lane, thread: of the recording (-1 = none); name: into
    `Walk.names`; gap, copy: ns of it; count: activities; call: of the recording; match; reason: into `Walk.reasons`;
    longest: ns of what it is named after.
    """

    path: Ints
    part: Ints
    kind: Ints
    start: Ints
    end: Ints
    lane: Ints
    thread: Ints
    name: Ints
    gap: Ints
    copy: Ints
    count: Ints
    call: Ints
    match: Ints
    reason: Ints
    longest: Ints

    def __len__(self) -> int:
        return len(self.path)

    def by_kind(self, on_host: Flags) -> list[tuple[NDArray[np.intp], Ints, Ints]]:
        """(segments, kind, ns): what each consists of; adds up to its length. on_host: of each recording."""
        gaps, copies = np.flatnonzero(self.gap), np.flatnonzero(self.copy)
        return [
            (np.arange(len(self)), self.kind, self.end - self.start - self.gap - self.copy),
            (gaps, np.where(on_host[self.part[gaps]], HOST, LAUNCH), self.gap[gaps]),
            (copies, np.full(len(copies), COPY), self.copy[copies]),
        ]


class Walk:
    """The graph in a form to walk back through. names, reasons: what `Segments` refers to."""

    def __init__(self, joint: Joint) -> None:
        self.joint = joint
        self.weight = joint.weight
        source, dst = joint.time[joint.src], joint.dst
        done = source + joint.weight
        done[source > joint.time[dst]] = NO_TIME
        edges = np.flatnonzero(_largest(done, dst, len(joint.time)))
        edges = edges[_largest(source[edges], dst[edges], len(joint.time))][::-1]
        self._cause, self._before = np.full((2, len(joint.time)), -1, np.int64)
        self._cause[dst[edges]], self._before[dst[edges]] = edges, joint.src[edges]  # the last to be written stays
        self.names = [name for one in joint.inputs for name in one.graph.names]
        self.reasons = [*joint.reasons, "unexplained", "recording-begins"]

    def cause(self, node: int) -> int:
        """Edge of what a node waited for last; -1 for a beginning. Of equal ones the latest source, then the first."""
        return int(self._cause[node])

    def paths(self, spans: Sequence[tuple[int, int]]) -> Segments:
        """For each (start, node) the segments from `start` to the node's time; lengths add up to the difference."""
        found = [self._back(start, node) for start, node in spans]
        path = np.repeat(np.arange(len(spans)), [len(edges) for edges, _ in found])
        edges, nodes = (np.array([x for pair in found for x in pair[i]], np.int64) for i in (0, 1))
        start = np.array([s for s, _ in spans], np.int64)[path]
        return _merged(self._segments(edges, nodes, path, start))

    def _back(self, start: int, node: int) -> tuple[list[int], list[int]]:
        """Edges in order of time and the nodes they lead to; edge -1: before it there is no recording."""
        time, cause, before = self.joint.time.data, self._cause.data, self._before.data
        edges: list[int] = []
        nodes: list[int] = []
        seen: set[int] = set()
        at = time[node]
        while at > start:
            edge = -1 if node in seen else cause[node]
            since = start if edge < 0 else time[before[node]]
            if since < at:
                edges.append(edge)
                nodes.append(node)
            seen.add(node)
            node, at = before[node], since
        return edges[::-1], nodes[::-1]

    def _segments(self, edges: Ints, nodes: Ints, path: Ints, start: Ints) -> Segments:
        """What lies on edges, each from its `start` on."""
        j = self.joint
        part, begins = j.part[nodes].astype(np.int64), edges < 0
        until = j.time[nodes]
        length = until - np.where(begins, start, j.time[j.src[edges]])
        parts = np.where(begins[:, None], 0, j.parts(edges))
        on_host = np.array([one.graph.on_host for one in j.inputs], np.bool_)[part]
        p = pieces_of(parts, until, length, start, on_host)
        at = {name: column[p.edge] for name, column in self._about(part, nodes).items()}
        comm, host = p.kind == COMM, (p.piece == Piece.HOST) | (p.piece == Piece.SYNC)
        call, edge = np.where(comm, at["call"], -1), edges[p.edge]
        reason = self._reason(p, edge)
        splits = np.array([r in NOT_WAITING for r in self.reasons] + [True], np.bool_)
        return Segments(
            path[p.edge], part[p.edge], np.where(comm & ~splits[reason], UNSPLIT, p.kind), p.start, p.end,
            np.where(host | (edge < 0), -1, at["lane"]), np.where(host, at["thread"], -1),
            np.where(p.working | (p.piece == Piece.LAUNCH), at["name"], -1), p.gap, p.copy,
            np.where(comm, 1, np.where(p.working, at["count"], 0)), call,
            np.where(comm, self._match(edge, part[p.edge], call), -1), reason, p.longest,
        )  # fmt: skip

    def _about(self, part: Ints, nodes: Ints) -> dict[str, Ints]:
        """Columns of the recordings' graphs for nodes of the whole; names into `names`."""
        j = self.joint
        local = j.local[nodes]
        out = {name: np.full(len(nodes), -1, np.int64) for name in ("lane", "thread", "name", "count", "call")}
        named = 0
        bounds = np.searchsorted(part, np.arange(len(j.inputs) + 1), sorter=(order := np.argsort(part, kind="stable")))
        for p, one in enumerate(j.inputs):
            rows = order[bounds[p] : bounds[p + 1]]
            for name, column in out.items():
                column[rows] = getattr(one.graph, name)[local[rows]]
            out["name"][rows] += named
            named += len(one.graph.names)
        return out

    def _reason(self, p: Pieces, edge: Ints) -> Ints:
        """Why a call is not split, or what waiting has to do with; -1 = nothing to say."""
        out = np.where(p.kind == COMM, np.maximum(self.joint.why[edge].astype(np.int64), -1), -1)
        out[p.kind == WAIT] = self.reasons.index("unexplained", len(self.joint.reasons))
        out[edge < 0] = len(self.reasons) - 1
        return out

    def _match(self, edge: Ints, part: Ints, call: Ints) -> Ints:
        """Match of a call: of the hub that its transfer follows, else the recording's own; negative = none."""
        j = self.joint
        source = j.src[edge]
        out = np.where(j.kind[source] == HUB, j.match[source], -1)
        own = (j.kind[source] != HUB) & (call >= 0)
        for p in np.unique(part[own]).tolist():
            match = j.inputs[p].match
            if match is not None:
                rows = np.flatnonzero(own & (part == p))
                out[rows] = match[call[rows]]
        return out


def _largest(value: Ints, dst: NDArray[np.int32], n: int) -> Flags:
    """Which edges have the largest value (not NO_TIME) of all into their node."""
    most = np.full(n, NO_TIME, np.int64)
    np.maximum.at(most, dst, value)
    out: Flags = (value == most[dst]) & (value != NO_TIME)
    return out


def _merged(s: Segments) -> Segments:
    """Neighbours on one stream or thread of one kind as one segment, named after the longest."""
    starts = (s.kind == COMM) | (s.kind == UNSPLIT)
    starts[:1] = True
    for column in (s.path, s.part, s.kind, s.lane, s.thread):
        starts[1:] |= column[1:] != column[:-1]
    first = np.flatnonzero(starts)
    if len(first) == len(s):
        return s
    out = Segments(*(getattr(s, name)[first] for name in s.__struct_fields__))
    out.end = s.end[np.append(first[1:], len(s)) - 1]
    out.gap, out.copy, out.count = (np.add.reduceat(column, first) for column in (s.gap, s.copy, s.count))
    longest = position_of_max(s.longest, first)
    out.name, out.longest = s.name[longest], s.longest[longest]
    return out

"""Back from the end of a step to its start, along what each thing waited for last: segments that add up to the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.critical.depend import TOGETHER_NS
from tracekit.analysis.critical.joint import HUB
from tracekit.analysis.critical.parts import Part
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from tracekit.analysis.critical.joint import Joint
    from tracekit.analysis.critical.parts import RankGraph

KINDS = ("compute", "comm", "unsplit", "copy", "launch", "host", "sync", "wait")
NOT_WAITING = ("eager-send",)
"""Reasons for which a call is not split, because it waits for nobody."""
_ROUNDING = 1_000
"""A thousandth of an edge may be lost between two clocks that run at different speeds."""


class Segment(Struct):
    """A stretch of the path on one recording, ns on the common clock; ends where the next one starts."""

    part: int
    kind: str
    start: int
    end: int
    lane: int = -1
    thread: int = -1
    name: str = ""
    gap: int = 0
    copy: int = 0
    count: int = 0
    call: int = -1
    match: int = -1
    reason: str | None = None
    longest: int = 0

    def by_kind(self, on_host: bool) -> dict[str, int]:
        """ns of each kind; they add up to the length."""
        out = {self.kind: self.end - self.start - self.gap - self.copy}
        for kind, ns in (("host" if on_host else "launch", self.gap), ("copy", self.copy)):
            if ns:
                out[kind] = out.get(kind, 0) + ns
        return out


class Walk:
    """The graph in a form to walk back through."""

    def __init__(self, joint: Joint) -> None:
        self.joint = joint
        source, target = joint.time[joint.src], joint.time[joint.dst]
        edges = np.flatnonzero(source <= target)
        source, dst = source[edges], joint.dst[edges]
        order = np.lexsort((-edges, source, source + joint.weight[edges], dst))
        best = order[np.append(dst[order][1:] != dst[order][:-1], True)] if len(order) else order
        self.weight = joint.weight
        self._cause = np.full(len(joint.time), -1, np.int64)
        self._cause[dst[best]] = edges[best]

    def cause(self, node: int) -> int:
        """Edge of what a node waited for last; -1 for a beginning. Of equal ones the latest source, then the first."""
        return int(self._cause[node])

    def path(self, start: int, end_node: int) -> list[Segment]:
        """Segments from `start` to the time of a node, in order; their lengths add up to the difference."""
        j, node = self.joint, end_node
        out: list[Segment] = []
        at = int(j.time[node])
        seen: set[int] = set()
        while at > start:
            edge = -1 if node in seen else self.cause(node)
            seen.add(node)
            if edge < 0:
                out.append(Segment(int(j.part[node]), "wait", start, at, reason="recording-begins"))
                break
            source = int(j.src[edge])
            since = max(int(j.time[source]), start)
            if since < at:
                out += self._segments(edge, int(j.time[source]), at, start)
            node, at = source, since
        return _merged(out[::-1])

    def _segments(self, edge: int, since: int, until: int, start: int) -> list[Segment]:
        """What lies on an edge, last first, from `start` on."""
        j = self.joint
        node = int(j.dst[edge])
        parts = _fitted(j.parts[edge].tolist(), until - since)
        part = int(j.part[node])
        g, local = j.inputs[part].graph, int(j.local[node])
        out = []
        for segment in _of_edge(g, local, part, parts, until):
            if segment.kind in ("comm", "unsplit"):
                self._call(segment, edge)
            if segment.end <= start:
                break
            if segment.start < start:
                _clip(segment, start)
            out.append(segment)
        return out

    def _call(self, s: Segment, edge: int) -> None:
        j = self.joint
        why = int(j.why[edge])
        s.reason = j.reasons[why] if why >= 0 else None
        s.kind = "comm" if s.reason is None or s.reason in NOT_WAITING else "unsplit"
        source = int(j.src[edge])
        if j.kind[source] == HUB:
            s.match = int(j.match[source])
        else:
            one = j.inputs[s.part]
            if s.call >= 0 and one.match is not None and one.match[s.call] != NO_TIME:
                s.match = int(one.match[s.call])


def _fitted(parts: list[int], length: int) -> list[int]:
    """Parts of an edge and what nothing explains, adding up to the time between its nodes.

    Clocks that run at different speeds, or that are wrong by their error, leave a little too much or too little.
    """
    left = length - sum(parts)
    if left > 0 and left * _ROUNDING <= length and any(parts):
        parts[max(range(len(parts)), key=parts.__getitem__)] += left
        left = 0
    for i in range(len(parts)):
        if left >= 0:
            break
        cut = min(max(parts[i], 0), -left)
        parts[i] -= cut
        left += cut
    return [*parts, max(left, 0)]


def _of_edge(g: RankGraph, local: int, part: int, parts: list[int], until: int) -> list[Segment]:
    """Segments of an edge, the last first: work at its end, before that the launch, the host, what is unexplained."""
    *_, unexplained = parts
    lane, thread = int(g.lane[local]), int(g.thread[local])
    out: list[Segment] = []

    def put(kind: str, ns: int) -> Segment:
        end = out[-1].start if out else until
        out.append(Segment(part, kind, end - ns, end))
        return out[-1]

    name, count = g.names[g.name[local]], int(g.count[local])
    if parts[Part.LAUNCH] <= TOGETHER_NS and parts[Part.COMPUTE]:
        parts[Part.GAP] += parts[Part.LAUNCH]
        parts[Part.LAUNCH] = 0
    run = parts[Part.COMPUTE] + parts[Part.COPY] + parts[Part.GAP]
    if parts[Part.COMM]:
        s = put("comm", parts[Part.COMM])
        s.lane, s.name, s.call, s.count = lane, name, int(g.call[local]), 1
    if run:
        only_gap = run == parts[Part.GAP]
        kind = ("host" if g.on_host else "launch") if only_gap else "compute" if parts[Part.COMPUTE] else "copy"
        s = put(kind, run)
        s.lane, s.longest = lane, run
        if not only_gap:
            s.name, s.count, s.gap = name, count, parts[Part.GAP]
            s.copy = parts[Part.COPY] if kind == "compute" else 0
    if parts[Part.LAUNCH]:
        s = put("launch", parts[Part.LAUNCH])
        s.lane, s.name = lane, name
    if parts[Part.SYNC]:
        put("sync", parts[Part.SYNC]).thread = thread
    if parts[Part.HOST]:
        put("host", parts[Part.HOST]).thread = thread
    if unexplained:
        s = put("wait", unexplained)
        s.lane, s.reason = lane, "unexplained"
    return out


def _clip(s: Segment, start: int) -> None:
    """Cut the beginning off; gaps and copies lose in proportion."""
    whole, left = s.end - s.start, s.end - start
    s.gap, s.copy, s.start = s.gap * left // whole, s.copy * left // whole, start


def _merged(segments: list[Segment]) -> list[Segment]:
    """Neighbours on one stream or thread of one kind as one segment, named after the longest."""
    out: list[Segment] = []
    for s in segments:
        last = out[-1] if out else None
        if (
            last is None
            or s.kind in ("comm", "unsplit")
            or (last.part, last.kind, last.lane, last.thread) != (s.part, s.kind, s.lane, s.thread)
        ):
            out.append(s)
            continue
        last.end, last.gap, last.copy, last.count = s.end, last.gap + s.gap, last.copy + s.copy, last.count + s.count
        if s.longest > last.longest:
            last.name, last.longest = s.name, s.longest
    return out

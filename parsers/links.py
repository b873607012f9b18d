"""Tie device work to the host: launch call, operator, enclosing scopes; all in numpy, all verified.

Ids in these files lie: correlation ids repeat after several sessions, and writers before torch 2.5 put a
kernel's own correlation into `External id`. So each join by id is checked against time and thread, and what
fails falls back to containment in time, then to the annotation on the device's stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.model import HostCat, LinkConfidence, RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Rows = NDArray[np.int32]
    Mask = NDArray[np.bool_]

SKEW_NS = 10_000
"""A kernel may seem to start this much before its launch: host and device clocks are aligned no better."""
EDGE_NS = 1_000
"""Spans bleed over the edge of their parent by less than this (times cut to whole µs)."""
REPEAT_NS = 1_000_000_000
"""Two activities further apart than this cannot come from one ordinary launch call."""
MAX_SKEW_NS = 1_000_000
"""With a correlation id that occurs once, clocks may disagree by this much before the join is refused."""
_MANY_PER_LAUNCH = ("graph", "batch", "multidevice")
_MAX_PAIRS = 1 << 18
_MAX_SPARSE = 4
"""Ids that reach over this many times their number are looked up by search."""


class Spans(Struct):
    """Spans on tracks: equal-length int64 arrays, sorted by (start, -length); `row` is the caller's number."""

    track: Ints
    ts: Ints
    end: Ints
    row: Ints


class Links(Struct):
    """Per device row: `launch` and `op` (host rows, -1 = none), `note` (row of `trace.annotations`, -1), and
    `confidence` (int8 `LinkConfidence`): ID = launch and operator agree by id; CONTAINMENT = launch by id,
    operator by time and thread; ANNOTATION = only the annotation on its stream. `skewed` rows seem to start
    before their launch, by up to `worst_skew_ns`: device and host clocks of the file do not agree.
    """

    trace: RankTrace
    launch: Rows
    op: Rows
    note: Rows
    confidence: NDArray[np.int8]
    skewed: int = 0
    worst_skew_ns: int = 0

    def scopes(
        self,
        track: NDArray[np.int32],
        ts: Ints,
        end: Ints | None = None,
        own: Ints | None = None,
        *,
        python: bool = False,
    ) -> tuple[Ints, Rows]:
        """Host rows that enclose each query: (offsets, rows); rows of query i are rows[offsets[i]:offsets[i+1]],
        outermost first.

        track: int32 index into `trace.tracks`; ts, end: int64 ns (end defaults to ts); own: a host row to leave
        out for each query. Operators and annotations count, Python frames only with python=True. Spans of the
        gloo workers are asynchronous and enclose nothing.
        """
        host = self.trace.host
        usable = host.cat != HostCat.RUNTIME
        if not python:
            usable &= host.cat != HostCat.PYTHON
        asynchronous = np.array([n.startswith("gloo:") for n in self.trace.names], np.bool_)
        if asynchronous.any():
            usable &= ~asynchronous[host.name]
        spans = host_spans(self.trace, usable)
        stop = ts if end is None else end
        query, row = enclosing(spans, track.astype(np.int64), ts, stop)
        if own is not None:
            keep = row != own[query]
            query, row = query[keep], row[keep]
        offsets = np.searchsorted(query, np.arange(len(ts) + 1))
        return offsets.astype(np.int64), row


def host_spans(trace: RankTrace, mask: Mask) -> Spans:
    """The host rows under `mask` as `Spans`."""
    host = trace.host
    row = np.flatnonzero(mask)
    ts = host.ts[row]
    return Spans(host.track[row].astype(np.int64), ts, ts + host.dur[row], row)


def enclosing(spans: Spans, track: Ints, ts: Ints, end: Ints) -> tuple[Rows, Rows]:
    """All pairs (query, row) where the span encloses the query; sorted by query, outermost span first.

    A span encloses a query on its track that starts inside it, and ends inside it too (to `EDGE_NS`) or began
    clearly before the span's end: children do outlast parents.
    """
    if not len(ts) or not len(spans.ts):
        return np.empty(0, np.int32), np.empty(0, np.int32)
    tracks = _distinct(track)
    near, first, last = _near(spans, tracks, np.sort(ts))
    base = len(ts) + 1
    key = np.searchsorted(tracks, track) * base + np.searchsorted(np.sort(ts), ts)
    order = np.argsort(key, kind="stable")
    key = key[order]
    span_key = np.searchsorted(tracks, spans.track[near]) * base
    lo = np.searchsorted(key, span_key + first, "left")
    hi = np.searchsorted(key, span_key + last, "left")
    del first, last, span_key, key  # what is found now takes as much again
    hit = np.flatnonzero(lo < hi)
    near, lo, counts = near[hit], lo[hit], (hi - lo)[hit]
    del hi, hit
    parts = [_pairs(spans, near[a:b], lo[a:b], counts[a:b], order, ts, end) for a, b in _blocks(counts, _MAX_PAIRS)]
    del near, lo, counts, order
    query = np.concatenate([p[0] for p in parts]) if parts else np.empty(0, np.int32)
    row = np.concatenate([p[1] for p in parts]) if parts else np.empty(0, np.int32)
    del parts
    by_query = np.argsort(query, kind="stable")
    return query[by_query], row[by_query]


def _near(spans: Spans, tracks: Ints, times: Ints) -> tuple[Ints, Ints, Ints]:
    """Spans on these tracks that hold any of the times (ascending): their positions, first time in each and last."""
    # Both are in order of time: the few times are looked up among the many spans, not the other way round.
    first = np.cumsum(np.bincount(np.searchsorted(spans.ts, times, "right"), minlength=len(spans.ts) + 1))[:-1]
    near = np.flatnonzero(np.append(times, np.iinfo(np.int64).max)[first] <= spans.end)
    near = near[np.isin(spans.track[near], tracks)]
    return near, first[near], np.searchsorted(times, spans.end[near], "right")


def _distinct(values: Ints) -> Ints:
    """Sorted distinct values; faster than `np.unique` for the few tracks of many queries."""
    ordered = np.sort(values)
    out: Ints = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    return out


def _blocks(counts: Ints, limit: int) -> list[tuple[int, int]]:
    """Cut 0..n so that each block holds about `limit` pairs: the memory of a deep trace stays bounded."""
    if not len(counts):
        return []
    total = np.cumsum(counts)
    edges = np.searchsorted(total, np.arange(limit, total[-1], limit)) + 1
    bounds = np.unique(np.concatenate([[0], edges, [len(counts)]]))
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


def _pairs(spans: Spans, near: Ints, lo: Ints, counts: Ints, order: Ints, ts: Ints, end: Ints) -> tuple[Rows, Rows]:
    total = int(counts.sum())
    span = np.repeat(near, counts)
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    query = order[np.repeat(lo, counts) + within]
    stop = spans.end[span]
    keep = (stop + EDGE_NS >= end[query]) | (stop >= ts[query] + EDGE_NS)
    return query[keep].astype(np.int32), spans.row[span[keep]].astype(np.int32)


def _innermost(spans: Spans, track: Ints, ts: Ints, end: Ints) -> Ints:
    """The last-started enclosing row of each query, -1 for none."""
    query, row = enclosing(spans, track, ts, end)
    out = np.full(len(ts), -1, np.int64)
    out[query] = row  # pairs come outermost first, so the innermost is written last
    return out


def _latest(keys: Ints, ts: Ints, want: Ints, by: Ints) -> Ints:
    """Position of the latest entry with the wanted key and ts <= by; -1 for none. `ts` is ascending."""
    quick = _latest_of_unique(keys, ts, want, by)
    if quick is not None:
        return quick
    order = np.argsort(keys, kind="stable")
    keys, ts = keys[order], ts[order]
    start = np.searchsorted(keys, want, "left")
    stop = np.searchsorted(keys, want, "right")
    found = start < stop
    if not (stop - start > 1).any():
        at = np.where(found, start, 0)
        found &= ts[at] <= by if len(ts) else found
    else:
        times = np.sort(ts)
        group = np.searchsorted(keys, keys, "left")
        rank = group * (len(times) + 1) + np.searchsorted(times, ts)
        goal = start * (len(times) + 1) + np.searchsorted(times, by, "right") - 1
        at = np.searchsorted(rank, goal, "right") - 1
        found &= at >= start
        at = np.where(found, at, 0)
    out = np.full(len(want), -1, np.int64)
    out[found] = order[at[found]]
    return out


def _latest_of_unique(keys: Ints, ts: Ints, want: Ints, by: Ints) -> Ints | None:
    """`_latest` by one look in a table, where keys are close to each other and each occurs once; else None."""
    low, high = (int(keys.min()), int(keys.max())) if len(keys) else (0, -1)
    if not 0 < high - low + 1 <= _MAX_SPARSE * len(keys):
        return None
    table = np.full(high - low + 1, -1, np.int32)
    number = np.arange(len(keys), dtype=np.int32)
    table[keys - low] = number
    if (table[keys - low] != number).any():
        return None
    known = (want >= low) & (want <= high)
    at = np.where(known, table[np.where(known, want - low, 0)], -1)
    return np.where((at >= 0) & (ts[at] <= by), at, -1)


def _launches(trace: RankTrace) -> Ints:
    """Launch row of each device row by correlation, started no later than the device row (plus skew)."""
    host, device = trace.host, trace.device
    out = np.full(len(device), -1, np.int64)
    calls = np.flatnonzero((host.cat == HostCat.RUNTIME) & (host.corr != -1))
    wanted = np.flatnonzero(device.corr != -1)
    if not len(calls) or not len(wanted):
        return out
    keys, ts = host.corr[calls], host.ts[calls]
    at = _latest(keys, ts, device.corr[wanted], device.ts[wanted] + SKEW_NS)
    lost = np.flatnonzero(at < 0)
    if len(lost):
        ids, counts = np.unique(keys, return_counts=True)
        once = np.isin(device.corr[wanted[lost]], ids[counts == 1])
        late = lost[once]
        at[late] = _latest(keys, ts, device.corr[wanted[late]], device.ts[wanted[late]] + MAX_SKEW_NS)
    hit = at >= 0
    out[wanted[hit]] = calls[at[hit]]
    return _drop_repeats(trace, out)


def _drop_repeats(trace: RankTrace, launch: Ints) -> Ints:
    """One ordinary call issues one activity (or a few at once); a later one has lost its own call."""
    linked = np.flatnonzero(launch >= 0)
    rows = launch[linked]
    first: Ints = np.full(len(trace.host), np.iinfo(np.int64).max, np.int64)
    np.minimum.at(first, rows, trace.device.ts[linked])
    late = trace.device.ts[linked] - first[rows] > REPEAT_NS
    if late.any():
        many = np.array([any(w in n.lower() for w in _MANY_PER_LAUNCH) for n in trace.names], np.bool_)
        late &= ~many[trace.host.name[rows]]
        launch[linked[late]] = -1
    return launch


def _operators(trace: RankTrace, launch: Ints) -> tuple[Ints, Mask]:
    """Operator row of each device row with a launch, and whether the External id confirms it."""
    host, device = trace.host, trace.device
    op = np.full(len(device), -1, np.int64)
    by_id = np.zeros(len(device), np.bool_)
    is_op = host.cat == HostCat.CPU_OP
    linked = np.flatnonzero(launch >= 0)
    call = launch[linked]
    ts, end = host.ts[call], host.ts[call] + host.dur[call]
    with_id = np.flatnonzero(device.ext[linked] != -1)
    ops = np.flatnonzero(is_op & (host.ext != -1))
    if len(with_id) and len(ops):
        at = _latest(host.ext[ops], host.ts[ops], device.ext[linked[with_id]], ts[with_id] + EDGE_NS)
        row = ops[np.where(at >= 0, at, 0)]
        sure = (at >= 0) & (host.track[row] == host.track[call[with_id]])
        sure &= end[with_id] <= host.ts[row] + host.dur[row] + EDGE_NS
        op[linked[with_id[sure]]] = row[sure]
        by_id[linked[with_id[sure]]] = True
    rest = np.flatnonzero(~by_id[linked])
    if len(rest):
        spans = host_spans(trace, is_op)
        op[linked[rest]] = _innermost(spans, host.track[call[rest]].astype(np.int64), ts[rest], end[rest])
    return op, by_id


def _notes(trace: RankTrace, launch: Ints) -> Ints:
    """Innermost device annotation over each device row that has no launch, on its own device and stream."""
    notes, device = trace.annotations, trace.device
    out = np.full(len(device), -1, np.int64)
    lost = np.flatnonzero(launch < 0)
    if not len(lost) or not len(notes):
        return out
    places: dict[tuple[int, int], int] = {}
    track_of = [
        places.setdefault(k, len(places)) for k in zip(notes.device.tolist(), notes.stream.tolist(), strict=True)
    ]
    lane = zip(device.device[lost].tolist(), device.stream[lost].tolist(), strict=True)
    track = np.array([places.get(k, -1) for k in lane], np.int64)
    order = np.lexsort((-notes.dur, notes.ts))
    start = notes.ts[order]
    spans = Spans(np.array(track_of, np.int64)[order], start, start + notes.dur[order], order)
    out[lost] = _innermost(spans, track, device.ts[lost], device.ts[lost] + device.dur[lost])
    return out


def link(trace: RankTrace) -> Links:
    """Tie every device row of `trace` to its launch call, its operator, or at least its annotation."""
    launch = _launches(trace)
    op, by_id = _operators(trace, launch)
    note = _notes(trace, launch)
    confidence = np.full(len(launch), LinkConfidence.NONE, np.int8)
    confidence[note >= 0] = LinkConfidence.ANNOTATION
    confidence[(launch >= 0) & (op >= 0)] = LinkConfidence.CONTAINMENT
    confidence[by_id | ((launch >= 0) & (op < 0))] = LinkConfidence.ID
    linked = np.flatnonzero(launch >= 0)
    early = trace.host.ts[launch[linked]] - trace.device.ts[linked]
    return Links(
        trace, launch.astype(np.int32), op.astype(np.int32), note.astype(np.int32), confidence,
        skewed=int((early > SKEW_NS).sum()), worst_skew_ns=max(0, int(early.max(initial=0))),
    )  # fmt: skip

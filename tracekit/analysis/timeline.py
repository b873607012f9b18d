"""One rank's time line from its detail tables: calls, which part of each nothing hides, waiting, other work, bubbles.

Times are int64 ns on the run's axis; `placed` puts them on the common clock.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.arrays import plain
from tracekit.analysis.crossrank.clocks import Clock
from tracekit.analysis.intervals import union
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from tracekit.analysis.intervals import Spans

Row = dict[str, Any]
NO_CALL = -1


class Work(Struct):
    """Device activities of one kind: arrays of equal length; `name` codes into `names`; step -1 = outside all."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    device: NDArray[np.int64]
    step: NDArray[np.int64]
    name: NDArray[np.int32]
    names: list[str]


class Timeline(Struct):
    """One recording.

    work: kind (compute | fused | copy | set) → its activities. calls: one span a call that has a time, `call` its row
    in `collectives`, `NO_CALL` for communication without one (`name` then codes into `names`). Exposed part i lies in
    [part_start, part_end) of the span `part_of[i]`; the parts of one span are disjoint. exposed_known: false where a
    dataset does not say which activity belongs to which call, or no compute was recorded.
    """

    work: dict[str, Work]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    device: NDArray[np.int64]
    call: NDArray[np.int64]
    name: NDArray[np.int32]
    names: list[str]
    part_of: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    part_start: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    part_end: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    exposed_known: bool = True


def uncovered(
    start: NDArray[np.int64], end: NDArray[np.int64], cover: Spans
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(interval, start, end) of what a union (as `intervals.union` returns it) leaves of each interval [start, end)."""
    first, last = cover
    low = np.searchsorted(last, start, "right")
    high = np.maximum(np.searchsorted(first, end, "left"), low)
    pieces = high - low + 1
    which = np.repeat(np.arange(len(start)), pieces)
    nth = np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    at = low[which] + nth
    if len(first):
        begin = np.where(nth == 0, start[which], last[np.minimum(np.maximum(at - 1, 0), len(last) - 1)])
        stop = np.where(nth == pieces[which] - 1, end[which], first[np.minimum(at, len(first) - 1)])
    else:
        begin, stop = start[which], end[which]
    kept = stop > begin
    return which[kept], begin[kept], stop[kept]


def timeline(activities: pa.Table, collectives: pa.Table) -> Timeline:
    """The time line of one recording from its rows of the tables `activities` and `collectives`."""
    start, dur = integers(activities, "ts_ns"), integers(activities, "dur_ns")
    device, step, call = (integers(activities, name) for name in ("device", "step", "call_id"))
    kind, kinds = words(activities, "kind")
    name, names = words(activities, "name")
    end = start + dur
    work = {}
    for code, word in enumerate(kinds):
        rows = np.flatnonzero(kind == code)
        if word != "comm":
            at = np.where(step[rows] == NO_TIME, -1, step[rows])
            work[word] = Work(start[rows], end[rows], device[rows], at, name[rows], names)
    comm = np.flatnonzero(np.isin(kind, [i for i, word in enumerate(kinds) if word == "comm"]))
    told = bool((call[comm] != NO_TIME).any()) or not len(comm)
    out = _spans(start[comm], end[comm], device[comm], call[comm], name[comm], names, collectives, told=told)
    out.work = work
    if told:
        compute = work.get("compute")
        _add_parts(out, start[comm], end[comm], device[comm], call[comm], compute)
    out.exposed_known = told and len(activities) > 0
    return out


def _spans(
    start: NDArray[np.int64], end: NDArray[np.int64], device: NDArray[np.int64], call: NDArray[np.int64],
    name: NDArray[np.int32], names: list[str], collectives: pa.Table, *, told: bool,
) -> Timeline:  # fmt: skip
    """Spans in order: calls with activities (hull of them), calls with only a time of their own, activities without."""
    own = np.flatnonzero(call != NO_TIME)
    order = own[np.argsort(call[own], kind="stable")]
    seen, first = np.unique(call[order], return_index=True)
    hull_start = np.minimum.reduceat(start[order], first) if len(seen) else _NONE
    hull_end = np.maximum.reduceat(end[order], first) if len(seen) else _NONE
    numbers, ts, dur = (integers(collectives, n) for n in ("id", "ts_ns", "dur_ns"))
    owner, on = integers(collectives, "coalesced_into"), integers(collectives, "device")
    others = np.flatnonzero((ts != NO_TIME) & (dur != NO_TIME) & (owner == NO_TIME) & ~np.isin(numbers, seen))
    loose = np.flatnonzero(call == NO_TIME) if told else np.empty(0, np.intp)
    parts = (
        (hull_start, hull_end, device[order][first] if len(seen) else _NONE, seen, None),
        (ts[others], (ts + dur)[others], np.where(on[others] == NO_TIME, -1, on[others]), numbers[others], None),
        (start[loose], end[loose], device[loose], np.full(len(loose), NO_CALL), name[loose]),
    )
    begin, stop, where, which = (np.concatenate([p[i] for p in parts]).astype(np.int64) for i in range(4))
    codes = np.concatenate([np.full(len(p[0]), -1, np.int32) if p[4] is None else p[4] for p in parts])
    return Timeline({}, begin, stop, where, which, codes.astype(np.int32), names)


def _add_parts(
    out: Timeline, start: NDArray[np.int64], end: NDArray[np.int64], device: NDArray[np.int64],
    call: NDArray[np.int64], compute: Work | None,
) -> None:  # fmt: skip
    """What compute of the same device leaves of the union of each span's activities."""
    place = {c: i for i, c in enumerate(out.call.tolist()) if c != NO_CALL}
    loose = len(out.call) - int((call == NO_TIME).sum())
    at = np.empty(len(call), np.int64)
    none = call == NO_TIME
    at[none] = loose + np.arange(int(none.sum()))
    at[~none] = [place[c] for c in call[~none].tolist()]
    found: list[tuple[NDArray[np.int64], ...]] = []
    for one in np.unique(device).tolist():
        rows = np.flatnonzero(device == one)
        spans = _unions(at[rows], start[rows], end[rows])
        mine = np.flatnonzero(compute.device == one) if compute is not None else np.empty(0, np.intp)
        cover = union(compute.start[mine], compute.end[mine]) if compute is not None else (_NONE, _NONE)
        which, begin, stop = uncovered(spans[1], spans[2], cover)
        found.append((spans[0][which], begin, stop))
    if found:
        out.part_of, out.part_start, out.part_end = (np.concatenate([f[i] for f in found]) for i in range(3))


def _unions(
    at: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(span, start, end): the union of the activities of each span."""
    order = np.lexsort((start, at))
    at, start, end = at[order], start[order], end[order]
    again = np.flatnonzero(at[1:] == at[:-1])
    if not len(again):
        return at, start, end
    several = np.unique(at[again])
    lone = ~np.isin(at, several)
    parts = [(at[lone], start[lone], end[lone])]
    for one in several.tolist():
        low, high = np.searchsorted(at, [one, one + 1])
        first, last = union(start[low:high], end[low:high])
        parts.append((np.full(len(first), one), first, last))
    return tuple(np.concatenate([p[i] for p in parts]) for i in range(3))  # type: ignore[return-value]


def bubbles(pipeline: Iterable[Mapping[str, Any]], known: Iterable[Mapping[str, Any]]) -> dict[int, list[Row]]:
    """rank → {step, ts_ns, dur_ns} on the common clock: no stage work in the window common to all of its pipeline.

    pipeline, known: rows of the tables `pipeline` and `bubble`; steps without a `bubble_ns` have none here. The
    lengths of a rank and step add up to its `bubble_ns`.
    """
    told = {(b["pipeline"], b["rank"], b["step"]) for b in known if b["bubble_ns"] is not None}
    spans: dict[tuple[Any, ...], dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for row in pipeline:
        if row["op"] in STAGE_WORK and row["aligned_ns"] is not None and row["dur_ns"] is not None:
            span = (row["aligned_ns"], row["aligned_ns"] + row["dur_ns"])
            spans[row["pipeline"], row["step"]][row["rank"]].append(span)
    out: dict[int, list[Row]] = defaultdict(list)
    for (line, step), ranks in spans.items():
        low = min(a for rows in ranks.values() for a, _ in rows)
        high = max(b for rows in ranks.values() for _, b in rows)
        for rank, rows in ranks.items():
            if (line, rank, step) in told:
                cover = union(np.array([a for a, _ in rows], np.int64), np.array([b for _, b in rows], np.int64))
                _, begin, stop = uncovered(np.array([low]), np.array([high]), cover)
                gaps = zip(begin.tolist(), stop.tolist(), strict=True)
                out[rank] += [{"step": step, "ts_ns": a, "dur_ns": b - a} for a, b in gaps]
    return dict(out)


STAGE_WORK = frozenset("FBIW")


def clock_of(row: Mapping[str, Any] | None) -> Clock | None:
    """The clock that a row of `clocks` describes; None without a common clock."""
    if row is None or row["offset_ns"] is None:
        return None
    at = row.get("drift_from_ns")
    drift = row["drift_ppm"] or 0.0
    return Clock(row["method"], row["offset_ns"], row["error_ns"], drift if at is not None else 0.0, at or 0)


def lanes(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """A lane for each interval, the lowest that is free, so that no two intervals of a lane overlap."""
    out = np.zeros(len(start), np.int64)
    order = np.lexsort((-end, start))
    begin, stop = start[order], end[order]
    if not len(start) or bool((begin[1:] >= np.maximum.accumulate(stop)[:-1]).all()):
        return out
    import heapq

    free: list[int] = []
    busy: list[tuple[int, int]] = []
    for i, a, b in zip(order.tolist(), begin.tolist(), stop.tolist(), strict=True):
        while busy and busy[0][0] <= a:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (b, lane))
        out[i] = lane
    return out


_NONE = np.empty(0, np.int64)


def integers(table: pa.Table, name: str) -> NDArray[np.int64]:
    """A column of integers; `NO_TIME` for null, and everywhere where an older dataset lacks the column."""
    if name not in table.column_names:
        return np.full(table.num_rows, NO_TIME, np.int64)
    column = table.column(name)
    values, present = plain(column, np.dtype(column.type.to_pandas_dtype()))
    out = values.astype(np.int64)
    out[~present] = NO_TIME
    return out


def words(table: pa.Table, name: str) -> tuple[NDArray[np.int32], list[str]]:
    """(codes, names) of a column of dictionary-encoded text; code -1 = null."""
    column = table.column(name)
    codes: list[NDArray[np.int32]] = [np.empty(0, np.int32)]
    number: dict[str, int] = {}
    for chunk in column.chunks:
        known = np.array([number.setdefault(str(w), len(number)) for w in chunk.dictionary.to_pylist()] or [-1])
        index, present = plain(_chunked(chunk.indices), np.dtype(np.int32))
        index[~present] = 0
        codes.append(np.where(present, known[index], -1).astype(np.int32))
    return np.concatenate(codes), list(number)


def _chunked(array: pa.Array[Any]) -> pa.ChunkedArray[Any]:
    import pyarrow as pa

    return pa.chunked_array([array])


def texts(table: pa.Table, name: str) -> Sequence[str | None]:
    """The same as Python strings; all None where an older dataset lacks the column."""
    if name not in table.column_names:
        return [None] * table.num_rows
    codes, names = words(table, name)
    known: list[str | None] = [*names, None]
    return [known[c] for c in codes.tolist()]

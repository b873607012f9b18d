"""Traces without device work (CPU, gloo): calls from operators, times from the workers' spans.

Compute is what the main thread computes: its operators that neither are communication nor enclose one.
A collective's time is its worker span (`gloo:<kind>`), joined first-in first-out to the operator of the
same kind and shape. A barrier moves no data, so its span is not charged. A `gloo:send` span lasts until
somebody waits for it, which says nothing; of a receive only the wait counts: from the end of the
compute before its end to its end.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.label.calls import HostCalls, host_calls
from tracekit.label.ops import RECORD, TITLE, OpTable
from tracekit.model import CPU_DEVICE, NO_TIME, Activities, Call, HostCat, Kind, LinkConfidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.label.rules import Rules
    from tracekit.model import RankTrace

FAMILY = "gloo"
_COMM_PREFIXES = ("c10d::", "_c10d_functional", "c10d_functional::", RECORD, "c10d::_")


def cpu_calls(trace: RankTrace, rules: Rules) -> tuple[Activities, list[Call]]:
    """Calls and host activities; no activities at all when nothing communicates or computes."""
    table = OpTable.of(rules)
    found = host_calls(trace, rules, table)
    spans = _join_spans(trace, found, table)
    main = _main_track(trace, found)
    compute = _compute_rows(trace, main, found)
    return _activities(trace, found.calls, spans, compute), found.calls


def _main_track(trace: RankTrace, found: HostCalls) -> int:
    """The thread that issues the calls; without calls, the one with most operator time."""
    host = trace.host
    ops = np.flatnonzero(host.cat == HostCat.CPU_OP)
    if not len(ops):
        return -1
    if found.calls:
        return int(np.bincount([c.track for c in found.calls if c.track >= 0]).argmax())
    weight = np.bincount(host.track[ops], weights=host.dur[ops].astype(np.float64))
    return int(weight.argmax())


def _compute_rows(trace: RankTrace, main: int, found: HostCalls) -> NDArray[np.intp]:
    """Operators of the main thread that are not communication and hold no communication row."""
    host = trace.host
    comm_names = np.array([n.startswith(_COMM_PREFIXES) for n in trace.names], np.bool_)
    ops = np.flatnonzero((host.cat == HostCat.CPU_OP) & (host.track == main))
    if not len(ops):
        return ops
    is_comm = comm_names[host.name[ops]]
    starts = np.sort(host.ts[ops[is_comm]])
    rest = ops[~is_comm]
    end = host.ts[rest] + host.dur[rest]
    holds = np.searchsorted(starts, end, "left") > np.searchsorted(starts, host.ts[rest], "left")
    inside = _inside(host.ts[rest], host.ts[ops[is_comm]], host.ts[ops[is_comm]] + host.dur[ops[is_comm]])
    return rest[~holds & ~inside]


def _inside(ts: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True where ts lies in one of the communication operators (copies they make are theirs)."""
    if not len(start):
        return np.zeros(len(ts), np.bool_)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    before = np.searchsorted(start, ts, "right") - 1
    return (before >= 0) & (ts < reach[np.maximum(before, 0)])


def _join_spans(trace: RankTrace, found: HostCalls, table: OpTable) -> list[tuple[int, int]]:
    """(host row of a worker span, call position); sets the calls' times. Oldest call first."""
    host = trace.host
    kinds = {i: m[1] for i, n in enumerate(trace.names) if n.startswith("gloo:") and (m := TITLE.fullmatch(n))}
    rows = np.flatnonzero(np.isin(host.name, np.fromiter(kinds, np.int32, len(kinds)))) if kinds else np.empty(0, np.intp)
    waiting: dict[tuple[str, Any], deque[int]] = defaultdict(deque)
    for position, call in enumerate(found.calls):
        op = table.by_name.get(call.op)
        waiting[op.gloo if op else call.op, _shape(call.dims)].append(position)
    joined = []
    for row in sorted(rows.tolist(), key=lambda r: (int(host.ts[r]), r)):
        comm = int(host.comm[row])
        dims = trace.comm[comm].dims if comm >= 0 else None
        position = _oldest(waiting, kinds[int(host.name[row])], dims, int(host.ts[row]), found.calls)
        if position is None:
            continue
        joined.append((row, position))
        call = found.calls[position]
        call.ts, call.dur = int(host.ts[row]), int(host.dur[row])
        call.stream, call.device = int(host.track[row]), CPU_DEVICE
        call.family, call.kernel = FAMILY, trace.names[host.name[row]]
        call.link = LinkConfidence.CONTAINMENT
    return joined


def _shape(dims: Any) -> Any:
    """Hashable shape; a list of one tensor counts as that tensor."""
    while isinstance(dims, list) and len(dims) == 1 and isinstance(dims[0], list):
        dims = dims[0]
    return str(dims) if dims is not None else None


def _oldest(
    waiting: dict[tuple[str, Any], deque[int]], kind: str, dims: Any, at: int, calls: list[Call]
) -> int | None:
    """The oldest unjoined call of that kind and shape (or of the kind, when a side has no shape)."""
    keys = [(kind, _shape(dims))]
    if dims is None:
        keys = [k for k in waiting if k[0] == kind]
    elif not waiting.get(keys[0]):
        keys = [(kind, None)]
    best: tuple[int, tuple[str, Any]] | None = None
    for key in keys:
        queue = waiting.get(key)
        if queue and (calls[queue[0]].call_ts or 0) <= at and (best is None or queue[0] < best[0]):
            best = (queue[0], key)
    return waiting[best[1]].popleft() if best else None


def _activities(
    trace: RankTrace, calls: list[Call], spans: list[tuple[int, int]], compute: NDArray[np.intp]
) -> Activities:
    host = trace.host
    comp_ts, comp_dur = host.ts[compute], host.dur[compute]
    rows: list[tuple[int, int, int, int, int, int]] = []  # ts, dur, stream, name, call, launch
    ends = np.sort(comp_ts + comp_dur)
    for row, position in spans:
        call = calls[position]
        call.n_activities = 1
        start, end = int(host.ts[row]), int(host.ts[row] + host.dur[row])
        if call.op in {"barrier", "send"}:
            continue
        if call.op == "recv":
            before = int(np.searchsorted(ends, end, "right"))
            start = max(start, int(ends[before - 1])) if before else start
        rows.append((start, max(end - start, 0), int(host.track[row]), int(host.name[row]), position, call.call_ts or NO_TIME))
    extra = np.array(rows, np.int64).reshape(-1, 6)
    n, m = len(compute), len(rows)
    ts = np.concatenate([comp_ts, extra[:, 0]])
    dur = np.concatenate([comp_dur, extra[:, 1]])
    order = np.lexsort((dur, ts))

    def column(first: Any, second: Any, dtype: Any) -> NDArray[Any]:
        joined: NDArray[Any] = np.concatenate([np.asarray(first, dtype), np.asarray(second, dtype)])[order]
        return joined

    return Activities(
        names=trace.names, families=[FAMILY], ts=ts[order], dur=dur[order],
        kind=column(np.full(n, Kind.COMPUTE), np.full(m, Kind.COMM), np.int8),
        device=np.full(n + m, CPU_DEVICE, np.int32),
        stream=column(host.track[compute], extra[:, 2], np.int64),
        name=column(host.name[compute], extra[:, 3], np.int32),
        family=column(np.full(n, -1), np.zeros(m), np.int32),
        corr=np.full(n + m, -1, np.int64),
        call=column(np.full(n, -1), extra[:, 4], np.int32),
        launch_ts=column(comp_ts, extra[:, 5], np.int64),
    )  # fmt: skip

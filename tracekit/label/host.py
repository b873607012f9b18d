"""Traces without device work: calls from c10d operators and their gloo workers, compute from the main thread.

Nothing links an operator to the worker span that executes it, so they are joined first-in first-out: same
kind, same input shape, operator no later than the span. gloo has no reduce-scatter (it runs as all-reduce).
Point-to-point spans run from the post to the return of the wait, so they are no transfer times: a send is
never charged, a receive from the moment the thread has nothing left to compute.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tracekit.label.hostcalls import RECORD
from tracekit.label.vocabulary import nelems
from tracekit.model import CPU_DEVICE, NO_TIME, Activities, Call, HostCat, Kind, LinkConfidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.label.collectives import Attached
    from tracekit.label.hostcalls import HostCalls
    from tracekit.label.vocabulary import Vocabulary
    from tracekit.model import Marker, RankTrace

_WORKER = re.compile(r"^gloo:(?!:)")
_COMM_OP = re.compile(r"^(?:_?c10d(?:_functional(?:_autograd)?)?|symm_mem)::")


def has_host_work(trace: RankTrace, host: HostCalls) -> bool:
    """True when the host itself is the device: operators, no device rows, no launches, no device library."""
    if len(trace.device) or (trace.host.cat == HostCat.RUNTIME).any():
        return False
    if (host.note >= 0).any():
        return False
    return bool((trace.host.cat == HostCat.CPU_OP).any()) or any(map(_WORKER.match, trace.names))


class Joined(Struct, frozen=True):
    """Worker span (host row, -1 = none) of each call, and the worker spans that no call issued."""

    worker: NDArray[np.int64]
    orphans: tuple[int, ...] = ()


def join_workers(trace: RankTrace, calls: list[Call], host: HostCalls, words: Vocabulary) -> Joined:
    """Join calls and worker spans: exact shapes first, then spans or calls without shapes."""
    out = np.full(len(calls), -1, np.int64)
    is_worker = np.array([bool(_WORKER.match(n)) for n in trace.names], np.bool_)
    if not is_worker.any():
        return Joined(out)
    spans = np.flatnonzero(is_worker[trace.host.name] & (trace.host.cat == HostCat.ANNOTATION))
    kinds = [words.op(trace.names[i])[0] for i in trace.host.name[spans].tolist()]
    shapes = [_shape(trace, int(r)) for r in spans.tolist()]
    starts = trace.host.ts[spans].tolist()
    order = sorted(range(len(calls)), key=lambda i: calls[i].call_ts or 0)
    wanted = [(i, _worker_kind(trace, calls[i], int(host.roots.row[i]), words)) for i in order]
    free = set(range(len(spans)))
    for exact in (True, False):
        queues: dict[object, deque[int]] = defaultdict(deque)
        for s in sorted(free, key=starts.__getitem__):
            queues[(kinds[s], shapes[s]) if exact else kinds[s]].append(s)
        for i, kind in wanted:
            shape = _freeze(calls[i].dims)
            if out[i] >= 0 or (exact and shape is None):
                continue
            queue = queues.get((kind, shape) if exact else kind)
            found = _take(queue, starts, calls[i].call_ts or 0, shape, shapes)
            if found is not None:
                out[i] = spans[found]
                free.discard(found)
    return Joined(out, tuple(int(spans[s]) for s in sorted(free)))


def add_orphans(
    trace: RankTrace, found: Attached, worker: NDArray[np.int64], orphans: tuple[int, ...], words: Vocabulary
) -> NDArray[np.int64]:
    """One call for each worker span whose operator the file lacks; returns the worker of every call."""
    for row in orphans:
        name = trace.names[trace.host.name[row]]
        found.calls.append(Call(op=words.op(name)[0], op_raw=name))
        found.own.append(-1)
    return np.concatenate([worker, np.array(orphans, np.int64)])


def _take(
    queue: deque[int] | None, starts: list[int], not_before: int, shape: object, shapes: list[object]
) -> int | None:
    """Oldest span of a queue that starts no earlier than the call and does not contradict its shape.

    Calls come in order of time, so spans before this call are of no use to the later ones either.
    """
    if queue is None:
        return None
    while queue and starts[queue[0]] < not_before:
        queue.popleft()
    for position, s in enumerate(queue):
        if shape is None or shapes[s] is None or shapes[s] == shape:
            del queue[position]
            return s
    return None


def _worker_kind(trace: RankTrace, call: Call, root: int, words: Vocabulary) -> str:
    """Kind of worker span a call runs as."""
    found = words.c10d.get(trace.names[trace.host.name[root]])
    return (found.worker if found else None) or call.op


def _shape(trace: RankTrace, row: int) -> object:
    args = trace.comm[trace.host.comm[row]] if trace.host.comm[row] >= 0 else None
    dims = args.dims if args else None
    return _freeze(dims[0] if dims and len(dims) == 1 else dims)


def _freeze(dims: object) -> object:
    """Shape as a hashable value; None when it was not recorded."""
    if not isinstance(dims, list) or nelems(dims) is None:
        return None
    return _deep_tuple(dims)


def _deep_tuple(value: object) -> object:
    """Lists of any depth as tuples (a list of tensors nests once more; damaged files nest as they like)."""
    return tuple(map(_deep_tuple, value)) if isinstance(value, list) else value


def fill_from_workers(trace: RankTrace, calls: list[Call], worker: NDArray[np.int64], words: Vocabulary) -> None:
    """Time, thread, library and missing sizes of calls from their worker spans (a send keeps only its start)."""
    host = trace.host
    for call, row in zip(calls, worker.tolist(), strict=True):
        if row < 0:
            continue
        call.ts, call.stream = int(host.ts[row]), int(host.track[row])
        call.dur = None if call.op == "send" else int(host.dur[row])
        call.kernel, call.family = trace.names[host.name[row]], "gloo"
        if call.call_ts is not None:
            call.link = LinkConfidence.CONTAINMENT
        args = trace.comm[host.comm[row]] if host.comm[row] >= 0 else None
        if args is None or not args.dims:
            continue
        if call.in_nelems is None and call.out_nelems is None:
            call.in_nelems = nelems(args.dims)
            call.out_nelems = call.in_nelems if call.op in ("all_reduce", "send", "recv", "broadcast") else None
        if call.dtype is None and args.types and isinstance(args.types[0], str):
            found = words.dtype(args.types[0])
            call.dtype = found.name if found else None
        known = [n for n in (call.in_nelems, call.out_nelems) if n is not None]
        size = words.dtype(call.dtype)
        if call.payload_bytes is None and known and size is not None and call.op != "barrier":
            call.payload_bytes = max(known) * size.bytes


def main_track(trace: RankTrace, host: HostCalls, markers: list[Marker]) -> int:
    """The thread that computes: the one with the step markers, else with most calls, else with most operator time."""
    rows = trace.host
    if markers:
        marked = np.isin(rows.ts, np.array([m.start for m in markers], np.int64)) & (rows.cat == HostCat.ANNOTATION)
        names = {m.name for m in markers}
        for row in np.flatnonzero(marked).tolist():
            if trace.names[rows.name[row]] in names:
                return int(rows.track[row])
    if len(host.roots.track):
        return int(np.bincount(host.roots.track).argmax())
    ops = rows.cat == HostCat.CPU_OP
    if not ops.any():
        return 0
    return int(np.bincount(rows.track[ops], weights=rows.dur[ops]).argmax())


def compute_rows(trace: RankTrace, track: int) -> NDArray[np.int64]:
    """Outermost operators of a thread that neither communicate nor enclose an operator that does."""
    rows = trace.host
    mine = np.flatnonzero((rows.track == track) & (rows.cat == HostCat.CPU_OP))
    is_comm = np.array([n == RECORD or bool(_COMM_OP.match(n)) for n in trace.names], np.bool_)[rows.name[mine]]
    ts, end = rows.ts[mine], rows.ts[mine] + rows.dur[mine]
    comm_ts = ts[is_comm]
    encloses = np.searchsorted(comm_ts, ts, "left") < np.searchsorted(comm_ts, end, "left")
    free = np.flatnonzero(~is_comm & ~encloses)
    if not len(free):
        return np.empty(0, np.int64)
    reach = np.maximum.accumulate(end[free])
    outer = np.ones(len(free), np.bool_)
    outer[1:] = end[free][1:] > reach[:-1]
    return mine[free[outer]]


def host_activities(
    trace: RankTrace, calls: list[Call], host: HostCalls, worker: NDArray[np.int64], markers: list[Marker]
) -> Activities:
    """Activities on `CPU_DEVICE`: main-thread operators (compute) and worker spans (comm); stream = thread."""
    rows = trace.host
    track = main_track(trace, host, markers) if len(rows) else 0
    compute = compute_rows(trace, track)
    ts = rows.ts[compute].tolist()
    dur = rows.dur[compute].tolist()
    compute_ts, compute_end = rows.ts[compute], rows.ts[compute] + rows.dur[compute]
    name = rows.name[compute].tolist()
    stream = rows.track[compute].tolist()
    call_of = [-1] * len(ts)
    launch = list(ts)
    n_compute = len(ts)
    for position, row in enumerate(worker.tolist()):
        call = calls[position]
        if row < 0 or call.op in ("barrier", "send"):
            continue
        start, stop = int(rows.ts[row]), int(rows.ts[row] + rows.dur[row])
        if call.op == "recv":
            start = _idle_since(compute_ts, compute_end, start, stop)
            call.ts, call.dur = start, stop - start
            if stop <= start:
                continue
        ts.append(start)
        dur.append(stop - start)
        name.append(int(rows.name[row]))
        stream.append(int(rows.track[row]))
        call_of.append(position)
        launch.append(call.call_ts if call.call_ts is not None else NO_TIME)
        call.n_activities, call.device = 1, CPU_DEVICE
    kind = np.full(len(ts), Kind.COMM, np.int8)
    kind[:n_compute] = Kind.COMPUTE
    family = np.where(kind == Kind.COMM, 0, -1).astype(np.int32)
    out = Activities(
        trace.names, ["gloo"], np.array(ts, np.int64), np.array(dur, np.int64), kind,
        np.full(len(ts), CPU_DEVICE, np.int32), np.array(stream, np.int64), np.array(name, np.int32), family,
        np.full(len(ts), -1, np.int64), np.array(call_of, np.int32), np.array(launch, np.int64),
    )  # fmt: skip
    return sorted_activities(out)


def _idle_since(ts: NDArray[np.int64], end: NDArray[np.int64], start: int, stop: int) -> int:
    """When a receive that ended at `stop` began to be waited for: after the last compute before its end.

    ts, end: compute intervals, both ascending (they are outermost operators of one thread).
    """
    running = int(np.searchsorted(ts, stop, "left")) - 1
    if running < 0:
        return start
    return min(stop, max(start, int(end[running])))


def sorted_activities(a: Activities) -> Activities:
    """The same activities in order of (ts, device, stream, length)."""
    keys = (a.ts, a.device, a.stream, a.dur)
    if in_order(keys):
        return a
    order = np.lexsort(keys[::-1])
    for column in ("ts", "dur", "kind", "device", "stream", "name", "family", "corr", "call", "launch_ts"):
        setattr(a, column, getattr(a, column)[order])
    return a


def in_order(keys: Sequence[NDArray[Any]]) -> bool:
    """Whether rows are sorted by these keys, the most significant first; few rows must be alike in the first."""
    same = np.arange(1, len(keys[0]))
    for key in keys:
        before, after = key[same - 1], key[same]
        if (before > after).any():
            return False
        same = same[before == after]
    return True

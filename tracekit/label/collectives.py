"""Tie the device work of one rank to its communication calls; calls that only the device shows are added."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.label.coalesce import coalesce
from tracekit.label.kernels import COMPUTE, KernelClass, qualified_name
from tracekit.model import Call, DeviceClass, Kind, LinkConfidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.label.hostcalls import CallBuilder, HostCalls
    from tracekit.label.kernels import DeviceKinds
    from tracekit.model import RankTrace
    from tracekit.parsers.links import Links

_KERNEL = int(DeviceClass.KERNEL)
_LINKS = {int(c): c for c in LinkConfidence}
COPY_ENGINE = KernelClass(Kind.COMM, "copy_engine", None)


class Attached(Struct):
    """The calls of a rank; per device row its `call` (position in `calls`, -1) and `confidence` of that tie.

    `query_track/ts/end/own`: where to look for the scopes of each call (track -1 = nowhere).
    """

    calls: list[Call]
    call: NDArray[np.int64]
    confidence: NDArray[np.int8]
    own: list[int]


def attach(trace: RankTrace, links: Links, kinds: DeviceKinds, host: HostCalls, builder: CallBuilder) -> Attached:
    """Build all calls of a rank; `kinds.kind` is updated where copies turn out to be traffic."""
    calls = builder.build(host)
    device = trace.device
    out = Attached(calls, np.full(len(device), -1, np.int64), links.confidence.copy(), host.roots.row.tolist())
    launch = links.launch.astype(np.int64)
    traffic = (kinds.kind == Kind.COMM) | (kinds.kind == Kind.FUSED)
    peers = (device.cls == DeviceClass.MEMCPY) & (device.peer == 1) & (launch >= 0)
    rows = np.flatnonzero((traffic | peers) & (launch >= 0))
    track, ts = trace.host.track[launch[rows]].astype(np.int64), trace.host.ts[launch[rows]]
    at = host.roots.at(track, ts)
    out.call[rows[at >= 0]] = at[at >= 0]
    wrapped = host.wrappers.at(track, ts)
    wrapped[at >= 0] = -1
    _wrapped_calls(trace, links, kinds, host, builder, out, rows[wrapped >= 0], wrapped[wrapped >= 0])
    kinds.kind[np.flatnonzero(peers & (out.call >= 0))] = Kind.COMM
    rest = np.flatnonzero(traffic & (out.call < 0))
    rest = rest[_by_arguments(trace, out, rest)]
    rest = coalesce(trace, launch, kinds, host, out, rest)
    _lone_calls(trace, links, kinds, builder, out, rest)
    return out


def _by_arguments(trace: RankTrace, out: Attached, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tie kernels that carry their record's arguments to it (a launch from another thread); True = not tied."""
    left = np.ones(len(rows), np.bool_)
    have = np.flatnonzero(trace.device.comm[rows] >= 0)
    if not len(have):
        return left
    by_id: dict[tuple[object, ...], int] = {}
    for i, call in enumerate(out.calls):
        for key in ((call.comms_id,), (call.group_name, call.seq, call.op_raw)):
            if key[-2 if len(key) > 1 else 0] is not None:
                by_id.setdefault(key, i)
    for i in have.tolist():
        args = trace.comm[trace.device.comm[rows[i]]]
        position = None
        if args.comms_id is not None:
            position = by_id.get((args.comms_id,))
        if position is None and args.seq is not None:
            position = by_id.get((args.pg_name, args.seq, args.collective))
        if position is not None and (out.calls[position].call_ts or 0) <= trace.device.ts[rows[i]]:
            out.call[rows[i]] = position
            out.confidence[rows[i]] = LinkConfidence.ID
            left[i] = False
    return left


def _class_of(trace: RankTrace, kinds: DeviceKinds, row: int) -> KernelClass:
    if trace.device.cls[row] == _KERNEL:
        return kinds.classes.get(int(trace.device.name[row]), COMPUTE)
    return COPY_ENGINE


def _wrapped_calls(
    trace: RankTrace,
    links: Links,
    kinds: DeviceKinds,
    host: HostCalls,
    builder: CallBuilder,
    out: Attached,
    rows: NDArray[np.int64],
    wrapper: NDArray[np.int64],
) -> None:
    """One call for each engine operator that launched device traffic."""
    by_operator: dict[int, list[int]] = defaultdict(list)
    for row, number in zip(rows.tolist(), wrapper.tolist(), strict=True):
        by_operator[number].append(row)
    for number, mine in sorted(by_operator.items()):
        root = int(host.wrappers.row[number])
        name = trace.names[trace.host.name[root]]
        op = builder.words.wrapper(name)
        if op in (None, "unknown"):
            told = (_class_of(trace, kinds, r).op for r in mine)
            op = next((t for t in told if t not in (None, "barrier", "notify")), None)
        call = Call(
            op=op or "unknown", op_raw=name, call_ts=int(host.wrappers.ts[number]),
            call_end=int(host.wrappers.end[number]), track=int(host.wrappers.track[number]),
        )  # fmt: skip
        inner = trace.host.comm[links.op[mine[0]]] if links.op[mine[0]] >= 0 else -1
        if inner >= 0 and call.op == "all_reduce":
            builder.take_shape(call, trace.comm[inner])
        out.call[mine] = len(out.calls)
        out.calls.append(call)
        out.own.append(root)


def _lone_calls(
    trace: RankTrace,
    links: Links,
    kinds: DeviceKinds,
    builder: CallBuilder,
    out: Attached,
    rows: NDArray[np.int64],
) -> None:
    """One call for each kernel that no host call explains: graph replay, private communicators, lost launches."""
    host = trace.host
    for row in rows.tolist():
        args = trace.comm[trace.device.comm[row]] if trace.device.comm[row] >= 0 else None
        cls = _class_of(trace, kinds, row)
        raw = qualified_name(trace.names[trace.device.name[row]])
        call = Call(op=cls.op or "unknown", op_raw=raw)
        note = int(links.note[row])
        if note >= 0:
            text = trace.names[trace.annotations.name[note]]
            if builder.words.knows(text) and builder.op(text) != "coalesced":
                call.op, call.op_raw = builder.op(text), text
        if args is not None:
            builder.take_args(call, args)
            group = builder.groups.resolve(args)
            call.group_name, call.group_desc = group.name, group.desc
            call.group_size, call.members = group.size, group.members
            if args.collective:
                call.op, call.op_raw = builder.op(args.collective), args.collective
            builder.payload(call)
        start = int(links.op[row]) if links.op[row] >= 0 else int(links.launch[row])
        if start >= 0:
            call.call_ts = int(host.ts[start])
            call.call_end = call.call_ts + int(host.dur[start])
            call.track = int(host.track[start])
        out.call[row] = len(out.calls)
        out.calls.append(call)
        out.own.append(int(links.launch[row]))


def describe_activities(trace: RankTrace, kinds: DeviceKinds, out: Attached) -> None:
    """Fill each call's device side from its activities: start, length, place, name, library, confidence."""
    rows = np.flatnonzero(out.call >= 0)
    if not len(rows):
        return
    device = trace.device
    rows = rows[np.argsort(out.call[rows], kind="stable")]  # device rows are in order of time
    owner = out.call[rows]
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    start = device.ts[rows[first]]
    stop = np.maximum.reduceat(device.ts[rows] + device.dur[rows], first)
    count = np.diff(first, append=len(rows))
    lead = rows[first]
    told = {
        (int(device.name[row]), bool(device.cls[row] == _KERNEL)): _class_of(trace, kinds, row).family
        for row in lead[_each_once(device.name[lead] * 2 + (device.cls[lead] == _KERNEL))].tolist()
    }
    columns = (
        owner[first], start, stop - start, count, device.device[lead], device.stream[lead], out.confidence[lead],
        device.name[lead], device.cls[lead] == _KERNEL,
    )  # fmt: skip
    for position, ts, dur, n, number, stream, sure, name, kernel in zip(*(c.tolist() for c in columns), strict=True):
        call = out.calls[position]
        call.ts, call.dur, call.n_activities, call.device, call.stream = ts, dur, n, number, stream
        call.kernel, call.family, call.link = trace.names[name], told[name, kernel], _LINKS[sure]
    for call in out.calls:
        if call.coalesced_into is not None:
            shared = out.calls[call.coalesced_into]
            call.ts, call.dur, call.device, call.stream = shared.ts, shared.dur, shared.device, shared.stream
            call.kernel, call.family, call.link = shared.kernel, shared.family, shared.link


def _each_once(values: NDArray[np.int32]) -> NDArray[np.int64]:
    """Place of the first of each distinct value."""
    return np.unique(values, return_index=True)[1]

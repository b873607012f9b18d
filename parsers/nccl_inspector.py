"""Logs of NCCL's Inspector plugin (JSON Lines, plain or gzip) → one `Witness` a process.

One finished operation a line. Short operations, those the plugin could not time and those beyond its ring are left out
by the plugin, so gaps in the sequence are normal. Fields that are not known are passed over.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.errors import BrokenInput, LimitExceeded, UnusableInput
from tracekit.model import HealthEntry, TraceMeta, Witness, WitnessCall, WitnessGroup
from tracekit.parsers.memory import without_gc
from tracekit.parsers.nccl_common import Lines, check_processes, comm_hash, elements, resolve_ranks
from tracekit.parsers.source import Source

if TYPE_CHECKING:
    from pathlib import Path

MAX_CALLS = 1_000_000
_MAX_US = 1 << 53


class _Header(msgspec.Struct):
    id: str
    rank: int
    n_ranks: int
    nnodes: int | None = None
    comm_name: str | None = None


class _Metadata(msgspec.Struct):
    hostname: str = ""
    pid: int = 0
    dump_timestamp_us: int | None = None
    inspector_output_format_version: str | None = None


class _Kernel(msgspec.Struct):
    channel_id: int | None = None
    kernel_start_ts: int = 0
    kernel_stop_ts: int = 0
    kernel_record_ts: int = 0


class _Trace(msgspec.Struct):
    coll_start_ts: int = 0
    coll_stop_ts: int = 0
    p2p_start_ts: int = 0
    p2p_stop_ts: int = 0
    kernel_events: list[_Kernel] = []


class _Coll(msgspec.Struct):
    coll: str
    coll_sn: int | None = None
    coll_msg_size_bytes: int | None = None
    coll_exec_time_us: int | None = None
    coll_timing_source: str | None = None
    coll_algobw_gbs: float | None = None
    coll_busbw_gbs: float | None = None
    event_trace_sn: dict[str, Any] | None = None
    event_trace_ts: _Trace | None = None


class _P2p(msgspec.Struct):
    p2p: str
    p2p_sn: int | None = None
    p2p_peer: int | None = None
    p2p_msg_size_bytes: int | None = None
    p2p_exec_time_us: int | None = None
    p2p_timing_source: str | None = None
    p2p_algobw_gbs: float | None = None
    p2p_busbw_gbs: float | None = None
    event_trace_sn: dict[str, Any] | None = None
    event_trace_ts: _Trace | None = None


class _Line(msgspec.Struct):
    header: _Header
    metadata: _Metadata
    coll_perf: _Coll | None = None
    p2p_perf: _P2p | None = None


_decode = msgspec.json.Decoder(_Line).decode


class _Reader:
    def __init__(self, path: Path, *, strict: bool) -> None:
        self.path, self.strict = path, strict
        self.source = Source(path)
        self.witnesses: dict[tuple[str, int, int], Witness] = {}
        self.groups: dict[tuple[int, str], WitnessGroup] = {}
        self.seats: dict[tuple[str, int, str], list[int]] = defaultdict(list)
        self.damaged = 0
        self.example = ""
        self.n = 0

    def parse(self) -> list[Witness]:
        lines = Lines(self.source)
        try:
            for block in lines:
                for line in block.split(b"\n"):
                    if line.strip():
                        self._line(line)
        finally:
            self.source.close()
        if lines.too_long:
            self._damage("a line longer than 1 MiB", lines.too_long)
        if self.source.damage:
            self._damage(self.source.damage)
        if not self.witnesses:
            raise UnusableInput(
                f"{self.path}: no operation in the Inspector log ({self.damaged} damaged lines); run longer, or set "
                "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS so that it is dumped"
            )
        found = list(self.witnesses.values())
        if self.damaged:
            found[0].health.append(HealthEntry("line that is no operation", self.damaged, "lost", self.example))
        resolve_ranks(found)
        return found

    def _line(self, line: bytes) -> None:
        try:
            one = _decode(line)
            identity = comm_hash(int(one.header.id, 16))
        except (msgspec.DecodeError, ValueError, RecursionError) as e:
            self._damage(f"{str(e)[:80]}: {line[:80].decode('utf-8', 'replace')}")
            return
        if one.coll_perf is None and one.p2p_perf is None:
            self._damage(f"neither coll_perf nor p2p_perf: {line[:80].decode('utf-8', 'replace')}")
            return
        self.n += 1
        if self.n > MAX_CALLS:
            raise LimitExceeded(f"{self.path}: more than {MAX_CALLS:,} operations; split the log")
        witness = self._witness(one, identity)
        witness.calls.append(_collective(one, identity) if one.coll_perf is not None else _p2p(one, identity))

    def _damage(self, example: str, count: int = 1) -> None:
        if self.strict:
            raise BrokenInput(
                f"{self.path}: line that is no operation, near byte {self.source.read_bytes:,} ({example}); "
                "read without --strict to leave it out"
            )
        self.damaged += count
        self.example = self.example or example

    def _witness(self, one: _Line, identity: str) -> Witness:
        """Of the process; one with several devices has several ranks in a communicator, and so several witnesses."""
        host, pid = one.metadata.hostname, one.metadata.pid
        seats = self.seats[host, pid, identity]
        if one.header.rank not in seats:
            seats.append(one.header.rank)
        key = host, pid, seats.index(one.header.rank)
        witness = self.witnesses.get(key)
        if witness is None:
            source = self.source
            meta = TraceMeta(
                str(self.path), len(self.witnesses), source.file_bytes, source.read_bytes, backend="nccl",
                compression=source.compression, host_name=host or None, extra={"process": f"{host}:{pid}"},
            )  # fmt: skip
            version = one.metadata.inspector_output_format_version
            witness = self.witnesses[key] = Witness(meta, "nccl-inspector", version=version)
            check_processes(self.path, len(self.witnesses))
        place = witness.meta.part, identity
        if place not in self.groups:
            head = one.header
            group = WitnessGroup(
                identity, head.comm_name or None, size=head.n_ranks, own=head.rank, comm_hash=identity, backend="nccl"
            )
            self.groups[place] = group
            witness.groups.append(group)
        return witness


def _us(value: int | None) -> int | None:
    return value * 1000 if value is not None and 0 < value < _MAX_US else None


def _times(trace: _Trace | None, created: int) -> dict[str, Any]:
    """Unix ns of a verbose log: as the plugin's thread saw it on the host, a little later than it was."""
    if trace is None:
        return {}
    starts = [k.kernel_start_ts for k in trace.kernel_events if k.kernel_start_ts > 0]
    stops = [k.kernel_stop_ts for k in trace.kernel_events if k.kernel_stop_ts > 0]
    return {
        "created_ns": _us(created), "started_ns": _us(min(starts, default=None)),
        "completed_ns": _us(max(stops, default=None)), "noticed": True,
    }  # fmt: skip


def _extra(one: _Line, source: str | None, algobw: float | None, busbw: float | None, traces: Any) -> dict[str, Any]:
    numbers, stamps = traces
    out = {
        "timing_source": source, "algobw_gbs": algobw, "busbw_gbs": busbw,
        "dump_timestamp_us": one.metadata.dump_timestamp_us, "event_trace_sn": numbers,
        "channels": len(stamps.kernel_events) if stamps and stamps.kernel_events else None,
    }  # fmt: skip
    return {k: v for k, v in out.items() if v is not None}


def _collective(one: _Line, identity: str) -> WitnessCall:
    p = one.coll_perf
    assert p is not None
    size = None if p.coll_msg_size_bytes is None else _payload(p.coll, p.coll_msg_size_bytes, one.header.n_ranks)
    extra = _extra(one, p.coll_timing_source, p.coll_algobw_gbs, p.coll_busbw_gbs, (p.event_trace_sn, p.event_trace_ts))
    times = _times(p.event_trace_ts, p.event_trace_ts.coll_start_ts if p.event_trace_ts else 0)
    return WitnessCall(
        p.coll, identity, p.coll_sn, state="completed", dur_ns=_us(p.coll_exec_time_us), payload_bytes=size,
        extra=extra, **times,
    )  # fmt: skip


def _p2p(one: _Line, identity: str) -> WitnessCall:
    p = one.p2p_perf
    assert p is not None
    extra = _extra(one, p.p2p_timing_source, p.p2p_algobw_gbs, p.p2p_busbw_gbs, (p.event_trace_sn, p.event_trace_ts))
    times = _times(p.event_trace_ts, p.event_trace_ts.p2p_start_ts if p.event_trace_ts else 0)
    return WitnessCall(
        p.p2p, identity, p2p_seq=p.p2p_sn, is_p2p=True, state="completed", dur_ns=_us(p.p2p_exec_time_us),
        peer=p.p2p_peer, payload_bytes=p.p2p_msg_size_bytes, extra=extra, **times,
    )  # fmt: skip


def _payload(op: str, size: int, nranks: int) -> int | None:
    """max(input, output) bytes on a rank: the plugin tells count × type size as NCCL was given it."""
    taken, given = elements(op, size, nranks)
    return max(n for n in (taken, given, size) if n is not None)


def parse(path: Path, *, strict: bool = False) -> list[Witness]:
    """Read one log. strict: refuse lines that are no operation instead of counting them.

    Raises UnusableInput when it holds none, BrokenInput (strict), LimitExceeded.
    """
    with without_gc():
        return _Reader(path, strict=strict).parse()

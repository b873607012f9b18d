"""Dumps of NCCL's profiler plugins → one `Witness` a (process, rank).

Two writers: the example plugin of NCCL (a Chrome JSON list of begin/end pairs, left open when the job was killed, and
in old versions with bare words as values) and plugins that write one event a line (`ncclProfileColl` …). The ends of
a collective's events are the host's; the time on the device is told by its channels (`KernelCh`) or CUPTI's kernels.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.errors import BrokenInput, LimitExceeded, UnusableInput
from tracekit.model import UNIX_NS, HealthEntry, TraceMeta, Witness, WitnessCall, WitnessGroup
from tracekit.parsers.convert import as_int
from tracekit.parsers.memory import without_gc
from tracekit.parsers.nccl_common import Lines, check_processes, comm_hash, datatype, elements, resolve_ranks
from tracekit.parsers.source import Source

if TYPE_CHECKING:
    from pathlib import Path

MAX_EVENTS = 5_000_000
_BARE = re.compile(rb'": (0x[0-9a-fA-F]+|\(nil\)|nccl\w+)(?=[,}])')
_END = (b"", b"[", b"]", b"{}]", b"{}")
_MAX_GPU_NS = 3_600 * 10**9
Event = dict[str, Any]


class _Reader:
    def __init__(self, path: Path, *, strict: bool) -> None:
        self.path, self.strict = path, strict
        self.source = Source(path)
        self.witnesses: dict[tuple[int, int], Witness] = {}
        self.groups: dict[tuple[int, str], WitnessGroup] = {}
        self.sizes: dict[tuple[str, int], int] = {}
        self.seats: dict[tuple[int, str], list[int]] = defaultdict(list)
        self.open: dict[tuple[Any, ...], tuple[WitnessCall, list[tuple[int, int]]]] = {}
        self.last: tuple[WitnessCall, list[tuple[int, int]]] | None = None
        self.issued: dict[int, int | None] = {}
        self.kernels: dict[int, list[int]] = defaultdict(list)
        self.launched: dict[int, list[WitnessCall]] = defaultdict(list)
        self.other: Counter[str] = Counter()
        self.damaged, self.example, self.n, self.closed = 0, "", 0, False

    def parse(self) -> list[Witness]:
        lines = Lines(self.source)
        try:
            for block in lines:
                for line in block.split(b"\n"):
                    self._line(line.strip())
        finally:
            self.source.close()
        if not self.witnesses:
            raise UnusableInput(
                f"{self.path}: no collective in the profiler dump ({self.damaged} damaged lines); set the event mask "
                "NCCL_PROFILE_EVENT_MASK so that it has COLL and P2P"
            )
        self._finish(lines)
        return list(self.witnesses.values())

    def _finish(self, lines: Lines) -> None:
        for rank, calls in self.launched.items():  # one kernel a collective, in order: else it is not known whose
            times = self.kernels.get(rank, [])
            if len(times) == len(calls):
                for call, dur in zip(calls, times, strict=True):
                    call.dur_ns = dur
        found = list(self.witnesses.values())
        first = found[0]
        lost = self.damaged + lines.too_long
        if lost:
            first.health.append(HealthEntry("line that is no event", lost, "lost", self.example))
        if self.source.damage:
            first.health.append(HealthEntry("compressed stream is damaged", 1, "lost", self.source.damage))
        if self.open:
            first.health.append(HealthEntry("call without an end: the job was killed or is running", len(self.open)))
        for kind, count in sorted(self.other.items()):
            first.meta.extra.setdefault("events", {})[kind] = count
        resolve_ranks(found)

    def _line(self, line: bytes) -> None:
        if line in _END:
            self.closed |= line in (b"]", b"{}]")
            return
        self.n += 1
        if self.n > MAX_EVENTS:
            raise LimitExceeded(f"{self.path}: more than {MAX_EVENTS:,} events; record fewer (event mask)")
        text = line.lstrip(b"[ ").removesuffix(b"{}]").rstrip(b", ")
        try:
            event = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            try:
                event = msgspec.json.decode(_BARE.sub(rb'": "\1"', text))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                event = None
        try:
            if not isinstance(event, dict):
                raise TypeError
            self._event(event)
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
            self._damage(line)

    def _damage(self, line: bytes) -> None:
        example = line[:120].decode("utf-8", "replace")
        if self.strict:
            raise BrokenInput(
                f"{self.path}: line that is no event, near byte {self.source.read_bytes:,} ({example}); "
                "read without --strict to leave it out"
            )
        self.damaged += 1
        self.example = self.example or example

    def _event(self, event: Event) -> None:
        if "ph" in event:
            self._chrome(event)
        elif event.get("type") in ("ncclProfileColl", "ncclProfileP2p"):
            self._single(event)
        elif event.get("type") == "KERNEL":
            rank = self.issued.get(int(event["extCorrId"]))
            if rank is not None and "nccl" in str(event.get("name")):
                self.kernels[rank].append(round(float(event["duration"]) * 1000))
        else:
            if event.get("type") == "ProfilerLifecycle" and "nranks" in event.get("details", {}):
                self.sizes[comm_hash(int(event["commId"])), int(event["rank"])] = int(event["details"]["nranks"])
            elif event.get("type") == "ncclProfileKernelLaunch" and "extCorrId" in event:
                number, rank = int(event["extCorrId"]), int(event["rank"])
                self.issued[number] = rank if self.issued.get(number, rank) == rank else None
            self.other[str(event.get("type") or event.get("name"))[:60]] += 1

    # ------------------------------------------------------------------ NCCL's example plugin

    def _chrome(self, event: Event) -> None:
        cat, args = event.get("cat"), event.get("args") or {}
        key = cat, event.get("name"), event.get("id"), event.get("pid")
        if cat in ("COLL", "P2P"):
            if event["ph"] == "b":
                call = self._call(event["name"], int(event["pid"]), args, p2p=cat == "P2P")
                call.extra |= {"begin_us": float(event["ts"])} if float(event["ts"]) > 0 else {}
                self.open[key] = self.last = (call, [])
            elif (found := self.open.pop(key, None)) is not None:
                self._close(*found, float(event["ts"]))
        elif cat == "GPU" and event["ph"] == "b" and self.last is not None:
            start, stop = int(args.get("StartGpuClk", 0)), int(args.get("StopGpuClk", 0))
            self.last[1].append((start, stop))  # a call's channels are printed between its begin and its end
        elif event["ph"] == "b":
            self.other[str(cat)[:60]] += 1

    def _close(self, call: WitnessCall, channels: list[tuple[int, int]], end: float) -> None:
        if end > 0:
            call.state = "completed"
            call.extra["end_us"] = end
        if channels:
            call.extra["channels_timed"] = len(channels)
        if channels and all(0 < start <= stop <= start + _MAX_GPU_NS for start, stop in channels):
            start, stop = min(c[0] for c in channels), max(c[1] for c in channels)
            call.dur_ns = stop - start
            if start > UNIX_NS:
                call.started_ns, call.completed_ns = start, stop
        self.last = None

    def _call(self, op: str, pid: int, args: Event, *, p2p: bool) -> WitnessCall:
        identity, rank = comm_hash(int(args["CommHash"])), int(args["Rank"])
        witness, group = self._witness(pid, rank, identity)
        kind = datatype(args["Datatype"]) if "Datatype" in args else None
        count = as_int(args.get("Count"))
        taken, given = elements(op, count, group.size) if count is not None else (None, None)
        named = (("algorithm", "Algorithm"), ("protocol", "Protocol"), ("channels", "nChannels"))
        extra = {name: args[key] for name, key in named if args.get(key) not in (None, "")}
        extra |= {"channels": args["nMaxChannels"]} if "nMaxChannels" in args else {}
        number = as_int(args.get("SeqNum"))
        call = WitnessCall(
            op, identity, None if p2p else number, number if p2p else None, is_p2p=p2p, state="started",
            in_nelems=taken, out_nelems=given, dtype=kind.name if kind else str(args.get("Datatype") or "") or None,
            peer=as_int(args.get("Peer")), root=as_int(args.get("root")), extra=extra,
        )  # fmt: skip
        witness.calls.append(call)
        return call

    # ------------------------------------------------------------------ one event a line

    def _single(self, event: Event) -> None:
        details = event["details"]
        rank = int(event["rank"])
        spelled = {"SeqNum": "seq", "Count": "count", "Datatype": "dtype", "Algorithm": "algo", "Protocol": "proto",
                   "nChannels": "channels", "Peer": "peer", "root": "root"}  # fmt: skip
        args = {name: details[key] for name, key in spelled.items() if key in details}
        if details.get("func") not in ("Broadcast", "Reduce", "Gather", "Scatter"):
            args.pop("root", None)
        args |= {"CommHash": event["commId"], "Rank": rank}
        p2p = event["type"] == "ncclProfileP2p"
        call = self._call(str(details["func"]), int(event["start"]["pid"]), args, p2p=p2p)
        call.thread = str(event["start"]["tid"])
        stop = event.get("stop") or {}
        call.state = "completed" if float(stop.get("ts", 0)) > 0 else "started"
        call.extra |= {"begin_us": float(event["start"]["ts"]), "end_us": float(stop.get("ts", 0))}
        call.extra |= {k: details[k] for k in ("warps", "sendBuff", "recvBuff") if k in details}
        self.launched[rank].append(call)

    # ------------------------------------------------------------------ witnesses

    def _witness(self, pid: int, rank: int, identity: str) -> tuple[Witness, WitnessGroup]:
        """Of the process; in a process with several devices each position in a communicator is one."""
        seats = self.seats[pid, identity]
        if rank not in seats:
            seats.append(rank)
        key = pid, seats.index(rank)
        witness = self.witnesses.get(key)
        if witness is None:
            meta = TraceMeta(
                str(self.path), len(self.witnesses), self.source.file_bytes, self.source.read_bytes,
                compression=self.source.compression, backend="nccl", extra={"process": str(pid)},
            )  # fmt: skip
            witness = self.witnesses[key] = Witness(meta, "nccl-profiler")
            check_processes(self.path, len(self.witnesses))
        place = witness.meta.part, identity
        if place not in self.groups:
            size = self.sizes.get((identity, rank))
            group = WitnessGroup(identity, size=size, own=rank, comm_hash=identity, backend="nccl")
            self.groups[place] = group
            witness.groups.append(group)
        return witness, self.groups[place]


def parse(path: Path, *, strict: bool = False) -> list[Witness]:
    """Read one dump. strict: refuse lines that are no event instead of counting them.

    Raises UnusableInput when it holds no collective, BrokenInput (strict), LimitExceeded.
    """
    with without_gc():
        return _Reader(path, strict=strict).parse()

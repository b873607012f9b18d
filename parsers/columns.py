"""Batches of events → growing columns of one document."""

from __future__ import annotations

import re
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracekit.model import CommArgs, DeviceClass, HostCat
from tracekit.parsers.convert import BAD, Interner, as_int, ints, times
from tracekit.parsers.decode import AnyEvent, Args, Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOST_CATS: dict[Any, HostCat] = {
    "cpu_op": HostCat.CPU_OP,
    "Operator": HostCat.CPU_OP,
    "user_annotation": HostCat.ANNOTATION,
    "User": HostCat.ANNOTATION,
    "cuda_runtime": HostCat.RUNTIME,
    "cuda_driver": HostCat.RUNTIME,
    "Runtime": HostCat.RUNTIME,
    "xpu_runtime": HostCat.RUNTIME,
    "xpu_driver": HostCat.RUNTIME,
    "mtia_runtime": HostCat.RUNTIME,
    "privateuse1_runtime": HostCat.RUNTIME,
    "privateuse1_driver": HostCat.RUNTIME,
}
DEVICE_CATS: dict[Any, DeviceClass] = {
    "kernel": DeviceClass.KERNEL,
    "Kernel": DeviceClass.KERNEL,
    "collective_comm": DeviceClass.KERNEL,
    "gpu_memcpy": DeviceClass.MEMCPY,
    "Memcpy": DeviceClass.MEMCPY,
    "gpu_memset": DeviceClass.MEMSET,
    "Memset": DeviceClass.MEMSET,
}
DEVICE_ANNOTATION_CATS = frozenset({"gpu_user_annotation"})

COMM_NAME = re.compile(r"record_param_comms|(?:_?c10d(?:_functional\w*)?|gloo|symm_mem)(?:::|:)")
_PROCESS = re.compile(r"(\[[^\[\]]*\])\s*(.*)")
_PEER = re.compile(r"\bP(?:eer)?toP|Peer", re.IGNORECASE)

_get = {k: attrgetter(k) for k in ("ts", "dur", "name", "pid", "tid")}
_thread = attrgetter("pid", "tid")
_arg = {k: attrgetter(k) for k in ("ext", "old_ext", "correlation", "device", "stream", "nbytes", "collective")}
_NO_ARGS = Args()

Column = list["NDArray[Any]"]
HOST_FIELDS = ("ts", "dur", "name", "cat", "track", "corr", "ext", "comm")
DEVICE_FIELDS = ("ts", "dur", "name", "cls", "device", "stream", "corr", "ext", "nbytes", "peer", "comm", "proc")
NOTE_FIELDS = ("ts", "dur", "name", "device", "stream", "ext", "proc")


def process_of(pid: Any) -> tuple[str, str]:
    """(process prefix, rest) of a pid: merged files write "[TP00-PP01] 83"."""
    found = _PROCESS.fullmatch(pid) if isinstance(pid, str) else None
    return (found[1], found[2]) if found else ("", str(pid))


class Columns:
    """Accumulates one document; `add(batch)` per chunk, then read the column lists."""

    def __init__(self) -> None:
        self.names = Interner()
        self.tracks = Interner()  # (pid, tid)
        self.procs = Interner()
        self.procs[""]  # code 0 is the ordinary, unprefixed process
        self.counts: Counter[str] = Counter()
        self.notes: Counter[tuple[str, str]] = Counter()
        self.examples: dict[tuple[str, str], str] = {}
        self.host: dict[str, Column] = {f: [] for f in HOST_FIELDS}
        self.device: dict[str, Column] = {f: [] for f in DEVICE_FIELDS}
        self.annotations: dict[str, Column] = {f: [] for f in NOTE_FIELDS}
        self.comm: list[CommArgs] = []
        self.thread_names: dict[tuple[Any, Any], list[str]] = {}
        self.labels: dict[Any, str] = {}
        self.window_end: int | None = None
        self._comm_names: set[int] = set()
        self._names_seen = 0

    def note(self, severity: str, reason: str, count: int = 1, example: str = "") -> None:
        """Count something dropped, repaired or guessed."""
        if count:
            self.notes[severity, reason] += count
            self.examples.setdefault((severity, reason), example)

    def add(self, batch: Batch) -> None:
        """Take one decoded batch."""
        for (ph, cat), events in batch.items():
            self.counts[f"{ph}:{cat}" if cat is not None else str(ph)] += len(events)
            if ph == "X":
                if isinstance(cat, str):
                    self._spans(cat, events)
            elif ph == "M":
                self._metadata(events)
            elif ph == "i":
                self._instants(events)

    def _spans(self, cat: str, events: list[AnyEvent]) -> None:
        if cat in HOST_CATS:
            self._host(HOST_CATS[cat], events)
        elif cat in DEVICE_CATS:
            self._device(DEVICE_CATS[cat], events)
        elif cat in DEVICE_ANNOTATION_CATS:
            self._annotations(events)

    # ------------------------------------------------------------------ host

    def _host(self, cat: HostCat, events: list[AnyEvent]) -> None:
        events, ts, dur = self._times(events, cat.name.lower())
        if not events:
            return
        args = [e.args or _NO_ARGS for e in events]
        names = self.names.codes(self._text(events))
        out = self.host
        out["ts"].append(ts)
        out["dur"].append(dur)
        out["name"].append(names)
        out["cat"].append(np.full(len(events), int(cat), np.int8))
        out["track"].append(self.tracks.codes(list(map(_thread, events))))
        out["corr"].append(ints(list(map(_arg["correlation"], args))))
        out["ext"].append(self._external(args))
        comm = np.full(len(events), -1, np.int32)
        if cat != HostCat.RUNTIME:
            for row in np.flatnonzero(self._is_comm(names)).tolist():
                comm[row] = self._comm_row(args[row])
        out["comm"].append(comm)

    def _is_comm(self, names: NDArray[np.int32]) -> NDArray[np.bool_]:
        if len(self.names) > self._names_seen:
            fresh = list(self.names)[self._names_seen :]
            self._comm_names |= {
                self._names_seen + i for i, n in enumerate(fresh) if isinstance(n, str) and COMM_NAME.match(n)
            }
            self._names_seen = len(self.names)
        if not self._comm_names:
            return np.zeros(len(names), np.bool_)
        return np.isin(names, np.fromiter(self._comm_names, np.int32, len(self._comm_names)))

    @staticmethod
    def _external(args: list[Args]) -> NDArray[np.int64]:
        ext = ints(list(map(_arg["ext"], args)))
        if (ext == -1).all():
            ext = ints(list(map(_arg["old_ext"], args)))
        return ext

    def _comm_row(self, a: Args) -> int:
        self.comm.append(comm_args(a))
        return len(self.comm) - 1

    # ------------------------------------------------------------------ device

    def _device(self, cls: DeviceClass, events: list[AnyEvent]) -> None:
        events, ts, dur = self._times(events, cls.name.lower(), zero_is_bad=True)
        if not events:
            return
        args = [e.args or _NO_ARGS for e in events]
        out = self.device
        out["ts"].append(ts)
        out["dur"].append(dur)
        out["name"].append(self.names.codes(self._text(events)))
        out["cls"].append(np.full(len(events), int(cls), np.int8))
        self._place(out, events, args)
        out["corr"].append(ints(list(map(_arg["correlation"], args))))
        out["ext"].append(self._external(args))
        out["nbytes"].append(ints(list(map(_arg["nbytes"], args))))
        if cls == DeviceClass.MEMCPY:
            out["peer"].append(np.array([_peer(e, a) for e, a in zip(events, args, strict=True)], np.int8))
        else:
            out["peer"].append(np.zeros(len(events), np.int8))
        out["comm"].append(
            np.array([-1 if a.collective is None else self._comm_row(a) for a in args], np.int32)
        )

    def _annotations(self, events: list[AnyEvent]) -> None:
        events, ts, dur = self._times(events, "gpu_user_annotation")
        if not events:
            return
        args = [e.args or _NO_ARGS for e in events]
        out = self.annotations
        out["ts"].append(ts)
        out["dur"].append(dur)
        out["name"].append(self.names.codes(self._text(events)))
        self._place(out, events, args)
        out["ext"].append(self._external(args))

    def _place(self, out: dict[str, Column], events: list[AnyEvent], args: list[Args]) -> None:
        """Device ordinal (argument, else pid), stream (argument, else tid) and process."""
        pids = list(map(_get["pid"], events))
        devices = [a.device if a.device is not None else p for a, p in zip(args, pids, strict=True)]
        streams = [a.stream if a.stream is not None else e.tid for a, e in zip(args, events, strict=True)]
        prefixed = any(isinstance(p, str) and p.startswith("[") for p in pids)
        if prefixed:
            devices = [process_of(d)[1] if isinstance(d, str) else d for d in devices]
            procs = self.procs.codes([process_of(p)[0] for p in pids])
        else:
            procs = np.zeros(len(pids), np.int32)
        out["device"].append(np.clip(ints(devices), -(1 << 31), (1 << 31) - 1).astype(np.int32))
        out["stream"].append(ints(streams))
        out["proc"].append(procs)

    # ------------------------------------------------------------------ shared

    @staticmethod
    def _text(events: list[AnyEvent]) -> list[str]:
        names = list(map(_get["name"], events))
        return [n if type(n) is str else str(n) for n in names]

    def _times(
        self, events: list[AnyEvent], what: str, *, zero_is_bad: bool = False
    ) -> tuple[list[AnyEvent], NDArray[np.int64], NDArray[np.int64]]:
        ts = times(list(map(_get["ts"], events)))
        dur = times(list(map(_get["dur"], events)))
        bad = (ts == BAD) | (dur == BAD)
        if bad.any():
            first = events[int(np.argmax(bad))]
            self.note("lost", f"{what} without a usable time", int(bad.sum()), str(first.name)[:120])
        if zero_is_bad and (ts == 0).any():
            zero = (ts == 0) & ~bad
            self.note("lost", f"{what} with time stamp 0", int(zero.sum()), _example(events, zero))
            bad |= zero
        negative = (dur < 0) & ~bad
        if negative.any():
            self.note("repaired", f"{what} with a negative duration, set to 0", int(negative.sum()), _example(events, negative))
            dur = np.where(negative, 0, dur)
        if bad.any():
            keep = ~bad
            events = [e for e, k in zip(events, keep.tolist(), strict=True) if k]
            ts, dur = ts[keep], dur[keep]
        return events, ts, dur

    def _metadata(self, events: list[AnyEvent]) -> None:
        for e in events:
            if e.name == "thread_name" and e.args is not None and e.args.name is not None:
                self.thread_names.setdefault((e.pid, e.tid), []).append(str(e.args.name))
            elif e.name == "process_labels" and e.args is not None:
                self.labels[e.pid] = str(e.args.labels)

    def _instants(self, events: list[AnyEvent]) -> None:
        for e in events:
            if e.name == "Record Window End":
                ts = int(times([e.ts])[0])
                self.window_end = None if ts == BAD else ts


def _example(events: list[AnyEvent], mask: NDArray[np.bool_]) -> str:
    return str(events[int(np.argmax(mask))].name)[:120] if mask.any() else ""


def _peer(event: AnyEvent, a: Args) -> int:
    source, target = as_int(a.from_device), as_int(a.to_device)
    if source is not None and target is not None:
        return int(source != target)
    return int(bool(_PEER.search(str(event.name))))


def _raw(value: msgspec.Raw) -> list[Any] | None:
    if not bytes(value):
        return None
    try:
        decoded = msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, list) else None


def _str(value: Any) -> str | None:
    return None if value is None else str(value)


def comm_args(a: Args) -> CommArgs:
    """Normalise the arguments of one communication record, whatever the era."""
    comms_id = as_int(a.comms_id)
    return CommArgs(
        collective=_str(a.collective),
        in_nelems=as_int(a.in_nelems if a.in_nelems is not None else a.in_size),
        out_nelems=as_int(a.out_nelems if a.out_nelems is not None else a.out_size),
        dtype=_str(a.dtype),
        group_size=as_int(a.group_size),
        pg_name=_str(a.pg_name if a.pg_name is not None else a.pg_id),
        pg_desc=_str(a.pg_desc),
        ranks_text=_str(a.ranks_text),
        rank_start=as_int(a.rank_start),
        rank_stride=as_int(a.rank_stride),
        rank=as_int(a.rank),
        src_rank=as_int(a.src_rank),
        dst_rank=as_int(a.dst_rank),
        seq=as_int(a.seq),
        comms_id=None if comms_id is None else comms_id % (1 << 64),
        in_splits=_str(a.in_splits),
        out_splits=_str(a.out_splits),
        dims=_raw(a.dims) or _raw(a.old_dims),
        types=_raw(a.types),
        concrete=_raw(a.concrete),
    )


__all__ = ["Columns", "comm_args", "process_of"]

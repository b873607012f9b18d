"""Batches of events → growing columns of one document."""

from __future__ import annotations

import re
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.model import DeviceClass, HostCat
from tracekit.parsers.comm import COMM_NAME, Records
from tracekit.parsers.convert import BAD, MAX_DUR_NS, Interner, as_int, ints, streams, times
from tracekit.parsers.decode import Args, Batch, Event, LeanArgs, LeanDeviceArgs, TextEvent
from tracekit.parsers.fixed import FixedRows, Heads
from tracekit.parsers.frames import CATEGORY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.parsers.frames import Frames

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
RECORDING = frozenset({HostCat.CPU_OP, HostCat.ANNOTATION})
"""Categories whose rows may carry a communication record."""
MTIA_CAT = "mtia_ccp_events"
"""Rows of MTIA's command processor: waits and work mixed, and no rule says which of them occupy the device."""

_PEER = re.compile(r"PtoP|PeerTo|Peer", re.IGNORECASE)
_LOCAL = re.compile(r"[HDA]to[HDA]|Host|DeviceToDevice", re.IGNORECASE)
_thread = attrgetter("pid", "tid")
_NO_ARGS = Args()
_LEAST = 1 << 12
"""Values a column grows by at least."""

HOST_TYPES: dict[str, Any] = {"ts": np.int64, "dur": np.int64, "name": np.int32, "cat": np.int8, "track": np.int32,
              "corr": np.int64, "ext": np.int64, "comm": np.int32}  # fmt: skip
DEVICE_TYPES: dict[str, Any] = {"ts": np.int64, "dur": np.int64, "name": np.int32, "cls": np.int8, "place": np.int32,
                "stream": np.int64, "corr": np.int64, "ext": np.int64, "nbytes": np.int64, "peer": np.int8,
                "comm": np.int32}  # fmt: skip
NOTE_TYPES: dict[str, Any] = {"ts": np.int64, "dur": np.int64, "name": np.int32, "place": np.int32, "stream": np.int64,
              "ext": np.int64}  # fmt: skip


class Column:
    """Values that come in parts. It grows in place: parts kept until the end would double the memory then."""

    def __init__(self, dtype: Any) -> None:
        self._data: NDArray[Any] = np.empty(0, dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, part: NDArray[Any]) -> None:
        """Add values at the end."""
        size = self._size + len(part)
        if size > len(self._data):  # the system moves pages, not bytes, when a large block grows
            self._data.resize(size + max(size >> 3, _LEAST), refcheck=False)
        self._data[self._size : size] = part
        self._size = size

    def last(self, n: int) -> NDArray[Any]:
        """The last n values; only until more are added."""
        return self._data[self._size - n : self._size]

    def take(self) -> NDArray[Any]:
        """All values; the column is empty afterwards."""
        out, self._data = self._data, np.empty(0, self._data.dtype)
        out.resize(self._size, refcheck=False)
        self._size = 0
        return out


Table = dict[str, Column]


class Columns:
    """Accumulates one document; `add(batch)` per chunk, then read the column lists.

    `place` codes (device argument, pid) in `places`; `track` codes (pid, tid) in `tracks`. Python frames are only
    counted, but for those that `frames` wants.
    """

    def __init__(self, frames: Frames | None = None) -> None:
        self.frames = frames
        self.names = Interner()
        self.tracks = Interner()
        self.places = Interner()
        self.heads = Heads(), Heads()
        self._host_heads = _HeadCodes(self.heads[0], self.names, self.tracks)
        self._device_heads = _HeadCodes(self.heads[1], self.names, None)
        self.counts: Counter[str] = Counter()
        self.notes: Counter[tuple[str, str]] = Counter()
        self.examples: dict[tuple[str, str], str] = {}
        self.host = {f: Column(t) for f, t in HOST_TYPES.items()}
        self.device = {f: Column(t) for f, t in DEVICE_TYPES.items()}
        self.annotations = {f: Column(t) for f, t in NOTE_TYPES.items()}
        self.comm = Records()
        self.thread_names: dict[tuple[str, str], set[str]] = {}
        self.labels: dict[str, set[str]] = {}
        self.window_end: int | None = None
        self._comm_names: dict[int, bool] = {}

    def note(self, severity: str, reason: str, count: int = 1, example: str = "") -> None:
        """Count something dropped, repaired or guessed; the smallest example stays (any order of events)."""
        if count:
            key = severity, reason
            self.notes[key] += count
            self.examples[key] = min(self.examples.get(key, example), example)

    def add(self, batch: Batch) -> None:
        """Take one decoded batch."""
        for ph, cat, events in batch:
            self.counts[f"{ph}:{cat}" if cat is not None else str(ph)] += len(events)
            if isinstance(events, FixedRows):
                self._fixed(cat, events)
            elif ph == "X":
                self._spans(cat, events)
            elif ph == "M":
                self._metadata(events)
            elif ph == "i":
                self._instants(events)

    def _spans(self, cat: Any, events: list[Any]) -> None:
        if cat in HOST_CATS:
            self._host(HOST_CATS[cat], events)
        elif cat in DEVICE_CATS:
            self._device(DEVICE_CATS[cat], events)
        elif cat == "gpu_user_annotation":
            self._annotations(events)
        elif cat == CATEGORY and self.frames is not None:
            self._host(HostCat.PYTHON, [e for e in events if self.frames.wanted(e.name)])
        elif cat == MTIA_CAT:
            self.note(
                "info", "rows of a device whose occupation is not defined (mtia_ccp_events), not counted", len(events)
            )

    # ------------------------------------------------------------------ rows

    def _fixed(self, cat: str, rows: FixedRows) -> None:
        n = len(rows)
        if not n:
            return
        if cat not in HOST_CATS and cat not in DEVICE_CATS:
            self._fixed_notes(rows)
            return
        more: dict[str, NDArray[Any]] = {}
        if cat in HOST_CATS:
            out = self.host
            more["cat"] = np.full(n, int(HOST_CATS[cat]), np.int8)
            name, more["track"] = self._host_heads.codes(rows.head)
        else:
            out = self.device
            more["cls"] = np.full(n, int(DEVICE_CATS[cat]), np.int8)
            name, _ = self._device_heads.codes(rows.head)
            more |= {"place": self._fixed_places(rows), "stream": rows.stream, "nbytes": np.full(n, -1, np.int64)}
            more["peer"] = np.zeros(n, np.int8)
        more |= {"ts": rows.ts, "dur": rows.dur, "ext": rows.ext, "corr": rows.corr, "name": name}
        more["comm"] = np.full(n, -1, np.int32)
        for field, column in more.items():
            out[field].append(column)

    def _fixed_notes(self, rows: FixedRows) -> None:
        name, _ = self._device_heads.codes(rows.head)
        heads, back = np.unique(rows.head, return_inverse=True)
        values = [self.heads[1].values[h] for h in heads.tolist()]
        place = self.places.codes([(None, pid) for _, pid, _ in values], len(values))[back.reshape(-1)]
        stream = streams([tid for *_, tid in values])[back.reshape(-1)]
        columns: dict[str, NDArray[Any]] = {"ts": rows.ts, "dur": rows.dur, "name": name, "place": place}
        columns |= {"stream": stream, "ext": rows.ext}
        for field, column in columns.items():
            self.annotations[field].append(column)

    def _fixed_places(self, rows: FixedRows) -> NDArray[np.int32]:
        out = np.empty(len(rows), np.int32)
        for device in np.unique(rows.device).tolist():
            of = np.flatnonzero(rows.device == device)
            heads, back = np.unique(rows.head[of], return_inverse=True)
            pairs = [(device, self.heads[1].values[h][1]) for h in heads.tolist()]
            out[of] = self.places.codes(pairs, len(pairs))[back.reshape(-1)]
        return out

    def _host(self, cat: HostCat, events: list[Any]) -> None:
        events, n = self._begin(self.host, events, cat.name.lower()) if events else (events, 0)
        if not n:
            return
        args = [e.args or _NO_ARGS for e in events]
        out = self.host
        out["cat"].append(np.full(n, int(cat), np.int8))
        out["track"].append(self.tracks.codes(map(_thread, events), n))
        runtime = cat == HostCat.RUNTIME
        out["corr"].append(ints([a.correlation for a in args]) if runtime else np.full(n, -1, np.int64))
        out["ext"].append(self._external(args))
        comm = np.full(n, -1, np.int32)
        if cat in RECORDING and _is_full(events):
            names = out["name"].last(n).tolist()
            for row, name in enumerate(names):
                if self._is_comm(name, events[row]):
                    comm[row] = self.comm.add(args[row])
        out["comm"].append(comm)

    def _device(self, cls: DeviceClass, events: list[Any]) -> None:
        events, n = self._begin(self.device, events, cls.name.lower())
        if not n:
            return
        args = [e.args or _NO_ARGS for e in events]
        full = _is_full(events)
        out = self.device
        out["cls"].append(np.full(n, int(cls), np.int8))
        self._place(out, events, args)
        out["corr"].append(ints([a.correlation for a in args]))
        out["ext"].append(self._external(args))
        nbytes = [a.nbytes for a in args] if full else []
        out["nbytes"].append(ints(nbytes) if full else np.full(n, -1, np.int64))
        peers = cls == DeviceClass.MEMCPY and full
        out["peer"].append(
            np.array([peer(e.name, a) for e, a in zip(events, args, strict=True)], np.int8)
            if peers
            else np.zeros(n, np.int8)
        )
        out["comm"].append(
            np.array([-1 if a.collective is None else self.comm.add(a) for a in args], np.int32)
            if full
            else np.full(n, -1, np.int32)
        )

    def _annotations(self, events: list[Any]) -> None:
        events, n = self._begin(self.annotations, events, "gpu_user_annotation")
        if n:
            args = [e.args or _NO_ARGS for e in events]
            self._place(self.annotations, events, args)
            self.annotations["ext"].append(self._external(args))

    # ------------------------------------------------------------------ shared

    def _begin(self, out: Table, events: list[Any], what: str) -> tuple[list[Any], int]:
        """Append time and name of the usable events; returns those and their number."""
        ts, rough = times([e.ts for e in events])
        dur, rougher = times([e.dur for e in events])
        bad = (ts == BAD) | (dur == BAD)
        absurd = ~bad & (dur > MAX_DUR_NS)
        negative = ~bad & (dur < 0)
        self.note("info", "time stamp rounded: the writer's number has too many digits", rough + rougher, what)
        self._note_rows("lost", f"{what} without a usable time", bad, events)
        self._note_rows("lost", f"{what} with an impossible duration (over ten days)", absurd, events)
        self._note_rows("repaired", f"{what} with a negative duration, set to 0", negative, events)
        dur = np.maximum(dur, 0)
        drop = bad | absurd
        if drop.any():
            keep = ~drop
            events = [e for e, k in zip(events, keep.tolist(), strict=True) if k]
            ts, dur = ts[keep], dur[keep]
        if events:
            names = [e.name for e in events]
            out["ts"].append(ts)
            out["dur"].append(dur)
            if {str}.issuperset(map(type, names)):
                out["name"].append(self.names.codes(names, len(events)))
            else:
                out["name"].append(self.names.codes(map(str, names), len(events)))
        return events, len(events)

    def _note_rows(self, severity: str, reason: str, rows: NDArray[np.bool_], events: list[Any]) -> None:
        if rows.any():
            example = min(str(events[i].name)[:120] for i in np.flatnonzero(rows).tolist())
            self.note(severity, reason, int(np.count_nonzero(rows)), example)

    def _is_comm(self, code: int, event: Any) -> bool:
        known = self._comm_names.get(code)
        if known is None:
            known = self._comm_names[code] = COMM_NAME.match(str(event.name)) is not None
        return known

    @staticmethod
    def _external(args: list[Any]) -> NDArray[np.int64]:
        ext = ints([a.ext for a in args])
        if isinstance(args[0], LeanArgs | LeanDeviceArgs) or not (ext == -1).any():
            return ext
        return np.where(ext == -1, ints([getattr(a, "old_ext", -1) for a in args]), ext)

    def _place(self, out: Table, events: list[Any], args: list[Any]) -> None:
        pairs = [(a.device, e.pid) for a, e in zip(args, events, strict=True)]
        out["place"].append(self.places.codes(pairs, len(pairs)))
        out["stream"].append(
            streams([e.tid if a.stream is None else a.stream for a, e in zip(args, events, strict=True)])
        )

    def _metadata(self, events: list[Any]) -> None:
        for e in events:
            if e.args is None:
                continue
            if e.name == "thread_name" and e.args.name is not None:
                self.thread_names.setdefault((str(e.pid), str(e.tid)), set()).add(str(e.args.name))
            elif e.name == "process_labels" and e.args.labels is not None:
                self.labels.setdefault(str(e.pid), set()).add(str(e.args.labels))

    def _instants(self, events: list[Any]) -> None:
        for e in events:
            if e.name == "Record Window End":
                ts = int(times([e.ts])[0][0])
                self.window_end = self.window_end if ts == BAD else max(ts, self.window_end or ts)


class _HeadCodes:
    """Codes of name and track for the codes of heads; only what rows use is numbered."""

    def __init__(self, heads: Heads, names: Interner, tracks: Interner | None) -> None:
        self.heads, self.names, self.tracks = heads, names, tracks
        self._name: NDArray[np.int32] = np.empty(0, np.int32)
        self._track: NDArray[np.int32] = np.empty(0, np.int32)

    def codes(self, head: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """int32 codes of name and track of each row."""
        missing = len(self.heads.values) - len(self._name)
        if missing:
            self._name = np.append(self._name, np.full(missing, -1, np.int32))
            self._track = np.append(self._track, np.full(missing, -1, np.int32))
        name = self._name[head]
        if name.min() < 0:
            for code in np.unique(head[name < 0]).tolist():
                text, pid, tid = self.heads.values[code]
                self._name[code] = self.names[text]
                self._track[code] = self.tracks[pid, tid] if self.tracks is not None else -1
            name = self._name[head]
        return name, self._track[head]


def _is_full(events: list[Any]) -> bool:
    return isinstance(events[0], Event | TextEvent)


def peer(name: Any, a: Args) -> int:
    """1 between two devices, 0 within one or with the host, -1 unknown."""
    source, target = as_int(a.from_device), as_int(a.to_device)
    if source is not None and target is not None:
        return int(source != target)
    if _PEER.search(str(name)):
        return 1
    return 0 if _LOCAL.search(str(name)) else -1

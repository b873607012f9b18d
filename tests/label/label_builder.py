"""Build a `RankTrace` from a few readable events; independent of the parser."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.model import (
    CommArgs,
    DeviceAnnotations,
    DeviceClass,
    DeviceRows,
    HostCat,
    HostRows,
    RankTrace,
    TraceMeta,
    Track,
)

HOST = {"op": HostCat.CPU_OP, "note": HostCat.ANNOTATION, "call": HostCat.RUNTIME, "python": HostCat.PYTHON}
DEVICE = {"kernel": DeviceClass.KERNEL, "copy": DeviceClass.MEMCPY, "set": DeviceClass.MEMSET}


class TraceBuilder:
    """Times in microseconds; every `op/note/call/python/kernel/copy/set/gpu_note` appends one event."""

    def __init__(self, **meta: Any) -> None:
        self.meta = TraceMeta("test", **meta)
        self.names: dict[str, int] = {}
        self.tracks: dict[str, int] = {}
        self.host: list[tuple[int, ...]] = []
        self.device: list[tuple[int, ...]] = []
        self.notes: list[tuple[int, ...]] = []
        self.comm: list[CommArgs] = []

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def _args(self, args: dict[str, Any] | None) -> int:
        if args is None:
            return -1
        self.comm.append(CommArgs(**args))
        return len(self.comm) - 1

    def span(self, cat: str, ts: float, dur: float, name: str, *, thread: str = "main", corr: int = -1,
             ext: int = -1, args: dict[str, Any] | None = None) -> TraceBuilder:  # fmt: skip
        track = self.tracks.setdefault(thread, len(self.tracks))
        row = (round(ts * 1000), round(dur * 1000), self._name(name), int(HOST[cat]), track, corr, ext)
        self.host.append((*row, self._args(args)))
        return self

    def op(self, *a: Any, **k: Any) -> TraceBuilder:
        return self.span("op", *a, **k)

    def note(self, *a: Any, **k: Any) -> TraceBuilder:
        return self.span("note", *a, **k)

    def call(self, ts: float, dur: float, name: str = "cudaLaunchKernel", **k: Any) -> TraceBuilder:
        return self.span("call", ts, dur, name, **k)

    def work(self, cls: str, ts: float, dur: float, name: str, *, device: int = 0, stream: int = 7, corr: int = -1,
             ext: int = -1, peer: int = -1, args: dict[str, Any] | None = None) -> TraceBuilder:  # fmt: skip
        row = (
            round(ts * 1000),
            round(dur * 1000),
            self._name(name),
            int(DEVICE[cls]),
            device,
            stream,
            corr,
            ext,
        )
        self.device.append((*row, -1, peer, self._args(args)))
        return self

    def kernel(self, *a: Any, **k: Any) -> TraceBuilder:
        return self.work("kernel", *a, **k)

    def copy(self, *a: Any, **k: Any) -> TraceBuilder:
        return self.work("copy", *a, **k)

    def gpu_note(self, ts: float, dur: float, name: str, *, device: int = 0, stream: int = 7) -> TraceBuilder:
        self.notes.append((round(ts * 1000), round(dur * 1000), self._name(name), device, stream, -1))
        return self

    def build(self) -> RankTrace:
        h = np.array(sorted(self.host, key=lambda r: (r[0], -r[1])), np.int64).reshape(-1, 8)
        d = np.array(sorted(self.device), np.int64).reshape(-1, 11)
        n = np.array(sorted(self.notes), np.int64).reshape(-1, 6)
        i32, i8 = np.int32, np.int8
        host = HostRows(h[:, 0], h[:, 1], h[:, 2].astype(i32), h[:, 3].astype(i8), h[:, 4].astype(i32),
                        h[:, 5], h[:, 6], h[:, 7].astype(i32))  # fmt: skip
        device = DeviceRows(d[:, 0], d[:, 1], d[:, 2].astype(i32), d[:, 3].astype(i8), d[:, 4].astype(i32),
                            d[:, 5], d[:, 6], d[:, 7], d[:, 8], d[:, 9].astype(i8), d[:, 10].astype(i32))  # fmt: skip
        notes = DeviceAnnotations(n[:, 0], n[:, 1], n[:, 2].astype(i32), n[:, 3].astype(i32), n[:, 4], n[:, 5])
        spans = [*((r[0], r[0] + r[1]) for r in self.host), *((r[0], r[0] + r[1]) for r in self.device)]
        window = (min((s for s, _ in spans), default=0), max((e for _, e in spans), default=0))
        tracks = [Track("1", name) for name in self.tracks]
        return RankTrace(self.meta, list(self.names), tracks, host, device, notes, self.comm, {}, [], window)


def record(op: str = "allreduce", n: int = 4096, **more: Any) -> dict[str, Any]:
    """Arguments of a record as torch ≥ 2.4 writes them."""
    base = {"collective": op, "in_nelems": n, "out_nelems": n, "dtype": "Float", "group_size": 2,
            "pg_name": "3", "pg_desc": "undefined", "rank_start": 0, "rank_stride": 1,
            "ranks_text": "[0, 1]"}  # fmt: skip
    return {**base, **more}


def collective(b: TraceBuilder, ts: float, corr: int, kernel: str, operator: str = "c10d::allreduce_",
               kernel_ts: float | None = None, **args: Any) -> TraceBuilder:  # fmt: skip
    """One NCCL collective: operator > record > annotation > launch, and its kernel."""
    b.op(ts, 40, operator, ext=corr)
    b.op(ts + 2, 36, "record_param_comms", ext=corr + 1, args=record(**args))
    b.note(ts + 4, 30, "nccl:x")
    b.call(ts + 10, 5, corr=corr, ext=corr + 1)
    return b.kernel(kernel_ts or ts + 50, 20, kernel, corr=corr, ext=corr + 1, stream=20)

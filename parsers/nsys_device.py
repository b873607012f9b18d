"""Device work of an Nsight Systems export: kernels, copies, sets, and graphs that were traced as one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.model import DeviceClass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.parsers.nsys import Context

_KIND = "CUPTI_ACTIVITY_KIND_"
_PID = 24
_COPIES = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
"""CUpti_ActivityMemcpyKind, spelled as Kineto does."""
_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static"}
_PEER = 10
_LOCAL = 8
_COMMON = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
TYPES: dict[str, Any] = {
    "ts": np.int64, "dur": np.int64, "name": np.int32, "cls": np.int8, "device": np.int32, "stream": np.int64,
    "corr": np.int64, "ext": np.int64, "nbytes": np.int64, "peer": np.int8, "comm": np.int32, "process": np.int64,
}  # fmt: skip
Rows = dict[str, "NDArray[np.int64]"]


def device_rows(ctx: Context) -> dict[str, NDArray[Any]]:
    """Columns as in `DeviceRows`, with `process` (machine and process id) besides; times since the session began."""
    parts = [_kernels(ctx), _copies(ctx), _sets(ctx), _graphs(ctx)]
    found = [p for p in parts if p is not None]
    return {k: np.concatenate([p[k] for p in found]).astype(t) if found else np.empty(0, t) for k, t in TYPES.items()}


def _columns(
    rows: Rows,
    cls: DeviceClass,
    name: NDArray[Any],
    nbytes: NDArray[Any] | None = None,
    peer: NDArray[Any] | None = None,
) -> dict[str, NDArray[Any]]:
    n = len(rows["start"])
    none = np.full(n, -1, np.int64)
    return {
        "ts": rows["start"], "dur": rows["end"] - rows["start"], "name": name, "cls": np.full(n, int(cls), np.int8),
        "device": rows["deviceId"], "stream": rows["streamId"], "corr": rows["correlationId"], "ext": none,
        "nbytes": none if nbytes is None else nbytes, "peer": np.zeros(n, np.int8) if peer is None else peer,
        "comm": none, "process": rows["globalPid"] >> _PID,
    }  # fmt: skip


def _read(ctx: Context, table: str, more: tuple[str, ...], what: str) -> Rows | None:
    name = _KIND + table
    if not ctx.db.has(name, "start", "end"):
        return None
    return ctx.usable(ctx.db.integers(name, (*_COMMON, *more)), what)


def _spelled(ctx: Context, codes: NDArray[np.int64], text: Any) -> NDArray[np.int32]:
    """Number of the name of each row; text(code) spells one."""
    values, back = np.unique(codes, return_inverse=True)
    numbers = np.array([ctx.names[text(v)] for v in values.tolist()], np.int32)
    out: NDArray[np.int32] = numbers[back.reshape(-1)] if len(values) else np.empty(0, np.int32)
    return out


def _kernels(ctx: Context) -> dict[str, NDArray[Any]] | None:
    rows = _read(ctx, "KERNEL", ("demangledName", "mangledName", "shortName"), "kernel")
    if rows is None:
        return None
    name = rows["demangledName"].copy()
    for other in ("mangledName", "shortName"):
        name = np.where(name < 0, rows[other], name)
    ctx.note("info", "kernel without a name", int(np.count_nonzero(name < 0)))
    return _columns(rows, DeviceClass.KERNEL, _spelled(ctx, name, ctx.text))


def _copies(ctx: Context) -> dict[str, NDArray[Any]] | None:
    more = ("bytes", "copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId")
    rows = _read(ctx, "MEMCPY", more, "memcpy")
    if rows is None:
        return None
    kind, source, target = rows["copyKind"], rows["srcDeviceId"], rows["dstDeviceId"]
    peer = np.where(np.isin(kind, list(_COPIES)), 0, -1)
    peer[kind == _PEER] = 1
    known = (source >= 0) & (target >= 0) & np.isin(kind, (_LOCAL, _PEER))
    peer[known] = source[known] != target[known]
    code = (kind + 1) * 10_000 + (rows["srcKind"] + 1) * 100 + rows["dstKind"] + 1

    def text(value: int) -> str:
        name = f"Memcpy {_COPIES.get(value // 10_000 - 1, 'unknown')}"
        ends = _MEMORY.get(value // 100 % 100 - 1), _MEMORY.get(value % 100 - 1)
        return f"{name} ({ends[0]} -> {ends[1]})" if all(ends) else name

    return _columns(rows, DeviceClass.MEMCPY, _spelled(ctx, np.clip(code, 0, 10**9), text), rows["bytes"], peer)


def _sets(ctx: Context) -> dict[str, NDArray[Any]] | None:
    rows = _read(ctx, "MEMSET", ("bytes", "memKind"), "memset")
    if rows is None:
        return None
    name = _spelled(ctx, rows["memKind"], lambda v: f"Memset ({_MEMORY.get(v, 'Device')})")
    return _columns(rows, DeviceClass.MEMSET, name, rows["bytes"])


def _graphs(ctx: Context) -> dict[str, NDArray[Any]] | None:
    rows = _read(ctx, "GRAPH_TRACE", ("graphId",), "graph")
    if rows is None:
        return None
    reason = "CUDA graph traced as one piece: it counts as compute, communication inside does not show"
    ctx.note("info", reason, len(rows["start"]), "record with nsys profile --cuda-graph-trace=node")
    return _columns(rows, DeviceClass.KERNEL, _spelled(ctx, rows["graphId"], lambda v: f"CUDA graph {v}"))

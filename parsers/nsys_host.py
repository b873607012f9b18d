"""Host rows of an Nsight Systems export: CUDA calls and NVTX ranges, NCCL's own ranges among them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.model import HostCat, Track
from tracekit.parsers.nsys_nccl import CALL, INIT, Payloads, Process, args_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.parsers.nsys import Context

PUSH_POP, START_END, DOMAIN = 59, 60, 75
RECORD = "record_param_comms"
"""Name of rows that carry a communication record: NCCL's ranges are such records, whoever called NCCL."""
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_VERSION = re.compile(r"_v\d+(?:_ptsz|_ptds)?$")
_OPERATOR = re.compile(r"([\w:~.<>&*]+(?:::|\.)[\w:~.<>&* ]+?)(?:, (?:seq|op_id|sizes|input_op_ids) = .*)$", re.DOTALL)
_PID = 24
_TYPES: dict[str, Any] = {
    "ts": np.int64, "dur": np.int64, "name": np.int32, "cat": np.int8, "track": np.int32, "corr": np.int64,
    "ext": np.int64, "comm": np.int32,
}  # fmt: skip


def host_rows(ctx: Context) -> tuple[dict[str, NDArray[Any]], list[tuple[int, Track]]]:
    """Columns as in `HostRows`, times since the session began, and the tracks: (process, thread)."""
    parts = [p for p in (_runtime(ctx), _ranges(ctx)) if p is not None]
    rows = {k: np.concatenate([p[k] for p in parts]).astype(t) if parts else np.empty(0, t)
            for k, t in (_TYPES | {"track": np.int64}).items()}  # fmt: skip
    threads, back = np.unique(rows["track"], return_inverse=True)
    rows["track"] = back.reshape(-1).astype(np.int32)
    names = _thread_names(ctx)
    tracks = []
    for thread in threads.tolist():
        pid, tid = thread >> _PID, thread & 0xFFFFFF
        tracks.append((pid, Track(str(pid & 0xFFFFFF), str(tid), names.get(thread))))
    return rows, tracks


def _thread_names(ctx: Context) -> dict[int, str]:
    if not ctx.db.has("ThreadNames", "globalTid", "nameId"):
        return {}
    rows = ctx.db.integers("ThreadNames", ("globalTid", "nameId"))
    return {t: ctx.text(n) for t, n in zip(rows["globalTid"].tolist(), rows["nameId"].tolist(), strict=True)}


def _columns(
    start: NDArray[Any], end: NDArray[Any], name: NDArray[Any], cat: NDArray[Any], thread: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    none = np.full(len(start), -1, np.int64)
    return {"ts": start, "dur": end - start, "name": name, "cat": cat, "track": thread, "corr": none.copy(),
            "ext": none.copy(), "comm": none.copy()}  # fmt: skip


def _runtime(ctx: Context) -> dict[str, NDArray[Any]] | None:
    if not ctx.db.has(_RUNTIME, "start", "end"):
        return None
    columns = ("start", "end", "globalTid", "correlationId", "nameId")
    rows = ctx.usable(ctx.db.integers(_RUNTIME, columns), "runtime")
    values, back = np.unique(rows["nameId"], return_inverse=True)
    names = np.array([ctx.names[_VERSION.sub("", ctx.text(v))] for v in values.tolist()] or [0], np.int32)
    cat = np.full(len(rows["start"]), int(HostCat.RUNTIME), np.int8)
    out = _columns(rows["start"], rows["end"], names[back.reshape(-1)], cat, rows["globalTid"])
    out["corr"] = rows["correlationId"]
    return out


def _ranges(ctx: Context) -> dict[str, NDArray[Any]] | None:
    """NVTX ranges; one without an end lasts until the recording ends."""
    table = "NVTX_EVENTS"
    if not ctx.db.has(table, "start", "end", "eventType"):
        return None
    where = f"eventType IN ({PUSH_POP}, {START_END})"
    columns = ("start", "end", "globalTid", "endGlobalTid", "domainId", "textId", "eventType")
    rows = ctx.db.integers(table, columns, where)
    plain = [t if isinstance(t, str) else None for (t,) in ctx.db.select(table, ("text",), where)]
    open_ = rows["end"] < 0
    ctx.note("info", "NVTX range without an end, taken to last until the recording ended", int(np.count_nonzero(open_)))
    last = max(ctx.last, int(rows["end"].max(initial=0)), int(rows["start"].max(initial=0)))
    rows["end"] = np.where(open_, np.maximum(last, rows["start"]), rows["end"])
    rows["row"] = np.arange(len(open_))
    elsewhere = (rows["endGlobalTid"] >= 0) & (rows["endGlobalTid"] != rows["globalTid"])
    ctx.note("info", "NVTX range that ends on another thread (kept on the first)", int(np.count_nonzero(elsewhere)))
    rows = ctx.usable(rows, "nvtx")
    names, cats = _texts(ctx, plain, rows)
    out = _columns(rows["start"], rows["end"], names, cats, rows["globalTid"])
    _records(ctx, rows, out, where)
    return out


def _texts(
    ctx: Context, plain: list[str | None], rows: dict[str, NDArray[np.int64]]
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Name and category of each range: ranges of torch's emit_nvtx are operators, written with arguments behind."""
    known: dict[str, tuple[int, int]] = {}
    out = []
    for row, number in zip(rows["row"].tolist(), rows["textId"].tolist(), strict=True):
        text = plain[row]
        if text is None:
            text = ctx.text(number) if number >= 0 else ""
        found = known.get(text)
        if found is None:
            operator = _OPERATOR.fullmatch(text)
            cat = HostCat.ANNOTATION if operator is None else HostCat.CPU_OP
            found = known[text] = ctx.names[operator[1] if operator else text], int(cat)
        out.append(found)
    pairs = np.array(out, np.int64).reshape(-1, 2)
    return pairs[:, 0].astype(np.int32), pairs[:, 1].astype(np.int8)


def _domains(ctx: Context) -> dict[tuple[int, int], str]:
    """(process, domain id) → its name."""
    columns = ("globalTid", "domainId", "text", "textId")
    out = {}
    for thread, domain, text, number in ctx.db.select("NVTX_EVENTS", columns, f"eventType = {DOMAIN}"):
        if isinstance(thread, int) and isinstance(domain, int):
            out[thread >> _PID, domain] = text if isinstance(text, str) else ctx.texts.get(number, "")
    return out


def _records(ctx: Context, rows: dict[str, NDArray[np.int64]], out: dict[str, NDArray[Any]], where: str) -> None:
    """Make NCCL's ranges communication records. Initialisations first: they tell who is in which communicator."""
    spelled = list(ctx.names)
    wanted = np.array([CALL.fullmatch(n) is not None or INIT.fullmatch(n) is not None for n in spelled], np.bool_)
    picked = np.flatnonzero(wanted[out["name"]]) if len(spelled) else np.empty(0, np.int64)
    if not len(picked):
        return
    domains = _domains(ctx)
    payloads = _payloads(ctx, where, rows["row"][picked])
    record = ctx.names[RECORD]
    calls = []
    for at, payload in zip(picked.tolist(), payloads, strict=True):
        process = int(rows["globalTid"][at]) >> _PID
        domain = domains.get((process, int(rows["domainId"][at])), "NCCL")
        if "ccl" not in domain.lower():
            continue  # somebody else's range of that name
        name = spelled[int(out["name"][at])]
        if INIT.fullmatch(name):
            ctx.processes.setdefault(process, Process()).join(payload)
        else:
            calls.append((at, name, payload, process))
    for at, name, payload, process in calls:
        out["name"][at] = record
        out["cat"][at] = int(HostCat.CPU_OP)
        out["comm"][at] = ctx.comm.put(args_of(name, payload, ctx.processes.setdefault(process, Process())))


def _payloads(ctx: Context, where: str, rows: NDArray[np.int64]) -> list[dict[str, int]]:
    """Payload of each of the numbered rows."""
    db = ctx.db
    decoder = Payloads(db)
    cells = db.select("NVTX_EVENTS", ("jsonText", "jsonTextId", "binaryData", "eventId"), where)
    out = []
    for row in rows.tolist():
        text, number, binary, event = cells[row]
        if text is None and isinstance(number, int):
            text = ctx.texts.get(number)
        out.append(decoder.decode(text, binary, event))
    ctx.note("lost", "NCCL payload that cannot be read", decoder.damaged)
    return out

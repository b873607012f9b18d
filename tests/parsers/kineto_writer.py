"""Write small Kineto files in every layout the writers of the field use."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Event = dict[str, Any]
LAYOUTS = ("classic", "lines", "compact", "indent2", "indent4", "spaced")
BASE = 1767189312000000000


class Number(float):
    """A number with the text it is written as."""

    def __new__(cls, text: str) -> Number:
        self = super().__new__(cls, float(text))
        self.text = text
        return self

    text: str

    def __repr__(self) -> str:
        return self.text


def us(ns: int) -> Number:
    """ns as µs with three decimals, as Kineto writes them."""
    sign = "-" if ns < 0 else ""
    return Number(f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}")


def _dump(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {_dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dump, value)) + "]"
    return value.text if isinstance(value, Number) else json.dumps(value)


def _pairs(event: Event, keys: list[str]) -> list[str]:
    return [f"{json.dumps(k)}: {_dump(event[k])}" for k in keys if k in event]


def _args(event: Event) -> str:
    return f'    "args": {{\n      {", ".join(_pairs(event["args"], list(event["args"])))}\n    }}'


def classic(e: Event) -> str:
    """Three keys or more a line (until 2026)."""
    if e.get("ph") in ("s", "f"):
        one, two = ["ph", "id", "pid", "tid", "ts"], ["cat", "name", "bp"]
    elif e.get("ph") == "X":
        one, two = ["ph", "cat", "name", "pid", "tid"], ["ts", "dur"]
    else:
        one, two = ["name", "ph", "ts", "pid", "tid"], ["s"]
    lines = ["    " + ", ".join(_pairs(e, keys)) for keys in (one, two) if _pairs(e, keys)]
    rest = [k for k in e if k not in (*one, *two, "args")]
    lines += ["    " + ", ".join(_pairs(e, rest))] if rest else []
    return "\n  {\n" + ",\n".join(lines + ([_args(e)] if "args" in e else [])) + "\n  }"


def lines(e: Event) -> str:
    """One key a line (since 2026)."""
    order = ["ph", "id", "pid", "tid", "ts", "cat", "name"] if e.get("ph") in ("s", "f") else ["ph", "cat", "name"]
    keys = [k for k in order if k in e] + [k for k in e if k not in (*order, "args")]
    return "\n  {\n" + ",\n".join([f"    {p}" for p in _pairs(e, keys)] + ([_args(e)] if "args" in e else [])) + "\n  }"


def text(events: list[Event], head: dict[str, Any], tail: dict[str, Any], layout: str) -> str:
    """One document in a layout."""
    if layout in ("classic", "lines"):
        write = classic if layout == "classic" else lines
        start = "".join(f"  {p},\n" for p in _pairs(head, list(head)))
        end = "".join(f",\n  {p}" for p in _pairs(tail, list(tail)))
        return "{\n" + start + '  "traceEvents": [' + ",".join(map(write, events)) + "\n  ]" + end + "\n}\n"
    whole = _dump({**head, "traceEvents": events, **tail})
    if layout == "spaced":
        return whole
    # Keep the number text: json.loads with a float hook that remembers it.
    plain = json.loads(whole, parse_float=Number)
    indent = {"compact": None, "indent2": 2, "indent4": 4}[layout]
    marked = json.dumps(_mark(plain), indent=indent, separators=(",", ":") if layout == "compact" else None)
    return marked.replace('"\\u0001', "").replace('\\u0001"', "")


def _mark(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _mark(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_mark(v) for v in value]
    return f"\x01{value.text}\x01" if isinstance(value, Number) else value


def write(
    path: Path,
    events: list[Event],
    *,
    head: dict[str, Any] | None = None,
    tail: dict[str, Any] | None = None,
    layout: str = "classic",
) -> Path:
    """Write one document; a name that ends in .gz is compressed."""
    head = {"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": BASE} if head is None else head
    data = text(events, head, tail or {}, layout).encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path


def op(name: str, ts: int, dur: int, *, ext: int = 1, tid: Any = 900, **args: Any) -> Event:
    """A cpu_op; ts, dur in ns."""
    args = {"External id": ext, "Record function id": 0, **args, "Ev Idx": ext}
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 900,
        "tid": tid,
        "ts": us(ts),
        "dur": us(dur),
        "args": args,
    }


def launch(ts: int, dur: int, corr: int, name: str = "cudaLaunchKernel") -> Event:
    """A cuda_runtime row."""
    args = {"External id": corr, "cbid": 211, "correlation": corr}
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": name,
        "pid": 900,
        "tid": 900,
        "ts": us(ts),
        "dur": us(dur),
        "args": args,
    }


def kernel(name: str, ts: int, dur: int, *, corr: int = 1, stream: Any = 7, device: Any = 0, **args: Any) -> Event:
    """A kernel; ts, dur in ns."""
    args = {
        "External id": corr, "queued": 0, "device": device, "context": 1, "stream": stream, "correlation": corr,
        "grid": [1, 1, 1], "block": [128, 1, 1], **args,
    }  # fmt: skip
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": us(ts),
        "dur": us(dur),
        "args": args,
    }


COMM = {
    "Collective name": "allreduce", "In msg nelems": 4096, "Out msg nelems": 4096, "Group size": 2,
    "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", "Process Group Name": "7",
    "Process Group Description": "tp", "Process Group Ranks": "[2, 3]", "Seq": 55,
    "Comms Id": 16215888877925988064,
}  # fmt: skip


def job(steps: int = 40) -> list[Event]:
    """A small job with every kind of row."""
    events: list[Event] = []
    at = 5_239_871_117_788_785
    for i in range(steps):
        at += 100_003
        c = 1000 + i
        frame = {"Python parent id": None, "Python id": i}
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "pid": 900, "tid": 900, "ts": us(at),
             "dur": us(90_500), "args": {"External id": 5000 + i}},
            {"ph": "X", "cat": "python_function", "name": "torch/nn: f", "pid": 900, "tid": 900, "ts": us(at + 1),
             "dur": us(500), "args": frame},
            op("aten::mm", at + 10, 777, ext=c, **{"Input Dims": [[2, 3], []], "Concrete Inputs": ["", "1"]}),
            launch(at + 20, 30, c),
            {"ph": "s", "id": c, "pid": 900, "tid": 900, "ts": us(at + 20), "cat": "ac2g", "name": "ac2g"},
            kernel("void gemm<float, 4>(int)", at + 41, 25_500, corr=c),
            {"ph": "f", "id": c, "pid": 0, "tid": 7, "ts": us(at + 41), "cat": "ac2g", "name": "ac2g", "bp": "e"},
            {"ph": "s", "id": c, "pid": 900, "tid": 900, "ts": us(at), "cat": "fwdbwd", "name": "fwdbwd"},
        ]  # fmt: skip
        if i % 3 == 0:
            comm = {k: v for k, v in COMM.items() if k != "Seq"} | {"Seq": i}
            events += [
                op("record_param_comms", at + 50, 30, ext=c + 50_000, **comm, Rank=1),
                kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", at + 60, 9_000, corr=c + 50_000, stream=20, **comm),
                {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 0, "tid": 7,
                 "ts": us(at + 70), "dur": us(1_000), "args": {"device": 0, "stream": 7, "correlation": c, "bytes": 64,
                                                               "memory bandwidth (GB/s)": 3.5}},
                {"ph": "X", "cat": "gpu_user_annotation", "name": f"ProfilerStep#{i}", "pid": 0, "tid": 7,
                 "ts": us(at + 40), "dur": us(30_000), "args": {"External id": 5000 + i}},
                {"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 7, "ts": us(at + 40),
                 "dur": us(90_000), "args": {"stream": 7, "device": 0}},
            ]  # fmt: skip
    return [
        *events,
        {"name": "thread_name", "ph": "M", "ts": us(at), "pid": 900, "tid": 900, "args": {"name": "thread 900 (python)"}},
        {"name": "process_labels", "ph": "M", "ts": us(at), "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}},
        {"ph": "X", "cat": "Trace", "ts": us(at), "dur": us(500), "pid": "Spans", "tid": "PyTorch Profiler",
         "name": "PyTorch Profiler (0)", "args": {"Op count": 0}},
        {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": us(at + 200_000)},
    ]  # fmt: skip

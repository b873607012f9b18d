"""A second opinion: naive accounting of Kineto files, sharing no code and no data with tracekit.

Whole file through `json` with every number a `Decimal`, kernels classed by plain substring lists written for
this file, times by a counter walked over a sorted list of boundaries. Slow and obvious on purpose.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Event = dict[str, Any]
Span = tuple[int, int, str]
"""(start ns, end ns, class)."""

KERNEL, MEMCPY, MEMSET = "kernel", "memcpy", "memset"
_DEVICE_CATEGORIES = {
    "kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "memset": MEMSET,
}
_HOST_CATEGORIES = {
    "cpu_op", "operator", "user_annotation", "gpu_user_annotation", "python_function", "runtime", "cuda_runtime",
    "cuda_driver", "overhead", "trace",
}  # fmt: skip


@dataclass
class Truth:
    """Times of one device over its whole window, ns."""

    window: int = 0
    compute: int = 0
    comm: int = 0
    hidden: int = 0
    exposed: int = 0
    copy: int = 0
    fused: int = 0
    busy: int = 0
    idle: int = 0

    def __str__(self) -> str:
        return " ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))


# ------------------------------------------------------------------------------- reading


def load(path: Path) -> Any:
    """The JSON of a file, gzipped or not, with exact numbers."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    return json.loads(raw.decode("utf-8", "replace"), parse_float=Decimal)


def events_of(document: Any) -> list[Event]:
    """Its events; an empty list when it is no Chrome trace."""
    found = document.get("traceEvents", []) if isinstance(document, dict) else document
    return [e for e in found if isinstance(e, dict)] if isinstance(found, list) else []


def is_kineto(document: Any) -> bool:
    """True for an object with timed events in one of the profiler's own categories."""
    if not isinstance(document, dict):
        return False
    known = _HOST_CATEGORIES | set(_DEVICE_CATEGORIES)
    return any(e.get("ph") == "X" and str(e.get("cat", "")).lower() in known for e in events_of(document))


def nanoseconds(microseconds: Any) -> int:
    """µs, as a number or quoted, to whole ns."""
    return int((Decimal(str(microseconds)) * 1000).to_integral_value())


# ---------------------------------------------------------------------------- classifying

_COMM = (
    "nccl", "rccl", "msccl", "xccl", "oneccl", "hccl", "nvshmem", "rocshmem", "ishmem", "deep_ep::", "uccl_ep::",
    "hybrid_ep::", "cross_device_reduce", "quickreduce::", "quick_reduce::", "allreduce_prototype",
    "userbuffers_fp16", "one_shot_all_reduce", "two_shot_all_reduce", "multimem_", "oneshotallreduce",
    "twoshotallreduce", "moealltoall", "moea2a", "all_to_all", "alltoall", "all_gather", "allgather",
    "reduce_scatter", "reducescatter", "all_reduce", "allreduce",
)  # fmt: skip
_FUSED = (
    "allreduce_fusion_kernel", "allreducefusion", "allreduce_rmsnorm", "allreduce_norm", "all_reduce_rms_norm",
    "gemm_reduce_scatter", "gemm_all_reduce", "allgather_gemm", "ag_gemm", "gemm_rs",
)  # fmt: skip
_NOT_COMM = re.compile(r"^(triton_(poi|red|per|tem|for|unk|mm)_|cpp_fused)|(warp|block|thread)_?(all)?_?reduce")


def plain_name(name: str) -> str:
    """Lower-case name of a kernel without template arguments, parameters and return type."""
    text, depth, out = name.replace("(anonymous namespace)::", ""), 0, []
    for ch in text:
        if ch == "<":
            depth += 1
        elif ch == ">":
            depth -= 1
        elif ch == "(" and depth <= 0:
            break
        elif depth <= 0:
            out.append(ch)
    return ("".join(out).split() or [""])[-1].lower()


def kernel_class(name: str) -> str:
    """`compute`, `comm` or `fused`."""
    plain = plain_name(name)
    if _NOT_COMM.search(plain):
        return "compute"
    if any(word in plain for word in _FUSED):
        return "fused"
    return "comm" if any(word in plain for word in _COMM) else "compute"


def _peer_copies(events: list[Event]) -> set[int]:
    """Positions of copies between two devices that a collective's record launched on its own thread."""
    launches: dict[Any, Event] = {}
    records: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for e in events:
        if e.get("ph") != "X":
            continue
        category = str(e.get("cat", "")).lower()
        if category in {"cuda_runtime", "cuda_driver", "runtime"} and "correlation" in (e.get("args") or {}):
            launches[e["args"]["correlation"]] = e
        if e.get("name") == "record_param_comms":
            start = nanoseconds(e["ts"])
            records[str(e["pid"]), str(e["tid"])].append((start, start + nanoseconds(e["dur"])))
    out = set()
    for i, e in enumerate(events):
        args = e.get("args") or {}
        if "PtoP" not in str(e.get("name")) and args.get("fromDevice") == args.get("toDevice"):
            continue
        launch = launches.get(args.get("correlation"))
        if launch is None or e.get("ph") != "X" or "memcpy" not in str(e.get("cat", "")).lower():
            continue
        at = nanoseconds(launch["ts"])
        if any(a <= at <= b for a, b in records[str(launch["pid"]), str(launch["tid"])]):
            out.add(i)
    return out


# ------------------------------------------------------------------------------ accounting


def _process(pid: Any) -> tuple[str, Any]:
    """(process, rest) of a pid; files merged from several ranks write "[TP00-DP01] 3" for its device 3."""
    text = str(pid)
    return (
        (text[: text.index("]") + 1], text[text.index("]") + 1 :])
        if text.startswith("[") and "]" in text
        else ("", pid)
    )


def device_spans(events: list[Event]) -> dict[tuple[str, int], list[Span]]:
    """Per (process, device): its kernels, copies and sets; nothing else occupies a device."""
    peers = _peer_copies(events)
    out: dict[tuple[str, int], list[Span]] = defaultdict(list)
    for i, e in enumerate(events):
        kind = _DEVICE_CATEGORIES.get(str(e.get("cat", "")).lower())
        if e.get("ph") != "X" or kind is None:
            continue
        start = nanoseconds(e["ts"])
        end = start + nanoseconds(e.get("dur", 0))
        process, number = _process(e.get("pid"))
        device = (e.get("args") or {}).get("device", number)
        name = "comm" if i in peers else kernel_class(str(e["name"])) if kind == KERNEL else "copy"
        out[process, int(device)].append((start, end, name))
    return dict(out)


def walk(spans: Iterable[Span]) -> Iterator[tuple[int, dict[str, int]]]:
    """(length, how many spans of each class run) between any two neighbouring boundaries."""
    edges = sorted([(a, 1, c) for a, _, c in spans] + [(b, -1, c) for _, b, c in spans])
    running: dict[str, int] = defaultdict(int)
    last = edges[0][0] if edges else 0
    for at, change, name in edges:
        if at > last:
            yield at - last, running
            last = at
        running[name] += change


def account(spans: list[Span]) -> Truth:
    """Every ns from the first start to the last end, in the order of precedence of the definitions."""
    out = Truth()
    for ns, running in walk(spans):
        compute, comm = running["compute"] > 0, running["comm"] > 0
        out.window += ns
        out.compute += ns if compute else 0
        out.comm += ns if comm else 0
        out.hidden += ns if compute and comm else 0
        out.exposed += ns if comm and not compute else 0
        if not compute and not comm:
            if running["fused"]:
                out.fused += ns
            elif running["copy"]:
                out.copy += ns
            else:
                out.idle += ns
    out.busy = out.window - out.idle
    return out


def totals(document: Any) -> dict[tuple[str, int], Truth]:
    """Truth of every (process, device) of a Kineto document."""
    return {device: account(spans) for device, spans in sorted(device_spans(events_of(document)).items())}


# ---------------------------------------------------------------- traces without a device


def host_totals(document: Any) -> Truth:
    """Truth of a CPU-only gloo trace: workers' spans against the operators of the main thread.

    Communication: `gloo:*` spans but barriers and sends; a receive only from the end of the last compute before
    it returned. Compute: operators of the thread with the step markers that neither communicate nor enclose an
    operator that does.
    """
    timed = [e for e in events_of(document) if e.get("ph") == "X" and "dur" in e]
    main = next((e["tid"] for e in timed if str(e["name"]).startswith("ProfilerStep#")), None)
    ops = [_span(e) for e in timed if e.get("cat") == "cpu_op" and e["tid"] == main]
    talk = [(a, b) for a, b, name in ops if _talks(name)]
    compute = [(a, b) for a, b, name in ops if not _talks(name) and not any(a <= s < b for s, _ in talk)]
    spans: list[Span] = [(a, b, "compute") for a, b in compute]
    for start, end, name in (_span(e) for e in timed if e.get("cat") == "user_annotation"):
        kind = name.removeprefix("gloo:")
        if kind == name or kind in {"barrier", "send"}:
            continue
        if kind == "recv":
            start = min(end, max([start, *(min(b, end) for a, b in compute if a < end)]))
        spans.append((start, end, "comm"))
    return account([s for s in spans if s[1] > s[0]])


def _span(event: Event) -> Span:
    start = nanoseconds(event["ts"])
    return start, start + nanoseconds(event["dur"]), str(event["name"])


def _talks(name: str) -> bool:
    return name == "record_param_comms" or name.startswith(
        ("c10d::", "_c10d_functional::", "_c10d_functional_autograd::")
    )

"""Recognise a file by its content: what it is, whether tracekit reads it, and what to do if not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tracekit.parsers.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEAD = 256 << 10


class Format(Struct, frozen=True):
    """What a file is: short `name`, human `title`, whether it can be read, and advice if not.

    witness: it tells the communication of a process, but no compute (`tracekit.parsers.parse_witness` reads it).
    """

    name: str
    title: str
    readable: bool = False
    advice: str = "not read by this version"
    compression: str | None = None
    witness: bool = False


_RECORD = "record with torch.profiler and export_chrome_trace, or analyse the Kineto file of the same run"
KINETO = Format("kineto", "Kineto Chrome trace (torch.profiler)", readable=True, advice="")
OP_TABLE = Format(
    "op-table",
    "operation table of a whole job (StragglerAnalysis)",
    advice="it holds labelled operations, no events: `tracekit analyze` tells its stragglers",
)
UNKNOWN = Format("unknown", "unknown content", advice=f"expected a Kineto JSON trace; {_RECORD}")
EMPTY = Format("empty", "empty file", advice="the recording did not finish; record again")
NSYS = Format("nsys", "Nsight Systems export (SQLite)", readable=True, advice="")
_EXPORT_NSYS = "nsys export --type sqlite --output trace.sqlite REPORT.nsys-rep"
_NSYS_REPORT = Format(
    "nsys-rep", "Nsight Systems report", advice=f"its format is closed: export it ({_EXPORT_NSYS}) and pass the result"
)
_SQLITE = Format(
    "sqlite", "SQLite database that is no Nsight Systems export", advice=f"if it is a cut one, {_EXPORT_NSYS}"
)

_PARQUET = Format("parquet", "Parquet table", advice="tracekit writes Parquet, it reads traces")

_MAGIC: tuple[tuple[bytes, Format], ...] = (
    (b"SQLite format 3\x00", _SQLITE),
    (b"PAR1", _PARQUET),
    (b"PK\x03\x04", Format("zip", "zip archive", advice="unpack it and pass the trace files")),
    (b"\x28\xb5\x2f\xfd", Format("zstd", "zstd-compressed file", advice="decompress it (zstd -d) and pass the result")),
    (b"\xfd7zXZ\x00", Format("xz", "xz-compressed file", advice="decompress it (xz -d) and pass the result")),
    (b"BZh", Format("bzip2", "bzip2-compressed file", advice="decompress it (bzip2 -d) and pass the result")),
    (b"\x7fELF", Format("elf", "program or library")),
    (b"\x89HDF", Format("hdf5", "HDF5 file")),
    (b"NVIDIA Tegra Profiler Report", _NSYS_REPORT),
    (b"NSYS", _NSYS_REPORT),
)  # fmt: skip

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_FR_WORDS = (b"pg_config", b"collective_seq_id", b"profiling_name", b"record_id")


def _has(*words: str) -> Callable[[str], bool]:
    return lambda text: all(w in text for w in words)


def _matches(pattern: str) -> Callable[[str], bool]:
    """Compiled when it is first asked: no file meets all of them."""
    return lambda text: re.search(pattern, text, re.DOTALL | re.MULTILINE) is not None


_EXPORT = "tracekit reads Kineto traces only"
_ET = Format(
    "execution-trace",
    "PyTorch execution trace (ExecutionTraceObserver, Chakra host trace, ET+)",
    advice=f"it has no timeline of its own; {_RECORD}",
    witness=True,
)
_MSPROF = Format(
    "msprof",
    "Ascend/MindSpore profiler output (msprof, HCCL, step trace; JSON or CSV)",
    advice=f"use msprof-analyze for it; {_EXPORT}",
)
_NCCL_PROFILER = Format(
    "nccl-profiler", "NCCL profiler plugin dump", advice=f"it has no compute to hide behind; {_RECORD}", witness=True
)
_FLIGHT = "it says which calls were issued, not how long they took; `tracekit analyze` and `tracekit hang` read it"

_TEXT: tuple[tuple[Callable[[str], bool], Format], ...] = (
    (_matches(r'"cat"\s*:\s*"(?:forward|backward)-(?:compute|send|recv)".{0,400}"model_chunk"'), OP_TABLE),
    (
        _has('"rocprofiler-sdk-tool"'),
        Format("rocprof", "rocprofiler-sdk JSON", advice=f"a different layout than Chrome JSON; {_RECORD}"),
    ),
    (
        _matches(r'"viztracer_metadata"|"cat"\s*:\s*"fee"'),
        Format("viztracer", "VizTracer trace", advice=f"Python calls, no device work; {_RECORD}"),
    ),
    (_matches(r'"schema"\s*:\s*"[\d.]+(?:-chakra[\d.]*)?"'), _ET),
    (_matches(r'"nodes"\s*:\s*\[\s*\{.{0,4000}"(?:ctrl_deps|fw_parent|op_schema|parent)"'), _ET),
    (
        _matches(r'"(?:coll_perf|p2p_perf)"|"inspector_output_format_version"'),
        Format(
            "nccl-inspector", "NCCL Inspector log (JSON Lines)", advice=f"no compute in it; {_RECORD}", witness=True
        ),
    ),
    (
        _matches(
            r'"entries"\s*:\s*\[.{0,3000}"(?:collective_seq_id|profiling_name)"|"pg_status"\s*:|"comm_lib_version"'
        ),
        Format("flight-recorder", "PyTorch flight recorder dump (JSON)", advice=_FLIGHT, witness=True),
    ),
    (
        _matches(
            r'"(?:cat|type|name|event)"\s*:\s*"(?:GROUP_API|COLL_API|P2P_API|KERNEL_LAUNCH|CollApi|GroupApi|Proxy\w+|'
            r'KernelLaunch|KernelCh|ProfilerLifecycle|ncclProfile\w*)"|"CommHash"|'
            r'"cat"\s*:\s*"(?:GROUP|COLL|P2P|PROXY|NET|GPU)"'
        ),
        _NCCL_PROFILER,
    ),
    (
        _matches(r"NCCL (?:INFO|WARN|TRACE) "),
        Format("nccl-log", "NCCL_DEBUG log", advice=f"it has no durations; {_RECORD}", witness=True),
    ),
    (
        _matches(r'"Communication Time Info"\s*:\s*\{'),
        Format(
            "msprof-communication",
            "Ascend communication.json (msprof, torch_npu, MindSpore)",
            advice="it has no compute to hide behind; `tracekit analyze` reads it",
            witness=True,
        ),
    ),
    (_has("NEGOTIATE_"), Format("horovod", "Horovod timeline", advice=f"tensor phases, no compute; {_RECORD}")),
    (
        _matches(r'"(?:grads-reduce-scatter|params-all-gather|(?:forward|backward)-(?:compute|send|recv))"'),
        Format("straggler-timeline", "per-operation timeline of a pipeline job (StragglerAnalysis)", advice=_EXPORT),
    ),
    (
        _matches(r'"name"\s*:\s*"[FB]_\d+,\d+"'),
        Format("pippy", "PiPPy pipeline schedule drawing", advice=f"a plan, not a measurement; {_RECORD}"),
    ),
    (
        _matches(
            r'hcom_|"HCCL"|Notify[_ ]Wait|FP_BP Time|"AscendCL|"Ascend Hardware"|"Step Trace|"CANN"|'
            r"^step_num,(?:communication_cost|start_point)|^computation_time,communication_alone_time|"
            r"^(?:device_id|iteration_id|op_type|task_id),"
        ),
        _MSPROF,
    ),
    (
        _matches(r'"attr"\s*:\s*\{[^{}]{0,400}"(?:TS1|Power)"|"TS1"\s*:'),
        Format("aiu", "IBM AIU flex trace", advice=f"use aiu-trace-analyzer for it; {_EXPORT}"),
    ),
    (
        _matches(r'"INITCOMMUNICATION"|"BytePS|byteps|"name"\s*:\s*"(?:PUSH|PULL|COPYD2H|COPYH2D|COMPRESS)"'),
        Format("byteps", "BytePS timeline", advice=f"tensor phases, no compute; {_RECORD}"),
    ),
    (
        _matches(r'"CPU functions"|"CUDA functions"'),
        Format(
            "legacy-profiler",
            "trace of the autograd profiler before Kineto (torch < 1.8, or use_kineto off)",
            advice=f"its times are relative and it has no streams; {_RECORD}",
        ),
    ),
    (
        _matches(r'"ph"\s*:\s*"C".{0,200}"(?:[Uu]sed|[Mm]em|bytes|Bytes|reserved|allocated)|"systemTraceEvents"'),
        Format("memory-timeline", "memory timeline of counters", advice=f"it has no activities; {_RECORD}"),
    ),
    (
        _matches(r'"segments"\s*:\s*\[.{0,400}"(?:total_size|segment_type)"|"device_traces"\s*:'),
        Format("memory-snapshot", "PyTorch memory snapshot", advice=f"it has no timeline; {_RECORD}"),
    ),
)
"""Tests in order; a file with Kineto's own categories passes only those of `_OVERRULES`."""
_OVERRULES = frozenset({"legacy-profiler", "viztracer"})

_KINETO_CATS = (
    r"cpu_op|user_annotation|gpu_user_annotation|kernel|gpu_mem(?:cpy|set)|cuda_(?:runtime|driver|sync)|"
    r"python_function|Operator|Kernel|Runtime|Mem(?:cpy|set)|ac2g|fwdbwd|overhead|Trace|mtia_\w+|xpu_\w+|"
    r"privateuse1_\w+|cpu_instant_event|collective_comm|async_cpu_to_gpu"
)
_KINETO = re.compile(rf'"cat"\s*:\s*"(?:{_KINETO_CATS})"')
_KINETO_HEADER = re.compile(
    r'"(?:deviceProperties|computeProperties|distributedInfo|baseTimeNanoseconds|schemaVersion)"\s*:'
)
_CHROME = re.compile(r'"traceEvents"\s*:|\{[^{}]{0,400}"ph"\s*:\s*"')
_CSV = re.compile(r"[\w .()/%:-]+(?:,[^,\n]*){2,}\r?\n")


def identify(path: Path) -> Format:
    """What the file at `path` is; never raises for odd content (only if it cannot be opened)."""
    source = Source(path)
    try:
        head = b""
        while len(head) < HEAD and (more := source.read(HEAD - len(head))):
            head += more
        found = _of_bytes(head)
    finally:
        source.close()
    if source.compression is None:
        return _BY_CONTENT[found.name](path) if found.name in _BY_CONTENT else found
    if found is _SQLITE:
        found = Format("sqlite", "SQLite database, compressed", advice="decompress it (gunzip) and pass the result")
    title = found.title
    if found is EMPTY:
        content = "begins with nothing but blanks or zeros" if head else "without content"
        title = f"gzip file {'that ' if head else ''}{content}" + (f" ({source.damage})" if source.damage else "")
    return replace(found, title=title, compression=source.compression)


def _of_parquet(path: Path) -> Format:
    """A Parquet file shows its columns only at its end."""
    from tracekit.parsers.straggler_table import is_op_table

    return OP_TABLE if is_op_table(path) else _PARQUET


def _of_sqlite(path: Path) -> Format:
    """An Nsight Systems export is known by its tables."""
    from tracekit.parsers.nsys_db import tables_of

    tables = tables_of(path)
    known = any(t.startswith("CUPTI_ACTIVITY_KIND_") for t in tables) or "NVTX_EVENTS" in tables
    return NSYS if known else _SQLITE


_BY_CONTENT = {"parquet": _of_parquet, "sqlite": _of_sqlite}


def _of_bytes(head: bytes) -> Format:
    if not head.strip(b"\x00 \r\n\t"):
        return EMPTY
    for magic, found in _MAGIC:
        if head.startswith(magic):
            return found
    if head[257:262] == b"ustar":
        return Format("tar", "tar archive", advice="unpack it (tar xf) and pass the trace files")
    if _PICKLE.match(head):
        if any(w in head for w in _FR_WORDS):
            return Format("flight-recorder", "PyTorch flight recorder dump (pickle)", advice=_FLIGHT, witness=True)
        return Format("pickle", "Python pickle", advice="pickles can run code; tracekit does not open them")
    binary = _binary(head)
    return binary or _of_text(head.decode("utf-8", "replace"))


_CONTROL = bytes(b for b in range(32) if not 9 <= b <= 13)
_XPLANE = (b"/host:", b"/device:", b"XLA Modules", b"XLA Ops")
_CHAKRA = (b"schema", b"start_ts", b"is_cpu_op", b"comm_type", b"comm_size", b"num_cpu_ops", b"0.0.4")


def _binary(head: bytes) -> Format | None:
    """Formats without a magic number: told by what their strings hold, and by protobuf framing."""
    sample = head[:65536]
    odd = len(sample) - len(sample.translate(None, _CONTROL))
    if odd < len(sample) // 100 + 1:
        return None
    if any(w in head for w in _XPLANE):
        return Format("xplane", "XLA/JAX xplane protobuf", advice=f"export it as JSON from XProf, or {_RECORD}")
    if b"Nsight" in head or b"nsys" in head:
        return _NSYS_REPORT
    if _packets(head) >= 2:
        return Format("perfetto", "Perfetto protobuf trace", advice=f"its rows name no calls; {_RECORD}")
    if any(w in sample for w in _CHAKRA):
        return Format("chakra", "Chakra execution trace (protobuf)", advice=f"it has no measured times; {_RECORD}")
    return Format("binary", "binary file of an unknown format", advice=f"expected a Kineto JSON trace; {_RECORD}")


def _packets(head: bytes) -> int:
    """Number of leading protobuf fields 1 of type bytes: the packets of a Perfetto trace."""
    at = count = 0
    while count < 4 and head[at : at + 1] == b"\x0a":
        size = shift = 0
        for byte in head[at + 1 : at + 6]:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += 1 + shift // 7 + size
        count += 1
    return count


def _of_text(text: str) -> Format:
    start = text.lstrip("\ufeff \t\r\n")
    jsonish = start[:1] in ("{", "[")
    kineto = jsonish and _KINETO.search(text) is not None
    header = jsonish and start[:1] == "{" and _KINETO_HEADER.search(text) is not None and '"nodes"' not in text
    for test, found in _TEXT:
        if (not (kineto or header) or found.name in _OVERRULES) and test(text):
            return found
    if kineto or header:
        return KINETO
    if jsonish and _CHROME.search(text):
        return Format("chrome", "Chrome trace of another tool", advice=f"it has no Kineto category; {_RECORD}")
    if jsonish:
        return Format("json", "JSON that is not a trace", advice=f"it has no traceEvents; {_RECORD}")
    if _CSV.match(start):
        return Format("csv", "CSV table", advice=f"tracekit reads traces, not tables; {_RECORD}")
    if "\n" in text or text.isprintable():
        return Format("text", "plain text", advice=f"expected a Kineto JSON trace; {_RECORD}")
    return UNKNOWN

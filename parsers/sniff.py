"""Recognise a file by its content: what it is, whether tracekit reads it, and what to do if not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.parsers.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEAD = 256 << 10


@dataclass(frozen=True, slots=True)
class Format:
    """What a file is: short `name`, human `title`, whether it can be read, and advice if not."""

    name: str
    title: str
    readable: bool = False
    advice: str = "not read by this version"
    compression: str | None = None


_RECORD = "record with torch.profiler and export_chrome_trace, or analyse the Kineto file of the same run"
KINETO = Format("kineto", "Kineto Chrome trace (torch.profiler)", readable=True, advice="")
UNKNOWN = Format("unknown", "unknown content", advice=f"expected a Kineto JSON trace; {_RECORD}")
EMPTY = Format("empty", "empty file", advice="the recording did not finish; record again")

_MAGIC: tuple[tuple[bytes, Format], ...] = (
    (b"SQLite format 3\x00", Format("sqlite", "SQLite database (an Nsight Systems export, perhaps)")),
    (b"PAR1", Format("parquet", "Parquet table", advice="tracekit writes Parquet, it reads traces")),
    (b"PK\x03\x04", Format("zip", "zip archive", advice="unpack it and pass the trace files")),
    (b"\x28\xb5\x2f\xfd", Format("zstd", "zstd-compressed file", advice="decompress it (zstd -d) and pass the result")),
    (b"\xfd7zXZ\x00", Format("xz", "xz-compressed file", advice="decompress it (xz -d) and pass the result")),
    (b"BZh", Format("bzip2", "bzip2-compressed file", advice="decompress it (bzip2 -d) and pass the result")),
    (b"\x7fELF", Format("elf", "program or library")),
    (b"\x89HDF", Format("hdf5", "HDF5 file")),
    (b"NSYS", Format("nsys-rep", "Nsight Systems report", advice="binary; export it with `nsys export --type sqlite`")),
)  # fmt: skip

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_FR_WORDS = (b"pg_config", b"collective_seq_id", b"profiling_name", b"record_id")


def _has(*words: str) -> Callable[[str], bool]:
    return lambda text: all(w in text for w in words)


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.DOTALL)
    return lambda text: compiled.search(text) is not None


def _any(*tests: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda text: any(t(text) for t in tests)


_TEXT: tuple[tuple[Callable[[str], bool], Format], ...] = (
    (_has('"rocprofiler-sdk-tool"'),
     Format("rocprof", "rocprofiler-sdk JSON", advice=f"a different layout than Chrome JSON; {_RECORD}")),
    (_has('"viztracer_metadata"'),
     Format("viztracer", "VizTracer trace", advice=f"Python calls, no device work; {_RECORD}")),
    (_matches(r'"schema"\s*:\s*"[\d.]+(?:-chakra[\d.]*)?"'),
     Format("execution-trace", "PyTorch execution trace (ExecutionTraceObserver, Chakra host trace)",
            advice=f"it has no timing of its own; {_RECORD}")),
    (_matches(r'"nodes"\s*:\s*\[\s*\{.{0,4000}"(?:ctrl_deps|fw_parent|op_schema|parent)"'),
     Format("execution-trace", "PyTorch execution trace (ExecutionTraceObserver, Chakra host trace)",
            advice=f"it has no timing of its own; {_RECORD}")),
    (_any(_has('"coll_perf"'), _has('"p2p_perf"')),
     Format("nccl-inspector", "NCCL Inspector log (JSON Lines)")),
    (_matches(r'"entries"\s*:\s*\[.{0,3000}"(?:collective_seq_id|profiling_name)"|"pg_status"\s*:.*"(?:version|pg_config)"'),
     Format("flight-recorder", "PyTorch flight recorder dump (JSON)")),
    (_matches(r'"(?:cat|type|name|event)"\s*:\s*"(?:GROUP_API|COLL_API|P2P_API|KERNEL_LAUNCH|CollApi|GroupApi|ProxyOp|ProxyStep|KernelLaunch|KernelCh|ncclProfile\w*)"'),
     Format("nccl-profiler", "NCCL profiler plugin dump")),
    (_matches(r"NCCL (?:INFO|WARN|TRACE) "),
     Format("nccl-log", "NCCL_DEBUG log")),
    (_has("NEGOTIATE_"),
     Format("horovod", "Horovod timeline")),
    (_matches(r'"(?:grads-reduce-scatter|params-all-gather|forward-compute|backward-compute)"'),
     Format("straggler-timeline", "per-operation timeline of a pipeline job (StragglerAnalysis)")),
    (_matches(r'"name"\s*:\s*"[FB]_\d+,\d+"'),
     Format("pippy", "PiPPy pipeline schedule drawing")),
    (_matches(r'hcom_|"HCCL"|Notify[_ ]Wait|"Iteration Time"|FP_BP Time|"AscendCL|Task Type'),
     Format("msprof", "Ascend/MindSpore profiler timeline (msprof, HCCL)")),
    (_matches(r'"attr"\s*:\s*\{|\bAIU\b|"dev_ts"|"TS1"'),
     Format("aiu", "IBM AIU flex trace")),
    (_matches(r'"BytePS|byteps|Communication.?\d|"COMPRESS"|"PUSH"\b|"PULL"\b'),
     Format("byteps", "BytePS timeline")),
    (_matches(r'"CPU functions"|"CUDA functions"'),
     Format("legacy-profiler", "trace of the autograd profiler before Kineto (torch < 1.8)",
            advice=f"its times are relative and it has no streams; {_RECORD}")),
    (_has('"systemTraceEvents"'),
     Format("memory-timeline", "Chrome trace of counters, no profiler activity")),
)  # fmt: skip

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
        found = _of_bytes(head, path)
    finally:
        source.close()
    if source.compression is None:
        return found
    title = found.title
    if found is EMPTY:
        title = "gzip file without content" + (f" ({source.damage})" if source.damage else "")
    return Format(found.name, title, found.readable, found.advice, source.compression)


def _of_bytes(head: bytes, path: Path) -> Format:
    if not head.strip(b"\x00 \r\n\t"):
        return EMPTY
    for magic, found in _MAGIC:
        if head.startswith(magic):
            return found
    if head[257:262] == b"ustar":
        return Format("tar", "tar archive", advice="unpack it (tar xf) and pass the trace files")
    if _PICKLE.match(head):
        if any(w in head for w in _FR_WORDS):
            return Format("flight-recorder", "PyTorch flight recorder dump (pickle)")
        return Format("pickle", "Python pickle", advice="pickles can run code; tracekit does not open them")
    binary = _binary(head, path)
    return binary or _of_text(head.decode("utf-8", "replace"))


def _binary(head: bytes, path: Path) -> Format | None:
    """Formats without a magic number: told by what their strings hold."""
    sample = head[:65536]
    odd = sum(b < 9 or 13 < b < 32 for b in sample)
    if odd < len(sample) // 100 + 1:
        return None
    if b"/host:" in head or b"/device:" in head or b"XLA" in head or path.name.endswith(".xplane.pb"):
        return Format(
            "xplane", "XLA/JAX xplane protobuf", advice="export it as JSON from XProf; not read by this version"
        )
    if b"Nsight" in head or b"nsys" in head or path.name.endswith(".nsys-rep"):
        return Format("nsys-rep", "Nsight Systems report", advice="binary; export it with `nsys export --type sqlite`")
    if b"chakra" in head or b"0.0.4" in head[:64] or path.name.endswith(".et"):
        return Format("chakra", "Chakra execution trace (protobuf)", advice=f"it has no measured times; {_RECORD}")
    if head[:1] == b"\x0a" and b"trace" in head[:4096]:
        return Format("perfetto", "Perfetto protobuf trace", advice="export it as Chrome JSON")
    return Format("binary", "binary file of an unknown format", advice=f"expected a Kineto JSON trace; {_RECORD}")


def _of_text(text: str) -> Format:
    start = text.lstrip("\ufeff \t\r\n")
    jsonish = start[:1] in "{["
    kineto = jsonish and (_KINETO.search(text) is not None)
    for test, found in _TEXT:
        if found.name in {"msprof", "aiu", "byteps", "memory-timeline", "nccl-log", "horovod"} and kineto:
            continue
        if test(text) and not (kineto and found.name not in {"legacy-profiler", "viztracer"}):
            return found
    if kineto:
        return KINETO
    if jsonish and _KINETO_HEADER.search(text) and not _foreign_header(text):
        return KINETO
    if jsonish and _CHROME.search(text):
        return Format(
            "chrome", "Chrome trace that no profiler of ours wrote", advice=f"no Kineto category in it; {_RECORD}"
        )
    if jsonish:
        return Format("json", "JSON that is not a trace", advice=f"no traceEvents in it; {_RECORD}")
    if _CSV.match(start):
        return Format("csv", "CSV table", advice=f"tracekit reads traces, not tables; {_RECORD}")
    if ("\x00" not in text and text.isprintable()) or "\n" in text:
        return Format("text", "plain text", advice=f"expected a Kineto JSON trace; {_RECORD}")
    return UNKNOWN


def _foreign_header(text: str) -> bool:
    return '"nodes"' in text and '"traceEvents"' not in text

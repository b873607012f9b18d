"""The tables: what a parser yields, and what the product publishes.

Two layers live here.

* **Parsed rank** (`RankTrace` and its parts): struct-of-arrays with numpy columns, one object for
  each process (rank) in a file. Parsers make it, `tracekit.label` and `tracekit.analysis` read it.
  All times are int64 ns on the *file's* clock (Unix ns where the file has a base).
* **Published tables** (`TABLES`): name, Arrow type, unit, meaning and formula of every column. The
  Arrow schemas, `tracekit schema` and the `columns` table are all made from it; nothing else may
  define a column.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

SCHEMA_VERSION = "1.0"

I64 = "int64"
CPU_DEVICE = -1
"""Device number of the pseudo-device that stands for the host of a trace without device work."""


class DeviceClass(IntEnum):
    """What the profiler says a device row is (before any name rule has looked at it)."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2


class HostCat(IntEnum):
    """Category of a host row, all eras folded together."""

    CPU_OP = 0
    ANNOTATION = 1
    RUNTIME = 2
    PYTHON = 3


class LinkConfidence(IntEnum):
    """How a device row was tied to the host call that issued it; higher is surer."""

    NONE = 0
    ANNOTATION = 1
    CONTAINMENT = 2
    ID = 3


UNIX_NS = 10**18
"""Times beyond this (2001) are Unix times, whether the file states a base or wrote them absolute."""

# --------------------------------------------------------------------------- parsed rank


@dataclass(slots=True)
class HostRows:
    """Host spans of one process. All arrays have length n; sorted by (ts, -dur).

    ts, dur: int64 ns; name: int32 index into `RankTrace.names`; cat: int8 `HostCat`;
    track: int32 index into `RankTrace.tracks`; corr, ext: int64 (-1 = absent; uint64 ids keep
    their 64 bits, two's complement); comm: int32 row of `RankTrace.comm` (-1 = none).
    """

    ts: NDArray[np.int64]
    dur: NDArray[np.int64]
    name: NDArray[np.int32]
    cat: NDArray[np.int8]
    track: NDArray[np.int32]
    corr: NDArray[np.int64]
    ext: NDArray[np.int64]
    comm: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ts)


@dataclass(slots=True)
class DeviceRows:
    """Device work (kernels, copies, sets) of one process, sorted by (ts, device, stream, dur, name).

    ts, dur: int64 ns; name: int32; cls: int8 `DeviceClass`; device: int32 ordinal; stream: int64;
    corr, ext: int64 (-1 = absent); nbytes: int64 of a copy or set (-1 = unknown);
    peer: int8, 1 for a device-to-another-device copy, 0 for a copy within one device or with the
    host, -1 when the file does not say; comm: int32 row of `RankTrace.comm` (-1 = none).
    """

    ts: NDArray[np.int64]
    dur: NDArray[np.int64]
    name: NDArray[np.int32]
    cls: NDArray[np.int8]
    device: NDArray[np.int32]
    stream: NDArray[np.int64]
    corr: NDArray[np.int64]
    ext: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    peer: NDArray[np.int8]
    comm: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ts)


@dataclass(slots=True)
class DeviceAnnotations:
    """`gpu_user_annotation` rows: ts, dur int64 ns; name int32; device int32; stream, ext int64."""

    ts: NDArray[np.int64]
    dur: NDArray[np.int64]
    name: NDArray[np.int32]
    device: NDArray[np.int32]
    stream: NDArray[np.int64]
    ext: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ts)


@dataclass(slots=True)
class CommArgs:
    """Arguments of one communication record, normalised over all eras; None = the file has none.

    `in_nelems`/`out_nelems` are element counts (torch 2.2 calls them "msg size"); `ranks_text`,
    `in_splits`, `out_splits` keep the raw text (may be cut by the writer); `rank` is the raw `Rank`
    argument (own group rank, root or peer, depending on the operation). `dims`, `types`,
    `concrete` are the decoded `Input Dims`, `Input type` and `Concrete Inputs` lists of the op; `stack` is the
    `Call stack` of old recordings with stacks, "file(line): function" joined by ";", innermost first. `payload_bytes`
    where a source tells bytes instead of elements and type (max of input and output on this rank).
    """

    collective: str | None = None
    in_nelems: int | None = None
    out_nelems: int | None = None
    dtype: str | None = None
    group_size: int | None = None
    pg_name: str | None = None
    pg_desc: str | None = None
    ranks_text: str | None = None
    rank_start: int | None = None
    rank_stride: int | None = None
    rank: int | None = None
    src_rank: int | None = None
    dst_rank: int | None = None
    seq: int | None = None
    comms_id: int | None = None
    in_splits: str | None = None
    out_splits: str | None = None
    dims: list[Any] | None = None
    types: list[Any] | None = None
    concrete: list[Any] | None = None
    stack: str | None = None
    payload_bytes: int | None = None


@dataclass(slots=True)
class Track:
    """One host thread: `pid`, `tid` as the file spells them (text), and the best thread name."""

    pid: str
    tid: str
    name: str | None = None


@dataclass(slots=True)
class ProcessGroup:
    """One process group as the file's metadata declares it; `ranks` are global and complete."""

    name: str
    desc: str | None
    size: int | None
    ranks: tuple[int, ...] | None
    backend: str | None = None


@dataclass(slots=True)
class HealthEntry:
    """Something dropped, repaired or guessed: how often, why, and one example."""

    reason: str
    count: int
    severity: str = "info"  # info | repaired | lost
    example: str = ""


@dataclass(slots=True)
class TraceMeta:
    """What the file says about itself, outside its events. None = it does not say.

    `part` numbers the documents/processes of one file (0 for the usual single one); `coordinates`
    are mesh coordinates spelled in a merged file's process label (e.g. {"TP": 0, "PP": 1}).
    `origin_ns` is the smallest event time; `base_ns` the file's own time base. `witness`: name of the format of a
    source that saw no compute; None for a profiler's trace.
    """

    path: str
    part: int = 0
    file_bytes: int = 0
    json_bytes: int = 0
    sha256: str | None = None
    compression: str | None = None
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    nccl_version: str | None = None
    pg_count: int | None = None
    on_demand: bool = False
    groups: tuple[ProcessGroup, ...] = ()
    devices: tuple[dict[str, Any], ...] = ()
    host_name: str | None = None
    job_name: str | None = None
    attempt: int | None = None
    base_ns: int | None = None
    era: str | None = None
    coordinates: dict[str, int] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    witness: str | None = None


def on_unix_clock(meta: TraceMeta, first_ns: int) -> bool:
    """Whether a trace's times are Unix ns: by its file's base, if that is a date at all, or by their size."""
    return max(meta.base_ns or 0, first_ns) >= UNIX_NS


@dataclass(slots=True)
class RankTrace:
    """One process of one file, in columns. `window_ns` = (first start, last end) over all rows but Python frames."""

    meta: TraceMeta
    names: list[str]
    tracks: list[Track]
    host: HostRows
    device: DeviceRows
    annotations: DeviceAnnotations
    comm: Sequence[CommArgs]
    event_counts: dict[str, int]
    health: list[HealthEntry]
    window_ns: tuple[int, int]


@dataclass(slots=True)
class OpRows:
    """Operations of a whole job, already labelled by whoever wrote them (StragglerAnalysis op table); n rows.

    dp_rank, stage, rank, seq, chunk, micro_batch, global_chunk: int32 (-1 = absent; `rank` is global); step: int64;
    op: int32 index into `ops`; start, dur: int64 ns, start on a clock that all workers share within a step.
    """

    path: str
    ops: list[str]
    dp_rank: NDArray[np.int32]
    stage: NDArray[np.int32]
    rank: NDArray[np.int32]
    step: NDArray[np.int64]
    op: NDArray[np.int32]
    start: NDArray[np.int64]
    dur: NDArray[np.int64]
    seq: NDArray[np.int32]
    chunk: NDArray[np.int32]
    micro_batch: NDArray[np.int32]
    global_chunk: NDArray[np.int32]
    health: list[HealthEntry] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.start)


# ------------------------------------------------------------------------ parsed witness


@dataclass(slots=True)
class WitnessGroup:
    """A process group or communicator as a witness declares it.

    key: what this file's calls name it by (`WitnessCall.group`); ranks: global and complete, else None; own: position
    of this process in the group; comm_hash: identity of the communicator that all its ranks share (NCCL's commHash or
    commId). last_*: sequence number of the last collective that was enqueued, started, completed; None = untold.
    """

    key: str
    name: str | None = None
    desc: str | None = None
    size: int | None = None
    ranks: tuple[int, ...] | None = None
    own: int | None = None
    comm_hash: str | None = None
    backend: str | None = None
    last_enqueued: int | None = None
    last_started: int | None = None
    last_completed: int | None = None


@dataclass(slots=True)
class WitnessCall:
    """One communication call as a witness saw it; None = the format does not say.

    op_raw: the file's spelling; seq: number of the collective in its group (NCCL: opCount), p2p_seq: of the p2p call;
    in_sizes/out_sizes: shapes of the tensors, in_nelems/out_nelems where only counts are told; dtype: any spelling of
    the vocabulary; payload_bytes where bytes are told instead (max of input and output on this rank).
    state: scheduled | started | completed. Times are Unix ns where the file has dates: created (the call was issued),
    started and completed (`noticed` = when a watchdog saw it, later than it was), dur_ns only where it was measured.
    peer, root: position in the group. frames: "file(line): function", innermost first.
    extra: fields of the format that tables may show (algorithm, protocol, channels, …).
    """

    op_raw: str
    group: str | None = None
    seq: int | None = None
    p2p_seq: int | None = None
    op_id: int | None = None
    record: int | None = None
    is_p2p: bool = False
    in_sizes: list[list[int]] | None = None
    out_sizes: list[list[int]] | None = None
    in_nelems: int | None = None
    out_nelems: int | None = None
    dtype: str | None = None
    out_dtype: str | None = None
    state: str | None = None
    retired: bool | None = None
    created_ns: int | None = None
    started_ns: int | None = None
    completed_ns: int | None = None
    noticed: bool = False
    dur_ns: int | None = None
    peer: int | None = None
    root: int | None = None
    thread: str | None = None
    thread_name: str | None = None
    frames: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    payload_bytes: int | None = None


@dataclass(slots=True)
class Witness:
    """The communication of one process as a source other than a profiler saw it: no compute, so nothing hides it.

    source: name of the format (`Format.name`); version: of the format, as the file spells it. `meta.rank` and
    `meta.world_size` as the content tells them (None = it does not); `meta.groups` stays empty: `groups` has more.
    calls: in order of issue. lost: calls before the first of them, overwritten or left out (None = unknown).
    """

    meta: TraceMeta
    source: str
    groups: list[WitnessGroup] = field(default_factory=list)
    calls: list[WitnessCall] = field(default_factory=list)
    health: list[HealthEntry] = field(default_factory=list)
    version: str | None = None
    lost: int | None = None


# -------------------------------------------------------------------------- labelled rank


class Kind(IntEnum):
    """What a device activity is for the accounting."""

    COMPUTE = 0
    COMM = 1
    FUSED = 2
    COPY = 3
    SET = 4


NO_TIME = np.iinfo(np.int64).min
"""Marks an unknown time in an int64 column (never a valid time)."""


@dataclass(slots=True)
class Activities:
    """Device work after classification, sorted by ts; all arrays have length n.

    ts, dur: int64 ns (file clock); kind: int8 `Kind`; device: int32 (`CPU_DEVICE` for host traces);
    stream: int64; name, family: int32 into `names` / `families` (-1 = none); corr: int64 (-1);
    call: int32 position in `LabelledRank.calls` (-1 = no call); launch_ts: int64 ns start of the
    host call that issued it (`NO_TIME` when unknown).
    """

    names: list[str]
    families: list[str]
    ts: NDArray[np.int64]
    dur: NDArray[np.int64]
    kind: NDArray[np.int8]
    device: NDArray[np.int32]
    stream: NDArray[np.int64]
    name: NDArray[np.int32]
    family: NDArray[np.int32]
    corr: NDArray[np.int64]
    call: NDArray[np.int32]
    launch_ts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ts)


@dataclass(frozen=True, slots=True)
class Fired:
    """One rule that matched a call: what it concluded and what it saw (for `explain`)."""

    rule: str
    field: str  # strategy | axes | purpose | phase | variant
    value: str
    tier: str
    confidence: float
    saw: str


@dataclass(frozen=True, slots=True)
class Label:
    """The answer for one call; shared by all calls with the same evidence."""

    strategy: str = "unknown"
    axes: str | None = None
    purpose: str | None = None
    phase: str | None = None
    variant: str | None = None
    confidence: float | None = None
    tier: str | None = None
    rule: str | None = None
    alternatives: tuple[tuple[str, float], ...] = ()
    fired: tuple[Fired, ...] = ()


@dataclass(slots=True)
class Call:
    """One communication call of one rank; fields as in the table `collectives`.

    Times are int ns on the file's clock. `members`: global ranks of the group where known.
    `coalesced_into`: position of the call that owns the shared kernel of a coalesced group.
    `via`: the operators that belong to the call itself (functional, c10d or engine operator), outermost first.
    `witness`: source and way ("flight-recorder:seq") by which another account of the call was tied to it.
    `frames`: enclosing Python frames that some rule asks for, outermost first. `place`: where in its step the call
    stands (see `tracekit.label.place`).
    """

    op: str
    op_raw: str
    call_ts: int | None = None
    call_end: int | None = None
    ts: int | None = None
    dur: int | None = None
    device: int | None = None
    stream: int | None = None
    group_name: str | None = None
    group_desc: str | None = None
    group_size: int | None = None
    members: tuple[int, ...] | None = None
    seq: int | None = None
    ordinal: int = 0
    comms_id: int | None = None
    src_rank: int | None = None
    dst_rank: int | None = None
    in_nelems: int | None = None
    out_nelems: int | None = None
    dtype: str | None = None
    payload_bytes: int | None = None
    n_activities: int = 0
    kernel: str | None = None
    family: str | None = None
    link: LinkConfidence = LinkConfidence.NONE
    scopes: tuple[str, ...] = ()
    via: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    place: str = "none"
    track: int = -1
    coalesced_into: int | None = None
    in_splits: str | None = None
    out_splits: str | None = None
    dims: list[Any] | None = None
    witness: str | None = None
    label: Label = Label()


@dataclass(slots=True)
class Marker:
    """A step marker on the host: step number, text, [start, end) in ns, rule that found it."""

    step: int
    name: str
    start: int
    end: int
    found_by: str
    phase: str | None = None


@dataclass(slots=True)
class ChunkSpan:
    """An annotation round pipeline work: [start, end) ns on the host, what it names, the rule that knew it.

    actions: (kind, stage, micro-batch) with kind F, B, I or W, as `theory.schedules` has them; a pair runs as one.
    """

    start: int
    end: int
    actions: tuple[tuple[str, int | None, int | None], ...]
    rule: str


@dataclass(slots=True)
class PipelineSpans:
    """What the host shows of pipeline work: annotations by time; (n, 2) int64 [start, end) ns, disjoint, ascending,
    of the autograd engine (`backward`) and of the optimizer.
    """

    chunks: list[ChunkSpan]
    backward: NDArray[np.int64]
    optimizer: NDArray[np.int64]


@dataclass(slots=True)
class LabelledRank:
    """Everything the analysis needs of one rank; `rank` is None while identity is unknown.

    frameworks: id → what told it; step_names: text of a step marker → phase it tells. pipeline: None without
    point-to-point calls.
    """

    meta: TraceMeta
    rank: int | None
    activities: Activities
    calls: list[Call]
    markers: list[Marker]
    event_counts: dict[str, int]
    health: list[HealthEntry]
    window_ns: tuple[int, int]
    frameworks: dict[str, str] = field(default_factory=dict)
    step_names: dict[str, str | None] = field(default_factory=dict)
    pipeline: PipelineSpans | None = None


# ----------------------------------------------------------------------- published tables


@dataclass(frozen=True, slots=True)
class Column:
    """One published column; `type` is an Arrow alias or `dict` (dictionary-encoded string)."""

    name: str
    type: str
    unit: str
    meaning: str
    nullable: bool = False
    formula: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """One published table: its columns, and whether it is written one folder a rank."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    per_rank: bool = False


def _c(name: str, type_: str, unit: str, meaning: str, *, null: bool = False, formula: str = "") -> Column:
    return Column(name, type_, unit, meaning, null, formula)


_RANK = _c("rank", "int32", "", "global rank; null when no source names it", null=True)
_DEVICE = _c("device", "int32", "", "device ordinal; -1 = the host of a trace without device work")
_STEP = _c("step", "int32", "", "step number (see `steps`); null outside every step", null=True)

_SPLIT = (
    _c("window_ns", I64, "ns", "length of the window", formula="last end - first start"),
    _c("compute_only_ns", I64, "ns", "compute alone", formula="|K \\ C|"),
    _c("overlapped_ns", I64, "ns", "compute and communication at once", formula="|C ∩ K|"),
    _c("fused_ns", I64, "ns", "only fused kernels (communication and compute in one kernel)"),
    _c("exposed_comm_ns", I64, "ns", "communication that no compute hides", formula="|C \\ K|"),
    _c("exposed_copy_ns", I64, "ns", "only copies or sets"),
    _c("idle_ns", I64, "ns", "nothing on the device"),
)

_EXPOSED = (
    _c("count", I64, "calls", "collective calls (by membership)"),
    _c("total_ns", I64, "ns", "time with this communication active; null when no call was timed",
       null=True, formula="|C_s|"),
    _c("hidden_ns", I64, "ns", "of it under compute", null=True, formula="|C_s ∩ K|"),
    _c("exposed_ns", I64, "ns", "of it not under compute", null=True, formula="|C_s \\ K|"),
    _c("exposed_alone_ns", I64, "ns", "of it with no other communication", null=True,
       formula="|C_s \\ (K ∪ C_other)|"),
    _c(
        "attributed_ns", I64, "ns", "share of exposed time; sums exactly to the exposed total", null=True,
        formula="each exposed instant divided equally among the strategies active in it",
    ),
    _c("wait_ns", I64, "ns", "of total_ns, waiting for other ranks; null where nothing could be split", null=True),
    _c("transfer_ns", I64, "ns", "of total_ns, moving data; total - wait - transfer could not be split", null=True),
    _c("attributed_wait_ns", I64, "ns", "of attributed_ns, waiting; the three parts add up to it", null=True),
    _c("attributed_transfer_ns", I64, "ns", "of attributed_ns, moving data", null=True),
    _c("attributed_unsplit_ns", I64, "ns", "of attributed_ns, what could not be split", null=True),
)  # fmt: skip

TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        Table(
            "activities",
            "device work, one row each",
            (
                _RANK, _DEVICE,
                _c("stream", I64, "", "device stream; for host traces the thread's index", null=True),
                _c("ts_ns", I64, "ns", "start, from the run's origin"),
                _c("ts", "timestamp", "", "start as UTC timestamp; null without a time base", null=True),
                _c("dur_ns", I64, "ns", "duration"),
                _c("name", "dict", "", "name as recorded"),
                _c("kind", "dict", "", "compute | comm | fused | copy | set"),
                _c("family", "dict", "", "library of a communication kernel (nccl, deepep, …)", null=True),
                _c("correlation", I64, "", "id shared with the launching call", null=True),
                _STEP,
            ),
            per_rank=True,
        ),
        Table(
            "collectives",
            "one row per communication call and rank",
            (
                _RANK,
                _c("id", "int32", "", "number of the call within its rank, in call order"),
                _c("device", "int32", "", "device it ran on; null when it left no device work", null=True),
                _c("op", "dict", "", "all_reduce, all_gather, reduce_scatter, all_to_all, send, …"),
                _c("op_raw", "dict", "", "the operation as the file spells it"),
                _c("group_id", "dict", "", "group identity: its global ranks where known", null=True),
                _c("group_name", "dict", "", "process group name in the job", null=True),
                _c("group_desc", "dict", "", "process group description", null=True),
                _c("group_size", "int32", "ranks", "ranks in the group", null=True),
                _c("seq", I64, "", "sequence number the backend recorded", null=True),
                _c("ordinal", "int32", "", "number of the call within its group and rank, in call order"),
                _c("comms_id", "uint64", "", "id equal on all ranks of the call (torch ≥ 2.13)", null=True),
                _c("src_rank", "int32", "", "global source rank (recv, broadcast …)", null=True),
                _c("dst_rank", "int32", "", "global destination rank (send, reduce …)", null=True),
                _c("in_nelems", I64, "elements", "input elements on this rank", null=True),
                _c("out_nelems", I64, "elements", "output elements on this rank", null=True),
                _c("dtype", "dict", "", "element type, c10 name", null=True),
                _c("payload_bytes", I64, "bytes", "larger of input and output, this rank", null=True,
                   formula="max(in_nelems, out_nelems) * sizeof(dtype)"),
                _c("call_ts_ns", I64, "ns", "start of the CPU op that issued it", null=True),
                _c("ts_ns", I64, "ns", "start on the device or worker", null=True),
                _c("dur_ns", I64, "ns", "first start to last end on the device or worker", null=True),
                _c("stream", I64, "", "stream (or worker thread index) it ran on", null=True),
                _c("n_activities", "int32", "", "device activities that belong to the call"),
                _c("kernel", "dict", "", "name of the (first) device activity", null=True),
                _c("family", "dict", "", "library that moved the data (nccl, gloo, deepep, …)", null=True),
                _c("link", "dict", "", "id | containment | annotation | none: device work to host call"),
                _c("scope", "dict", "", "nearest enclosing scope that is not part of the call", null=True),
                _c("scopes", "dict", "", "all enclosing scopes, outermost first, joined by ' > '", null=True),
                _STEP,
                _c("strategy", "dict", "", "parallel strategy that issued it; `unknown` when undecided"),
                _c("axes", "dict", "", "mesh axes the group spans, joined by '+'", null=True),
                _c("purpose", "dict", "", "grad_reduce, param_gather, activation, …", null=True),
                _c("phase", "dict", "", "forward, backward, optimizer, prefill, decode, …", null=True),
                _c("variant", "dict", "", "sub-kind within the strategy", null=True),
                _c("confidence", "float64", "ratio", "0–1; null when nothing fired", null=True),
                _c("tier", "dict", "", "A decisive … D weak; null when nothing fired", null=True),
                _c("rule", "dict", "", "id of the deciding rule", null=True),
                _c("alternatives", "dict", "", "other candidates, 'strategy:confidence' joined by ' '", null=True),
                _c("coalesced_into", "int32", "", "id of the call that owns a coalesced group's kernel", null=True),
                _c("witness", "dict", "", "another account tied to the call, and by what: flight-recorder:seq | …:time",
                   null=True),
                _c("peers", "int32", "ranks", "other ranks an all-to-all receives from, where splits tell", null=True),
                _c("match_id", I64, "", "row of `matches`: the same call on all ranks", null=True),
                _c("match", "dict", "", "how it was matched, or why not (docs/cross-rank.md)", null=True),
                _c("arrival_ns", I64, "ns", "start on the aligned clock, from the run's origin", null=True,
                   formula="ts_ns + offset + drift (see `clocks`)"),
                _c("wait_ns", I64, "ns", "part of dur_ns spent waiting for later ranks", null=True,
                   formula="dur_ns - transfer_ns"),
                _c("transfer_ns", I64, "ns", "part of dur_ns with all ranks there", null=True,
                   formula="shortest duration among the ranks; p2p: end - later of both starts"),
                _c("wait_reason", "dict", "", "why wait_ns is null", null=True),
                _c("algbw_gbps", "float64", "GB/s", "payload over transfer time", null=True,
                   formula="payload_bytes / transfer_ns (largest payload among the ranks)"),
                _c("busbw_gbps", "float64", "GB/s", "algbw × the operation's factor", null=True,
                   formula="all_reduce 2(n-1)/n; all_gather, reduce_scatter, all_to_all (n-1)/n; others 1"),
                _c("least_ns", I64, "ns", "bytes over the links, without latency", null=True,
                   formula="payload_bytes × factor / link (docs/theory.md)"),
                _c("expected_ns", I64, "ns", "time it should take", null=True, formula="docs/theory.md"),
                _c("verdict", "dict", "", "at_limit | below_limit | latency_bound | too_small | above_limit | unknown: "
                   "transfer (else duration) against the expectation; null without one", null=True),
            ),
            per_rank=True,
        ),
        Table(
            "groups",
            "members of every process group",
            (
                _c("group_id", "dict", "", "group identity"),
                _c("group_name", "dict", "", "name in the job", null=True),
                _c("group_desc", "dict", "", "description", null=True),
                _c("rank", "int32", "", "global rank of the member"),
                _c("position", "int32", "", "rank within the group"),
            ),
        ),
        Table(
            "ranks",
            "one row per file part: who it is and how that is known",
            (
                _RANK,
                _c("source", "string", "", "file, as given"),
                _c("part", "int32", "", "document or process within the file"),
                _c("used", "bool", "", "false when left out by rule"),
                _c("reason", "string", "", "why it was left out, or what is odd", null=True),
                _c("identity", "dict", "", "distributedInfo | groups | name | map | none: where the rank comes from"),
                _c("world_size", "int32", "ranks", "world size the file states", null=True),
                _c("host", "string", "", "host name", null=True),
                _c("device_name", "string", "", "device model", null=True),
                _c("era", "dict", "", "writer generation", null=True),
                _c("origin_ns", I64, "ns", "Unix time of the rank's first event; file clock without a base"),
                _c("window_ns", I64, "ns", "first start to last end over all rows"),
                _c("events", I64, "", "events read"),
            ),
        ),
        Table(
            "steps",
            "step windows per rank",
            (
                _RANK, _DEVICE,
                _c("step", "int32", "", "step number"),
                _c("name", "dict", "", "marker text; 'window' when there is none"),
                _c("ts_ns", I64, "ns", "start of the device window, from the run's origin"),
                _c("dur_ns", I64, "ns", "length of the device window"),
                _c("found_by", "dict", "", "rule that found the marker, or `whole-window`"),
                _c("complete", "bool", "", "false when the file may cut the step"),
            ),
        ),
        Table(
            "exposure",
            "communication time by step, strategy, purpose and phase",
            (
                _RANK, _DEVICE, _STEP,
                _c("strategy", "dict", "", "parallel strategy"),
                _c("purpose", "dict", "", "what the communication is for", null=True),
                _c("phase", "dict", "", "phase of the step", null=True),
                *_EXPOSED,
                _c("avoidable_ns", I64, "ns", "of attributed_ns without waiting: compute of the step could hide it, at "
                   "most", null=True, formula="attributed - waiting = avoidable + structural + unknown"),
                _c("structural_ns", I64, "ns", "of it what the plain algorithm leaves exposed", null=True),
                _c("unknown_ns", I64, "ns", "of it what cannot be told", null=True),
                _c("overlap", "dict", "", "what could hide it, or why nothing can (docs/findings.md)", null=True),
            ),
        ),
        Table(
            "by_strategy",
            "communication time of the whole file by strategy",
            (_RANK, _DEVICE, _c("strategy", "dict", "", "parallel strategy"), *_EXPOSED),
        ),
        Table("breakdown", "every ns of each step in one class", (_RANK, _DEVICE, _STEP, *_SPLIT)),
        Table(
            "totals",
            "whole file per rank and device",
            (
                _RANK, _DEVICE,
                _c("window_ns", I64, "ns", "first start to last end of device activity"),
                _c("busy_ns", I64, "ns", "time with any activity", null=True),
                _c("compute_ns", I64, "ns", "time with compute active", formula="|K|", null=True),
                _c("comm_ns", I64, "ns", "time with communication active", formula="|C|", null=True),
                _c("hidden_ns", I64, "ns", "communication under compute", formula="|C ∩ K|", null=True),
                _c("exposed_ns", I64, "ns", "communication nothing hides", formula="|C \\ K|", null=True),
                _c("overlap_ratio", "float64", "ratio", "hidden / comm; null when there is no comm",
                   null=True, formula="hidden_ns / comm_ns"),
                _c("slowdown_ratio", "float64", "ratio", "kernels under communication against the same kernels alone; "
                   "null where too few run both ways", null=True, formula="Σ overlapped / Σ median alone"),
                _c("slowdown_kernels", "int32", "", "kernels compared (5 runs each way, lone runs within a tenth)"),
                _c("slowdown_runs", I64, "", "overlapped runs compared"),
                _c("slowdown_ns", I64, "ns", "time they take longer, summed", null=True),
                _c("copy_ns", I64, "ns", "time in the class exposed-copy", null=True),
                _c("fused_ns", I64, "ns", "time in the class fused", null=True),
                _c("idle_ns", I64, "ns", "time with nothing", null=True),
                _c("collectives", I64, "calls", "collective calls"),
                _c("reason", "dict", "", "why a number is null: no-comm | comm-not-timed | compute-unknown", null=True),
            ),
        ),
        Table(
            "matches",
            "one row a communication call matched over ranks",
            (
                _c("match_id", I64, "", "number of the match, in order of call"),
                _c("op", "dict", "", "operation; send_recv = one message"),
                _c("kind", "dict", "", "collective | p2p"),
                _c("group_id", "dict", "", "group identity; null when no file names the group", null=True),
                _c("group_name", "dict", "", "process group name", null=True),
                _c("src_rank", "int32", "", "sender of a message", null=True),
                _c("dst_rank", "int32", "", "receiver of a message", null=True),
                _STEP,
                _c("strategy", "dict", "", "parallel strategy (of the lowest rank)"),
                _c("purpose", "dict", "", "what the communication is for", null=True),
                _c("phase", "dict", "", "phase of the step", null=True),
                _c("scope", "dict", "", "nearest enclosing scope on the lowest rank", null=True),
                _c("ranks_present", "int32", "ranks", "ranks whose files show the call"),
                _c("ranks_expected", "int32", "ranks", "ranks that took part", null=True),
                _c("how", "dict", "", "comms-id | seq | order | order-in-step | assumed-group"),
                _c("confidence", "float64", "ratio", "0–1, by the way it was matched"),
                _c("ts_ns", I64, "ns", "first arrival on the common clock", null=True),
                _c("first_rank", "int32", "", "first to arrive; null without a common clock", null=True),
                _c("last_rank", "int32", "", "last to arrive; null when the clocks cannot tell", null=True),
                _c("last_by", "dict", "", "clock | duration: what the last rank is known by", null=True),
                _c("skew_ns", I64, "ns", "last minus first arrival; null without a common clock", null=True),
                _c("clock_error_ns", I64, "ns", "error of a difference of arrivals", null=True),
                _c("shortest_ns", I64, "ns", "shortest duration among the ranks", null=True),
                _c("longest_ns", I64, "ns", "longest duration among the ranks", null=True),
                _c("wait_ns", I64, "ns", "waiting, summed over ranks", null=True),
                _c("transfer_ns", I64, "ns", "transfer: shortest duration; p2p: from the later start", null=True),
                _c("payload_bytes", I64, "bytes", "largest payload among the ranks", null=True),
                _c("algbw_gbps", "float64", "GB/s", "payload over transfer", null=True,
                   formula="payload_bytes / transfer_ns"),
                _c("busbw_gbps", "float64", "GB/s", "algbw × the operation's factor", null=True),
                _c("verdict", "dict", "", "transfer-bound | mixed | skew-bound | inconclusive"),
                _c("reason", "dict", "", "why it could not be split", null=True),
            ),
        ),
        Table(
            "waiting",
            "waiting of each strategy and call site, over all ranks",
            (
                _c("strategy", "dict", "", "parallel strategy"),
                _c("op", "dict", "", "operation of the call site; null in the row of the whole strategy", null=True),
                _c("group", "dict", "", "group name, else its ranks", null=True),
                _c("scope", "dict", "", "nearest enclosing scope", null=True),
                _c("calls", I64, "calls", "calls of all ranks"),
                _c("matched", I64, "calls", "of them matched with other ranks"),
                _c("split", I64, "calls", "of them split into waiting and transfer"),
                _c("dur_ns", I64, "ns", "durations of all timed calls, summed"),
                _c("split_ns", I64, "ns", "durations of the split calls, summed"),
                _c("wait_ns", I64, "ns", "waiting of the split calls, summed", null=True),
                _c("transfer_ns", I64, "ns", "transfer of the split calls, summed", null=True),
                _c("wait_ratio", "float64", "ratio", "share of waiting", null=True, formula="wait_ns / split_ns"),
                _c("skew_ns", I64, "ns", "median over calls of last minus first arrival", null=True),
                _c("late_rank", "int32", "", "rank that came last in at least half of the calls", null=True),
                _c("late_ratio", "float64", "ratio", "share of decided calls in which it came last", null=True),
                _c("verdict", "dict", "", "transfer-bound (≤ 25 % waits) | mixed | skew-bound (≥ 50 %) | inconclusive"),
                _c("reason", "dict", "", "why inconclusive", null=True),
            ),
        ),
        Table(
            "clocks",
            "clock of each recording against the reference of its job",
            (
                _RANK,
                _c("host", "string", "", "host name", null=True),
                _c("method", "dict", "", "reference | same-host | collective-ends | message-order | not-connected | "
                   "infeasible"),
                _c("offset_ns", I64, "ns", "to add to the rank's times; null without a common clock", null=True),
                _c("error_ns", I64, "ns", "error of the offset: four standard errors, added along chains", null=True),
                _c("drift_ppm", "float64", "ppm", "linear drift; 0 unless the data show one", null=True),
                _c("calls", I64, "calls", "common calls it was measured from"),
                _c("reference_rank", "int32", "", "rank whose clock it is aligned to", null=True),
            ),
        ),
        Table(
            "imbalance",
            "uneven load of ranks",
            (
                _c("kind", "dict", "", "compute (per step) | payload (bytes moved in uneven operations)"),
                _STEP,
                _c("strategy", "dict", "", "strategy whose group is compared; null = all ranks", null=True),
                _c("group_id", "dict", "", "group compared; null = all ranks", null=True),
                _c("op", "dict", "", "operation of a payload row", null=True),
                _c("unit", "dict", "", "ns | bytes: unit of mean and max"),
                _c("ranks", "int32", "ranks", "ranks compared"),
                _c("mean", "float64", "", "mean load"),
                _c("max", I64, "", "largest load"),
                _c("max_rank", "int32", "", "rank with the largest load"),
                _c("min_rank", "int32", "", "rank with the smallest load"),
                _c("ratio", "float64", "ratio", "largest over mean; 1 = balanced", formula="max / mean"),
                _c("cost_ns", I64, "ns", "time the imbalance costs", null=True,
                   formula="compute: max - mean; payload: Σ over calls of transfer · (1 - mean/max)"),
                _c("calls", I64, "calls", "calls of a payload row", null=True),
                _c("whole", "bool", "", "false when a file may cut the step"),
            ),
        ),
        Table(
            "pipeline",
            "what each pipeline stage did when: one row an action (F, B, I, W) or message; ranks and rows in order",
            (
                _c("pipeline", "dict", "", "ranks of the pipeline"),
                _c("rank", "int32", "", "global rank"),
                _c("step", "int32", "", "step number"),
                _c("stage", "int32", "", "stage of the model, from 0", null=True),
                _c("chunk", "int32", "", "which of the rank's stages, from 0", null=True),
                _c("micro_batch", "int32", "", "micro-batch, from 0", null=True),
                _c("op", "dict", "", "F forward | B backward | I input gradient | W weight gradient | send | recv"),
                _c("carries", "dict", "", "activation | gradient: what a message carries", null=True),
                _c("peer", "int32", "", "rank at the other end of a message", null=True),
                _c("ts_ns", I64, "ns", "start, from the run's origin", null=True),
                _c("aligned_ns", I64, "ns", "start on the common clock", null=True),
                _c("dur_ns", I64, "ns", "first start to last end of its work; of a message as in `collectives`",
                   null=True),
                _c("compute_ns", I64, "ns", "time with compute active in it", null=True),
                _c("paired", "bool", "", "true for a forward and a backward that ran as one: both rows have its time"),
                _c("call_id", "int32", "", "`collectives.id` of a message", null=True),
                _c("source", "dict", "", "annotation | operators | kernels: what told the work; order | calls: "
                   "whether the order told what a message carries"),
            ),
        ),
        Table(
            "bubble",
            "idle time of each pipeline rank in the window common to all ranks of the pipeline, and its causes",
            (
                _c("pipeline", "dict", "", "ranks of the pipeline"),
                _c("rank", "int32", "", "global rank"),
                _c("step", "int32", "", "step number"),
                _c("position", "int32", "", "place of the rank in the pipeline, from 0"),
                _c("schedule", "dict", "", "recognised schedule; several that are the same here, by |", null=True),
                _c("stages", "int32", "", "stages of the model", null=True),
                _c("micro_batches", "int32", "", "micro-batches of the step", null=True),
                _c("deviations", "int32", "", "actions of the rank that are out of the schedule's order", null=True),
                _c("deviation", "string", "", "the first of them", null=True),
                _c("window_ns", I64, "ns", "first start to last end of stage work on all ranks of the pipeline",
                   null=True),
                _c("busy_ns", I64, "ns", "stage work of the rank, with the communication inside it", null=True),
                _c("compute_ns", I64, "ns", "of it with compute active"),
                _c("bubble_ns", I64, "ns", "no stage work; waiting receives are bubble", null=True,
                   formula="window_ns - busy_ns"),
                _c("warmup_ns", I64, "ns", "of it until the rank's first backward", null=True),
                _c("steady_ns", I64, "ns", "of it from there to its last forward", null=True),
                _c("drain_ns", I64, "ns", "of it after that", null=True),
                _c("bubble_over_step_ratio", "float64", "ratio", "share of the window", null=True,
                   formula="bubble_ns / window_ns"),
                _c("bubble_over_ideal_ratio", "float64", "ratio", "per time of work; may exceed 1", null=True,
                   formula="bubble_ns / busy_ns"),
                _c("schedule_ns", I64, "ns", "bubble of the schedule with all stages as long as their mean", null=True),
                _c("order_ns", I64, "ns", "added by the deviations from its order", null=True),
                _c("imbalance_ns", I64, "ns", "added by stages that are typically longer than others", null=True),
                _c("straggler_ns", I64, "ns", "added by actions that took longer than is typical of their stage",
                   null=True),
                _c("p2p_ns", I64, "ns", "added by sends and receives in progress when all results had been made",
                   null=True),
                _c("comm_ns", I64, "ns", "added by other communication between actions (gradients, loss)", null=True),
                _c("launch_ns", I64, "ns", "added by other gaps before actions that could start", null=True),
                _c("unexplained_ns", I64, "ns", "rest; the eight causes add up to bubble_ns", null=True),
                _c("held_ns", I64, "ns", "waiting for one message while that of a later action was there", null=True),
                _c("simulated_ns", I64, "ns", "window with the measured durations and no transfers or gaps", null=True),
                _c("closed_form_ns", I64, "ns", "bubble of a rank by the schedule's formula and mean times", null=True),
                _c("clock_error_ns", I64, "ns", "largest clock error of the pipeline's ranks", null=True),
                _c("reason", "dict", "", "why numbers are null", null=True),
            ),
        ),
        Table(
            "what_if",
            "window of a pipeline's step in a replay with one thing changed",
            (
                _c("pipeline", "dict", "", "ranks of the pipeline"),
                _c("step", "int32", "", "step number"),
                _c("what", "dict", "", "no-stragglers | balanced-stages | no-p2p | no-other-comm | no-gaps"),
                _c("window_ns", I64, "ns", "measured window"),
                _c("replayed_ns", I64, "ns", "window of the replay with nothing changed"),
                _c("replay_error_ratio", "float64", "ratio", "error of the replay; above 0.05 nothing is said",
                   null=True, formula="|replayed_ns - window_ns| / window_ns"),
                _c("what_if_ns", I64, "ns", "window of the changed replay", null=True),
                _c("saved_ns", I64, "ns", "what the change saves; negative where it costs", null=True,
                   formula="replayed_ns - what_if_ns"),
                _c("saved_ratio", "float64", "ratio", "the same over the window", null=True,
                   formula="saved_ns / replayed_ns"),
                _c("reason", "dict", "", "why numbers are null", null=True),
            ),
        ),
        Table(
            "stragglers",
            "what-if by replay of an operation table: slowdown by stragglers and who brings it about (OSDI'25)",
            (
                _c("source", "string", "", "operation table"),
                _c("scope", "dict", "",
                   "job | top_workers (3 % by slowdown) | last_stage | op_type | stage | dp_rank | worker | step |"
                   " worker_step"),
                _c("rank", "int32", "", "global rank of the worker", null=True),
                _c("stage", "int32", "", "pipeline stage", null=True),
                _c("dp_rank", "int32", "", "data-parallel rank", null=True),
                _c("op", "dict", "", "operation type; both ends of a pipeline transfer are one", null=True),
                _c("step", I64, "", "step number", null=True),
                _c("workers", "int32", "", "workers in the scope", null=True),
                _c("steps", "int32", "", "steps replayed", null=True),
                _c("slowdown", "float64", "×",
                   "job, step: replayed over ideal; others: ideal but for the scope, over ideal;"
                   " worker: the smaller of its stage's and its DP rank's",
                   null=True, formula="S = T / T_ideal; S_x = T(only x as measured) / T_ideal"),
                _c("compute_slowdown", "float64", "×", "worker: slowdown by its computes and optimizer alone",
                   null=True),
                _c("communication_slowdown", "float64", "×", "worker: slowdown by its transfers alone", null=True),
                _c("launch_slowdown", "float64", "×",
                   "by what is outside the table (host, input): measured over replayed without launch delays;"
                   " worker: with the delays of its stage or its DP rank, the smaller", null=True),
                _c("waste_ratio", "float64", "ratio", "share of the time that stragglers cost", null=True,
                   formula="max(0, 1 - 1/S)"),
                _c("recovered_ratio", "float64", "ratio",
                   "share of the loss that making the scope ideal recovers (M_W, M_S); may leave 0–1", null=True,
                   formula="(T - T(x ideal)) / (T - T_ideal)"),
                _c("added_ratio", "float64", "ratio", "share of the loss that the scope alone brings about", null=True,
                   formula="(T(only x as measured) - T_ideal) / (T - T_ideal)"),
                _c("straggling_steps_ratio", "float64", "ratio", "share of steps with a slowdown of 1.1 or more",
                   null=True),
                _c("step_ns", I64, "ns", "measured step (mean)", null=True),
                _c("replayed_ns", I64, "ns", "replayed step without launch delays (mean)", null=True, formula="T"),
                _c("ideal_ns", I64, "ns", "replayed step with ideal durations (mean)", null=True, formula="T_ideal"),
                _c("replay_error_ratio", "float64", "ratio", "error of the replay; above 0.05 nothing is said",
                   null=True, formula="|replayed_ns - step_ns| / step_ns"),
                _c("total_ns", I64, "ns",
                   "sum of measured durations (job, worker: of operations with a group)", null=True),
                _c("wait_ns", I64, "ns", "of it waiting for the last of the group to start", null=True,
                   formula="dur - clip(end - latest start, 0, dur)"),
                _c("wait_ratio", "float64", "ratio", "share of waiting", null=True, formula="wait_ns / total_ns"),
                _c("forward_backward_correlation", "float64", "",
                   "correlation of a micro-batch's forward and backward time; near 1 when lengths differ", null=True),
                _c("reason", "dict", "", "why a number is null", null=True),
            ),
        ),
        Table(
            "theory",
            "communication measured against theory: a strategy's calls of one operation in one group",
            (
                _c("strategy", "dict", "", "parallel strategy"),
                _c("purpose", "dict", "", "what the communication is for", null=True),
                _c("phase", "dict", "", "phase of the step", null=True),
                _c("op", "dict", "", "operation"),
                _c("group_id", "dict", "", "group identity; null when no file names the group", null=True),
                _c("group_size", "int32", "ranks", "ranks of the group (of a message: 2)", null=True),
                _c("ranks", "int32", "ranks", "ranks of it whose recordings are here"),
                _c("nodes", "int32", "", "nodes it spans", null=True),
                _c("path", "dict", "", "intra (one node) | inter (one rank a node) | hierarchical", null=True),
                _c("bus_factor", "float64", "ratio", "factor of busbw and wire bytes", null=True),
                _c("calls", I64, "calls", "calls of all ranks, in and between steps"),
                _c("calls_per_step", "float64", "calls", "mean of a rank and complete step", null=True),
                _c("payload_bytes", I64, "bytes", "full buffer of a call (median)", null=True),
                _c("step_payload_bytes", I64, "bytes", "of all calls of a rank and step (mean)", null=True),
                _c("expected_calls_per_step", "float64", "calls", "planned for its ranks from [model] and [training]",
                   null=True),
                _c("expected_payload_bytes", I64, "bytes", "planned of a call; null where planned calls differ",
                   null=True),
                _c("expected_step_payload_bytes", "float64", "bytes", "planned of a rank and step (mean of its ranks)",
                   null=True),
                _c("plan", "dict", "", "as-planned | more-than-planned (the planned calls and others) | differs",
                   null=True),
                _c("plan_note", "dict", "", "what the difference usually means", null=True),
                _c("basis", "dict", "", "transfer: waiting taken off | duration: may contain waiting", null=True),
                _c("measured_ns", I64, "ns", "time of the calls with an expectation (of all, where none has one), mean "
                   "of a rank and step", null=True),
                _c("expected_ns", I64, "ns", "what theory expects of them", null=True, formula="docs/theory.md"),
                _c("least_ns", I64, "ns", "least time by the links", null=True, formula="Σ S × factor / link"),
                _c("low_ns", I64, "ns", "lower end of the expectation's band", null=True),
                _c("high_ns", I64, "ns", "upper end of the expectation's band", null=True),
                _c("exposed_ns", I64, "ns", "attributed exposed time, mean of a rank and step", null=True),
                _c("avoidable_ns", I64, "ns", "of it avoidable, at most; see `exposure`", null=True),
                _c("structural_ns", I64, "ns", "of it structural", null=True),
                _c("unknown_ns", I64, "ns", "of it what cannot be told; the rest is waiting", null=True),
                _c("over_ns", I64, "ns", "transfer beyond the band, summed call by call", null=True,
                   formula="Σ max(0, transfer - high)"),
                _c("ratio", "float64", "ratio", "measured over expected, median of calls", null=True),
                _c("algbw_gbps", "float64", "GB/s", "payload over measured time, median of calls", null=True),
                _c("busbw_gbps", "float64", "GB/s", "bus bandwidth, median of calls; from durations at least that",
                   null=True, formula="algbw × bus_factor"),
                _c("busbw_max_gbps", "float64", "GB/s", "largest bus bandwidth of a call", null=True),
                _c("limit_gbps", "float64", "GB/s", "bus bandwidth at the least time", null=True),
                _c("hide_gbps", "float64", "GB/s", "bandwidth at which all compute of a step would just hide it",
                   null=True, formula="wire bytes of a step / compute of a step"),
                _c("ceiling_gbps", "float64", "GB/s", "what NCCL's rings reach inside a node", null=True),
                _c("verdict", "dict", "", "of the calls that most of the expected time belongs to; see `collectives`",
                   null=True),
                _c("verdict_ratio", "float64", "ratio", "share of expected time with that verdict", null=True),
                _c("reason", "dict", "", "why a number is null, or what limits it", null=True),
            ),
        ),
        Table(
            "findings",
            "what a reader should know, most important first",
            (
                _c("severity", "dict", "", "error | warning | info"),
                _c("code", "dict", "", "stable identifier"),
                _RANK,
                _c("message", "string", "", "one sentence, with its numbers"),
                _c("cost_ns", I64, "ns", "what it costs a rank and step; findings of a severity are ranked by it",
                   null=True),
                _c("avoidable_ns", I64, "ns", "of it what could be avoided, at most", null=True),
                _c("where", "string", "", "ranks, groups or call site", null=True),
                _c("measured", "float64", "", "measured value, in `unit`", null=True),
                _c("expected", "float64", "", "expected value, in `unit`", null=True),
                _c("unit", "dict", "", "unit of both", null=True),
                _c("evidence", "string", "", "what it rests on", null=True),
                _c("advice", "string", "", "what to try", null=True),
                _c("confidence", "float64", "ratio", "0–1", null=True),
            ),
        ),
        Table(
            "health",
            "everything dropped, repaired or guessed while reading",
            (
                _RANK,
                _c("source", "string", "", "file"),
                _c("severity", "dict", "", "info | repaired | lost"),
                _c("reason", "dict", "", "what happened"),
                _c("count", I64, "", "how often"),
                _c("example", "string", "", "one instance", null=True),
            ),
        ),
        Table(
            "columns",
            "the data dictionary",
            (
                _c("table", "dict", "", "table"),
                _c("column", "string", "", "column"),
                _c("type", "dict", "", "type"),
                _c("unit", "dict", "", "unit", null=True),
                _c("nullable", "bool", "", "may be null"),
                _c("meaning", "string", "", "what it says"),
                _c("formula", "string", "", "how it is computed", null=True),
            ),
        ),
    )
}  # fmt: skip


def arrow_schema(table: str) -> pa.Schema:
    """Arrow schema of a published table; dictionary strings use int32 codes."""
    import pyarrow as pa

    types = {
        "dict": pa.dictionary(pa.int32(), pa.string()),
        "timestamp": pa.timestamp("ns", tz="UTC"),
        "bool": pa.bool_(),
        "string": pa.string(),
    }
    return pa.schema(
        pa.field(c.name, types.get(c.type) or pa.type_for_alias(c.type), nullable=c.nullable)
        for c in TABLES[table].columns
    )

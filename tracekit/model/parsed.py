"""What a parser yields: one rank's rows in columns, or the operations of a whole job.

All times are int64 ns on the *file's* clock (Unix ns where the file has a base).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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


class HostRows(Struct):
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


class DeviceRows(Struct):
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


class DeviceAnnotations(Struct):
    """`gpu_user_annotation` rows: ts, dur int64 ns; name int32; device int32; stream, ext int64."""

    ts: NDArray[np.int64]
    dur: NDArray[np.int64]
    name: NDArray[np.int32]
    device: NDArray[np.int32]
    stream: NDArray[np.int64]
    ext: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ts)


class CommArgs(Struct):
    """Arguments of one communication record, normalised over all eras; None = the file has none.

    `in_nelems`/`out_nelems` are element counts (torch 2.2 calls them "msg size"); `ranks_text`,
    `in_splits`, `out_splits` keep the raw text (may be cut by the writer); `rank` is the raw `Rank`
    argument (own group rank, root or peer, depending on the operation). `dims`, `types`,
    `concrete` are the decoded `Input Dims`, `Input type` and `Concrete Inputs` lists of the op; `stack` is the
    `Call stack` of old recordings with stacks, "file(line): function" joined by ";", innermost first. `payload_bytes`
    where a source tells bytes instead of elements and type (max of input and output on this rank). `rf_id` is the
    `Record function id`, which an execution trace recorded beside it has, too; without one the file says 0.
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
    rf_id: int | None = None


class CommRecords(Sequence[CommArgs]):
    """Communication records that know which of them repeat others: thousands are mostly of a few hundred kinds."""

    @abstractmethod
    def kinds(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Kind of each of some records, -1 for number -1: two of one kind differ in `seq` and `comms_id` alone."""

    @abstractmethod
    def own(self, numbers: NDArray[np.int64]) -> tuple[list[int | None], list[int | None]]:
        """`seq` and `comms_id` of each of some records; None for number -1."""


class Track(Struct):
    """One host thread: `pid`, `tid` as the file spells them (text), and the best thread name."""

    pid: str
    tid: str
    name: str | None = None


class ProcessGroup(Struct):
    """One process group as the file's metadata declares it; `ranks` are global and complete."""

    name: str
    desc: str | None
    size: int | None
    ranks: tuple[int, ...] | None
    backend: str | None = None


class HealthEntry(Struct):
    """Something dropped, repaired or guessed: how often, why, and one example."""

    reason: str
    count: int
    severity: str = "info"  # info | repaired | lost
    example: str = ""


class TraceMeta(Struct):
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


class RankTrace(Struct):
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


class OpRows(Struct):
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

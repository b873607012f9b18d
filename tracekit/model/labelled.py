"""A labelled rank: its device work by kind, its calls with their labels, its step markers."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from tracekit.model.parsed import LinkConfidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.model.parsed import HealthEntry, TraceMeta


class Kind(IntEnum):
    """What a device activity is for the accounting."""

    COMPUTE = 0
    COMM = 1
    FUSED = 2
    COPY = 3
    SET = 4


NO_TIME = np.iinfo(np.int64).min
"""Marks an unknown time in an int64 column (never a valid time)."""


class Activities(Struct):
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


class Fired(Struct, frozen=True):
    """One rule that matched a call: what it concluded and what it saw (for `explain`)."""

    rule: str
    field: str  # strategy | axes | purpose | phase | variant
    value: str
    tier: str
    confidence: float
    saw: str


class Label(Struct, frozen=True):
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


class Call(Struct):
    """One communication call of one rank; fields as in the table `collectives`.

    Times are int ns on the file's clock. `members`: global ranks of the group where known.
    `coalesced_into`: position of the call that owns the shared kernel of a coalesced group.
    `via`: the operators that belong to the call itself (functional, c10d or engine operator), outermost first.
    `witness`: sources and ways ("flight-recorder:seq") by which other accounts of the call were tied to it, joined by
    blanks.
    `algorithm`, `protocol`, `channels`: as NCCL chose them; `exec_ns`, `exec_busbw_gbps`: time on the device and bus
    bandwidth that another account measured; `frame`: innermost Python frame outside torch. `sources`: (field, source)
    for what did not come from the trace itself; fields are group, seq, size, algorithm, duration, frame.
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
    rf_id: int | None = None
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    exec_ns: int | None = None
    exec_busbw_gbps: float | None = None
    frame: str | None = None
    sources: tuple[tuple[str, str], ...] = ()
    label: Label = Label()


class Marker(Struct):
    """A step marker on the host: step number, text, [start, end) in ns, rule that found it."""

    step: int
    name: str
    start: int
    end: int
    found_by: str
    phase: str | None = None


class ChunkSpan(Struct):
    """An annotation round pipeline work: [start, end) ns on the host, what it names, the rule that knew it.

    actions: (kind, stage, micro-batch) with kind F, B, I or W, as `theory.schedules` has them; a pair runs as one.
    """

    start: int
    end: int
    actions: tuple[tuple[str, int | None, int | None], ...]
    rule: str


class PipelineSpans(Struct):
    """What the host shows of pipeline work: annotations by time; (n, 2) int64 [start, end) ns, disjoint, ascending,
    of the autograd engine (`backward`) and of the optimizer.
    """

    chunks: list[ChunkSpan]
    backward: NDArray[np.int64]
    optimizer: NDArray[np.int64]


class HostTimes(Struct):
    """Where a host thread issued device work or waited for it.

    launch_ts (ascending), launch_thread: start of each runtime call, and its thread as an index into `threads`;
    sync_ts, sync_end, sync_thread: calls that return when the device has finished something. Times int64 ns.
    """

    threads: list[str]
    launch_ts: NDArray[np.int64]
    launch_thread: NDArray[np.int32]
    sync_ts: NDArray[np.int64]
    sync_end: NDArray[np.int64]
    sync_thread: NDArray[np.int32]


class LabelledRank(Struct):
    """Everything the analysis needs of one rank; `rank` is None while identity is unknown.

    frameworks: id → what told it; step_names: text of a step marker → phase it tells. pipeline: None without
    point-to-point calls. host: None where the source has no runtime calls. joined: (path, part) of other accounts that
    were tied to its calls.
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
    host: HostTimes | None = None
    joined: tuple[tuple[str, int], ...] = ()

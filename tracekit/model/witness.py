"""What a witness other than a profiler yields: groups and calls, without the compute beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import MutableSequence

    from tracekit.model.parsed import HealthEntry, TraceMeta


class WitnessGroup(Struct):
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


class WitnessCall(Struct):
    """One communication call as a witness saw it; None = the format does not say.

    op_raw: the file's spelling; seq: number of the collective in its group (NCCL: opCount), p2p_seq: of the p2p call;
    in_sizes/out_sizes: shapes of the tensors, in_nelems/out_nelems where only counts are told; dtype: any spelling of
    the vocabulary; payload_bytes where bytes are told instead (max of input and output on this rank).
    state: scheduled | started | completed. Times are Unix ns where the file has dates: created (the call was issued),
    started and completed (`noticed` = when a watchdog saw it, later than it was), dur_ns only where it was measured.
    peer, root: position in the group. frames: "file(line): function", innermost first.
    extra: fields of the format that tables may show (algorithm, protocol, channels, …). scopes: operators and
    annotations around the call, outermost first. in_splits, out_splits: lists as text, whole; None for equal parts.
    rf_id: the profiler's `Record function id` of the call.
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
    scopes: tuple[str, ...] = ()
    in_splits: str | None = None
    out_splits: str | None = None
    rf_id: int | None = None


class Witness(Struct):
    """The communication of one process as a source other than a profiler saw it: no compute, so nothing hides it.

    source: name of the format (`Format.name`); version: of the format, as the file spells it. `meta.rank` and
    `meta.world_size` as the content tells them (None = it does not); `meta.groups` stays empty: `groups` has more.
    calls: in order of issue. lost: calls before the first of them, overwritten or left out (None = unknown).
    landmarks: (place, name) of what began between the calls, in order, where `WitnessCall.record` is a place in the
    same order: steps, backward passes, optimizers.
    """

    meta: TraceMeta
    source: str
    groups: list[WitnessGroup] = field(default_factory=list)
    calls: MutableSequence[WitnessCall] = field(default_factory=list)
    health: list[HealthEntry] = field(default_factory=list)
    version: str | None = None
    lost: int | None = None
    landmarks: list[tuple[int, str]] = field(default_factory=list)

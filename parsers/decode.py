"""The decode stage: bytes of whole events → typed events, grouped by phase and category.

This is the seam where a compiled core can take over: everything behind it sees only `Batch`.
"""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter
from typing import Any

import msgspec

from tracekit.parsers.convert import EXACT_BELOW_US
from tracekit.parsers.fixed import FixedRows

Scalar = str | int | float | bool | None
"""Values that are used as keys must be hashable: anything else is an event of an unexpected shape."""


class Args(msgspec.Struct, gc=False):
    """The arguments that are read, over all eras; anything else in `args` is skipped."""

    ext: Any = msgspec.field(default=-1, name="External id")
    correlation: Any = -1
    device: Scalar = None
    stream: Any = None
    nbytes: Any = msgspec.field(default=None, name="bytes")
    from_device: Any = msgspec.field(default=None, name="fromDevice")
    to_device: Any = msgspec.field(default=None, name="toDevice")
    collective: Any = msgspec.field(default=None, name="Collective name")
    in_nelems: Any = msgspec.field(default=None, name="In msg nelems")
    out_nelems: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    dtype: Any = None
    in_splits: Any = msgspec.field(default=None, name="In split size")
    out_splits: Any = msgspec.field(default=None, name="Out split size")
    pg_name: Any = msgspec.field(default=None, name="Process Group Name")
    pg_desc: Any = msgspec.field(default=None, name="Process Group Description")
    ranks_text: Any = msgspec.field(default=None, name="Process Group Ranks")
    rank_start: Any = msgspec.field(default=None, name="Global rank start")
    rank_stride: Any = msgspec.field(default=None, name="Global rank stride")
    rank: Any = msgspec.field(default=None, name="Rank")
    src_rank: Any = msgspec.field(default=None, name="Src Rank")
    dst_rank: Any = msgspec.field(default=None, name="Dst Rank")
    seq: Any = msgspec.field(default=None, name="Seq")
    comms_id: Any = msgspec.field(default=None, name="Comms Id")
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input type")
    concrete: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Concrete Inputs")
    stack: Any = msgspec.field(default=None, name="Call stack")
    # Older spellings of the same things.
    old_ext: Any = msgspec.field(default=-1, name="external id")
    old_dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input dims")
    in_size: Any = msgspec.field(default=None, name="In msg size")
    out_size: Any = msgspec.field(default=None, name="Out msg size")
    pg_id: Any = msgspec.field(default=None, name="Process Group ID")
    rf_id: Any = msgspec.field(default=None, name="Record function id")
    # Metadata rows.
    name: Scalar = None
    labels: Any = None


class Event(msgspec.Struct, gc=False):
    """One Chrome-trace event; types are checked where a column is built, not here."""

    ph: Scalar = None
    cat: Scalar = None
    name: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


class TextEvent(msgspec.Struct, gc=False):
    """As `Event`, with the two times kept as text: for times a float would round."""

    ph: Scalar = None
    cat: Scalar = None
    name: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: Args | None = None


class LeanArgs(msgspec.Struct, gc=False):
    """What a host row that is no communication record needs."""

    ext: Any = msgspec.field(default=-1, name="External id")
    correlation: Any = -1


class LeanDeviceArgs(msgspec.Struct, gc=False):
    """What a kernel without communication arguments needs."""

    ext: Any = msgspec.field(default=-1, name="External id")
    correlation: Any = -1
    device: Scalar = None
    stream: Any = None


class LeanHost(msgspec.Struct, gc=False):
    """A host row whose phase and category are known: few fields decode in half the time."""

    name: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    ts: Any = None
    dur: Any = None
    args: LeanArgs | None = None


class LeanDevice(msgspec.Struct, gc=False):
    """A kernel row whose phase and category are known."""

    name: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    ts: Any = None
    dur: Any = None
    args: LeanDeviceArgs | None = None


AnyEvent = Event | TextEvent | LeanHost | LeanDevice
Group = tuple[Any, Any, list[AnyEvent] | FixedRows]
Batch = list[Group]
"""(ph, cat, events): each list holds events of one class; a phase and category may come twice."""

_DECODERS: dict[type, Any] = {
    kind: msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
    for kind in (Event, TextEvent, LeanHost, LeanDevice)
}
_key = attrgetter("ph", "cat")


def decode_as(kind: type, data: bytes) -> list[Any]:
    """Decode `event, event, …` as one class; raises ValueError when it is not exactly that."""
    try:
        events: list[Any] = _DECODERS[kind].decode(b"[" + data + b"]")
    except RecursionError as e:
        raise ValueError("nested too deeply") from e
    return events


def decode(data: bytes, *, text_times: bool = False) -> Batch:
    """Decode `event, event, …` of any kind; raises ValueError when it is not exactly that."""
    groups: dict[tuple[Any, Any], list[AnyEvent]] = defaultdict(list)
    for event in decode_as(TextEvent if text_times else Event, data):
        groups[_key(event)].append(event)
    return [(ph, cat, events) for (ph, cat), events in groups.items()]


def needs_text(batch: Batch) -> bool:
    """True when some float time is beyond what a float64 holds to the nanosecond."""
    return any(
        ph == "X" and isinstance(events, list) and any(type(e.ts) is float and e.ts >= EXACT_BELOW_US for e in events)
        for ph, _, events in batch
    )

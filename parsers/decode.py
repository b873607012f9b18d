"""The decode stage: bytes of whole events → typed events, grouped by phase and category.

This is the seam where a compiled core can take over: everything behind it sees only `Batch`.
"""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter
from typing import Any

import msgspec

EXACT_BELOW_US = float(1 << 43)
"""Below this many µs a float64 holds three decimals without loss; above it the text is needed."""


class Args(msgspec.Struct, gc=False):
    """The arguments that are read, over all eras; anything else in `args` is skipped."""

    ext: Any = msgspec.field(default=-1, name="External id")
    correlation: Any = -1
    device: Any = None
    stream: Any = None
    nbytes: Any = msgspec.field(default=-1, name="bytes")
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
    # Older spellings of the same things.
    old_ext: Any = msgspec.field(default=-1, name="external id")
    old_dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input dims")
    in_size: Any = msgspec.field(default=None, name="In msg size")
    out_size: Any = msgspec.field(default=None, name="Out msg size")
    pg_id: Any = msgspec.field(default=None, name="Process Group ID")
    # Metadata rows.
    name: Any = None
    labels: Any = None


class Event(msgspec.Struct, gc=False):
    """One Chrome-trace event; types are checked where a column is built, not here."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


class TextEvent(msgspec.Struct, gc=False):
    """As `Event`, with the two times kept as text: for times a float would round."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: Args | None = None


AnyEvent = Event | TextEvent
Batch = dict[tuple[Any, Any], list[AnyEvent]]
"""Events by (ph, cat), in file order."""

_events = msgspec.json.Decoder(list[Event])
_text_events = msgspec.json.Decoder(list[TextEvent])
_key = attrgetter("ph", "cat")


def decode(data: bytes, *, text_times: bool = False) -> Batch:
    """Decode `[event, …]`; raises ValueError when it is not exactly that."""
    try:
        events: list[Any] = (_text_events if text_times else _events).decode(data)
    except RecursionError as e:
        raise ValueError("nested too deeply") from e
    groups: Batch = defaultdict(list)
    for event in events:
        groups[_key(event)].append(event)
    return groups


def needs_text(batch: Batch) -> bool:
    """True when some float time is beyond what a float64 holds to the nanosecond.

    The first and last event of a group tell whether its times are that large at all.
    """
    return any(
        ph == "X" and (_large(events[0].ts) or _large(events[-1].ts)) and any(type(e.ts) is float for e in events)
        for (ph, _), events in batch.items()
    )


def _large(ts: Any) -> bool:
    return isinstance(ts, int | float) and ts >= EXACT_BELOW_US

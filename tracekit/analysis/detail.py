"""The two big tables: device activities and communication calls."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tracekit.analysis.alike import SHARED, call_kinds
from tracekit.analysis.tables import build, constant, encoded, from_numpy, spread
from tracekit.model import NO_TIME, LinkConfidence, arrow_schema, on_unix_clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.alike import CallKinds
    from tracekit.model import Call, Label, LabelledRank

_KINDS = ("compute", "comm", "fused", "copy", "set")
_WORD = pa.dictionary(pa.int32(), pa.string())
_UTC = pa.timestamp("ns", tz="UTC")


def activity_table(labelled: LabelledRank, step: NDArray[np.int64], origin: int) -> pa.Table:
    """Table `activities`; step −1 and correlation −1 become null."""
    a = labelled.activities
    n = len(a)
    unix = on_unix_clock(labelled.meta, labelled.window_ns[0])
    return build(
        "activities",
        {
            "rank": constant(labelled.rank, n, pa.int32()),
            "device": from_numpy(a.device, pa.int32()),
            "stream": from_numpy(a.stream, pa.int64()),
            "ts_ns": from_numpy(a.ts - origin, pa.int64()),
            "ts": from_numpy(a.ts, _UTC, None if unix else np.ones(n, np.bool_)),
            "dur_ns": from_numpy(a.dur, pa.int64()),
            "name": encoded(a.name, a.names),
            "kind": encoded(a.kind.astype(np.int32), _KINDS),
            "family": encoded(a.family, a.families, a.family < 0),
            "correlation": from_numpy(a.corr, pa.int64(), a.corr == -1),
            "call_id": from_numpy(a.call, pa.int32(), a.call < 0),
            "step": from_numpy(step, pa.int32(), step < 0),
        },
    )


def call_table(
    labelled: LabelledRank, steps: Sequence[int | None], origin: int, kinds: CallKinds | None = None
) -> pa.Table:
    """Table `collectives`, one row a call, in call order."""
    calls, n = labelled.calls, len(labelled.calls)
    kinds = kinds or call_kinds(calls)
    schema = arrow_schema("collectives")
    columns: dict[str, Any] = {
        "rank": constant(labelled.rank, n, pa.int32()),
        "id": range(n),
        "call_ts_ns": _placed(kinds.numbers("call_ts"), origin),
        "ts_ns": _placed(kinds.numbers("ts"), origin),
        "dur_ns": _placed(kinds.numbers("dur"), 0),
        "step": steps,
        "peers": [_peers(c, labelled.rank) if c.op == "all_to_all" else None for c in calls],
    }
    for name in OF_MATCHING:
        columns[name] = pa.nulls(n, schema.field(name).type)
    for name in _OF_CALL:
        columns[name] = list(map(attrgetter(name), calls))
    columns |= _sources(columns, kinds, labelled.meta.witness or "trace")
    examples, which = kinds.examples, kinds.which
    shared: dict[str, list[Any]] = {
        "group_id": [group_id(c) for c in examples],
        "link": [_LINKS[c.link] for c in examples],
        "scope": [c.scopes[-1] if c.scopes else None for c in examples],
        "scopes": [" > ".join(c.scopes) or None for c in examples],
        "alternatives": [_alternatives(c.label) for c in examples],
    }
    for name in SHARED:
        shared[name] = list(map(attrgetter(name), examples))
    for name in _OF_LABEL:
        shared[name] = [getattr(c.label, name) for c in examples]
    return build("collectives", columns | {k: spread(v, which, schema.field(k).type) for k, v in shared.items()})


_TOLD = {
    "group": ("group_size",), "seq": ("seq",), "size": ("payload_bytes",), "algorithm": ("algorithm", "channels"),
    "duration": ("exec_ns",), "frame": ("frame",),
}  # fmt: skip
"""Field of `Call.sources` → attributes of which one must be known for it to have a source at all."""


def _placed(times: NDArray[np.int64], origin: int) -> pa.Array[Any]:
    missing = times == NO_TIME
    return from_numpy(np.where(missing, 0, times - origin), pa.int64(), missing)


def _sources(columns: dict[str, Any], kinds: CallKinds, own: str) -> dict[str, pa.Array[Any]]:
    """Columns `source_*`: what no other source gave is the recording's own word; of several sources the last counts.

    columns: of the table, with all of `_OF_CALL`.
    """
    told = [dict(c.sources) for c in kinds.examples]
    out: dict[str, pa.Array[Any]] = {}
    for field, attributes in _TOLD.items():
        known = np.zeros(len(kinds.which), np.bool_)
        for name in attributes:
            if name in _OF_CALL:
                known |= np.array([value is not None for value in columns[name]], np.bool_)
            else:
                known |= np.array([getattr(c, name) is not None for c in kinds.examples], np.bool_)[kinds.which]
        seen = np.bincount(kinds.which[known], minlength=len(told)) > 0
        words = [t.get(field, own) if s else None for t, s in zip(told, seen.tolist(), strict=True)]
        which = np.where(known, kinds.which, len(words))
        out[f"source_{field}"] = spread([*words, None], which, _WORD)
    return out


def _peers(call: Call, rank: int | None) -> int | None:
    """From how many other ranks an all-to-all receives anything; None = not recorded, or from all alike."""
    text, members = call.out_splits, call.members
    if call.op != "all_to_all" or not text or members is None or rank not in members:
        return None
    parts = text.strip("[] ").split(",")
    if len(parts) != len(members) or not all(p.strip().isdigit() for p in parts):
        return None  # the writer cuts long lists
    own = members.index(rank)
    return sum(int(p) > 0 for i, p in enumerate(parts) if i != own)


OF_MATCHING = (
    "match_id", "match", "arrival_ns", "wait_ns", "transfer_ns", "wait_reason", "algbw_gbps", "busbw_gbps", "least_ns",
    "expected_ns", "verdict",
)  # fmt: skip
"""Columns that only the cross-rank step and theory can fill."""
_LINKS = {c: c.name.lower() for c in LinkConfidence}
_OF_CALL = ("ordinal", "seq", "comms_id", "coalesced_into", "exec_ns", "exec_busbw_gbps")
_OF_LABEL = ("strategy", "axes", "purpose", "phase", "variant", "confidence", "tier", "rule")


def _alternatives(label: Label) -> str | None:
    return " ".join(f"{s}:{p:.2f}" for s, p in label.alternatives) or None


def group_id(call: Call) -> str | None:
    """Identity of a call's group: its members where known, else its name and size."""
    return group_key(call.members, call.group_name, call.group_size)


@lru_cache(maxsize=4096)
def group_key(members: tuple[int, ...] | None, name: str | None, size: int | None) -> str | None:
    """Members in a short form ("0-6:2" = 0, 2, 4, 6), else "name=…/size"; None when nothing is known."""
    if members:
        if len(members) > 2:
            stride = members[1] - members[0]
            last = members[0] + stride * (len(members) - 1)
            if stride > 0 and members == tuple(range(members[0], last + 1, stride)):
                return f"{members[0]}-{last}" + (f":{stride}" if stride > 1 else "")
        return ",".join(map(str, members))
    if name is not None:
        return f"name={name}" + (f"/{size}" if size else "")
    return None

"""The two big tables: device activities and communication calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracekit.analysis.tables import build, constant, encoded, from_numpy
from tracekit.model import TABLES, LinkConfidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.model import Call, LabelledRank

_KINDS = ("compute", "comm", "fused", "copy", "set")
_UNIX_NS = 10**18
"""File times beyond this (2001) are Unix times even where the file states no base."""
_UTC = pa.timestamp("ns", tz="UTC")


def activity_table(labelled: LabelledRank, step: NDArray[np.int64], origin: int) -> pa.Table:
    """Table `activities`; step −1 and correlation −1 become null."""
    a = labelled.activities
    n = len(a)
    unix = labelled.meta.base_ns is not None or labelled.window_ns[0] > _UNIX_NS
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
            "step": from_numpy(step, pa.int32(), step < 0),
        },
    )


def call_table(labelled: LabelledRank, steps: Sequence[int | None], origin: int) -> pa.Table:
    """Table `collectives`, one row a call, in call order."""
    calls = labelled.calls
    columns: dict[str, list[object]] = {c.name: [] for c in TABLES["collectives"].columns}
    for i, c in enumerate(calls):
        row = {
            "rank": labelled.rank, "id": i, "device": c.device, "op": c.op, "op_raw": c.op_raw, "group_id": group_id(c),
            "group_name": c.group_name, "group_desc": c.group_desc, "group_size": c.group_size, "seq": c.seq,
            "ordinal": c.ordinal, "comms_id": c.comms_id, "src_rank": c.src_rank, "dst_rank": c.dst_rank,
            "in_nelems": c.in_nelems, "out_nelems": c.out_nelems, "dtype": c.dtype,
            "payload_bytes": c.payload_bytes, "call_ts_ns": _shift(c.call_ts, origin), "ts_ns": _shift(c.ts, origin),
            "dur_ns": c.dur, "stream": c.stream, "n_activities": c.n_activities, "kernel": c.kernel,
            "family": c.family, "link": LinkConfidence(c.link).name.lower(),
            "scope": c.scopes[-1] if c.scopes else None, "scopes": " > ".join(c.scopes) or None, "step": steps[i],
            "strategy": c.label.strategy, "axes": c.label.axes, "purpose": c.label.purpose, "phase": c.label.phase,
            "variant": c.label.variant, "confidence": c.label.confidence, "tier": c.label.tier, "rule": c.label.rule,
            "alternatives": " ".join(f"{s}:{p:.2f}" for s, p in c.label.alternatives) or None,
        }  # fmt: skip
        for name, values in columns.items():
            values.append(row[name])
    return build("collectives", columns)


def _shift(ns: int | None, origin: int) -> int | None:
    return None if ns is None else ns - origin


def group_id(call: Call) -> str | None:
    """Identity of a call's group: its members where known, else its name and size."""
    return group_key(call.members, call.group_name, call.group_size)


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

"""Kernels of coalesced groups: several calls recorded first, one kernel launched when the group ends.

The record of each member closes before the launch, so the launch lies in none of them. Its members are the
calls just before it on the same thread that have no kernel yet and could run in such a kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.label.kernels import COMPUTE
from tracekit.model import LinkConfidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.label.collectives import Attached
    from tracekit.label.hostcalls import HostCalls
    from tracekit.label.kernels import DeviceKinds
    from tracekit.model import Call, RankTrace

REACH_NS = 50_000_000
"""A member recorded earlier than this before the launch belongs to another group."""
_RUNS = {
    "send_recv": {"send", "recv", "all_to_all", "gather", "scatter"},
    "all_reduce": {"all_reduce", "barrier"},
    "all_gather": {"all_gather"},
    "reduce_scatter": {"reduce_scatter"},
    "broadcast": {"broadcast", "all_gather"},
    "reduce": {"reduce", "reduce_scatter"},
    "all_to_all": {"all_to_all"},
}
_LIBRARIES = {"nccl", "rccl", "msccl", "xccl", "hccl"}


def coalesce(
    trace: RankTrace,
    launch: NDArray[np.int64],
    kinds: DeviceKinds,
    host: HostCalls,
    out: Attached,
    rows: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Tie the group kernels among `rows` to their member calls; returns the rows that are left."""
    candidates = [r for r in rows.tolist() if launch[r] >= 0 and _may_be_group(trace, kinds, launch, r)]
    if not candidates or not len(host.roots.row):
        return rows
    at_row = np.array(sorted(candidates, key=lambda r: trace.host.ts[launch[r]]), np.int64)
    track = trace.host.track[launch[at_row]].astype(np.int64)
    ts = trace.host.ts[launch[at_row]]
    before = host.roots.before(track, ts).tolist()
    group_end = host.group_ends.at(track, ts).tolist()
    busy = set(out.call[out.call >= 0].tolist())
    tied: set[int] = set()
    groups: dict[tuple[int, int], int] = {}  # (last member, end annotation) -> owner
    for row, position, end, when in zip(at_row.tolist(), before, group_end, ts.tolist(), strict=True):
        op = kinds.classes.get(int(trace.device.name[row]), COMPUTE).op
        key = (position, end)
        owner = groups.get(key)
        if owner is None:
            members = _members(out.calls, host, busy, position, when, op)
            if not members:
                continue
            owner = groups[key] = members[0]
            busy.update(members)
            for member in members[1:]:
                out.calls[member].coalesced_into = owner
        out.call[row] = owner
        out.confidence[row] = LinkConfidence.ANNOTATION if end >= 0 else LinkConfidence.CONTAINMENT
        tied.add(row)
    return np.array([r for r in rows.tolist() if r not in tied], np.int64)


def _may_be_group(trace: RankTrace, kinds: DeviceKinds, launch: NDArray[np.int64], row: int) -> bool:
    found = kinds.classes.get(int(trace.device.name[row]), COMPUTE)
    return found.family in _LIBRARIES and "graph" not in trace.names[trace.host.name[launch[row]]].lower()


def _members(calls: list[Call], host: HostCalls, busy: set[int], position: int, when: int, op: str | None) -> list[int]:
    """Positions of the calls just before a launch that form its group, in call order."""
    found: list[int] = []
    track = host.roots.track[position] if position >= 0 else -1
    while position >= 0 and host.roots.track[position] == track and position not in busy:
        call = calls[position]
        fits = op is None or call.op in _RUNS.get(op, {op})
        same = not found or call.group_name == calls[found[0]].group_name
        near = call.call_end is not None and when - call.call_end <= REACH_NS
        if not (fits and same and near) or call.group_size == 1:
            break
        found.append(position)
        position -= 1
    return found[::-1]

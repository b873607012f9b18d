"""Calls of a recording as theory sees them: sizes, coalesced kernels, peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analysis.arrays import spill
from tracekit.analysis.expected.calls import Recording, read_calls
from tracekit.analysis.tables import from_rows

if TYPE_CHECKING:
    from pathlib import Path

BASE: dict[str, Any] = {
    "op_raw": "x", "ordinal": 0, "n_activities": 1, "link": "id", "strategy": "pp", "group_size": 4, "dur_ns": 10,
    "ts_ns": 5, "step": 0,
}  # fmt: skip


def _read(folder: Path, rows: list[dict[str, Any]], rank: int = 1) -> list[Any]:
    """Kind of each call, None for one inside another's kernel."""
    table = from_rows("collectives", [BASE | {"id": i} | r for i, r in enumerate(rows)])
    path = str(folder / "calls.arrow")
    spill(table, str(path))
    calls = read_calls(Recording(rank, {"collectives": path}, "one-rank"))
    return [calls.kinds[w] if w >= 0 else None for w in calls.which.tolist()]


def test_sizes_from_the_kernel_where_the_type_is_missing(tmp_path: Path) -> None:
    reduce = {
        "op": "all_reduce",
        "in_nelems": 100,
        "out_nelems": 100,
        "kernel": "ncclDevKernel_AllReduce_Sum_f16_RING_LL",
    }
    gather = {"op": "all_gather", "in_nelems": 100, "kernel": "ncclDevKernel_AllGather_RING_LL"}
    found = _read(tmp_path, [reduce, gather, reduce | {"payload_bytes": 7}])
    assert [k.payload for k in found] == [200, None, 7]


def test_messages_of_one_kernel_run_at_once(tmp_path: Path) -> None:
    send = {"op": "send", "src_rank": 1, "dst_rank": 2, "payload_bytes": 30}
    recv = {"op": "recv", "src_rank": 2, "dst_rank": 1, "payload_bytes": 50, "coalesced_into": 0}
    (owner, inside) = _read(tmp_path, [send, recv])
    assert inside is None
    assert (owner.payload, owner.peer) == (50, 2)
    # to another rank: neither end places it
    (owner, _) = _read(tmp_path, [send, recv | {"src_rank": 0}])
    assert owner.peer is None
    # a size that is not known leaves the sum unknown
    (owner, _) = _read(tmp_path, [send, recv | {"payload_bytes": None}])
    assert owner.payload is None


def test_gathers_of_one_kernel_add_up(tmp_path: Path) -> None:
    gather = {"op": "all_gather", "payload_bytes": 30}
    (owner, inside) = _read(tmp_path, [gather, gather | {"coalesced_into": 0}])
    assert (owner.payload, owner.peer, inside) == (60, None, None)
    (owner, _) = _read(tmp_path, [gather, gather | {"op": "reduce_scatter", "coalesced_into": 0}])
    assert owner.payload is None


def test_no_calls(tmp_path: Path) -> None:
    assert _read(tmp_path, []) == []

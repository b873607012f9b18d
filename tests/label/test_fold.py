"""Sends and receives of one launch that are an all-to-all, from every source that shows them singly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from flight_writer import Rank

from tracekit.label import load_rules
from tracekit.label.fold import fold_calls, is_all_to_all
from tracekit.label.witness import label_witness, no_activities
from tracekit.model import Call, TraceMeta, Witness, WitnessCall, WitnessGroup
from tracekit.parsers import parse_witness

if TYPE_CHECKING:
    from pathlib import Path

RULES = load_rules()


@pytest.mark.parametrize(
    ("own", "size", "sent", "received", "folds"),
    [
        (0, 2, {0, 1}, {0, 1}, True),
        (None, 2, {0, 1}, {0, 1}, True),  # all members on both sides: one of them is this process
        (0, 2, {1}, {1}, False),  # a pipeline's exchange with its only neighbour
        (1, 3, {0, 2}, {0, 2}, False),  # a pipeline's middle stage in its steady state
        (1, 4, {2}, {0}, False),  # a ring
        (1, 4, {0, 2, 3}, {0, 2, 3}, True),  # nothing for itself
        (1, 8, {1, 5}, {1, 2, 7}, True),  # experts: parts without tokens are left out
        (1, 8, {5}, {1, 2, 7}, False),
        (0, 4, {1, 2, 3}, set(), False),  # a scatter
        (0, None, {1, 2, 3}, {1, 2, 3}, False),  # members are not known
    ],
)
def test_which_peers_make_an_all_to_all(
    own: int | None, size: int | None, sent: set[int], received: set[int], folds: bool
) -> None:
    assert is_all_to_all(own, size, sent, received) is folds


def transfers(*pairs: tuple[str, int, int], seq: int = 3) -> list[WitnessCall]:
    return [
        WitnessCall(op, "c", p2p_seq=seq, op_id=seq, is_p2p=True, in_nelems=n, out_nelems=n, dtype="Float", peer=peer)
        for op, peer, n in pairs
    ]


def test_a_log_shows_an_all_to_all_with_its_parts() -> None:
    group = WitnessGroup("c", size=3, own=1, ranks=(4, 5, 6), comm_hash="0x1")
    calls = transfers(("Send", 0, 7), ("Recv", 0, 1), ("Send", 1, 2), ("Recv", 1, 2), ("Recv", 2, 5))
    pipeline = transfers(("Send", 2, 9), ("Recv", 0, 9), seq=4)
    witness = Witness(TraceMeta("log", rank=5), "nccl-log", [group], [*calls, *pipeline])
    one, send, recv = label_witness(witness, RULES).calls
    assert (one.op, one.op_raw, one.in_nelems, one.out_nelems) == ("all_to_all", "Send+Recv", 9, 8)
    assert (one.in_splits, one.out_splits, one.payload_bytes, one.dst_rank) == ("[7, 2, 0]", "[1, 2, 5]", 36, None)
    assert (send.op, send.dst_rank, recv.op, recv.src_rank) == ("send", 6, "recv", 4)


def test_a_flight_recorder_shows_one_where_its_calls_share_a_number(tmp_path: Path) -> None:
    rank = Rank(0, ("1", "mesh_ep", (0, 1)), world=2)
    for op in ("send 0->0", "recv 0<-0", "send 0->1", "recv 0<-1"):
        rank.call("1", op, p2p_seq_id=5)
    rank.call("1", "coalesced").call("1", "send 0->1", p2p_seq_id=6)
    (witness,) = parse_witness(rank.write(tmp_path))
    labelled = label_witness(witness, RULES)
    assert [(c.op, c.in_nelems, c.out_nelems) for c in labelled.calls] == [("all_to_all", 64, 64), ("send", 32, 32)]
    assert {h.reason: h.count for h in labelled.health}["sends and receives that are part of an all-to-all"] == 3


def test_a_hang_is_looked_at_transfer_by_transfer(tmp_path: Path) -> None:
    from tracekit.ingest.hanging import post_mortem

    for r in range(2):
        rank = Rank(r, ("1", "mesh_ep", (0, 1)), world=2)
        for op in (f"send {r}->{r}", f"recv {r}<-{r}", f"send {r}->{1 - r}"):
            rank.call("1", op, p2p_seq_id=5, state="started")
        if r == 0:
            rank.call("1", "recv 0<-1", p2p_seq_id=5, state="started")
        rank.write(tmp_path)
    assert post_mortem([tmp_path])["hung"]


def traced(*pairs: tuple[str, int, int], group: tuple[int, ...]) -> list[Call]:
    out = []
    for i, (op, peer, n) in enumerate(pairs):
        side = {"dst_rank": peer} if op == "send" else {"src_rank": peer}
        out.append(
            Call(op, op, group_size=len(group), members=group, in_nelems=n, out_nelems=n, payload_bytes=4 * n,
                 dtype="Float", coalesced_into=0 if i else None, **side)  # type: ignore[arg-type]
        )  # fmt: skip
    return out


def test_a_trace_shows_one_where_calls_share_a_kernel() -> None:
    calls = traced(("send", 4, 1), ("recv", 4, 1), ("send", 6, 3), ("recv", 6, 2), group=(4, 6))
    after = Call("all_reduce", "allreduce")
    activities = no_activities()
    import numpy as np

    activities.call = np.array([0, 4, -1], np.int32)
    one, other = fold_calls([*calls, after], 4, activities)
    assert (one.op, one.in_nelems, one.out_nelems, one.payload_bytes) == ("all_to_all", 4, 3, 16)
    assert (one.in_splits, one.out_splits) == ("[1, 3]", "[1, 2]")
    assert other is after
    assert activities.call.tolist() == [0, 1, -1]


def test_a_pipelines_exchange_stays_two_calls() -> None:
    calls = traced(("send", 6, 3), ("recv", 6, 3), group=(4, 6))
    assert fold_calls(calls, 4, no_activities()) is calls

"""Communication calls of traces with device work."""

from __future__ import annotations

from pathlib import Path

import pytest
from label_builder import TraceBuilder, collective, record

from tracekit.label import label_rank, load_rules
from tracekit.label.groups import Groups
from tracekit.model import Call, CommArgs, CommRecords, Kind, LabelledRank, LinkConfidence, ProcessGroup, TraceMeta
from tracekit.parsers import parse

RULES = load_rules()
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)"
SEND_RECV = "ncclDevKernel_SendRecv(int)"


def run(b: TraceBuilder) -> LabelledRank:
    return label_rank(b.build(), RULES)


def calls(b: TraceBuilder) -> list[Call]:
    return run(b).calls


def test_one_call_from_operator_record_and_annotation():
    b = TraceBuilder(world_size=4, groups=(ProcessGroup("3", "mesh_tp", 2, (1, 3)),)).note(0, 500, "scope")
    [call] = calls(collective(b, 10, 5, ALL_REDUCE, op="allreduce", n=1000, seq=9, pg_desc="mesh_tp"))
    assert (call.op, call.op_raw, call.call_ts, call.ts, call.dur) == (
        "all_reduce",
        "allreduce",
        10_000,
        60_000,
        20_000,
    )
    assert (call.group_name, call.group_desc, call.group_size, call.members) == ("3", "mesh_tp", 2, (1, 3))
    assert (call.in_nelems, call.dtype, call.payload_bytes, call.seq) == (1000, "Float", 4000, 9)
    assert (call.n_activities, call.family, call.link, call.stream) == (1, "nccl", LinkConfidence.ID, 20)
    assert (call.scopes, call.via) == (("scope",), ("c10d::allreduce_",))


def test_waiting_and_initialisation_are_no_calls():
    b = collective(TraceBuilder(), 10, 5, ALL_REDUCE)
    b.op(70, 4, "record_param_comms", args=record("wait", 0, group_size=1))
    b.op(80, 4, "record_param_comms", args=record("init", 0))
    b.op(90, 4, "_c10d_functional::wait_tensor").op(91, 2, "record_param_comms", args={})
    assert [c.op for c in calls(b)] == ["all_reduce"]


def test_a_barrier_counts_once_although_it_records_an_all_reduce():
    b = (
        TraceBuilder()
        .op(0, 60, "c10d::barrier")
        .op(1, 58, "record_param_comms", args=record("barrier", 0, dtype="Byte"))
    )
    b.op(5, 50, "c10d::allreduce_").op(6, 48, "record_param_comms", args=record("allreduce", 1))
    [call] = calls(b.call(20, 5, corr=1).kernel(40, 5, ALL_REDUCE, corr=1))
    assert (call.op, call.call_ts, call.n_activities, call.label.strategy) == (
        "barrier",
        0,
        1,
        "housekeeping",
    )


def test_an_uneven_all_gather_is_one_call_with_many_kernels():
    b = TraceBuilder().op(0, 200, "c10d::allgather_").op(1, 198, "record_param_comms", args=record("all_gather"))
    for i in range(4):
        b.op(10 + 40 * i, 30, "record_param_comms", args=record("_broadcast_oop"))
        b.call(20 + 40 * i, 5, corr=i).kernel(300 + 10 * i, 8, "ncclDevKernel_Broadcast_RING_LL(int)", corr=i)
    [call] = calls(b)
    assert (call.op, call.n_activities, call.ts, call.dur) == ("all_gather", 4, 300_000, 38_000)


def p2p(b: TraceBuilder, ts: float, op: str, peer: int, **more: object) -> TraceBuilder:
    b.op(ts, 8, "c10d::send" if op == "send" else "c10d::recv_")
    return b.op(ts + 1, 6, "record_param_comms", args=record(op, 512, rank=peer, pg_name="9", **more))


@pytest.mark.parametrize("marked", [True, False])
def test_a_coalesced_group_is_many_calls_and_one_kernel(marked):
    b = p2p(p2p(TraceBuilder(), 0, "send", 1), 10, "recv", 0)
    if marked:
        b.note(30, 20, "nccl:coalesced")
    out = run(b.call(35, 5, corr=1).kernel(60, 30, SEND_RECV, corr=1))
    first, second = out.calls
    assert [(c.op, c.n_activities, c.coalesced_into) for c in out.calls] == [
        ("send", 1, None),
        ("recv", 0, 0),
    ]
    assert (first.ts, first.dur) == (second.ts, second.dur) == (60_000, 30_000)
    assert first.link == (LinkConfidence.ANNOTATION if marked else LinkConfidence.CONTAINMENT)
    assert (first.dst_rank, second.src_rank) == (1, 0)
    assert out.activities.call.tolist() == [0]


def test_a_group_does_not_swallow_earlier_calls_nor_other_kinds():
    b = collective(TraceBuilder(), 0, 10, ALL_REDUCE)
    b.op(100, 8, "c10d::allreduce_").op(101, 6, "record_param_comms", args=record("allreduce", group_size=1))
    p2p(p2p(b, 200, "send", 1), 210, "recv", 1)
    b.call(230, 5, corr=50).kernel(300, 30, SEND_RECV, corr=50)
    assert [(c.op, c.n_activities, c.coalesced_into) for c in calls(b)] == [
        ("all_reduce", 1, None), ("all_reduce", 0, None), ("send", 1, None), ("recv", 0, 2),
    ]  # fmt: skip


def test_old_records_without_arguments():
    concrete = ["", "337", "93825114103440", "0", "", "[]", "[]", "8"]
    types = ["TensorList", "Scalar", "Scalar", "Scalar", "", "ScalarList", "ScalarList", "Scalar"]
    old = {"dims": [[[4, 8]], [], [], [], [], [], [], []], "types": types, "concrete": concrete}
    b = TraceBuilder(world_size=8).op(
        0, 50, "c10d::allreduce_", args={"dims": [[[4, 8]], []], "types": ["TensorList", ""]}
    )
    b.op(1, 48, "record_param_comms", args=old).note(2, 40, "nccl:all_reduce").op(70, 4, "record_param_comms", args={})
    [call] = calls(b.call(20, 5, corr=1).kernel(60, 5, ALL_REDUCE, corr=1))
    assert (call.op, call.seq, call.group_size, call.members) == ("all_reduce", 337, 8, tuple(range(8)))
    assert (call.in_nelems, call.dtype, call.payload_bytes) == (32, None, None)


def test_a_record_with_no_operator_takes_its_annotation():
    b = TraceBuilder().op(0, 50, "record_param_comms", args={}).note(2, 40, "nccl:all_to_all")
    [call] = calls(b.call(20, 5, corr=1).kernel(60, 5, SEND_RECV, corr=1))
    assert (call.op, call.op_raw, call.call_ts) == ("all_to_all", "nccl:all_to_all", 0)


def test_an_annotation_alone_is_a_call():
    b = TraceBuilder().note(2, 40, "nccl:send 0->1")
    assert [c.op for c in calls(b.call(20, 5, corr=1).kernel(60, 5, SEND_RECV, corr=1))] == ["send"]


def test_a_call_without_any_kernel_stays():
    [call] = calls(TraceBuilder().op(0, 9, "c10d::allreduce_").kernel(50, 5, "gemm"))
    assert (call.n_activities, call.ts, call.dur, call.device, call.link) == (
        0,
        None,
        None,
        None,
        LinkConfidence.NONE,
    )


def test_graph_replay_gives_one_call_a_kernel():
    b = TraceBuilder().call(0, 5, "cudaGraphLaunch", corr=1)
    for i in range(3):
        b.kernel(20 + 10 * i, 5, ALL_REDUCE, corr=1).kernel(26 + 10 * i, 3, "gemm", corr=1)
    found = calls(b)
    assert [(c.op, c.call_ts, c.ts, c.link) for c in found] == [
        ("all_reduce", 0, 20_000 + 10_000 * i, LinkConfidence.ID) for i in range(3)
    ]
    assert [c.ordinal for c in found] == [0, 1, 2]


def test_an_engine_operator_is_one_call_for_all_its_kernels():
    b = TraceBuilder().op(0, 50, "vllm::all_reduce").op(5, 40, "symm_mem::multimem_all_reduce_")
    b.call(10, 5, corr=1).call(20, 5, corr=2)
    b.kernel(60, 5, "barrier_kernel(int)", corr=1).kernel(70, 9, "multimem_all_reduce_kernel<4>(int)", corr=2)
    [call] = calls(b)
    assert (call.op, call.op_raw, call.n_activities, call.family) == (
        "all_reduce",
        "vllm::all_reduce",
        2,
        "symm_mem",
    )


def test_a_kernel_without_launch_speaks_through_its_own_arguments():
    [call] = calls(TraceBuilder().op(0, 1, "x").kernel(60, 5, SEND_RECV, args=record("all_to_allv", 64)))
    assert (call.op, call.call_ts, call.group_name, call.payload_bytes) == ("all_to_all", None, "3", 256)


def test_a_kernel_launched_by_another_thread_finds_its_record_by_number():
    b = TraceBuilder().op(0, 9, "c10d::allreduce_").op(1, 7, "record_param_comms", args=record(seq=4))
    b.call(20, 5, corr=1, thread="helper").kernel(60, 5, ALL_REDUCE, corr=1, args=record(seq=4))
    [call] = calls(b)
    assert (call.call_ts, call.n_activities) == (0, 1)


@pytest.mark.parametrize(
    ("peer", "name", "kind", "n"),
    [(1, "Memcpy PtoP (Device -> Device)", Kind.COMM, 1), (0, "Memcpy DtoD (Device -> Device)", Kind.COPY, 0),
     (0, "Memcpy HtoD (Pinned -> Device)", Kind.COPY, 0)],
)  # fmt: skip
def test_only_a_peer_copy_inside_a_call_is_traffic(peer, name, kind, n):
    b = (
        TraceBuilder()
        .op(0, 50, "c10d::_allgather_base_")
        .op(1, 48, "record_param_comms", args=record("_allgather_base"))
    )
    out = run(b.call(20, 5, "cudaMemcpyAsync", corr=1).copy(60, 5, name, corr=1, peer=peer))
    assert out.activities.kind.tolist() == [kind]
    assert (out.calls[0].n_activities, out.calls[0].family) == (n, "copy_engine" if n else None)


def test_a_peer_copy_outside_of_any_call_is_a_copy():
    out = run(TraceBuilder().op(0, 50, "aten::copy_").call(20, 5, corr=1).copy(60, 5, "Memcpy PtoP", corr=1, peer=1))
    assert (out.calls, out.activities.kind.tolist()) == ([], [Kind.COPY])


def test_a_size_one_group_is_a_record_without_traffic():
    b = TraceBuilder(rank=3).op(0, 9, "c10d::allreduce_")
    [call] = calls(
        b.op(1, 7, "record_param_comms", args=record(group_size=1, rank_start=3, rank_stride=None)).kernel(50, 5, "k")
    )
    assert (call.group_size, call.members, call.n_activities) == (1, (3,), 0)


@pytest.mark.parametrize(
    ("args", "want"),
    [
        ({"pg_name": "5", "group_size": 3}, (0, 1, 3)),
        (
            {"pg_name": "5", "group_size": 3, "rank_start": -1, "rank_stride": -1, "ranks_text": "[]"},
            (0, 1, 3),
        ),
        ({"pg_name": "6", "group_size": 3, "rank_start": 2, "rank_stride": 4}, (2, 6, 10)),
        ({"pg_name": "6", "group_size": 2, "ranks_text": "[4, 9]"}, (4, 9)),
        ({"pg_name": "6", "group_size": 40, "ranks_text": "[0, 1, ..., 39]"}, None),
        ({"pg_name": "6", "group_size": 3, "ranks_text": "[4, 9]"}, None),
        ({"pg_name": "5", "group_size": 4, "ranks_text": "[1, 2, 3, 4]"}, (1, 2, 3, 4)),
        ({"pg_name": "6", "group_size": 64}, tuple(range(64))),
    ],
)
def test_members_of_a_group(args, want):
    groups = Groups(TraceMeta("t", world_size=64, groups=(ProcessGroup("5", "odd", 3, (0, 1, 3)),)))
    assert groups.resolve(CommArgs(**args)).members == want


def test_an_empty_description_is_read_from_the_metadata():
    groups = Groups(TraceMeta("test", groups=(ProcessGroup("5", "mesh_ep", 2, (0, 1)),)))
    assert groups.resolve(CommArgs(pg_name="5", pg_desc="", group_size=2)).desc == "mesh_ep"


def test_ranks_beyond_reason_are_not_counted_out():
    args = CommArgs(group_size=10**9, rank_start=10**20, rank_stride=10**20)
    assert Groups(TraceMeta("test")).resolve(args).members is None


def test_ordinals_count_within_a_group():
    b = TraceBuilder()
    for i, pg in enumerate("aabab"):
        collective(b, 100 * i, 10 * i + 1, ALL_REDUCE, pg_name=pg)
    assert [(c.group_name, c.ordinal) for c in calls(b)] == [("a", 0), ("a", 1), ("b", 0), ("a", 2), ("b", 1)]


def test_activities_know_their_call_and_launch():
    out = run(collective(TraceBuilder(), 10, 5, ALL_REDUCE).kernel(5, 3, "gemm"))
    a = out.activities
    assert (a.call.tolist(), a.kind.tolist()) == ([-1, 0], [Kind.COMPUTE, Kind.COMM])
    assert a.launch_ts.tolist()[1] == 20_000
    assert [a.families[i] if i >= 0 else None for i in a.family] == [None, "nccl"]


def test_a_name_that_only_sounds_like_communication_is_reported():
    out = run(TraceBuilder().kernel(0, 5, "moe_token_dispatch_kernel(int)"))
    assert [h.example for h in out.health if "sounds like" in h.reason] == ["moe_token_dispatch_kernel(int)"]


@pytest.mark.parametrize("sample", ["gpu-tp2-pp2-dp2", "gloo-fsdp2"])
def test_records_that_know_their_kinds_give_the_calls_that_records_by_themselves_give(sample: str) -> None:
    [trace] = parse(Path(__file__).resolve().parents[2] / "sample_traces" / sample / "rank1.json.gz")
    assert isinstance(trace.comm, CommRecords)
    by_kind = label_rank(trace, RULES).calls
    trace.comm = list(trace.comm)
    assert by_kind
    assert label_rank(trace, RULES).calls == by_kind

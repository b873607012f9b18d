"""Traps of experts, context and serving: what looks alike and is not, or cannot be known."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from label_builder import TraceBuilder
from micro import RULES, Micro
from rows import micro

from tracekit.label import label_rank
from tracekit.model import Kind
from tracekit.parsers import parse

if TYPE_CHECKING:
    from pathlib import Path

FOUR = {"group_size": 4, "rank_start": 0, "rank_stride": 1, "ranks_text": "[0, 1, 2, 3]"}


def test_trap_4_torchs_ring_is_an_all_to_all_or_a_gather() -> None:
    frame = ("torch/distributed/tensor/experimental/_attention.py(310): _templated_ring_attention",)
    calls = Micro().call("all_to_allv", frames=frame, in_splits="[0, 9, 0, 0]", out_splits="[0, 0, 0, 9]", **FOUR)
    calls.call("allgather_into_tensor_coalesced", frames=frame, **FOUR)
    assert [(x.strategy, x.variant) for x in calls.labels()] == [("cp", "ring-a2a"), ("cp", "allgather")]


@pytest.mark.parametrize(
    ("given", "taken", "strategy"),
    [
        ("[]", "[]", "unknown"),
        ("[64, 64]", "[64, 64]", "unknown"),
        ("[60, 68]", "[64, 64]", "ep"),
        ("[61440, 69632]", "[65536, 65536]", "ep"),
    ],
    ids=["equal, not recorded", "equal", "rows", "elements, as nccl2 writes them"],
)
def test_trap_5_the_v_of_all_to_allv_says_nothing(given: str, taken: str, strategy: str) -> None:
    calls = micro(("_ReduceFromModelParallelRegion",))
    label = calls.call("all_to_allv", scopes=("_AllToAll",), in_splits=given, out_splits=taken).labels()[-1]
    assert label.strategy == strategy


@pytest.mark.parametrize(
    ("node", "op", "framework", "strategy", "tier"),
    [
        ("_AllToAll", "all_to_allv", "_GatherTokens", "ep", "B"),
        ("_AllToAll", "all_to_allv", "MatmulWithAsyncCommunication", "cp", "B"),
        ("_AllToAll", "all_to_allv", "aten::mm", "unknown", None),
        ("SeqAllToAll", "all_to_all", "aten::mm", "cp", "A"),
        ("RingFlashAttnFunc", "send", "aten::mm", "cp", "A"),
    ],
)
def test_trap_6_one_class_name_in_several_frameworks(
    node: str, op: str, framework: str, strategy: str, tier: str | None
) -> None:
    label = micro((framework,)).call(op, scopes=(node,), dst_rank=1 if op == "send" else None).labels()[-1]
    assert (label.strategy, label.tier) == (strategy, tier)


def test_trap_6_two_frameworks_at_once_leave_the_node_undecided() -> None:
    both = micro(("_GatherTokens", "MatmulWithAsyncCommunication"))
    assert both.call("all_to_allv", scopes=("_AllToAll",)).labels()[-1].strategy == "unknown"


@pytest.mark.parametrize("desc", ["TENSOR_AND_CONTEXT_PARALLEL_GROUP", "TENSOR_MODEL_PARALLEL_GROUP", "undefined"])
def test_trap_7_integers_in_the_activation_reduction_are_counts(desc: str) -> None:
    [label] = Micro().call("allreduce", scopes=("_ReduceFromModelParallelRegion",), pg_desc=desc, dtype="Long").labels()
    assert (label.strategy, label.tier) == ("housekeeping", "A")


@pytest.mark.parametrize("desc", ["TENSOR_MODEL_PARALLEL_GROUP", "undefined"])
def test_trap_7_floats_in_it_are_activations(desc: str) -> None:
    how = {"scopes": ("_ReduceFromModelParallelRegion",), "dtype": "BFloat16"}
    [label] = Micro().call("allreduce", pg_desc=desc, **how).labels()
    assert (label.strategy, label.tier) == ("tp", "A")


NCCL2 = [
    ("reduceScatterSingleImpl", "reduce_scatter", "c10d::_reduce_scatter_base_"),
    ("allGatherSingleImpl", "all_gather", "c10d::_allgather_base_"),
    ("allToAllSingleImpl", "all_to_all", "c10d::alltoall_base_"),
    ("all_to_all_v_single", "all_to_all", "c10d::alltoall_base_"),
    ("sendImpl", "send", "c10d::send"),
    ("recvImpl", "recv", "c10d::recv_"),
    ("allReduceImpl", "all_reduce", "c10d::allreduce_"),
]


@pytest.mark.parametrize(("word", "op", "operator"), NCCL2)
def test_trap_12_vocabulary_of_nccl2(word: str, op: str, operator: str) -> None:
    how = {"rank_start": -1, "rank_stride": -1, "ranks_text": None, "pg_desc": ""}
    [call] = Micro().call(word, operator=operator, **how).calls()
    assert (call.op, call.op_raw, call.members) == (op, word, None)


def test_trap_12_rules_hold_for_the_new_words() -> None:
    [label] = Micro().call("allToAllSingleImpl", operator="c10d::alltoall_base_", scopes=("_SeqAllToAll",)).labels()
    assert (label.strategy, label.tier) == ("cp", "A")


def test_trap_14_fused_kernels_are_neither_pure_communication_nor_compute() -> None:
    calls = Micro().bare("void allreduce_fusion_kernel_oneshot_lamport<1, half>(int)", scopes=("vllm::all_reduce",))
    out = label_rank(calls.b.build(), RULES)
    assert out.activities.kind.tolist() == [int(Kind.FUSED)]
    assert [c.label.strategy for c in out.calls] == ["tp"]


def test_trap_15_stacks_with_raw_bytes_are_read_and_labelled(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "_SeqAllToAll", "pid": 1, "tid": 1, "ts": 1, "dur": 90},
        {"ph": "X", "cat": "cpu_op", "name": "c10d::alltoall_base_", "pid": 1, "tid": 1, "ts": 5, "dur": 50,
         "args": {"Call stack": "STACK", "External id": 7}},
        {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 1, "ts": 6, "dur": 40,
         "args": {"Collective name": "all_to_allv", "dtype": "Float", "In msg nelems": 64, "Out msg nelems": 64,
                  "Group size": 2, "External id": 8}},
    ]  # fmt: skip
    text = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(text.replace(b"STACK", b"a.py(3): f\xff\xfe\x01;b.py(4): g"), mtime=0))
    [trace] = parse(path)
    [call] = label_rank(trace, RULES).calls
    assert (call.op, call.label.strategy, call.label.tier) == ("all_to_all", "cp", "A")


def test_trap_16_workers_of_gloo_lend_no_scopes() -> None:
    b = TraceBuilder()
    b.op(0, 100, "_SeqAllToAll", thread="main").op(10, 20, "c10d::alltoall_base_", thread="main")
    b.note(0, 400, "ring_attention", thread="pt_gloo_runloop")
    b.note(15, 200, "gloo:all_to_all", thread="pt_gloo_runloop")
    [call] = label_rank(b.build(), RULES).calls
    assert (call.scopes, call.label.strategy) == (("_SeqAllToAll",), "cp")


def test_trap_16_overlapping_workers_keep_their_calls_apart() -> None:
    b = TraceBuilder()
    for i, node in enumerate(("_SeqAllToAll", "AllToAllUneven")):
        b.op(100 * i, 50, node, thread="main").op(100 * i + 10, 20, "c10d::alltoall_base_", thread="main")
        b.note(20 + 100 * i, 300, "gloo:all_to_all", thread=f"worker {i}")
    calls = label_rank(b.build(), RULES).calls
    assert [(c.label.strategy, c.dur) for c in calls] == [("cp", 300_000), ("ep", 300_000)]


def test_sglang_aliases_leave_gathers_on_the_tensor_group_open() -> None:
    calls = micro(("step[DECODE bs=4]",))
    label = calls.call("_allgather_base", pg_desc="tp:device").labels()[-1]
    assert label.strategy == "unknown"
    assert {"tp", "ep"} <= {s for s, _ in label.alternatives}


def test_a_described_group_of_one_engine_does_not_make_it_another() -> None:
    label = Micro().call("allreduce", pg_desc="tp:device").labels()[0]
    assert label.tier not in ("A", "B"), label.rule


def test_labels_do_not_depend_on_the_order_of_the_calls() -> None:
    rows = [("all_to_allv", {"in_splits": "[0, 9, 0, 0]", "out_splits": "[0, 0, 0, 9]", **FOUR})] * 2
    rows += [("all_to_allv", {"pg_name": "9", "in_splits": "[5, 4]", "out_splits": "[3, 6]"}),
             ("all_to_allv", {"pg_name": "9", "dtype": "Long", "n": 8})]  # fmt: skip
    seen = []
    for order in (np.arange(4), np.arange(4)[::-1]):
        calls = Micro()
        for i in order.tolist():
            calls.call(rows[i][0], **rows[i][1])
        seen.append(sorted((x.strategy, x.tier or "", x.variant or "") for x in calls.labels()))
    assert seen[0] == seen[1]

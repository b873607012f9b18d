"""Combination, conflict and unknown; what single rules conclude."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from label_builder import TraceBuilder, collective

from tracekit.label import explain_call, label_rank, load_rules
from tracekit.label.engine import Candidate, decide, ndim
from tracekit.model import Call, Fired, Label

if TYPE_CHECKING:
    from pathlib import Path

RULES = load_rules()
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def labelled(scopes: tuple[str, ...] = (), *, rules=RULES, operator: str = "c10d::x", **args: object) -> Label:
    operators = {
        "allreduce": "c10d::allreduce_",
        "_allgather_base": "c10d::_allgather_base_",
        "_reduce_scatter_base": "c10d::_reduce_scatter_base_",
        "all_to_allv": "c10d::alltoall_base_",
        "barrier": "c10d::barrier",
        "broadcast": "c10d::broadcast_",
        "send": "c10d::send",
        "recv": "c10d::recv_",
    }
    b = TraceBuilder()
    for i, scope in enumerate(scopes):
        b.note(i, 900 - 2 * i, scope)
    collective(b, 100, 5, "ncclDevKernel_Generic(int)", operators[str(args.get("op", "allreduce"))], **args)
    [call] = label_rank(b.build(), rules).calls
    return call.label


@pytest.mark.parametrize(
    ("desc", "op", "strategy", "axes"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "allreduce", "tp", "tp"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "_reduce_scatter_base", "sp", "tp"),
        ("CONTEXT_PARALLEL_GROUP", "send", "cp", "cp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "send", "pp", "pp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "all_to_allv", "ep", "ep"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "_reduce_scatter_base", "etp", "etp"),
        ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", "all_to_allv", "ep", "etp+ep"),
        ("EMBEDDING_GROUP", "allreduce", "embedding", "embedding"),
        ("MODEL_PARALLEL_GROUP", "allreduce", "housekeeping", "tp+pp"),
        ("DATA_PARALLEL_GROUP_GLOO", "allreduce", "housekeeping", None),
        ("mesh_tp", "allreduce", "tp", "tp"),
        ("mesh_cp", "all_to_allv", "cp", "cp"),
        ("mesh_pp", "recv", "pp", "pp"),
        ("mesh_ep", "all_to_allv", "ep", "ep"),
        ("mesh_sp", "all_to_allv", "cp", "cp"),
        ("mesh_loss_mesh", "allreduce", "housekeeping", "dp+cp"),
        ("moe_ep:device", "all_to_allv", "ep", "ep"),
        ("eplb:device", "send", "eplb", None),
        ("tp:cpu", "broadcast", "housekeeping", None),
    ],
)
def test_a_description_of_one_duty_decides(desc, op, strategy, axes):
    label = labelled(op=op, pg_desc=desc)
    assert (label.strategy, label.axes) == (strategy, axes)
    assert label.tier == "A"
    assert label.confidence >= 0.9


@pytest.mark.parametrize("desc", ["default_pg", "mesh_default", "undefined", "tp:device", "DATA_PARALLEL_GROUP_WITH_CP",
                                  "TENSOR_AND_CONTEXT_PARALLEL_GROUP", "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP",
                                  "mesh_dp_shard_cp", "mesh_dp_replicate"])  # fmt: skip
def test_a_group_of_several_duties_never_decides_alone(desc):
    label = labelled(op="_allgather_base", pg_desc=desc)
    assert (label.strategy, label.tier, label.rule) == ("unknown", None, None)


def test_the_axes_of_an_undecided_group_are_kept_with_what_it_may_serve():
    label = labelled(op="_reduce_scatter_base", pg_desc="DATA_PARALLEL_GROUP_WITH_CP")
    assert label.axes == "dp+cp"
    assert [s for s, _ in label.alternatives] == ["dp", "zero1", "zero3"]


@pytest.mark.parametrize(
    ("scopes", "op", "strategy", "purpose", "phase"),
    [
        (("FSDP::pre_forward (l0)", "FSDP::all_gather (l0)"), "_allgather_base", "zero3", "param_gather", "forward"),
        (("FSDP::pre_backward (l1)", "FSDP::all_gather (l0)"), "_allgather_base", "zero3", "param_gather", "backward"),
        (("FSDP::root_post_backward_callback", "FSDP::post_backward_reduce (l0)"), "_reduce_scatter_base", "zero3",
         "grad_reduce", "backward"),
        (("FSDP::post_backward_reduce (l0)",), "allreduce", "dp", "grad_reduce", "backward"),
        (("FullyShardedDataParallel._pre_forward",), "_allgather_base", "zero3", "param_gather", "forward"),
        ((ACCUMULATE, "FullyShardedDataParallel._post_backward_hook"),
         "_reduce_scatter_base", "zero3", "grad_reduce", "backward"),
        (("PP:0F1", "PP:0SEND_F1"), "send", "pp", "stage_transfer", "forward"),
        (("PP:2RECV_B1",), "recv", "pp", "stage_transfer", "backward"),
        ((ACCUMULATE,), "allreduce", "dp", "grad_reduce", "backward"),
        (("Optimizer.step#ZeroRedundancyOptimizer.step",), "broadcast", "zero1", "param_gather", "optimizer"),
        (("AttnFuncWithCPAndKVP2P",), "send", "cp", "kv_exchange", None),
        (("_SeqAllToAll",), "all_to_allv", "cp", "kv_exchange", "forward"),
        (("_GatherFromSequenceParallelRegion",), "_allgather_base", "sp", "activation", "forward"),
        (("_ReduceFromModelParallelRegion",), "allreduce", "tp", "activation", "forward"),
        (("FusedDispatch",), "all_to_allv", "ep", "token_dispatch", "forward"),
        (("DistributedDataParallel.forward",), "allreduce", "unknown", None, None),
        (("_AllToAll",), "all_to_allv", "unknown", None, None),
        (("## forward ##", "dispatch(F)"), "all_to_allv", "unknown", None, None),
    ],
)  # fmt: skip
def test_scopes(scopes, op, strategy, purpose, phase):
    label = labelled(scopes, op=op, pg_desc="default_pg")
    assert (label.strategy, label.purpose, label.phase) == (strategy, purpose, phase)


def test_the_nearest_scope_wins():
    label = labelled(("PP:0F1", "FSDP::pre_forward (l0)", "FSDP::all_gather (l0)"), op="_allgather_base")
    assert label.strategy == "zero3"


def test_axis_and_purpose_do_not_conflict():
    label = labelled(("aten::linalg_vector_norm",), n=1, pg_desc="mesh_tp")
    assert (label.strategy, label.axes, label.purpose) == ("housekeeping", "tp", "metric")


def test_one_number_is_bookkeeping():
    label = labelled(n=1, pg_desc="default_pg")
    assert (label.strategy, label.purpose, label.tier) == ("housekeeping", "metric", "C")


def test_a_barrier_is_bookkeeping_on_any_group():
    assert labelled(op="barrier", n=0, pg_desc="EXPERT_MODEL_PARALLEL_GROUP").strategy == "housekeeping"


def test_two_decisive_rules_that_disagree_conflict():
    label = labelled(("AttnFuncWithCPAndQKVOA2A",), op="all_to_allv", pg_desc="EXPERT_MODEL_PARALLEL_GROUP")
    assert label.strategy == "conflict"
    assert {s for s, _ in label.alternatives} == {"cp", "ep"}


@pytest.mark.parametrize(
    ("backward", "modules", "strategy"), [(False, 2, "zero2"), (True, 2, "zero3"), (False, 1, "zero3")]
)
def test_gathers_in_the_forward_only_tell_zero2(backward, modules, strategy):
    b = TraceBuilder()
    for i in range(modules):
        b.note(1000 * i, 900, f"FSDP::all_gather (l{i})").note(1000 * i, 950, f"FSDP::pre_forward (l{i})")
        collective(
            b,
            1000 * i + 10,
            10 * i + 1,
            "ncclDevKernel_AllGather(int)",
            "c10d::_allgather_base_",
            op="_allgather_base",
        )
    if backward:
        b.note(5000, 950, "FSDP::pre_backward (l0)").note(5010, 900, "FSDP::all_gather (l0)")
        collective(b, 5020, 91, "ncclDevKernel_AllGather(int)", "c10d::_allgather_base_", op="_allgather_base")
    b.note(8000, 900, "FSDP::post_backward_reduce (l0)")
    collective(
        b,
        8010,
        95,
        "ncclDevKernel_ReduceScatter(int)",
        "c10d::_reduce_scatter_base_",
        op="_reduce_scatter_base",
    )
    assert {c.label.strategy for c in label_rank(b.build(), RULES).calls} == {strategy}


def test_kernels_of_an_expert_library():
    b = (
        TraceBuilder()
        .call(0, 5, "cudaGraphLaunch", corr=1)
        .kernel(9, 5, "void deep_ep::internode_ll::dispatch<3>(int)", corr=1)
    )
    [call] = label_rank(b.kernel(20, 5, "void gemm(int)", corr=1).build(), RULES).calls
    assert (call.label.strategy, call.label.purpose, call.label.tier) == ("ep", "token_dispatch", "A")


def test_calls_with_equal_evidence_share_one_label():
    b = TraceBuilder()
    for i in range(5):
        collective(b, 100 * i, 10 * i + 1, "ncclDevKernel_Generic(int)", pg_desc="mesh_tp")
    assert len({id(c.label) for c in label_rank(b.build(), RULES).calls}) == 1


def test_explain_names_winners_losers_and_what_they_saw():
    b = (
        TraceBuilder()
        .note(0, 900, "PP:0F1")
        .note(1, 890, "FSDP::pre_forward (l0)")
        .note(2, 880, "FSDP::all_gather (l0)")
    )
    collective(
        b,
        100,
        5,
        "ncclDevKernel_Generic(int)",
        "c10d::_allgather_base_",
        op="_allgather_base",
        pg_desc="mesh_dp_shard",
    )
    [call] = label_rank(b.build(), RULES).calls
    text = "\n".join(explain_call(call))
    assert "won         strategy = zero3" in text
    assert "scope FSDP::all_gather (l0)" in text
    assert "group description mesh_dp_shard" in text


def test_explain_says_that_nothing_fired():
    b = collective(
        TraceBuilder(), 0, 5, "ncclDevKernel_Generic(int)", "c10d::gather_", op="gather", pg_desc="default_pg"
    )
    [call] = label_rank(b.build(), RULES).calls
    assert explain_call(call)[0].startswith("no rule fired")


def candidate(value: str, tier: str, confidence: float, depth: int = -1) -> Candidate:
    return Candidate(Fired(f"{value}{tier}", "strategy", value, tier, confidence, ""), depth, multi_duty=False)


@pytest.mark.parametrize(
    ("candidates", "value"),
    [
        ([], None),
        ([("tp", "A", 0.95)], "tp"),
        ([("tp", "A", 0.95), ("tp", "B", 0.8), ("dp", "B", 0.9)], "tp"),
        ([("tp", "A", 0.95), ("dp", "A", 0.95)], "conflict"),
        ([("tp", "A", 0.95, 0), ("dp", "A", 0.98, 2)], "tp"),
        ([("tp", "A", 0.95, 3), ("dp", "A", 0.98)], "conflict"),
        ([("tp", "D", 0.3)], "unknown"),
        ([("tp", "C", 0.7), ("dp", "C", 0.6)], "unknown"),
        ([("tp", "C", 0.75), ("dp", "C", 0.6)], "tp"),
    ],
)
def test_decide(candidates, value):
    assert decide([candidate(*c) for c in candidates], strict=True).value == value


def test_a_user_rule_decides_what_the_built_in_ones_cannot(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[rule]]\nid = "mine"\nwhen = { group_name = "^3$" }\nthen = { strategy = "cp" }\n'
        'tier = "A"\nconfidence = 0.99\n'
    )
    label = labelled(pg_desc="default_pg", rules=load_rules([path]))
    assert (label.strategy, label.rule, label.confidence) == ("cp", "mine", 0.99)


@pytest.mark.parametrize(("dims", "want"), [([96, 64], "2"), ([[96, 64]], "2"), ([[8], [4, 4]], "1"), ([], None), (None, None)])  # fmt: skip
def test_dimensions_of_the_first_input(dims, want):
    assert ndim(Call("all_to_all", "alltoall", dims=dims)) == want

"""ZeRO and FSDP, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from micro import Micro
from rows import Row, check, labelled

EVAL = "autograd::engine::evaluate_function: {0}"
ACCUMULATE = EVAL.format("torch::autograd::AccumulateGrad")
MEGATRON = "megatron/core/distributed/param_and_grad_buffer.py(400): {0}"
ZERO12 = "deepspeed/runtime/zero/stage_1_and_2.py(1100): {0}"
ZERO3 = "deepspeed/runtime/zero/{0}.py(500): {1}"
CHUNK = "colossalai/zero/gemini/chunk/chunk.py(300): {0}"
LOW = "colossalai/zero/low_level/low_level_optim.py(400): {0}"
DP_CP, EDP = "DATA_PARALLEL_GROUP_WITH_CP", "EXPERT_DATA_PARALLEL_GROUP"
RS, AG, CRS, CAG = ("_reduce_scatter_base", "_allgather_base", "reduce_scatter_tensor_coalesced",
                    "allgather_into_tensor_coalesced")  # fmt: skip


def row(name: str, strategy: str, op: str, purpose: str, tier: str = "A", **how: Any) -> Row:
    return Row(id=name, op=op, strategy=strategy, tier=tier, purpose=purpose, axes=how.pop("axes", None),
               variant=how.pop("variant", None), phase=how.pop("phase", None), names=how.pop("names", ()),
               groups=how.pop("groups", ()), how=how)  # fmt: skip


G, P = "grad_reduce", "param_gather"
FSDP1 = "FullyShardedDataParallel.{0}"
ROWS = [
    row("Megatron: scatter of a bucket", "zero1", CRS, G, "B", axes="dp+cp", variant="megatron", pg_desc=DP_CP),
    row("Megatron: gather of parameters", "zero1", CAG, P, "B", axes="dp+cp", variant="megatron", pg_desc=DP_CP),
    row("Megatron: gather on its own group", "zero1", CAG, P, "B", axes="dp+cp", pg_desc=DP_CP + "_AG"),
    row("Megatron: experts", "zero1", CRS, G, "B", axes="edp", pg_desc=EDP),
    row("Megatron: part of the instances, inner", "zero1", CRS, G, "B", pg_desc="INTRA_PARTIAL_" + DP_CP),
    row("Megatron: part of the instances, outer", "hsdp", "allreduce", G, "B",
        pg_desc="HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L1", names=("_CopyToModelParallelRegion",)),
    row("Megatron: scatter by all-to-all", "zero1", "all_to_allv", G, "B", axes="dp+cp", pg_desc=DP_CP),
    row("Megatron: start_param_sync", "zero1", AG, P, "B", frames=(MEGATRON.format("start_param_sync"),)),
    row("Megatron: finish_param_sync", "zero1", "all_gather", P, "B", frames=(MEGATRON.format("finish_param_sync"),)),
    row("Megatron: start_grad_sync", "zero1", RS, G, "B", frames=(MEGATRON.format("start_grad_sync"),)),
    row("Megatron-FSDP: gather", "zero3", AG, P, "B", axes="dp+cp", variant="megatron-fsdp", pg_desc=DP_CP,
        names=("CustomFSDP.forward",)),
    row("Megatron-FSDP: scatter", "zero3", RS, G, "B", axes="dp+cp", variant="megatron-fsdp", pg_desc=DP_CP,
        names=("CustomFSDP.forward",)),
    row("Megatron-FSDP: by frames", "zero3", AG, P, "B", variant="megatron-fsdp",
        frames=("megatron/core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py(2900): async_bucket_gather",)),
    row("Megatron-FSDP: outer replicas", "hsdp", "allreduce", G, "B", variant="megatron-fsdp",
        frames=("megatron/core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py(2500): reduce",)),
    row("Megatron: gradients of weights sharded over gtp", "zero3", RS, G, pg_desc="EXPERT_GTP_WEIGHT_REMAT_GROUP"),
    row("Megatron: weights sharded over gtp", "zero3", AG, P, pg_desc="GTP_WEIGHT_REMAT_GROUP", variant="gtp"),
    row("DeepSpeed 1/2: sums of slices", "zero1|zero2", "allreduce", G, "B", variant="deepspeed",
        frames=(ZERO12.format("average_tensor"), ZERO12.format("allreduce_bucket"))),
    row("DeepSpeed 1/2: reduce to the owner", "zero1|zero2", "reduce", G, "B", frames=(ZERO12.format("allreduce_and_scatter"),)),
    row("DeepSpeed 1/2: gather at the end", "zero1|zero2", AG, P, "B",
        frames=("deepspeed/runtime/utils.py(1000): all_gather_dp_groups",)),
    row("DeepSpeed 3: fetch", "zero3", AG, P, "B", variant="deepspeed",
        frames=(ZERO3.format("partitioned_param_coordinator", "fetch_sub_module"),)),
    row("DeepSpeed 3: gather", "zero3", AG, P, "B",
        frames=(ZERO3.format("partitioned_param_coordinator", "__all_gather_params"),)),
    row("DeepSpeed 3: scatter", "zero3", RS, G, "B", frames=(ZERO3.format("stage3", "__reduce_and_partition_ipg_grads"),)),
    row("DeepSpeed 3: sum instead", "zero3", "allreduce", G, "B", frames=(ZERO3.format("stage3", "__avg_scatter_grads"),)),
    row("DeepSpeed ZeRO++: quantised gradients", "zero3", "all_to_allv", G, "B", dtype="Char",
        frames=(ZERO3.format("stage3", "__avg_scatter_grads"),)),
    row("DeepSpeed MiCS: replicas", "hsdp", "allreduce", G, "B", frames=(ZERO3.format("mics", "allreduce_mics_shard_grads"),)),
    row("FSDP2: gather in the forward", "zero3", AG, P, phase="forward", variant="fsdp2", pg_desc="mesh_fsdp",
        scopes=("FSDP::pre_forward (l.0)", "FSDP::all_gather (l.0)")),
    row("FSDP2: gather in the backward", "zero3", AG, P, phase="backward", scopes=("FSDP::pre_backward (l.0)",
                                                                                "FSDP::all_gather (l.0)")),
    row("FSDP2: prefetch", "zero3", AG, P, phase="backward",
        scopes=("FSDP::pre_backward (l.1)", "FSDP::backward_prefetch for l.0", "FSDP::all_gather (l.0)")),
    row("FSDP2: several parameter groups", "zero3", AG, P, dtype="Byte", scopes=("FSDP::all_gather (l.0) [pg=1]",)),
    row("FSDP2: scatter", "zero3", RS, G, phase="backward",
        scopes=(EVAL.format("RegisterPostBackwardFunctionBackward"), "FSDP::post_backward_reduce (l.0)")),
    row("FSDP2: last scatter", "zero3", RS, G, phase="backward",
        scopes=("FSDP::root_post_backward_callback", "FSDP::post_backward_reduce (l.0)")),
    row("FSDP2: replicate() alone", "dp", "allreduce", G, "B", scopes=("FSDP::post_backward_reduce (l.0)",)),
    row("FSDP1: forward", "zero3", AG, P, phase="forward", variant="fsdp1", scopes=(FSDP1.format("_pre_forward"),)),
    row("FSDP1: root", "zero3", AG, P, scopes=(FSDP1.format("_root_pre_forward"), FSDP1.format("_pre_forward"))),
    row("FSDP1: prefetch, forward", "zero3", AG, P, scopes=(FSDP1.format("_pre_forward"), FSDP1.format("_pre_forward_prefetch"))),
    row("FSDP1: backward", "zero3", AG, P, phase="backward", scopes=(FSDP1.format("_pre_backward_hook"),)),
    row("FSDP1: prefetch, backward", "zero3", AG, P, phase="backward", scopes=(FSDP1.format("_pre_backward_prefetch"),)),
    row("FSDP1: rate limiter inside", "zero3", AG, P, scopes=(FSDP1.format("_pre_forward"), FSDP1.format("rate_limiter"))),
    row("FSDP1: list gather of gloo", "zero3", "all_gather", P, scopes=(FSDP1.format("_pre_forward"),)),
    row("FSDP1: scatter", "zero3", RS, G, phase="backward", scopes=(ACCUMULATE, FSDP1.format("_post_backward_hook"))),
    row("FSDP1: NO_SHARD", "dp", "allreduce", G, "B", scopes=(ACCUMULATE, FSDP1.format("_post_backward_hook"))),
    row("FSDP by frames: gather", "zero3", AG, P, "B",
        frames=("torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py(300): unshard",)),
    row("FSDP by frames: scatter", "zero3", RS, G, "B",
        frames=("torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py(480): post_backward",)),
    row("ZeroRedundancyOptimizer", "zero1", "broadcast", P, phase="optimizer",
        scopes=("Optimizer.step#ZeroRedundancyOptimizer.step",)),
    row("an optimizer of shards: gather", "zero1|zero2", AG, P, "B", phase="optimizer", pg_desc="default_pg", n=96,
        scopes=("Optimizer.step#Muon.step",)),
    row("an optimizer of shards: scatter", "zero1|zero2", RS, G, "B", phase="optimizer", pg_desc="default_pg",
        scopes=("Optimizer.step#DistAdam.step",)),
    row("nanotron: parameters", "zero1", CAG, P, "B", scopes=("all_gather_params",)),
    row("nanotron: gradients", "zero1", CRS, G, scopes=("sync_gradients_across_dp",)),
    row("nanotron: coalesced in the backward", "zero1", CRS, G, "C", pg_desc="undefined", names=("DifferentiableAllReduceSum",)),
    row("ColossalAI low level 1", "zero1", "allreduce", G, "B", frames=(LOW.format("_run_reduction"),)),
    row("ColossalAI low level 2", "zero2", RS, G, "B", frames=(LOW.format("_run_reduction"),)),
    row("ColossalAI low level: step", "zero1|zero2", AG, P, "B", frames=(LOW.format("step"),)),
    row("ColossalAI Gemini: gather", "zero3", AG, P, "B", frames=(CHUNK.format("__gather"),)),
    row("ColossalAI Gemini: scatter", "zero3", RS, G, "B", frames=(CHUNK.format("__scatter"),)),
    row("ColossalAI Gemini: replicas", "hsdp", "allreduce", G, "B", frames=(CHUNK.format("reduce"),)),
]  # fmt: skip


@pytest.mark.parametrize("case", ROWS, ids=lambda r: r.id)
def test_row(case: Row) -> None:
    check(labelled(case), case)


def strategies(m: Micro) -> list[tuple[str, str | None]]:
    return [(x.strategy, x.tier) for x in m.labels()]


def test_replicas_of_hybrid_shards() -> None:
    for scope, tier in (("FSDP::post_backward_reduce (l.0)", "A"), (FSDP1.format("_post_backward_hook"), "A")):
        m = Micro().call(RS, scopes=(scope,), pg_desc="mesh_dp_shard")
        m.call("allreduce", scopes=(scope,), pg_desc="mesh_dp_replicate", pg_name="9")
        assert strategies(m) == [("zero3", "A"), ("hsdp", tier)]


@pytest.mark.parametrize(
    "desc", ["mesh_fsdp", "mesh_dp_shard", "mesh_dp_shard_cp", "mesh_efsdp", "mesh_dp_shard_mod_ep"]
)
def test_shard_groups_without_scopes(desc: str) -> None:
    m = Micro().call(AG, pg_desc=desc).call(RS, pg_desc=desc)
    assert strategies(m) == [("zero3", "C"), ("zero3", "C")]
    assert strategies(Micro().call(AG, pg_desc=desc)) == [("unknown", None)]


def test_a_number_on_the_group_of_sharded_weights_is_no_weight() -> None:
    [label] = Micro().call("allreduce", n=1, pg_desc="GTP_WEIGHT_REMAT_GROUP").labels()
    assert label.strategy in ("unknown", "housekeeping")


def test_layer_wise_optimizer_and_old_releases_need_both_halves() -> None:
    m = Micro().call(RS, pg_desc=DP_CP).call("all_gather", pg_desc=DP_CP)
    assert strategies(m) == [("zero1", "C"), ("zero1", "C")]


@pytest.mark.parametrize(
    ("gathers", "modules", "strategy"),
    [(("pre_forward",), 2, "zero2"), (("pre_forward", "pre_backward"), 2, "zero3"), (("pre_forward",), 1, "zero3")],
    ids=["kept after the forward", "resharded", "the root alone says nothing"],
)
def test_stage_decision(gathers: tuple[str, ...], modules: int, strategy: str) -> None:
    m = Micro()
    for where in gathers:
        for i in range(modules):
            m.call(AG, scopes=(f"FSDP::{where} (l.{i})", f"FSDP::all_gather (l.{i})"))
    m.call(RS, scopes=("FSDP::post_backward_reduce (l.0)",))
    assert {s for s, _ in strategies(m)} == {strategy}

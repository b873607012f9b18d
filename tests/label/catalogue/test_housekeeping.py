"""Bookkeeping by duty, and the tied embedding, row by row."""

from __future__ import annotations

import pytest
from micro import Micro
from rows import Row, check, labelled, micro

BYTES = "Byte"


def duty(
    name: str, op: str, tier: str, variant: str | None = None, *, names: tuple[str, ...] = (), **how: object
) -> Row:
    return Row(name, op, "housekeeping", tier, variant=variant, names=names, how={"n": 1, **how})


def frame(text: str) -> tuple[str, ...]:
    return ("train.py(10): main", text)


ROWS = [
    # gradient norm
    duty("norm: Megatron, model group", "allreduce", "A", "grad-norm|found-inf", pg_desc="MODEL_PARALLEL_GROUP"),
    duty("norm: Megatron, optimizer instance", "allreduce", "A", "grad-norm|found-inf",
         pg_desc="INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP"),
    duty("norm: Megatron, experts", "allreduce", "A", "grad-norm|found-inf",
         pg_desc="EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP"),
    duty("norm: Megatron by frames", "allreduce", "B", "grad-norm",
         frames=frame("megatron/core/optimizer/clip_grads.py(110): get_grad_norm_fp32")),
    duty("norm: torch", "allreduce", "A", "grad-norm",
         scopes=("aten::linalg_vector_norm", "_c10d_functional::all_reduce"), pg_desc="mesh_tp"),
    duty("norm: torchtitan over stages", "allreduce", "C", pg_desc="mesh_pp"),
    duty("norm: torchtitan by frames", "allreduce", "B", "grad-norm", pg_desc="mesh_pp",
         frames=frame("torchtitan/distributed/utils.py(350): clip_grad_norm_")),
    duty("norm: nanotron", "allreduce", "A", "grad-norm", scopes=("clip_grad_norm",)),
    duty("norm: DeepSpeed", "allreduce", "B", "grad-norm",
         frames=frame("deepspeed/runtime/zero/stage_1_and_2.py(1700): get_grad_norm_direct")),
    # overflow, counts, checks
    duty("overflow: Megatron", "allreduce", "B", "found-inf",
         frames=frame("megatron/core/optimizer/optimizer.py(300): _unscale_main_grads_and_check_for_nan")),
    duty("overflow: DeepSpeed, one byte", "allreduce", "B", "found-inf", dtype=BYTES, names=("_GatherTokens",)),
    duty("overflow: DeepSpeed by frames", "allreduce", "B", "found-inf",
         frames=frame("deepspeed/runtime/zero/stage3.py(2400): has_overflow")),
    duty("zero count", "allreduce", "B", "zero-count",
         frames=frame("megatron/core/optimizer/clip_grads.py(200): count_zeros_fp32")),
    duty("parameter norm", "allreduce", "B", "zero-count",
         frames=frame("megatron/training/utils.py(60): calc_params_l2_norm")),
    duty("parameter check", "_allgather_base", "B", "checks", n=4096, dtype=BYTES,
         frames=frame("megatron/core/utils.py(400): check_param_hashes_across_dp_replicas")),
    # losses
    duty("loss: Megatron", "allreduce", "B", "loss", n=2, pg_desc="DATA_PARALLEL_GROUP_WITH_CP",
         frames=frame("megatron/training/utils.py(90): average_losses_across_data_parallel_group")),
    duty("loss: Megatron, one number", "allreduce", "C", pg_desc="DATA_PARALLEL_GROUP_WITH_CP"),
    duty("loss: MoE logging", "allreduce", "B", "loss", n=24, pg_desc="PIPELINE_MODEL_PARALLEL_GROUP",
         frames=frame("megatron/core/transformer/moe/moe_utils.py(700): reduce_aux_losses_tracker_across_ranks")),
    duty("loss: number of tokens over stages", "broadcast", "C", n=2, dtype="Long",
         pg_desc="PIPELINE_MODEL_PARALLEL_GROUP"),
    duty("loss: torchtitan", "allreduce", "A", "loss", pg_desc="mesh_loss_mesh"),
    duty("loss: torchtitan v0.1", "allreduce", "B", "loss", pg_desc="mesh_dp_cp"),
    duty("loss: DeepSpeed", "allreduce", "B", "loss",
         frames=frame("deepspeed/runtime/pipe/engine.py(600): _aggregate_total_loss")),
    # FP8
    duty("amax: its group", "allreduce", "A", "amax|expert-load", n=2048, pg_desc="TENSOR_AND_DATA_PARALLEL_GROUP"),
    duty("amax: by frames", "allreduce", "B", "amax", n=512, pg_desc="TENSOR_MODEL_PARALLEL_GROUP",
         frames=frame("transformer_engine/pytorch/fp8.py(480): reduce_and_update_fp8_tensors")),
    # timers, data
    duty("barrier", "barrier", "A", "barrier", pg_desc="default_pg"),
    duty("timers: numbers of all ranks", "_allgather_base", "B", "timers", n=32,
         frames=frame("megatron/core/timers.py(300): _get_elapsed_time_all_ranks")),
    duty("data: tokens over the tensor group", "broadcast", "B", "dataloader", n=8192, dtype="Long",
         pg_desc="TENSOR_MODEL_PARALLEL_GROUP"),
    duty("data: over the context group", "broadcast", "B", "dataloader", n=8192, dtype="Long",
         pg_desc="CONTEXT_PARALLEL_GROUP"),
    duty("data: Megatron by frames", "broadcast", "B", "dataloader", n=8192,
         frames=frame("megatron/training/utils.py(500): get_batch_on_this_tp_rank")),
    duty("data: accelerate", "_allgather_base", "B", "dataloader", n=8192,
         frames=frame("accelerate/data_loader.py(700): _fetch_batches")),
    # objects, checkpoints, start
    duty("objects: length", "all_gather", "B", "objects", dtype="Long",
         frames=frame("torch/distributed/distributed_c10d.py(3000): all_gather_object")),
    duty("objects: payload", "broadcast", "B", "objects", n=9000, dtype=BYTES,
         frames=frame("torch/distributed/distributed_c10d.py(3300): broadcast_object_list")),
    duty("objects: gather", "gather", "B", "objects", n=9000, dtype=BYTES,
         frames=frame("torch/distributed/distributed_c10d.py(3100): gather_object")),
    duty("checkpoint", "_allgather_base", "B", "checkpoint", n=9000, dtype=BYTES,
         frames=frame("torch/distributed/checkpoint/utils.py(90): all_gather")),
    duty("start: parameters of DDP", "broadcast", "B", "init", n=1 << 20,
         frames=frame("torch/distributed/utils.py(280): _sync_module_states")),
    duty("start: shapes of DDP", "_allgather_base", "B", "checks", n=64, dtype="Long",
         frames=frame("torch/distributed/utils.py(260): _verify_param_shape_across_processes")),
    duty("start: parameters of Megatron", "broadcast", "B", "init", n=1 << 20, pg_desc="DATA_PARALLEL_GROUP_WITH_CP",
         frames=frame("megatron/core/distributed/data_parallel_base.py(80): broadcast_params")),
    duty("start: seeds", "broadcast", "C", dtype="Long", n=2),
    duty("fault tolerance", "_allgather_base", "B", "fault-tolerance", n=8, dtype="Int",
         frames=frame("megatron/training/dist_signal_handler.py(60): all_gather_item")),
    # rules of thumb
    duty("thumb: one number", "allreduce", "C"),
    duty("thumb: integers", "allreduce", "C", n=100000, dtype="Int"),
    duty("thumb: one number of every rank", "_allgather_base", "C", in_nelems=1, out_nelems=8, n=8),
]  # fmt: skip

EMBEDDING = [
    Row("embedding: Megatron", "allreduce", "embedding", "A", "embedding", "tied_grad", how={"pg_desc": "EMBEDDING_GROUP"}),
    Row("embedding: positions", "allreduce", "embedding", "A", how={"pg_desc": "POSITION_EMBEDDING_GROUP"}),
    Row("embedding: Megatron by frames", "allreduce", "embedding", "B", purpose="tied_grad",
        how={"frames": ("megatron/core/distributed/finalize_model_grads.py(90): _allreduce_word_embedding_grads",)}),
    Row("embedding: nanotron", "allreduce", "embedding", "A", how={"scopes": ("sync_tied_weights_gradients",)}),
    Row("embedding: DeepSpeed", "allreduce", "embedding", "B",
        how={"frames": ("deepspeed/runtime/pipe/module.py(420): allreduce_tied_weight_gradients",)}),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.id)
def test_row(row: Row) -> None:
    check(labelled(row), row)


@pytest.mark.parametrize("row", EMBEDDING, ids=lambda r: r.id)
def test_tied_embedding(row: Row) -> None:
    check(labelled(row), row)


def test_small_is_not_enough() -> None:
    [label] = Micro().call("allreduce", n=512).labels()
    assert (label.strategy, [s for s, _ in label.alternatives]) == ("unknown", ["housekeeping"])


@pytest.mark.parametrize("desc", ["mesh_ep", "EXPERT_MODEL_PARALLEL_GROUP"])
def test_integers_of_experts_belong_to_experts(desc: str) -> None:
    [label] = Micro().call("all_to_allv", n=8, dtype="Long", pg_desc=desc).labels()
    assert (label.strategy, label.tier) == ("ep", "A")


def test_many_bytes_may_be_parameters() -> None:
    [label] = Micro().call("_allgather_base", n=1 << 24, dtype="Byte").labels()
    assert label.strategy == "unknown"


def test_bytes_under_fsdp_are_parameters() -> None:
    [label] = Micro().call("_allgather_base", n=512, dtype="Byte", scopes=("FSDP::all_gather (layers.0)",)).labels()
    assert (label.strategy, label.tier) == ("zero3", "A")


def test_a_tensor_parallel_sum_of_many_numbers_is_no_norm() -> None:
    [label] = Micro().call("allreduce", pg_desc="mesh_tp", scopes=("aten::linalg_vector_norm",)).labels()
    assert label.strategy == "tp"


def test_one_byte_of_another_framework_is_no_overflow_flag() -> None:
    label = micro(("AcceleratedOptimizer",)).call("allreduce", n=1, dtype="Byte").labels()[-1]
    assert (label.strategy, label.tier, label.variant) == ("housekeeping", "C", None)


def test_the_barrier_kernel_of_a_library_is_not_torchs_barrier() -> None:
    calls = Micro().bare("void hybrid_dispatch_impl<8>(int)").bare("void barrier_impl<8>(int)").labels()
    assert [(x.strategy, x.tier) for x in calls] == [("ep", "A")] * 2

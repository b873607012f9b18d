"""Rows whose literals no other test has."""

from __future__ import annotations

import pytest
from micro import Micro, kernel_of
from rows import Row, check, labelled

AG = "_allgather_base"
DS = "deepspeed/runtime/{0}.py(500): {1}"
ROWS = [
    Row("Megatron: fp32 accumulation by all-to-all", "all_to_allv", "zero1", "B", purpose="grad_reduce",
        how={"pg_desc": "DATA_PARALLEL_GROUP_WITH_CP", "frames": (
                        ("megatron/core/distributed/reduce_scatter_with_fp32_accumulation.py(10): "
                        "reduce_scatter_with_fp32_accumulation"),)}),
    Row("torch ring by rotation", "all_to_allv", "cp", None, purpose="kv_exchange",
        how={"frames": ("torch/distributed/tensor/experimental/_attention.py(300): _templated_ring_attention",
                        "torch/distributed/tensor/experimental/_attention.py(120): _AllToAllRotater")}),
    Row("DeepSpeed Ulysses of Hugging Face", "all_to_allv", "cp", None, purpose="kv_exchange",
        how={"frames": ("deepspeed/runtime/sequence_parallel/ulysses_sp.py(90): UlyssesSPAttentionHF.forward",)}),
    Row("ring-flash-attention: RingComm", "send", "cp", None,
        how={"frames": ("ring_flash_attn/utils.py(80): RingComm.send_recv",), "dst_rank": 1}),
    Row("Megatron: tokens gathered", AG, "ep", None, how={
        "frames": ("megatron/core/transformer/moe/token_dispatcher.py(200): MoEAllGatherTokenDispatcher.token_dispatch",),
        "pg_desc": "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", "dtype": "BFloat16"}),
    Row("DeepSpeed: norm", "allreduce", "housekeeping", None, how={"frames": (DS.format("zero/stage3", "scaled_norm_tensor"),), "n": 1}),
    Row("Megatron: batch of tokens", "broadcast", "housekeeping", None,
        how={"frames": ("megatron/core/tensor_parallel/data.py(80): broadcast_data",), "dtype": "Long", "n": 8192}),
    Row("Megatron: timers", "barrier", "housekeeping", None,
        how={"frames": ("megatron/core/timers.py(100): barrier_with_L1_time",), "n": 0}),
    Row("pipelining: overlapped pair", "send", "pp", "A", phase="forward",
        how={"scopes": ("PP:(0F3;3B1)OVERLAP_F_B", "PP:0SEND_F3"), "pg_desc": "mesh_pp", "dst_rank": 1}),
    Row("Megatron: shapes first", "send", "pp", "A", variant="metadata",
        how={"n": 3, "dtype": "Long", "pg_desc": "PIPELINE_MODEL_PARALLEL_GROUP", "dst_rank": 1}),
    Row("Megatron: found_inf", "allreduce", "housekeeping", None, purpose="metric", how={
        "n": 1, "pg_desc": "MODEL_PARALLEL_GROUP",
        "frames": ("megatron/core/optimizer/optimizer.py(300): _unscale_main_grads_and_check_for_nan",)}),
    Row("Megatron: number of tokens along stages", "broadcast", "housekeeping", None, purpose="metric",
        how={"n": 1, "dtype": "Int", "pg_desc": "PIPELINE_MODEL_PARALLEL_GROUP"}),
    Row("Megatron: number of tokens over data", "allreduce", "housekeeping", None, purpose="metric",
        how={"n": 1, "dtype": "Int", "pg_desc": "DATA_PARALLEL_GROUP_WITH_CP"}),
    Row("Megatron: exit signal", AG, "housekeeping", "B", how={
        "n": 1, "dtype": "Int", "frames": ("megatron/training/dist_signal_handler.py(40): all_gather_item",)}),
    Row("Megatron: elapsed times of all ranks", AG, "housekeeping", "B", how={
        "n": 64, "frames": ("megatron/core/timers.py(230): _get_elapsed_time_all_ranks",)}),
    Row("Megatron: parameters compared", AG, "housekeeping", "B", how={
        "n": 4, "dtype": "Byte", "frames": ("megatron/core/utils.py(600): check_param_hashes_across_dp_replicas",)}),
    Row("Megatron: expert bias of the router", "allreduce", "housekeeping", None, how={
        "n": 64, "pg_desc": "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP",
        "frames": ("megatron/core/transformer/moe/moe_utils.py(700): get_updated_expert_bias",)}),
    Row("DeepSpeed: hpZ within a node", AG, "zero3", "B", purpose="param_gather", how={
        "frames": ("deepspeed/runtime/zero/partition_parameters.py(1200): all_gather_coalesced",)}),
    Row("vLLM: dummy batches keep step", "allreduce", "housekeeping", None, how={
        "n": 1, "dtype": "Int", "pg_desc": "dp:cpu"}),
    Row("RL: weights to the rollout", "broadcast", "unknown", None, purpose="weight_move", how={
        "frames": ("verl/workers/sharding_manager/fsdp_vllm.py(100): update_params",)}),
]  # fmt: skip


@pytest.mark.parametrize("case", ROWS, ids=lambda r: r.id)
def test_row(case: Row) -> None:
    check(labelled(case), case)


@pytest.mark.parametrize(
    ("operator", "kernel", "strategy"),
    [
        ("trtllm::userbuffers_allreduce_finalize", "userbuffers_fp16_sum_inplace_gpu_rr_ag", "tp"),
        ("sglang::reg_all_to_all_single", kernel_of("all_to_allv"), "ep"),
        ("sglang::reg_reduce_scatter_tensor", kernel_of("_reduce_scatter_base"), "sp"),
    ],
)
def test_operators_of_engines_without_a_record(operator: str, kernel: str, strategy: str) -> None:
    assert Micro().bare(kernel, scopes=(operator,)).labels()[-1].strategy == strategy

"""Rows whose literals no other test has."""

from __future__ import annotations

import pytest
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
]  # fmt: skip


@pytest.mark.parametrize("case", ROWS, ids=lambda r: r.id)
def test_row(case: Row) -> None:
    check(labelled(case), case)

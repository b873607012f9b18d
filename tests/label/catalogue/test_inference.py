"""Serving engines, row by row: operators, groups, connectors, steps, graph replay."""

from __future__ import annotations

import pytest
from micro import Micro, group
from rows import Row, check, labelled, micro

VLLM = ("execute_context_1(4)_generation_0(0)",)
SGLANG = ("sglang::reg_all_gather_into_tensor",)
DP_ATTENTION = "sglang/srt/layers/dp_attention.py(300): {0}"


def row(name: str, op: str, strategy: str, tier: str | None = "A", variant: str | None = None, *,
        names: tuple[str, ...] = (), offered: str | None = None, **how: object) -> Row:  # fmt: skip
    return Row(name, op, strategy, tier, variant=variant, names=names, how=how, offered=offered)


ROWS = [
    row("TP all-reduce: vLLM, last of the backends", "allreduce", "tp", "B", scopes=("vllm::all_reduce",), names=VLLM),
    row("TP all-reduce: vLLM group", "allreduce", "tp", "B", pg_desc="tp:device", names=VLLM),
    row("TP all-reduce: SGLang group, also the padded gather of DP attention", "allreduce", "tp", "B",
        pg_desc="tp:device", names=SGLANG),
    row("TP gather: SGLang group, not decided", "_allgather_base", "unknown", pg_desc="tp:device", names=SGLANG, offered="tp"),
    row("experts may stand on the same group", "_allgather_base", "unknown", pg_desc="tp:device", names=SGLANG, offered="ep"),
    row("DP attention: gather", "_allgather_base", "tp", "B", "dp-attention", pg_desc="tp:device", names=SGLANG,
        frames=(DP_ATTENTION.format("_dp_gather_via_all_gather"),)),
    row("DP attention: gather by a padded all-reduce", "allreduce", "tp", "B", "dp-attention", pg_desc="tp:device",
        names=SGLANG, frames=(DP_ATTENTION.format("_dp_gather_via_all_reduce"),)),
    row("DP attention: scatter", "_reduce_scatter_base", "tp", "B", "dp-attention",
        frames=(DP_ATTENTION.format("dp_reduce_scatter_tensor"),)),
    row("DP coordination: device group", "allreduce", "housekeeping", "B", "coordination", pg_desc="dp:device", n=8,
        dtype="Int", names=VLLM),
    row("DP coordination: gloo group", "allreduce", "housekeeping", "A", pg_desc="dp:cpu", n=8, dtype="Int", names=VLLM),
    row("DP coordination: by frames", "allreduce", "housekeeping", "B", "coordination", n=8, dtype="Int",
        frames=("vllm/v1/worker/dp_utils.py(60): _synchronize_dp_ranks",)),
    row("metadata: gloo twin", "broadcast", "housekeeping", "A", pg_desc="tp:cpu", n=300, dtype="Byte"),
    row("metadata: tensor dict", "broadcast", "housekeeping", "B", "objects", n=300, dtype="Byte",
        frames=("vllm/distributed/parallel_state.py(800): broadcast_tensor_dict",)),
    row("sampled tokens: over stages", "broadcast", "housekeeping", "B", "tokens", pg_desc="pp:device", n=64, dtype="Int",
        names=VLLM),
    row("sampled tokens: over tensor ranks", "broadcast", "housekeeping", "B", "tokens", pg_desc="tp:device", n=64,
        dtype="Long", names=SGLANG),
    row("stages", "send", "pp", "A", pg_desc="pp:device", dst_rank=1, names=VLLM),
    row("logits: gather to the rank that samples", "gather", "tp", "C", "logits", names=VLLM),
    row("KV transfer: vLLM connector", "send", "kv_transfer", "B", dst_rank=1,
        frames=("vllm/distributed/kv_transfer/kv_connector/v1/p2p/p2p_nccl_engine.py(300): send_sync",)),
    row("KV transfer: start_load_kv", "recv", "kv_transfer", "B", src_rank=1, frames=("connector.py(80): start_load_kv",)),
    row("KV transfer: wait_for_layer_load", "recv", "kv_transfer", "B", src_rank=1,
        frames=("connector.py(90): wait_for_layer_load",)),
    row("KV transfer: NIXL", "send", "kv_transfer", "B", dst_rank=1, frames=("nixl/_api.py(400): make_prepped_xfer",)),
    row("KV transfer: Mooncake", "send", "kv_transfer", "B", dst_rank=1, frames=("m.py(4): batch_transfer_sync_write",)),
    row("KV transfer: its own group", "send", "kv_transfer", "A", pg_desc="KV_TRANSFER", dst_rank=1),
    row("KV transfer: the job's own scope", "send", "kv_transfer", "C", scopes=("kv_transfer layer0",), dst_rank=1),
    row("KV cache written, nothing sent", "allreduce", "unknown", scopes=("kv_transfer layer0",)),
]  # fmt: skip


@pytest.mark.parametrize("case", ROWS, ids=lambda r: r.id)
def test_row(case: Row) -> None:
    check(labelled(case), case)


OPERATORS = [
    ("vllm::all_reduce", "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(int)", "tp", "B"),
    ("vllm::all_reduce", "void vllm::cross_device_reduce_2stage<half, 8>(int)", "tp", "B"),
    ("vllm::all_reduce", "void quickreduce::allreduce_prototype_twoshot<int>(int)", "tp", "B"),
    ("vllm::all_reduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)", "tp", "B"),
    ("sglang::inplace_all_reduce", "void sglang::cross_device_reduce_1stage<half, 8>(int)", "tp", "B"),
    ("sglang::outplace_all_reduce", "void sglang::cross_device_reduce_1stage<half, 8>(int)", "tp", "B"),
    ("sglang::flashinfer_allreduce", "void allreduce_fusion_kernel_oneshot_lamport<1>(int)", "tp", "B"),
    ("trtllm::allreduce", "void tensorrt_llm::kernels::twoShotAllReduceKernel<half>(int)", "tp", "B"),
    ("trtllm::tunable_allreduce", "void tensorrt_llm::kernels::oneShotAllReduceKernel<half>(int)", "tp", "B"),
    ("vllm::all_gather", "ncclDevKernel_AllGather_RING_LL(int)", "tp", "C"),
    ("trtllm::alltoall_helix", "void helixAllToAllKernel<true>(int)", "cp", "A"),
]


@pytest.mark.parametrize(
    ("operator", "kernel", "strategy", "tier"), OPERATORS, ids=[f"{o[0]} {o[1][:45]}" for o in OPERATORS]
)
def test_operators_of_engines(operator: str, kernel: str, strategy: str, tier: str) -> None:
    [label] = Micro().bare(kernel, scopes=(operator,)).labels()
    assert (label.strategy, label.tier) == (strategy, tier), label.rule


STEPS = [
    ("execute_context_1(888)_generation_0(0)", "prefill"),
    ("execute_context_0(0)_generation_16(16)", "decode"),
    ("execute_context_2(sq5_sk9_sqsq25_sqsk45)_generation_0(sq0_sk0_sqsq0_sqsk0)", "prefill"),
    ("execute_context_1(4)_generation_3(3)", "forward"),
    ("step[EXTEND bs=2 toks=512]", "prefill"),
    ("step[DECODE bs=8]", "decode"),
    ("step[VERIFY bs=8]", "verify"),
    ("step[DRAFT bs=8]", "draft"),
]


@pytest.mark.parametrize(("step", "phase"), STEPS)
def test_steps_tell_the_phase(step: str, phase: str | None) -> None:
    micro = Micro()
    micro.step(step, 990)
    [label] = micro.call("allreduce", scopes=("vllm::all_reduce",)).labels()
    assert label.phase == phase


@pytest.mark.parametrize("kernel", ["ncclDevKernel_SendRecv(int)", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)"])
def test_graph_replay_of_nccl_stays_unknown(kernel: str) -> None:
    [label] = Micro().bare(kernel).labels()
    assert label.strategy == "unknown"
    assert {s for s, _ in label.alternatives} == ({"pp", "ep", "cp"} if "SendRecv" in kernel else set())


def test_graph_replay_of_an_engines_own_kernels_suggests() -> None:
    [label] = Micro().bare("void vllm::cross_device_reduce_2stage<half, 8>(int)").labels()
    assert (label.strategy, label.tier) == ("tp", "C")


def test_weights_for_a_rollout_belong_to_no_strategy() -> None:
    label = micro(groups=("mesh_infer_tp",)).call(
        "broadcast", frames=("verl/workers/sharding_manager/fsdp_vllm.py(200): update_weights",)
    ).labels()[-1]  # fmt: skip
    assert (label.strategy, label.purpose, label.variant) == ("unknown", "weight_move", "weight-sync")


ALIASES = [  # SGLang: (group of the call, whether it stands for tp as well, what may be said of an all-reduce)
    ("tp:device", "tp", "B"),
    ("attention_tp:device", "tp", "B"),
    ("moe_tp:device", "etp", "A"),
    ("moe_ep:device", "ep", "B"),
]


@pytest.mark.parametrize(("desc", "strategy", "tier"), ALIASES)
def test_groups_of_sglang_that_exist_mean_themselves(desc: str, strategy: str, tier: str) -> None:
    meta = {"groups": (group("3", desc, 0, 1), group("4", "attn_cp:device", 0))}
    label = Micro(meta).call("allreduce", pg_desc=desc, pg_name="3").labels()[-1]
    assert (label.strategy, label.tier) == (strategy, tier)

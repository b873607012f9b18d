"""Context parallel, row by row: Transformer Engine, torch, Ulysses, ring libraries, decode and prefill."""

from __future__ import annotations

import pytest
from micro import Micro
from rows import Row, check, labelled, micro

BACKWARD = "autograd::engine::evaluate_function: {0}Backward"


def te(op: str, node: str, variant: str | None, backward: bool = False, **more: object) -> dict[str, object]:
    scopes = (BACKWARD.format(node), f"{node}Backward") if backward else (node,)
    return {"op": op, "variant": variant, "how": {"scopes": scopes, **more}}


def cp(name: str, tier: str = "A", purpose: str | None = "kv_exchange", **more: object) -> Row:
    return Row(id=name, strategy="cp", tier=tier, purpose=purpose, **more)  # type: ignore[arg-type]


RING = "torch/distributed/tensor/experimental/_attention.py(310): _templated_ring_attention"
RING_B = "torch/distributed/tensor/experimental/_attention.py(520): _templated_ring_attention_backward"
ROTATE = {"in_splits": "[0, 512, 0, 0]", "out_splits": "[0, 0, 0, 512]", "group_size": 4, "ranks_text": "[0, 1, 2, 3]"}

ROWS = [
    cp("TE ring, forward", **te("send", "AttnFuncWithCPAndKVP2P", "ring", dst_rank=1)),
    cp("TE ring, backward", phase=None, **te("recv", "AttnFuncWithCPAndKVP2P", "ring", backward=True, src_rank=1)),
    cp("TE ring, FP8 backward returns dKV by all-to-all", **te("all_to_allv", "AttnFuncWithCPAndKVP2P", "ring", True, dtype="Byte")),
    cp("TE ring on Megatron's group", axes="cp", **te("send", "AttnFuncWithCPAndKVP2P", "ring",
                                                      pg_desc="CONTEXT_PARALLEL_GROUP", dst_rank=1)),
    cp("TE A2A, forward", **te("all_to_allv", "AttnFuncWithCPAndQKVOA2A", "ulysses")),
    cp("TE A2A, backward", **te("all_to_allv", "AttnFuncWithCPAndQKVOA2A", "ulysses", backward=True)),
    cp("TE all-gather, forward", **te("_allgather_base", "AttnFuncWithCPAndKVAllGather", "allgather")),
    cp("TE all-gather, backward scatters dK and dV", **te("_reduce_scatter_base", "AttnFuncWithCPAndKVAllGather",
                                                          "allgather", backward=True)),
    cp("TE a2a+p2p, inner level", **te("all_to_allv", "AttnFuncWithCPAndKVP2P", "hybrid",
                                       pg_desc="HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0")),
    cp("TE a2a+p2p, outer level", **te("send", "AttnFuncWithCPAndKVP2P", "hybrid", dst_rank=1,
                                       pg_desc="HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L1")),
    cp("torch, default rotation, forward", "B", op="allgather_into_tensor_coalesced", variant="allgather",
       how={"frames": (RING, "torch/distributed/_functional_collectives.py(200): all_gather_tensor")}),
    cp("torch, default rotation, backward", "B", op="allgather_into_tensor_coalesced", variant="allgather",
       how={"frames": (RING_B,)}),
    cp("torch, rotation by all-to-all", "B", op="all_to_allv", variant="ring-a2a", how={"frames": (RING,), **ROTATE}),
    cp("torch FlexAttention", op="allgather_into_tensor_coalesced", variant="allgather",
       how={"scopes": ("cplib::flex_cp_allgather",)}),
    cp("torch FlexAttention, backward", op="reduce_scatter_tensor_coalesced", variant="allgather",
       how={"scopes": ("cplib::flex_cp_allgather_backward",)}),
    cp("DeepSpeed Ulysses", op="all_to_allv", variant="ulysses", how={"scopes": ("_SeqAllToAll",)}),
    cp("DeepSpeed Ulysses, backward", op="all_to_allv", variant="ulysses",
       how={"scopes": (BACKWARD.format("_SeqAllToAll"), "_SeqAllToAllBackward")}),
    cp("DeepSpeed Ulysses, GQA with uneven heads", op="all_to_allv", variant="ulysses",
       how={"scopes": ("_SeqAllToAll",), "in_splits": "[3, 5]", "out_splits": "[4, 4]"}),
    cp("DeepSpeed Ulysses by frames", "B", op="all_to_allv", variant="ulysses",
       how={"frames": ("deepspeed/sequence/layer.py(120): single_all_to_all",)}),
    cp("DeepSpeed Ulysses, HF path", "B", op="all_to_allv", variant="ulysses",
       how={"frames": ("deepspeed/runtime/sequence_parallel/ulysses_sp.py(150): forward",)}),
    cp("DeepSpeed Ulysses, loss on the sp group", "B", None, op="_allgather_base",
       how={"frames": ("deepspeed/runtime/sequence_parallel/ulysses_sp.py(400): loss",)}),
    cp("verl Ulysses", op="all_to_all", variant="ulysses", how={"scopes": ("SeqAllToAll",)}),
    cp("verl Ulysses, Gather at the end", "B", None, op="_allgather_base", variant="ulysses",
       frames=("verl/workers/fsdp_workers.py(400): update_actor",), how={"scopes": ("Gather",)}),
    cp("yunchang, 4D", op="all_to_allv", variant="ulysses", how={"scopes": ("SeqAllToAll4D",)}),
    cp("yunchang, 5D", op="all_to_allv", variant="ulysses", how={"scopes": ("SeqAllToAll5D",)}),
    cp("ring-flash-attention", op="send", variant="ring", how={"scopes": ("RingFlashAttnFunc",), "dst_rank": 1}),
    cp("ring-flash-attention, varlen", op="recv", variant="ring",
       how={"scopes": ("RingFlashAttnVarlenFunc",), "src_rank": 1}),
    cp("ring-flash-attention, zigzag", op="send", variant="ring",
       how={"scopes": ("ZigZagRingFlashAttnFunc",), "dst_rank": 1}),
    cp("ring-flash-attention, stripe", op="send", variant="ring",
       how={"scopes": ("StripeFlashAttnFunc",), "dst_rank": 1}),
    cp("ring-flash-attention, llama3 forward", op="_allgather_base", variant="allgather",
       how={"scopes": ("Llama3FlashAttnVarlenFunc",)}),
    cp("ring-flash-attention, llama3 backward", op="_reduce_scatter_base", variant="allgather",
       how={"scopes": (BACKWARD.format("Llama3FlashAttnVarlenFunc"), "Llama3FlashAttnVarlenFuncBackward")}),
    cp("ring libraries by frames", "B", op="send", variant="ring",
       how={"frames": ("ring_flash_attn/utils.py(80): send_recv_kv",), "dst_rank": 1}),
    cp("ColossalAI ring", op="send", variant="ring", how={"scopes": ("RingAttention",), "dst_rank": 1}),
    cp("ColossalAI, mode all_to_all", "B", op="all_to_allv", variant="ulysses",
       names=("MatmulWithAsyncCommunication",), how={"scopes": ("_AllToAll",)}),
    cp("vLLM decode CP, query gather", "B", op="_allgather_base", variant="decode",
       how={"frames": ("vllm/v1/attention/ops/dcp.py(40): cp_lse_ag_out_rs",)}),
    cp("vLLM decode CP, output scatter", "B", op="_reduce_scatter_base", variant="decode",
       how={"frames": ("vllm/v1/attention/ops/dcp.py(60): cp_lse_ag_out_rs",)}),
    cp("vLLM decode CP, output by all-reduce", "B", op="allreduce", variant="decode",
       how={"frames": ("vllm/v1/attention/ops/dcp.py(80): cp_lse_ag_out_ar",)}),
    cp("vLLM decode CP, packed all-to-all", "B", op="all_to_allv", variant="decode",
       how={"frames": ("vllm/v1/attention/ops/dcp.py(120): dcp_a2a_lse_reduce",)}),
    cp("vLLM decode CP by its group", op="allreduce", variant="decode", how={"pg_desc": "dcp:device"}),
    cp("vLLM prefill CP", op="_allgather_base", variant="prefill", how={"pg_desc": "pcp:device"}),
    cp("SGLang prefill CP", op="_allgather_base", variant="prefill", how={"pg_desc": "attn_cp:device"}),
    cp("Megatron group alone", op="send", how={"pg_desc": "CONTEXT_PARALLEL_GROUP", "dst_rank": 1}),
    cp("Megatron, dynamic CP", op="send", variant="dynamic", how={"pg_desc": "HYBRID_DP_CP_GROUP_4", "dst_rank": 1}),
    cp("mesh dimension", op="all_to_allv", how={"pg_desc": "mesh_cp"}),
]  # fmt: skip

UNDECIDED = [
    Row("equal all-to-all without a name", "all_to_allv", "unknown", offered="cp"),
    Row("_AllToAll alone", "all_to_allv", "unknown", how={"scopes": ("_AllToAll",)}, offered="ep"),
    Row("Gather of torch.nn.parallel", "_allgather_base", "unknown", how={"scopes": ("Gather",)}),
    Row("two ranks that exchange", "send", "unknown", how={"dst_rank": 1, "scopes": ("my_function",)}),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.id)
def test_row(row: Row) -> None:
    check(labelled(row), row)


@pytest.mark.parametrize("row", UNDECIDED, ids=lambda r: r.id)
def test_no_literal_no_label(row: Row) -> None:
    check(labelled(row), row)


@pytest.mark.parametrize(
    "framework", [("_ReduceFromModelParallelRegion",), ("_GatherTokens",)], ids=["megatron", "deepspeed"]
)
def test_all_to_all_node_of_another_framework_is_not_ulysses(framework: tuple[str, ...]) -> None:
    label = (
        micro(framework)
        .call("all_to_allv", scopes=("_AllToAll",), in_splits="[3, 5]", out_splits="[4, 4]")
        .labels()[-1]
    )
    assert (label.strategy, label.tier) == ("ep", "B")


def test_unified_sequence_parallel_is_hybrid() -> None:
    micro = (
        Micro().call("all_to_allv", scopes=("SeqAllToAll4D",)).call("send", scopes=("RingFlashAttnFunc",), dst_rank=1)
    )
    assert [(x.strategy, x.tier, x.variant) for x in micro.labels()] == [("cp", "A", "hybrid")] * 2


def test_helix_operator() -> None:
    [label] = Micro().bare("ncclDevKernel_SendRecv(int)", scopes=("trtllm::alltoall_helix",)).labels()
    assert (label.strategy, label.tier, label.variant) == ("cp", "A", "helix")


def test_position_ids_are_no_exchange() -> None:
    frame = "verl/utils/ulysses.py(300): gather_positions"
    [label] = Micro().call("_allgather_base", frames=(frame,), dtype="Long", n=512).labels()
    assert (label.strategy, label.tier, label.variant) == ("housekeeping", "B", "dataloader")


TRANSFERS = [
    ("a ring in attention", "ring_attention", (1, 3), "cp"),
    ("two ranks that exchange in attention", "self_attn", (1, 1), "cp"),
    ("a ring anywhere", "my_function", (1, 3), "unknown"),
]


@pytest.mark.parametrize(("scope", "ranks", "strategy"), [t[1:] for t in TRANSFERS], ids=[t[0] for t in TRANSFERS])
def test_transfers_without_a_name(scope: str, ranks: tuple[int, int], strategy: str) -> None:
    to, back = ranks
    group = {"group_size": 4, "rank_start": 0, "rank_stride": 1, "ranks_text": "[0, 1, 2, 3]"}
    micro = Micro({"rank": 0})
    for _ in range(3):
        micro.call("send", scopes=(scope,), dst_rank=to, **group)
        micro.call("recv", scopes=(scope,), src_rank=back, **group)
    labels = micro.labels()
    assert {(x.strategy, x.tier) for x in labels} == {(strategy, "C" if strategy == "cp" else None)}
    if strategy == "unknown":
        assert all({"cp", "pp"} <= {s for s, _ in x.alternatives} for x in labels)


def test_a_rotation_without_frames_is_suggested() -> None:
    micro = Micro().call("all_to_allv", **ROTATE).call("all_to_allv", **ROTATE)
    assert {(x.strategy, x.tier, x.variant) for x in micro.labels()} == {("cp", "C", "ring-a2a")}


def test_one_rotation_among_routed_tokens_is_none() -> None:
    routed = {**ROTATE, "in_splits": "[5, 6, 7, 8]", "out_splits": "[9, 9, 4, 4]"}
    micro = Micro().call("all_to_allv", **ROTATE).call("all_to_allv", **ROTATE).call("all_to_allv", **routed)
    assert {x.strategy for x in micro.labels()} == {"unknown"}


def test_gradients_on_a_context_parallel_group() -> None:
    [label] = Micro().call("allreduce", pg_desc="CONTEXT_PARALLEL_GROUP").labels()
    assert (label.strategy, label.tier, label.purpose) == ("dp", "C", "grad_reduce")


def test_a_group_named_after_sequence_parallel_needs_its_all_to_all() -> None:
    [alone] = Micro().call("_allgather_base", pg_desc="SEQUENCE_PARALLEL_GROUP").labels()
    assert alone.strategy == "unknown"
    both = (
        Micro()
        .call("all_to_allv", pg_desc="SEQUENCE_PARALLEL_GROUP")
        .call("allreduce", pg_desc="SEQUENCE_PARALLEL_GROUP")
    )
    assert [(x.strategy, x.tier, x.variant) for x in both.labels()] == [("cp", "A", "ulysses"), ("dp", "C", None)]


def test_equal_all_to_alls_of_heads_suggest_ulysses() -> None:
    heads = Micro().call("all_to_allv", shape=[2, 2, 32, 2, 32]).labels()[0]
    rows = Micro().call("all_to_allv", shape=[128, 64]).labels()[0]
    assert (heads.strategy, heads.tier, heads.variant) == ("cp", "C", "ulysses")
    assert (rows.strategy, {s for s, _ in rows.alternatives}) == ("unknown", {"cp", "ep"})


def test_heads_do_not_count_inside_experts() -> None:
    label = Micro().call("all_to_allv", shape=[2, 2, 32, 32], scopes=("moe_dispatch",)).labels()[0]
    assert label.strategy == "unknown"

"""Expert parallel, row by row: dispatchers of Megatron, DeepSpeed, ColossalAI, torchtitan, libraries, load balancing."""

from __future__ import annotations

import pytest
from micro import Micro
from rows import Row, check, labelled, micro

MEGATRON = ("_ReduceFromModelParallelRegion",)
DEEPSPEED = ("_GatherTokens",)
COLOSSAL = ("MatmulWithAsyncCommunication",)
UNEVEN = {"in_splits": "[30, 98]", "out_splits": "[64, 60]"}
TP_EP = "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP"
EP = "EXPERT_MODEL_PARALLEL_GROUP"
ETP = "EXPERT_TENSOR_PARALLEL_GROUP"
DISPATCHER = "megatron/core/transformer/moe/token_dispatcher.py(500): {0}"


def back(node: str) -> tuple[str, str]:
    return f"autograd::engine::evaluate_function: {node}Backward", f"{node}Backward"


def ep(name: str, op: str, tier: str = "A", purpose: str | None = None, variant: str | None = None, *, names: tuple[str, ...] = (),
       **how: object) -> Row:  # fmt: skip
    return Row(name, op, "ep", tier, purpose=purpose, variant=variant, names=names, how=how)


def keep(name: str, op: str, tier: str, variant: str | None, **how: object) -> Row:
    return Row(name, op, "housekeeping", tier, variant=variant, how=how)


ROWS = [
    # Megatron, all-to-all dispatcher
    ep("megatron alltoall: counts", "_allgather_base", "B", "token_dispatch", "counts", pg_desc=TP_EP, dtype="Long", n=64),
    ep("megatron alltoall: tokens", "all_to_allv", pg_desc=EP, scopes=("_AllToAll",), names=MEGATRON, **UNEVEN),
    ep("megatron alltoall: probabilities", "all_to_allv", pg_desc=EP, scopes=("_AllToAll",), n=128, **UNEVEN),
    ep("megatron alltoall: backward", "all_to_allv", pg_desc=EP, scopes=back("_AllToAll"), **UNEVEN),
    ep("megatron alltoall: on the tp-ep group", "all_to_allv", pg_desc=TP_EP, scopes=("_AllToAll",), **UNEVEN),
    ep("megatron alltoall: group without a name", "all_to_allv", "B", names=MEGATRON, scopes=("_AllToAll",), **UNEVEN),
    ep("megatron alltoall: dispatch by frames", "all_to_allv", "B", "token_dispatch", names=MEGATRON,
       frames=(DISPATCHER.format("token_dispatch"),)),
    ep("megatron alltoall: combine by frames", "all_to_allv", "B", "token_combine", names=MEGATRON,
       frames=(DISPATCHER.format("token_combine"),)),
    Row("megatron alltoall: etp gather", "_allgather_base", "etp", axes="etp", how={"pg_desc": ETP}),
    Row("megatron alltoall: etp scatter", "_reduce_scatter_base", "etp", axes="etp", how={"pg_desc": ETP}),
    # Megatron, all-gather dispatcher
    ep("megatron allgather: routing map", "_allgather_base", "A", "token_dispatch", "allgather", pg_desc=TP_EP, dtype="Bool",
       scopes=("_GatherFromSequenceParallelRegion",)),
    ep("megatron allgather: hidden states", "_allgather_base", "A", "token_dispatch", "allgather", pg_desc=TP_EP,
       scopes=("_GatherFromSequenceParallelRegion",)),
    ep("megatron allgather: combine", "_reduce_scatter_base", "A", "token_combine", "allgather", pg_desc=TP_EP,
       scopes=("_ReduceScatterToSequenceParallelRegion",)),
    ep("megatron allgather: by frames", "_allgather_base", "B", None, "allgather", names=MEGATRON,
       frames=(DISPATCHER.format("token_dispatch"),)),
    # Megatron, flex dispatcher
    ep("megatron flex: DeepEP dispatch", "all_to_allv", "A", "token_dispatch", "deepep", scopes=("FusedDispatch",)),
    ep("megatron flex: DeepEP combine", "all_to_allv", "A", "token_combine", "deepep", scopes=("FusedCombine",)),
    ep("megatron flex: DeepEP dispatch, backward", "all_to_allv", "A", "token_combine", "deepep", scopes=back("FusedDispatch")),
    ep("megatron flex: HybridEP dispatch", "all_to_allv", "A", "token_dispatch", "hybrid-ep", scopes=("HybridEPDispatch",)),
    ep("megatron flex: HybridEP combine, backward", "all_to_allv", "A", "token_dispatch", "hybrid-ep",
       scopes=back("HybridEPCombine")),
    ep("megatron flex: NCCL EP dispatch", "all_to_allv", "A", "token_dispatch", "nccl-ep", scopes=("_EpDispatch",)),
    ep("megatron flex: NCCL EP combine", "all_to_allv", "A", "token_combine", "nccl-ep", scopes=("_EpCombine",)),
    ep("megatron overlap: on a stream and thread of its own", "all_to_allv", pg_desc=EP, stream=33, thread="comm", **UNEVEN),
    # Megatron, router
    keep("megatron router: token counts", "allreduce", "A", "expert-load", pg_desc="TENSOR_AND_CONTEXT_PARALLEL_GROUP",
         dtype="Long", n=64, scopes=("_ReduceFromModelParallelRegion",)),
    keep("megatron router: expert bias", "allreduce", "A", "amax|expert-load", pg_desc="TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP",
         n=64),
    keep("megatron router: loss metrics over stages", "allreduce", "C", None, pg_desc="PIPELINE_MODEL_PARALLEL_GROUP", n=1),
    # DeepSpeed, ColossalAI
    ep("deepspeed: tokens", "all_to_allv", "B", names=DEEPSPEED, scopes=("_AllToAll",)),
    ep("deepspeed: tokens, backward", "all_to_allv", "B", names=DEEPSPEED, scopes=back("_AllToAll")),
    ep("deepspeed: tokens by frames", "all_to_allv", "B", frames=("deepspeed/moe/sharded_moe.py(97): forward",)),
    keep("deepspeed: capacity", "allreduce", "B", "capacity", n=1, dtype="Long",
         frames=("deepspeed/moe/sharded_moe.py(220): top1gating",)),
    Row("deepspeed: tokens over tensor ranks", "_allgather_base", "tp", "B", "tp", how={"scopes": ("_GatherTokens",)}),
    Row("deepspeed: tokens over tensor ranks, backward", "_allgather_base", "tp", "B", how={"scopes": back("_DropTokens")}),
    ep("colossalai: uneven", "all_to_allv", scopes=("AllToAllUneven",)),
    ep("colossalai: hierarchical", "all_to_allv", scopes=("HierarchicalAllToAll",)),
    ep("colossalai: dispatch", "all_to_allv", scopes=("MoeDispatch",)),
    ep("colossalai: combine", "all_to_allv", scopes=("MoeCombine",)),
    ep("colossalai: AllToAll", "all_to_allv", "B", names=COLOSSAL, scopes=("AllToAll",)),
    # torchtitan
    ep("torchtitan: counts", "all_to_allv", "A", "token_dispatch", "counts", pg_desc="mesh_ep", dtype="Long", n=16,
       scopes=("_c10d_functional::all_to_all_single",)),
    ep("torchtitan: tokens", "all_to_allv", pg_desc="mesh_ep", scopes=("_c10d_functional_autograd::all_to_all_single",), **UNEVEN),
    ep("torchtitan: DeepEP dispatch operator", "all_to_allv", "A", None, "deepep", scopes=("deepep::dispatch",)),
    ep("torchtitan: DeepEP combine operator", "all_to_allv", "A", None, "deepep", scopes=("deepep::combine",)),
    # engines
    ep("vLLM AgRs: gather by frames", "_allgather_base", "B", "token_dispatch", "allgather",
       frames=("vllm/distributed/device_communicators/all2all.py(60): dispatch",)),
    ep("vLLM AgRs: unequal gather as broadcasts", "broadcast", "B", "token_dispatch", "allgather",
       frames=("vllm/distributed/device_communicators/all2all.py(60): naive_multicast",)),
    ep("vLLM AgRs: combine by frames", "_reduce_scatter_base", "B", "token_combine", "allgather",
       frames=("vllm/distributed/device_communicators/all2all.py(90): combine",)),
    ep("vLLM AgRs: gather by its group", "_allgather_base", "A", None, "allgather", pg_desc="ep:device"),
    ep("SGLang: tokens on moe_ep", "all_to_allv", pg_desc="moe_ep:device", **UNEVEN),
    Row("SGLang: sum over expert ranks", "allreduce", "ep", "B", "ep", "token_combine", groups=("moe_ep:device",),
        how={"pg_desc": "moe_ep:device"}),
    Row("SGLang: shards of an expert", "allreduce", "etp", "A", "etp", how={"pg_desc": "moe_tp:device"}),
    # load balancing
    Row("EPLB: own group", "send", "eplb", purpose="weight_move", how={"pg_desc": "eplb:device", "dst_rank": 1}),
    Row("EPLB: vLLM scope", "send", "eplb", purpose="weight_move", how={"scopes": ("gpu_model_runner: eplb",), "dst_rank": 1}),
    Row("EPLB: vLLM migration", "recv", "eplb", how={"scopes": ("eplb: schedule migration batches",), "src_rank": 1}),
    Row("EPLB: SGLang frames", "send", "eplb", "B",
        how={"frames": ("sglang/srt/eplb/expert_location_updater.py(300): _execute_p2p_ops",), "dst_rank": 1}),
    keep("EPLB: load statistics", "allreduce", "A", "expert-load", dtype="Int", n=256, scopes=("gpu_model_runner: eplb",)),
    keep("EPLB: load statistics on its group", "allreduce", "A", "expert-load", dtype="Long", n=256, pg_desc="eplb:device"),
    # recommenders
    ep("TorchRec: ids", "all_to_allv", "C", "token_dispatch", "embedding-tables", scopes=("## all2all_data:kjt lengths ##",)),
    ep("TorchRec: embeddings", "all_to_allv", "C", None, "embedding-tables", scopes=("All2All_Pooled_Req", "## alltoall_fwd_single ##")),
]  # fmt: skip

KERNELS = [
    ("DeepEP intranode dispatch", "void deep_ep::intranode::dispatch<8, 768>(int4*)", "token_dispatch", "deepep"),
    ("DeepEP intranode combine", "void deep_ep::intranode::combine<8, 768>(int4*)", "token_combine", "deepep"),
    ("DeepEP notify", "void deep_ep::intranode::notify_dispatch<8>(int const*)", None, "deepep"),
    ("DeepEP cached notify", "void deep_ep::internode::cached_notify(int)", None, "deepep"),
    ("DeepEP internode dispatch", "void deep_ep::internode::dispatch<true>(int4*)", "token_dispatch", "deepep"),
    ("DeepEP layout", "void deep_ep::layout::get_dispatch_layout<256>(long const*)", None, "deepep"),
    ("DeepEP low latency dispatch", "void deep_ep::internode_ll::dispatch<true>(void*)", "token_dispatch", "deepep-ll"),
    ("DeepEP low latency combine", "void deep_ep::internode_ll::combine<7>(void*)", "token_combine", "deepep-ll"),
    ("DeepSeek's own build", "void dpsk::ep::internode::combine<8>(int)", "token_combine", "deepep"),
    ("DeepEP V2 dispatch", "void hybrid_dispatch_impl<8>(int)", "token_dispatch", "deepep"),
    ("DeepEP V2 combine", "void hybrid_combine_impl<8>(int)", "token_combine", "deepep"),
    ("DeepEP V2 dispatch epilogue", "void dispatch_copy_epilogue_impl<8>(int)", "token_dispatch", "deepep"),
    ("DeepEP V2 combine epilogue", "void combine_reduce_epilogue_impl<8>(int)", "token_combine", "deepep"),
    ("NIXL EP", "void nixl_ep_dispatch_kernel(int)", "token_dispatch", None),
    ("MoRI", "void mori::moe::EpDispatchIntraNodeKernel<float>(int)", "token_dispatch", None),
    ("FlashInfer all-to-all", "void tensorrt_llm::kernels::moeAllToAllKernel<true>(int)", None, None),
    ("FlashInfer sizes", "void tensorrt_llm::kernels::computeSendRecvRankCountKernel(int)", None, None),
    ("FlashInfer prepare", "void moeA2APrepareDispatchKernel<8>(int)", None, None),
    ("FlashInfer dispatch", "void moeA2ADispatchKernel<8>(int)", "token_dispatch", None),
    ("FlashInfer combine", "void moeA2ACombineKernel<8>(int)", "token_combine", None),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.id)
def test_row(row: Row) -> None:
    check(labelled(row), row)


@pytest.mark.parametrize(("kernel", "purpose", "variant"), [k[1:] for k in KERNELS], ids=[k[0] for k in KERNELS])
def test_kernels_without_any_record(kernel: str, purpose: str | None, variant: str | None) -> None:
    [label] = Micro().bare(kernel).labels()
    assert (label.strategy, label.tier, label.purpose, label.variant) == ("ep", "A", purpose, variant), label.rule


def test_low_latency_kernels_suggest_decoding() -> None:
    [low, high] = Micro().bare(KERNELS[6][1]).bare(KERNELS[0][1]).labels()
    assert (low.phase, high.phase) == ("decode", None)


def test_a_jit_name_alone_is_nobodys() -> None:
    assert Micro().bare("void dispatch_impl<8>(int)").labels() == []


def test_v2_plain_names_beside_its_own() -> None:
    calls = (
        Micro()
        .bare("void hybrid_dispatch_impl<8>(int)")
        .bare("void dispatch_impl<8>(int)")
        .bare("void barrier_impl<8>(int)")
    )
    assert {(x.strategy, x.tier) for x in calls.labels()} == {("ep", "A")}


def test_memory_table_of_deepep_is_no_expert_traffic() -> None:
    labels = Micro().bare("void hybrid_dispatch_impl<8>(int)").bare("void engram_fetch_impl<8>(int)").labels()
    assert [x.strategy for x in labels] == ["ep", "unknown"]


@pytest.mark.parametrize("scope", ["_AllToAll", "AllToAll", "dispatch(F)"])
def test_a_name_of_anybody_does_not_decide(scope: str) -> None:
    [label] = Micro().call("all_to_allv", scopes=(scope,)).labels()
    assert label.strategy == "unknown"
    assert "ep" in [s for s, _ in label.alternatives]


def test_megatron_resharding_with_equal_splits_is_not_decided() -> None:
    label = micro(MEGATRON).call("all_to_allv", scopes=("_AllToAll",)).labels()[-1]
    assert label.strategy == "unknown"


def test_tp_ep_group_alone_does_not_decide() -> None:
    [label] = Micro().call("_allgather_base", pg_desc=TP_EP).labels()
    assert label.strategy == "unknown"
    assert "ep" in [s for s, _ in label.alternatives]


def test_activations_under_the_same_node_stay_tensor_parallel() -> None:
    how = {"scopes": ("_GatherFromSequenceParallelRegion",), "pg_desc": "TENSOR_MODEL_PARALLEL_GROUP"}
    [label] = Micro().call("_allgather_base", **how).labels()
    assert (label.strategy, label.tier) == ("sp", "A")


def test_counts_ahead_of_tokens_suggest_experts() -> None:
    micro = Micro().call("all_to_allv", dtype="Long", n=8).call("all_to_allv", shape=[128, 64], **UNEVEN)
    assert [(x.strategy, x.tier, x.variant) for x in micro.labels()] == [("ep", "C", "counts"), ("ep", "C", None)]


def test_uneven_shares_alone_are_offered() -> None:
    [label] = Micro().call("all_to_allv", **UNEVEN).labels()
    assert (label.strategy, [s for s, _ in label.alternatives]) == ("unknown", ["ep"])


def test_weights_on_the_balancing_group_are_no_tokens() -> None:
    label = Micro().call("broadcast", pg_desc="eplb:device").labels()[0]
    assert (label.strategy, label.purpose) == ("eplb", "weight_move")

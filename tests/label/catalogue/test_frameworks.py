"""Frameworks: every literal of each tells it, and literals that several share tell none."""

from __future__ import annotations

import pytest
from micro import RULES, Micro, group

from tracekit.label import label_rank

NAMES = {
    "ddp": ["DistributedDataParallel.forward", "torch.distributed.ddp.reducer::copy_bucket_to_grad"],
    "fsdp1": ["FullyShardedDataParallel._pre_forward", "FullyShardedDataParallel._post_backward_hook"],
    "fsdp2": ["FSDP::all_gather (layers.0)", "FSDP::post_backward_reduce", "fsdp::chunk_cat"],
    "dtensor": ["Redistribute", "autograd::engine::evaluate_function: _FromTorchTensorBackward", "NestedRedistribute"],
    "pipelining": ["PP:0F1", "PP:2RECV_B1", "PP:(0F3;3B1)OVERLAP_F_B"],
    "context_parallel": ["cplib::flex_cp_allgather", "cplib::flex_cp_allgather_backward"],
    "accelerate": ["Optimizer.step#AcceleratedOptimizer.step"],
    "megatron": ["_ReduceFromModelParallelRegion", "LinearWithGradAccumulationAndAsyncCommunicationBackward"],
    "megatron_fsdp": ["CustomFSDP.forward"],
    "transformer_engine": [
        "_LayerNormLinear",
        "autograd::engine::evaluate_function: _LayerNormLinearBackward",
        "AttnFuncWithCPAndKVP2PBackward",
        "void transformer_engine::nvte_fused<float>(float*)",
        "void userbuffers_fp16_sum_inplace_gpu_rr_ag<4>(int)",
    ],
    "deepspeed": ["_SeqAllToAll", "autograd::engine::evaluate_function: _SeqAllToAllBackward", "_GatherTokens"],
    "nanotron": ["DifferentiableAllReduceSum", "sync_gradients_across_dp", "SendTensorToPipelineBufferBackward"],
    "colossalai": ["MatmulWithAsyncCommunication", "EPGradScalerIn", "AllToAllUneven"],
    "torchrec": ["All2All_Pooled_Req", "## all2all_data:kjt lengths ##"],
    "vllm": ["vllm::all_reduce", "execute_context_1(4)_generation_0(0)", "gpu_model_runner: eplb"],
    "sglang": ["sglang::inplace_all_reduce", "step[DECODE bs=4]", "step[EXTEND bs=1 toks=512]"],
    "tensorrt_llm": ["trtllm::allreduce", "trtllm::alltoall_helix"],
}
FRAMES = {
    "ddp": "torch/nn/parallel/distributed.py(1600): forward",
    "fsdp1": "torch/distributed/fsdp/_runtime_utils.py(500): _pre_forward",
    "fsdp2": "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py(330): unshard",
    "dtensor": "torch/distributed/tensor/_redistribute.py(300): redistribute_local_tensor",
    "pipelining": "torch/distributed/pipelining/schedules.py(700): _batch_p2p",
    "context_parallel": "torch/distributed/tensor/experimental/_attention.py(300): _templated_ring_attention",
    "torchtitan": "torchtitan/train.py(400): train_step",
    "accelerate": "accelerate/accelerator.py(2500): backward",
    "megatron": "megatron/core/tensor_parallel/mappings.py(20): _reduce",
    "megatron_fsdp": "megatron_fsdp/param_and_grad_buffer.py(900): all_gather_params",
    "transformer_engine": "transformer_engine/pytorch/module/linear.py(100): forward",
    "deepspeed": "/usr/lib/python3/site-packages/deepspeed/runtime/zero/stage3.py(1200): step",
    "nanotron": "nanotron/parallel/tensor_parallel/distributed_differentiable_primitives.py(40): forward",
    "colossalai": "colossalai/shardformer/layer/_operation.py(80): forward",
    "torchrec": "torchrec/distributed/comm_ops.py(500): forward",
    "verl": "verl/workers/fsdp_workers.py(400): update_actor",
    "vllm": "vllm/v1/worker/gpu_model_runner.py(1000): execute_model",
    "sglang": "sglang/srt/managers/scheduler.py(900): run_batch",
    "tensorrt_llm": "tensorrt_llm/_torch/distributed/ops.py(60): allreduce",
}
GROUPS = {
    "torchtitan": ["mesh_loss_mesh", "mesh_efsdp", "mesh_dp_shard_mod_ep"],
    "megatron": [
        "TENSOR_MODEL_PARALLEL_GROUP",
        "DATA_PARALLEL_GROUP_WITH_CP_AG",
        "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP",
        "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP",
    ],
    "verl": ["mesh_infer_tp", "mesh_infer_pp"],
    "sglang": ["attention_tp:device", "moe_ep:device", "attn_cp:cpu", "self_pp:device"],
    "vllm": ["pcp:device", "eplb:device"],
}
SHARED = [
    # (id, names, frames, descriptions): seen in more than one framework, so they tell none
    ("class of three libraries", ["_AllToAll", "_AllToAllBackward", "SeqAllToAll", "RingFlashAttnFunc"], [], []),
    ("kernels that travel", ["void vllm::cross_device_reduce_2stage<float>(int)", "sgl_kernel::all_reduce"], [], []),
    ("kernels of FlashInfer", ["void tensorrt_llm::kernels::allreduce_fusion_kernel<1>(int)"], [], []),
    ("mesh of any user", [], [], ["mesh_tp", "mesh_dp", "mesh_dp_shard_cp", "mesh_sequence_parallel"]),
    ("groups of two engines", [], [], ["tp:device", "pp:device", "dp:device", "world:cpu"]),
    ("optimizer", ["Optimizer.step#AdamW.step"], ["torch/optim/adamw.py(10): step"], []),
    ("user scopes", ["## forward ##", "dispatch(F)"], ["train.py(3): main", "my_megatron.py(1): f"], []),
]


def found(names: list[str] = [], frames: list[str] = [], groups: list[str] = []) -> set[str]:  # noqa: B006
    micro = Micro({"groups": tuple(group(str(i), d, 0, 1) for i, d in enumerate(groups, 1))})
    for i, name in enumerate(names):
        micro.b.op(10 * i, 5, name)
    for i, name in enumerate(frames):
        micro.b.span("python", 1000 + 10 * i, 5, name)
    return set(label_rank(micro.b.build(), RULES).frameworks)


def cases(table: dict[str, list[str]]) -> list[object]:
    return [pytest.param(who, what, id=f"{who}: {what}") for who, all_ in table.items() for what in all_]


@pytest.mark.parametrize(("framework", "name"), cases(NAMES))
def test_names(framework: str, name: str) -> None:
    assert found(names=["aten::mm", name]) == {framework}


@pytest.mark.parametrize(("framework", "frame"), FRAMES.items())
def test_frames(framework: str, frame: str) -> None:
    assert framework in found(frames=["runpy.py(1): run", frame])


@pytest.mark.parametrize(("framework", "frame"), FRAMES.items())
def test_a_frame_tells_no_other_library(framework: str, frame: str) -> None:
    nested = {"context_parallel": {"dtensor"}}  # lies below the folder of DTensor
    assert found(frames=[frame]) == {framework} | nested.get(framework, set())


@pytest.mark.parametrize(("framework", "desc"), cases(GROUPS))
def test_groups(framework: str, desc: str) -> None:
    assert found(groups=["default_pg", desc]) == {framework}


@pytest.mark.parametrize(("names", "frames", "groups"), [c[1:] for c in SHARED], ids=[c[0] for c in SHARED])
def test_shared_literals_tell_none(names: list[str], frames: list[str], groups: list[str]) -> None:
    assert found(names, frames, groups) == set()


def test_several_at_once() -> None:
    seen = found(["_LayerNormLinear", "_ReduceFromModelParallelRegion"], [FRAMES["verl"]], ["mesh_infer_tp"])
    assert seen == {"transformer_engine", "megatron", "verl"}


def test_every_framework_is_listed_once() -> None:
    ids = [r.id for r in RULES.frameworks]
    assert sorted(ids) == sorted(set(NAMES) | set(FRAMES) | set(GROUPS))
    assert all(r.note or r.frames for r in RULES.frameworks)

"""What encloses calls and kernels on the host: the literals of each framework."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.simulate.device import Gpu

LINEAR = "LinearWithGradAccumulationAndAsyncCommunication"
EVALUATE = "autograd::engine::evaluate_function: "
ACCUMULATE = "torch::autograd::AccumulateGrad"


def node(name: str, *inside: str) -> tuple[str, ...]:
    """A node of the backward and what it calls."""
    return (EVALUATE + name, name, *inside)


SCOPES: dict[str, dict[str, tuple[str, ...]]] = {
    "megatron": {
        "linear": (LINEAR,), "linear_backward": node(LINEAR + "Backward"),
        "reduce": ("_ReduceFromModelParallelRegion",),
        "scatter": ("_ReduceScatterToSequenceParallelRegion",),
        "scatter_backward": node("_ReduceScatterToSequenceParallelRegionBackward"),
        "gather": (), "gather_again": (), "dgrad_reduce": (), "dgrad_scatter": (),
        "norm": ("FusedLayerNormAffineFunction",), "norm_backward": node("FusedLayerNormAffineFunctionBackward"),
        "attention": ("FlashAttnFunc",), "attention_backward": node("FlashAttnFuncBackward"),
        "loss": ("_VocabParallelCrossEntropy",), "loss_backward": node("_VocabParallelCrossEntropyBackward"),
        "dispatch": ("_AllToAll",), "dispatch_backward": node("_AllToAllBackward"),
        "counts": ("_GatherFromSequenceParallelRegion",),
    },
    "torch": {
        "linear": ("aten::linear",), "linear_backward": node("MmBackward0"),
        "reduce": ("Redistribute", "_c10d_functional::all_reduce"),
        "scatter": ("Redistribute", "_c10d_functional::reduce_scatter_tensor"),
        "scatter_backward": node(
            "RedistributeBackward", "NestedRedistribute", "_c10d_functional::all_gather_into_tensor"
        ),
        "gather": ("Redistribute", "_c10d_functional::all_gather_into_tensor"),
        "dgrad_reduce": node("_FromTorchTensorBackward", "_c10d_functional::all_reduce"),
        "dgrad_scatter": node("RedistributeBackward", "NestedRedistribute", "_c10d_functional::reduce_scatter_tensor"),
        "norm": ("aten::_fused_rms_norm",), "norm_backward": node("FusedRmsNormBackward0"),
        "attention": ("aten::_scaled_dot_product_flash_attention",),
        "attention_backward": node("ScaledDotProductFlashAttentionBackward0"),
        "loss": ("aten::_log_softmax", "_c10d_functional::all_reduce"), "loss_backward": node("LogSoftmaxBackward0"),
        "dispatch": ("_c10d_functional_autograd::all_to_all_single",),
        "dispatch_backward": node("_AllToAllSingleBackward", "_c10d_functional::all_to_all_single"),
        "counts": ("_c10d_functional::all_to_all_single",),
    },
}  # fmt: skip
CONTEXT = {
    "ring": "AttnFuncWithCPAndKVP2P",
    "all_gather": "AttnFuncWithCPAndKVAllGather",
    "ulysses": "AttnFuncWithCPAndQKVOA2A",
}

KERNELS = {
    "norm": "void layer_norm::ln_fwd_kernel<__nv_bfloat16, float>(layer_norm::FwdParams)",
    "norm_backward": "void layer_norm::ln_bwd_kernel<__nv_bfloat16, float>(layer_norm::BwdParams)",
    "gemm": "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
    "dgrad": "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NNT",
    "wgrad": "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NTN",
    "attention": "void cutlass::device_kernel<flash::FlashAttnFwdSm90<cutlass::bfloat16_t> >(flash::Params)",
    "attention_backward": "void cutlass::device_kernel<flash::FlashAttnBwdSm90<cutlass::bfloat16_t> >(flash::Params)",
    "act": "void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel>(int)",
    "act_backward": "void at::native::vectorized_elementwise_kernel<4, at::native::silu_backward_kernel>(int)",
    "add": "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16> >(int)",
    "lookup": "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long)",
    "lookup_backward": "void at::native::embedding_backward_feature_kernel<c10::BFloat16, float, long>(long const*)",
    "softmax": "void at::native::softmax_warp_forward<c10::BFloat16, float, float, 11, true>(float*)",
    "softmax_backward": "void at::native::softmax_warp_backward<float, float, c10::BFloat16, 11, true>(float*)",
    "permute": "void at::native::index_elementwise_kernel<128, 4>(long)",
    "copy_out": "void at::native::split_with_sizes_copy_out_contiguous_no_cast_kernel<true>(char*)",
    "adam": "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, float> >(int, int volatile*)",
    "grad_norm": "void multi_tensor_apply_kernel<TensorListMetadata<1>, L2NormFunctor<float> >(int, int volatile*)",
}
OPERATORS = {
    "gemm": "aten::mm", "dgrad": "aten::mm", "wgrad": "aten::mm", "attention": "aten::_flash_attention_forward",
    "attention_backward": "aten::_flash_attention_backward", "act": "aten::silu", "act_backward": "aten::silu_backward",
    "lookup": "aten::embedding", "lookup_backward": "aten::embedding_dense_backward", "softmax": "aten::_softmax",
    "softmax_backward": "aten::_softmax_backward_data", "permute": "aten::index",
    "copy_out": "fsdp::split_with_sizes_copy", "adam": "aten::_fused_adamw_", "grad_norm": "aten::linalg_vector_norm",
    "add": "aten::add", "norm": "aten::native_layer_norm", "norm_backward": "aten::native_layer_norm_backward",
}  # fmt: skip


@contextmanager
def within(gpu: Gpu, *names: str) -> Iterator[None]:
    """Operators around what is issued inside."""
    for name in names:
        gpu.open(name)
    yield
    gpu.close(len(names))


@contextmanager
def note(gpu: Gpu, *names: str) -> Iterator[None]:
    """Annotations around what is issued inside."""
    for name in names:
        gpu.open(name, "user_annotation")
    yield
    gpu.close(len(names))


def compute(gpu: Gpu, what: str, ns: int) -> None:
    """One kernel under its operator."""
    gpu.open(OPERATORS[what])
    blocks = 128 + 8 * (ns // 4_000)
    gpu.kernel(
        KERNELS[what], ns,
        f'"registers per thread": 128, "shared memory": 49152, "blocks per SM": {blocks / 132:.6f}, '
        f'"warps per SM": {blocks * 8 / 132:.6f}, "grid": [{blocks}, 1, 1], "block": [256, 1, 1], '
        f'"est. achieved occupancy %": {min(100, blocks // 4)}',
    )  # fmt: skip
    gpu.close()

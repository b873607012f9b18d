"""A corpus of kernel names, as recorded in real traces or spelled in the libraries' sources."""

from __future__ import annotations

import random
import re

import pytest

from tracekit.label import load_rules
from tracekit.label.kernels import Classifier, Gate, KernelRule, qualified_name
from tracekit.model import Kind

COMM = [
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nccl", "all_reduce"),
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "nccl", "all_reduce"),
    (
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "nccl",
        "send_recv",
    ),
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nccl", "all_gather"),
    ("ncclDevKernel_AllGatherV_RING_LL(ncclDevComm*)", "nccl", "all_gather"),
    ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevComm*)", "nccl", "reduce_scatter"),
    ("ncclDevKernel_Broadcast_RING_LL(ncclDevComm*)", "nccl", "broadcast"),
    ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevComm*)", "nccl", "reduce"),
    ("ncclDevKernel_Generic(ncclDevComm*, unsigned long, ncclWork*)", "nccl", None),
    ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "nccl", None),
    ("ncclDevKernelDebug_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "nccl", None),
    ("ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_f32(ncclSymDevArgs)", "nccl", "all_reduce"),
    ("ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs4K)", "nccl", "all_gather"),
    ("ncclSomethingNew_v9(int)", "nccl", None),
    ("rcclGenericKernel<1>(int)", "rccl", None),
    ("mscclKernel_Sum_half_LL_fullOps(ncclDevComm*)", "msccl", None),
    ("void mscclpp::collective::allreduceNvls<float>(float*)", "msccl", "all_reduce"),
    ("void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*)", "deepep", "dispatch"),
    ("void deep_ep::internode_ll::combine<3, 10, 7168, 9>(void*)", "deepep", "combine"),
    ("void deep_ep::legacy::intranode::notify_dispatch<8>(int const*)", "deepep", "notify"),
    ("void deep_ep::intranode::cached_notify_combine<8>(void**)", "deepep", "notify"),
    ("dpsk::ep::internode::dispatch(int)", "deepep", "dispatch"),
    (
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "custom_allreduce",
        "all_reduce",
    ),
    (
        "void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8>(aiter::RankData*)",
        "custom_allreduce",
        "all_reduce",
    ),
    ("_ZN4vllm26cross_device_reduce_2stageI6__halfLi4EEEvPNS_8RankDataE", "custom_allreduce", "all_reduce"),
    (
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot>(int)",
        "quickreduce",
        "all_reduce",
    ),
    (
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "symm_mem",
        "all_reduce",
    ),
    (
        "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 16>(float*)",
        "symm_mem",
        "all_reduce",
    ),
    ("void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16>(float**)", "symm_mem", "all_reduce"),
    ("void at::native::one_shot_all_reduce_kernel<float>(float**)", "symm_mem", "all_reduce"),
    ("multimem_all_gather_kernel<16>(unsigned int*)", "symm_mem", "all_gather"),
    ("void nvshmemi_transfer_rma_kernel<int>(int)", "nvshmem", None),
    ("nvshmem_barrier_all_kernel()", "nvshmem", "barrier"),
    ("void exchangeSplitAndOffset_2d<true>(long*)", "nvshmem", "all_to_all"),
    ("void kuserbuffers_pushsend<8>(int*)", "userbuffers", "send_recv"),
    ("void userbuffers_fp16_sum_inplace_gpu_rr_rs<8>(int)", "userbuffers", "reduce_scatter"),
    ("void tensorrt_llm::kernels::oneShotAllReduceKernel<float, 8>(int)", "trtllm", "all_reduce"),
    ("void moeA2ADispatchKernel<int>(int)", "trtllm", "dispatch"),
    ("void tensorrt_llm::kernels::moeAllToAllKernel<true>(int)", "trtllm", "all_to_all"),
    ("void mori::moe::EpDispatchIntraNodeKernel<float>(int)", "mori", "dispatch"),
    ("uccl::internode_ll::combine(int)", "uccl", "combine"),
    ("nixl_ep_dispatch_kernel(int)", "nixl", "dispatch"),
    ("xccl::allreduce", "xccl", "all_reduce"),
    ("hccl::reduceScatter", "hccl", "reduce_scatter"),
    ("triton_all_to_all_v_kernel", "custom", "all_to_all"),
    ("my_ring_allreduce_kernel(float*)", "custom", "all_reduce"),
]
FUSED = [
    (
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, half, 8>(int)",
        "all_reduce",
    ),
    ("moereduce_allreduce_fusion_kernel_oneshot_lamport<int>(int)", "all_reduce"),
    ("lamport_style_one_shot_all_reduce_norm_kernel<half>(int)", "all_reduce"),
    ("one_shot_prenorm_all_reduce_norm_kernel<half>(int)", "all_reduce"),
    ("oneshotAllreduceFusionKernel<8>(int)", "all_reduce"),
    ("kernel_gemm_rs_persistent", "reduce_scatter"),
    ("gemm_reduce_scatter_kernel(float*)", "reduce_scatter"),
    ("ag_gemm_kernel(float*)", "all_gather"),
]
COMPUTE = [
    "void at::native::batch_norm_collect_statistics_kernel<float>(int)",
    "SyncBatchNorm_elemt(float*)",
    "void at::native::(anonymous namespace)::sum_and_scatter<c10::BFloat16, long>(long const*)",
    "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*>>(int)",
    "void at_cuda_detail::cub::DeviceSelectSweepKernel<at_cuda_detail::cub::DispatchSelectIf<int>>(int)",
    "triton_red_fused_add_all_reduce_mean_mul_wait_tensor_5",
    "triton_poi_fused__to_copy_all_gather_into_tensor_3",
    "_combined_routing_compute",
    "_finalize_matmul_scatter_bf16",
    "dispatch_impl",
    "combine_impl<8>(int)",
    "barrier_kernel(int)",
    "producer_kernel(int)",
    "consumer_kernel(int)",
    "void combine<int>(int)",
    "dispatch(int)",
    "admashuffle_sync_kernel(float*)",
    "_Z28kn_fmla_fwd_splictkv_combineI19FlashMlaKernelTraitILi576EEEvS0_",
    "void flash::flash_fwd_splitkv_combine_kernel<Flash>(int)",
    "void warp_allreduce_softmax<float>(float*)",
    "void block_all_reduce_sum<float>(float*)",
    "void groupnorm_kernel_dispatch_up<int>(int)",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_arrive",
    "void cutlass::Kernel<cutlass_80_tensorop_s16816gemm_relu>(int)",
    "Memcpy3DAsync_kernel(int)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
    "recompute_token_barrier_free(int)",
]


@pytest.fixture(scope="module")
def classify():
    return Classifier(load_rules().kernels)


@pytest.mark.parametrize(("name", "family", "op"), COMM, ids=[c[0][:50] for c in COMM])
def test_communication(classify, name, family, op):
    found = classify(name)
    assert (found.kind, found.family, found.op) == (Kind.COMM, family, op)


@pytest.mark.parametrize(("name", "op"), FUSED, ids=[c[0][:50] for c in FUSED])
def test_fused(classify, name, op):
    found = classify(name)
    assert (found.kind, found.op) == (Kind.FUSED, op)


@pytest.mark.parametrize("name", COMPUTE)
def test_compute(classify, name):
    assert classify(name).kind is Kind.COMPUTE


@pytest.mark.parametrize(
    ("name", "neighbour", "family"),
    [
        ("dispatch_impl<8>(int)", "hybrid_combine_impl(int)", "deepep"),
        ("combine_impl", "deep_ep::Buffer", "deepep"),
        ("pp_send_impl", "dispatch_copy_epilogue_impl(int)", "deepep"),
        ("producer_kernel(int)", "void kuserbuffers_pushsend<8>(int*)", "userbuffers"),
        ("barrier_kernel(int)", "symm_mem::multimem_all_reduce_", "symm_mem"),
    ],
)
def test_plain_names_need_their_context(name, neighbour, family):
    rules = load_rules().kernels
    assert Classifier(rules, [name])(name).kind is Kind.COMPUTE
    found = Classifier(rules, [name, neighbour])(name)
    assert (found.kind, found.family) == (Kind.COMM, family)


def test_rocm_reports_rccl():
    found = Classifier(load_rules().kernels, rocm=True)("ncclDevKernel_Generic_4(int)")
    assert found.family == "rccl"


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ("void a::b<c::d<int> >::e(f(*)(g))", "a::b::e"),
        ("void (anonymous namespace)::k<(int)3>(int)", "k"),
        ("_ZN7deep_ep9intranode8dispatchILi8EEEvPi", "deep_ep::intranode::dispatch"),
        ("_Z23ncclDevKernel_Generic_424ncclDevKernelArgsStorageILm4096EE", "ncclDevKernel_Generic_4"),
        ("gemm.kd", "gemm"),
        ("", ""),
        ("Cijk_Ailk_Bljk_HHS_BH_MT64x64x32", "Cijk_Ailk_Bljk_HHS_BH_MT64x64x32"),
    ],
)
def test_qualified_name(raw, want):
    assert qualified_name(raw) == want


@pytest.mark.parametrize(
    "pattern",
    [r"(?i)^MyComm_\w+", r"^(my)comm_\1", r"(?P<x>my)comm_(?P=x)", "(?is)mycomm_.y", re.compile("MYCOMM_MY", re.I)],
)
def test_patterns_that_mean_something_else_in_a_union_still_match(pattern: str | re.Pattern[str]) -> None:
    compiled = re.compile(pattern) if isinstance(pattern, str) else pattern
    own = KernelRule("own", Kind.COMM, "test", family="mine", base=compiled)
    classifier = Classifier([own, *load_rules().kernels])
    assert classifier("mycomm_my").family == "mine"
    assert classifier("gemm").kind is Kind.COMPUTE
    assert classifier("ncclDevKernel_AllReduce_Sum_f32_RING_LL").family == "nccl"


def test_names_that_no_rule_admits_match_no_rule() -> None:
    rules = load_rules().kernels
    gate = Gate(rules)
    parts = (
        "nccl",
        "Dev",
        "Kernel",
        "_",
        "all",
        "reduce",
        "::",
        "deep_ep",
        "gemm",
        "x",
        "<4, int>",
        "(int*)",
        "^",
        "7",
    )
    rng = random.Random(5)
    for _ in range(500):
        name = "".join(rng.choices(parts, k=rng.randint(1, 6)))
        qualified = qualified_name(name)
        base = qualified.rsplit("::", 1)[-1]
        if not gate.admits(name, qualified, base):
            assert not any(r.matches(name, qualified, base) for r in rules), name

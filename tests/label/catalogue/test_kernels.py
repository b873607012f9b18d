"""Communication without NCCL kernels: every family of the catalogue, what it is, and what it usually serves."""

from __future__ import annotations

import numpy as np
import pytest
from label_builder import TraceBuilder
from micro import RULES, Micro

from tracekit.label import label_rank
from tracekit.label.kernels import Classifier
from tracekit.model import Kind

A, B, C = "A", "B", "C"
# (kernel, kind, family, operation, strategy, tier): launched alone, as in a replayed graph
FAMILIES = [
    ("void deep_ep::intranode::dispatch<8>(int)", "comm", "deepep", "dispatch", "ep", A),
    ("void dpsk::ep::internode::combine<8>(int)", "comm", "deepep", "combine", "ep", A),
    ("void hybrid_combine_impl<8>(int)", "comm", "deepep", "combine", "ep", A),
    ("void vllm::cross_device_reduce_1stage<half, 8>(int)", "comm", "custom_allreduce", "all_reduce", "tp", C),
    ("void sglang::cross_device_reduce_2stage<half, 8>(int)", "comm", "custom_allreduce", "all_reduce", "tp", C),
    ("void sglang::cross_device_reduce_scatter<half>(int)", "comm", "custom_allreduce", "reduce_scatter", "tp", C),
    ("void mnnvl_lamport_all_reduce_kernel<half>(int)", "comm", "custom_allreduce", "all_reduce", "tp", C),
    ("void (anonymous namespace)::multimem_all_reduce_kernel<float, 16>(float*)", "comm", "symm_mem", "all_reduce", "tp", C),
    ("void (anonymous namespace)::multimem_one_shot_reduce_kernel<float>(float*)", "comm", "symm_mem", "reduce", "unknown", None),
    ("multimem_all_gather_kernel<16>(int)", "comm", "symm_mem", "all_gather", "unknown", None),
    ("void (anonymous namespace)::one_shot_all_reduce_kernel<float>(float*)", "comm", "symm_mem", "all_reduce", "tp", C),
    ("void (anonymous namespace)::two_shot_all_reduce_kernel<float>(float*)", "comm", "symm_mem", "all_reduce", "tp", C),
    ("void all_to_all_lsa_kernel<float>(float*)", "comm", "symm_mem", "all_to_all", "ep", C),
    ("void allreduce_fusion_kernel_oneshot_lamport<1, half>(int)", "fused", "trtllm", "all_reduce", "tp", C),
    ("void allreduce_fusion_kernel_twoshot_sync<1, half>(int)", "fused", "trtllm", "all_reduce", "tp", C),
    ("void moereduce_allreduce_fusion_kernel_oneshot_lamport<half>(int)", "fused", "trtllm", "all_reduce", "tp", C),
    ("void moefinalize_allreduce_fusion_kernel_oneshot_lamport<half>(int)", "fused", "trtllm", "all_reduce", "tp", C),
    ("void lamport_style_one_shot_all_reduce_norm_kernel<half>(int)", "fused", "trtllm", "all_reduce", "tp", C),
    ("void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(int)", "comm", "trtllm", "all_reduce", "tp", C),
    ("void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8>(int)", "comm", "trtllm", "all_reduce", "tp", C),
    ("void tensorrt_llm::kernels::lamport_style_one_shot_all_reduce_kernel<half>(int)", "comm", "trtllm", "all_reduce", "tp", C),
    ("void twoshotAllreduceKernel<half>(int)", "comm", "trtllm", "all_reduce", "tp", C),
    ("void ipc_one_shot_push_kernel<half>(int)", "comm", "trtllm", "all_reduce", "tp", C),
    ("void tensorrt_llm::kernels::moeAllToAllKernel<true>(int)", "comm", "trtllm", "all_to_all", "ep", A),
    ("void helixAllToAllKernel<true>(int)", "comm", "helix", "all_to_all", "cp", A),
    ("void userbuffers_fp16_sum_inplace_gpu_rr_rs<8>(int)", "comm", "userbuffers", "reduce_scatter", "sp", A),
    ("void userbuffers_fp16_sum_inplace_gpu_rw_ag<8>(int)", "comm", "userbuffers", "all_gather", "sp", A),
    ("void userbuffers_fp16_sum_inplace_gpu_mc<8>(int)", "comm", "userbuffers", "all_reduce", "tp", A),
    ("void kuserbuffers_pushsendrecv(int)", "comm", "userbuffers", "send_recv", "tp", A),
    ("void kuserbuffers_pullrecv(int)", "comm", "userbuffers", "send_recv", "tp", A),
    ("nvshmemi_alltoall_kernel(int)", "comm", "nvshmem", "all_to_all", "ep", C),
    ("void nvshmemi_transfer_rma_kernel<int>(int)", "comm", "nvshmem", "unknown", "unknown", None),
    ("void allToAllV_2d<16>(long*)", "comm", "nvshmem", "all_to_all", "ep", C),
    ("void exchangeSplitAndOffset<true>(long*)", "comm", "nvshmem", "all_to_all", "ep", C),
]  # fmt: skip
COMPUTE = [
    "_dcp_a2a_pack_send_kernel",
    "_dcp_a2a_unpack_combine_kernel",
    "dp_gather_memcpy_triton_kernel",
    "void flashinfer::norm::RMSNormKernel<8, half>(half*)",
]


@pytest.mark.parametrize("row", FAMILIES, ids=lambda r: r[0][:60])
def test_family(row: tuple[str, str, str, str, str, str | None]) -> None:
    kernel, kind, family, op, strategy, tier = row
    found = Classifier(RULES.kernels, [kernel])(kernel)
    assert (found.kind, found.family, found.op or "unknown") == (Kind[kind.upper()], family, op)
    [call] = Micro().bare(kernel).calls()
    assert (call.label.strategy, call.label.tier) == (strategy, tier), call.label.rule


@pytest.mark.parametrize("kernel", COMPUTE)
def test_helpers_beside_communication_are_compute(kernel: str) -> None:
    assert Classifier(RULES.kernels)(kernel).kind is Kind.COMPUTE


SIGNALS = [
    ("barrier_kernel(int)", "void (anonymous namespace)::multimem_all_reduce_kernel<float, 16>(float*)", "symm_mem"),
    ("wait_signal_kernel(int)", "void (anonymous namespace)::two_shot_all_reduce_kernel<float>(float*)", "symm_mem"),
    ("stream_write_value32_kernel(int)", "void one_shot_all_reduce_kernel<float>(float*)", "symm_mem"),
    ("consumer_kernel(int)", "void kuserbuffers_pushsend<8>(int)", "userbuffers"),
    ("void barrier_impl<8>(int)", "void hybrid_dispatch_impl<8>(int)", "deepep"),
]


@pytest.mark.parametrize(("signal", "beside", "family"), SIGNALS)
def test_spin_kernels_belong_to_the_family_beside_them(signal: str, beside: str, family: str) -> None:
    assert Classifier(RULES.kernels, [signal])(signal).kind is Kind.COMPUTE
    found = Classifier(RULES.kernels, [signal, beside])(signal)
    assert (found.kind, found.family, found.op) == (Kind.COMM, family, "barrier")


@pytest.mark.parametrize(
    ("operator", "op"),
    [
        ("symm_mem::fused_all_gather_matmul", "all_gather"),
        ("symm_mem::nvshmem_all_to_all", "all_to_all"),
        ("symm_mem::all_to_all_vdev_2d", "all_to_all"),
    ],
)
def test_copies_between_peers_inside_an_operator_are_traffic(operator: str, op: str) -> None:
    b = TraceBuilder()
    b.op(0, 100, operator).call(10, 5, "cudaMemcpyAsync", corr=1).copy(
        50, 20, "Memcpy PtoP (Device -> Device)", corr=1, peer=1
    )
    out = label_rank(b.build(), RULES)
    assert out.activities.kind.tolist() == [int(Kind.COMM)]
    assert [c.op for c in out.calls] == [op]


def test_copies_between_peers_elsewhere_stay_copies() -> None:
    b = TraceBuilder().op(0, 100, "aten::copy_").call(10, 5, "cudaMemcpyAsync", corr=1)
    b.copy(50, 20, "Memcpy PtoP (Device -> Device)", corr=1, peer=1)
    out = label_rank(b.build(), RULES)
    assert out.activities.kind.tolist() == [int(Kind.COPY)]
    assert not out.calls


def test_kernels_of_one_family_keep_their_time_apart_from_compute() -> None:
    micro = Micro().bare("void deep_ep::intranode::dispatch<8>(int)").bare("void mm(float*)")
    kinds = label_rank(micro.b.build(), RULES).activities.kind
    assert np.bincount(kinds, minlength=5)[[Kind.COMPUTE, Kind.COMM]].tolist() == [1, 1]

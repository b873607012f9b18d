#!/usr/bin/env python3
"""Make `gpu-tp2-pp2-dp2`: the traces of a simulated 8-GPU training job, and what is true of them.

    python sample_traces/generate_gpu.py [OUTPUT]

Megatron-style: tensor parallel 2 (fastest), data parallel 2, pipeline parallel 2; 1F1B with four micro-batches; four
layers a stage; three profiled steps. Gradients are reduced per layer during the last backward; embedding weights are
tied. Rank 5 computes 15 % slower than the rest. The same bytes come out on every run.

Each rank's file has what torch 2.13 writes for a CUDA job: operators, annotations, runtime calls, kernels, copies,
flows, NCCL arguments on host records and kernels (kernels of batched point-to-point carry none), process groups.
`truth.json` is computed from the simulated intervals, not from the files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kineto_text as text
from gpu_cluster import AUTOGRAD, COMPUTE, COPY, MAIN, Gpu, Meeting, Work, run
from gpu_truth import rank_truth

if TYPE_CHECKING:
    from collections.abc import Generator

TP, DP, PP = 2, 2, 2
WORLD = TP * DP * PP
LAYERS, MICRO_BATCHES, STEPS, FIRST_STEP = 4, 4, 3, 20
SEQ, HIDDEN, VOCAB = 4096, 2048, 16384
ACTIVATION = SEQ * HIDDEN
LAYER_PARAMS = 12 * HIDDEN * HIDDEN // TP
SLOW_RANK, SLOW_FACTOR = 5, 1.15
BASE_NS = 1_790_857_026_000_000_000
START_NS = 5_147_358_108_740_325
DEVICE_NAME = "NVIDIA H100 80GB HBM3"

DESCRIPTIONS = {
    "dp": "DATA_PARALLEL_GROUP_WITH_CP",
    "model": "MODEL_PARALLEL_GROUP",
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "embedding": "EMBEDDING_GROUP",
}
STREAMS = {"tp": 20, "dp": 24, "pp": 28, "embedding": 32, "model": 36}
KERNELS = {
    "ln_fwd": "void layer_norm::ln_fwd_kernel<__nv_bfloat16, float, 2048u>(layer_norm::FwdParams)",
    "ln_bwd": "void layer_norm::ln_bwd_kernel<__nv_bfloat16, float, 2048u>(layer_norm::BwdParams)",
    "gemm": "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
    "dgrad": "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NNT",
    "wgrad": "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NTN",
    "flash_fwd": "void cutlass::device_kernel<flash::FlashAttnFwdSm90<cutlass::bfloat16_t> >(flash::Params)",
    "flash_bwd": "void cutlass::device_kernel<flash::FlashAttnBwdSm90<cutlass::bfloat16_t> >(flash::Params)",
    "gelu": "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)",
    "gelu_bwd": "void at::native::vectorized_elementwise_kernel<4, at::native::GeluBackwardCUDAKernelImpl>(int)",
    "add": "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16> >(int)",
    "lookup": "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long)",
    "scatter": "void at::native::embedding_backward_feature_kernel<c10::BFloat16, float, long>(long const*)",
    "softmax": "void at::native::softmax_warp_forward<c10::BFloat16, float, float, 11, true>(float*)",
    "softmax_bwd": "void at::native::softmax_warp_backward<float, float, c10::BFloat16, 11, true>(float*)",
    "adam": "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, float> >(int, int volatile*)",
    "norm": "void multi_tensor_apply_kernel<TensorListMetadata<1>, L2NormFunctor<float> >(int, int volatile*)",
}
NCCL_KERNELS = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "allreduce_coalesced": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "p2p": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
TITLES = {
    "allreduce": ("c10d::allreduce_", "nccl:all_reduce"),
    "allreduce_coalesced": ("c10d::allreduce_coalesced_", "nccl:allreduce_coalesced"),
}
LINEAR = "LinearWithGradAccumulationAndAsyncCommunication"
INPUT_TYPES = {"BFloat16": "c10::BFloat16", "Float": "float"}


# ----------------------------------------------------------------------------------------------------- groups


def coordinates(rank: int) -> tuple[int, int, int]:
    """(tp, dp, pp) of a rank; tensor parallel runs fastest."""
    return rank % TP, rank // TP % DP, rank // (TP * DP)


def members(axis: str, rank: int) -> list[int]:
    """Global ranks of the group of `rank` along `axis`."""
    fixed = {"tp": (1, 2), "dp": (0, 2), "pp": (0, 1), "embedding": (0, 1), "model": (1,)}[axis]
    mine = coordinates(rank)
    return [r for r in range(WORLD) if all(coordinates(r)[i] == mine[i] for i in fixed)]


def group_names() -> dict[tuple[str, int], str]:
    """Name of each group: its number in the order of creation, counted over the groups of all ranks."""
    names, number = {}, 0
    for axis in DESCRIPTIONS:
        for group in dict.fromkeys(tuple(members(axis, r)) for r in range(WORLD)):
            number += 1
            names.update({(axis, r): str(number) for r in group})
    return names


NAMES = group_names()


# -------------------------------------------------------------------------------------------------- the model


def compute(gpu: Gpu, kernel: str, ns: int, *ops: str) -> Generator[None, None, None]:
    """One kernel under its chain of operators."""
    for i, name in enumerate(ops):
        dims = ""
        if i == len(ops) - 1:
            dims = f'"Concrete Inputs": ["", ""], "Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Dims": [[{SEQ}, 1, {HIDDEN}], [{HIDDEN}, {HIDDEN}]], '
        gpu.open(name, args=dims)
    blocks = 128 + 8 * (ns // 4_000)
    yield from gpu.kernel(KERNELS[kernel], ns, launch_shape(blocks))
    gpu.close(len(ops))


def launch_shape(blocks: int) -> str:
    """Arguments of a kernel that say how it was launched."""
    return (
        f'"registers per thread": 128, "shared memory": 49152, "blocks per SM": {blocks / 132:.6f}, '
        f'"warps per SM": {blocks * 8 / 132:.6f}, "grid": [{blocks}, 1, 1], "block": [256, 1, 1], '
        f'"est. achieved occupancy %": {min(100, blocks // 4)}'
    )


def nccl_args(gpu: Gpu, axis: str, op: str, nelems: int, dtype: str, peer: str = "") -> str:
    """NCCL metadata that host record and kernel share."""
    ranks = members(axis, gpu.rank)
    name = NAMES[axis, gpu.rank]
    gpu.seq[axis] += 1
    ident = (int(name) * 0x9E3779B97F4A7C15 + gpu.seq[axis] * 0xD6E8FEB86659FD93) % 2**64
    return (
        f'"Collective name": "{op}", "In msg nelems": {nelems}, "Out msg nelems": {nelems}, "Group size": {len(ranks)}, '
        f'"dtype": "{dtype}", "In split size": "[]", "Out split size": "[]", "Process Group Name": "{name}", '
        f'"Process Group Description": "{DESCRIPTIONS[axis]}", "Process Group Ranks": "{ranks}", {peer}'
        f'"Seq": {gpu.seq[axis]}, "Comms Id": {ident}'
    )


def record(gpu: Gpu, axis: str, op: str, dtype: str, shared: str) -> None:
    """Open the `record_param_comms` of a call."""
    ranks = members(axis, gpu.rank)
    gpu.open(
        "record_param_comms",
        args=f'{shared}, "Global rank start": {ranks[0]}, "Global rank stride": {ranks[1] - ranks[0]}, "Rank": {ranks.index(gpu.rank)}, '
        f'"Is asynchronized op": 1, "Concrete Inputs": [""], "Input type": ["{INPUT_TYPES[dtype]}"], ',
    )


def collective(
    gpu: Gpu, axis: str, op: str, nelems: int, ns: int, strategy: str, dtype: str = "BFloat16", *, wait: bool = True
) -> Generator[None, None, Work]:
    """One call: operator, record, annotation, launch, kernel on the stream of its group."""
    operator, title = TITLES[op]
    gpu.open(operator)
    shared = nccl_args(gpu, axis, op, nelems, dtype)
    record(gpu, axis, op, dtype, shared)
    note = gpu.open(title, "user_annotation")
    call = gpu.call("cudaLaunchKernelExC", 430, 5_400)
    shape = '"registers per thread": 96, "shared memory": 103808, "grid": [24, 1, 1], "block": [544, 1, 1]'
    work = Work(
        "comm", NCCL_KERNELS[op], STREAMS[axis], call.ts + 6_000, gpu.step, call.corr, f"{shape}, {shared}", call.ext,
        strategy=strategy, calls=1, title=title, title_ext=note.ext,
    )  # fmt: skip
    gpu.close(3)
    group = tuple(members(axis, gpu.rank))
    yield from gpu.communicate((axis, group, gpu.seq[axis]), len(group), ns, work)
    if wait:
        gpu.wait(work)
    return work


def transfer(gpu: Gpu, *, send: bool, receive: bool) -> Generator[None, None, None]:
    """Batched point-to-point between the two stages: one kernel without metadata for up to two calls."""
    ranks = members("pp", gpu.rank)
    peer = next(r for r in ranks if r != gpu.rank)
    for op, wanted, side in (("send", send, "Dst"), ("recv", receive, "Src")):
        if wanted:
            gpu.open("c10d::send" if op == "send" else "c10d::recv_")
            shared = nccl_args(gpu, "pp", op, ACTIVATION, "BFloat16", f'"{side} Rank": {peer}, ')
            record(gpu, "pp", op, "BFloat16", shared)
            gpu.close(2)
    note = gpu.open("nccl:coalesced", "user_annotation")
    call = gpu.call("cudaLaunchKernelExC", 430, 5_400)
    shape = '"registers per thread": 96, "shared memory": 103808, "grid": [8, 1, 1], "block": [544, 1, 1]'
    work = Work(
        "comm", NCCL_KERNELS["p2p"], STREAMS["pp"], call.ts + 6_000, gpu.step, call.corr, shape, None,
        strategy="pp", calls=send + receive, title="nccl:coalesced", title_ext=note.ext,
    )  # fmt: skip
    gpu.close()
    gpu.seq["transfer"] += 1
    yield from gpu.communicate(("pp", tuple(ranks), gpu.seq["transfer"]), 2, 372_000, work)
    gpu.wait(work)
    yield from gpu.synchronize()


def tp_reduce(gpu: Gpu, node: str, *, wait: bool = True) -> Generator[None, None, Work]:
    """All-reduce of an activation or its gradient inside an autograd node."""
    gpu.open(node)
    work = yield from collective(gpu, "tp", "allreduce", ACTIVATION, 86_000, "tp", wait=wait)
    gpu.close()
    return work


def forward_layer(gpu: Gpu) -> Generator[None, None, None]:
    """Attention and MLP; both end in an all-reduce that nothing hides."""
    yield from compute(gpu, "ln_fwd", 18_000, "FusedLayerNormAffineFunction")
    yield from compute(gpu, "gemm", 62_000, LINEAR, "aten::matmul", "aten::mm")
    yield from compute(gpu, "flash_fwd", 55_000, "FlashAttnFunc", "flash_attn::_flash_attn_forward")
    yield from compute(gpu, "gemm", 24_000, LINEAR, "aten::matmul", "aten::mm")
    yield from tp_reduce(gpu, "_ReduceFromModelParallelRegion")
    yield from compute(gpu, "add", 11_000, "aten::add")
    yield from compute(gpu, "ln_fwd", 18_000, "FusedLayerNormAffineFunction")
    yield from compute(gpu, "gemm", 83_000, LINEAR, "aten::matmul", "aten::mm")
    yield from compute(gpu, "gelu", 14_000, "aten::gelu")
    yield from compute(gpu, "gemm", 81_000, LINEAR, "aten::matmul", "aten::mm")
    yield from tp_reduce(gpu, "_ReduceFromModelParallelRegion")
    yield from compute(gpu, "add", 11_000, "aten::add")


def backward_node(gpu: Gpu, node: str, *kernels: tuple[str, int]) -> Generator[None, None, None]:
    """An autograd node that only computes."""
    gpu.open(f"autograd::engine::evaluate_function: {node}")
    gpu.open(node)
    for kernel, ns in kernels:
        yield from compute(gpu, kernel, ns, "aten::mm")
    gpu.close(2)


def backward_linear(gpu: Gpu, dgrad: int, wgrad: int, *, reduce: bool) -> Generator[None, None, None]:
    """Column-parallel layers start the all-reduce of the input gradient and hide it under the weight gradient."""
    gpu.open(f"autograd::engine::evaluate_function: {LINEAR}Backward")
    gpu.open(f"{LINEAR}Backward")
    yield from compute(gpu, "dgrad", dgrad, "aten::matmul", "aten::mm")
    work = None
    if reduce:
        work = yield from collective(gpu, "tp", "allreduce", ACTIVATION, 86_000, "tp", wait=False)
    yield from compute(gpu, "wgrad", wgrad, "aten::matmul", "aten::mm")
    if work:
        gpu.wait(work)
    gpu.close(2)


def backward_layer(gpu: Gpu, *, last_micro_batch: bool) -> Generator[None, None, None]:
    """One layer backward; on the last micro-batch its gradients are reduced across the data-parallel group."""
    yield from backward_linear(gpu, 82_000, 84_000, reduce=False)
    yield from backward_node(gpu, "GeluBackward0", ("gelu_bwd", 17_000))
    yield from backward_linear(gpu, 83_000, 85_000, reduce=True)
    yield from backward_node(gpu, "FusedLayerNormAffineFunctionBackward", ("ln_bwd", 26_000))
    yield from backward_linear(gpu, 24_000, 25_000, reduce=False)
    yield from backward_node(gpu, "FlashAttnFuncBackward", ("flash_bwd", 140_000))
    yield from backward_linear(gpu, 62_000, 64_000, reduce=True)
    yield from backward_node(gpu, "FusedLayerNormAffineFunctionBackward", ("ln_bwd", 26_000))
    if last_micro_batch:
        yield from reduce_gradients(gpu, LAYER_PARAMS, 700_000)


def reduce_gradients(gpu: Gpu, nelems: int, ns: int) -> Generator[None, None, None]:
    """The hook of the last parameter of a bucket; nobody waits here."""
    node = "torch::autograd::AccumulateGrad"
    gpu.open(f"autograd::engine::evaluate_function: {node}")
    gpu.open(node)
    yield from collective(gpu, "dp", "allreduce_coalesced", nelems, ns, "dp", "Float", wait=False)
    gpu.close(2)


def forward(gpu: Gpu, micro_batch: int) -> Generator[None, None, None]:
    """One micro-batch through this stage."""
    stage = coordinates(gpu.rank)[2]
    gpu.open("forward_step", "user_annotation")
    args = f'"bytes": {SEQ * 8}, "memory bandwidth (GB/s)": 11.5'
    yield from gpu.copy("Memcpy HtoD (Pinned -> Device)", 2_900, args)
    if stage == 0:
        yield from compute(gpu, "lookup", 9_000, "aten::embedding", "aten::index_select")
        yield from tp_reduce(gpu, "_ReduceFromModelParallelRegion")
    for _ in range(LAYERS):
        yield from forward_layer(gpu)
    if stage == PP - 1:
        yield from compute(gpu, "ln_fwd", 18_000, "FusedLayerNormAffineFunction")
        yield from compute(gpu, "gemm", 231_000, LINEAR, "aten::matmul", "aten::mm")
        gpu.open("_VocabParallelCrossEntropy")
        for _ in range(3):
            yield from compute(gpu, "softmax", 28_000, "aten::max")
            yield from collective(gpu, "tp", "allreduce", SEQ, 12_000, "tp", "Float")
        gpu.close()
        yield from compute(gpu, "add", 3_000, "aten::sum")
        yield from collective(gpu, "dp", "allreduce", 1, 11_000, "housekeeping", "Float")
    gpu.close()
    gpu.done.append(f"F{micro_batch}")


def backward(gpu: Gpu, micro_batch: int) -> Generator[None, None, None]:
    """One micro-batch back through this stage, on the autograd thread."""
    stage = coordinates(gpu.rank)[2]
    last = micro_batch == MICRO_BATCHES - 1
    gpu.open("backward_step", "user_annotation")
    gpu.thread = AUTOGRAD
    if stage == PP - 1:
        yield from backward_node(gpu, "_VocabParallelCrossEntropyBackward", ("softmax_bwd", 41_000))
        yield from backward_linear(gpu, 230_000, 232_000, reduce=True)
        yield from backward_node(gpu, "FusedLayerNormAffineFunctionBackward", ("ln_bwd", 26_000))
    for _ in range(LAYERS):
        yield from backward_layer(gpu, last_micro_batch=last)
    if stage == 0:
        yield from backward_node(gpu, "EmbeddingBackward0", ("scatter", 31_000))
    if last:
        yield from reduce_gradients(gpu, VOCAB * HIDDEN // TP, 480_000)
    gpu.thread = MAIN
    gpu.close()
    gpu.done.append(f"B{micro_batch}")


def one_forward_one_backward(gpu: Gpu) -> Generator[None, None, None]:
    """The 1F1B schedule of one stage, with the batched transfers of a two-stage pipeline."""
    if coordinates(gpu.rank)[2] == 0:
        yield from forward(gpu, 0)
        yield from transfer(gpu, send=True, receive=False)
        for i in range(MICRO_BATCHES - 1):
            yield from forward(gpu, i + 1)
            yield from transfer(gpu, send=True, receive=True)
            yield from backward(gpu, i)
        yield from transfer(gpu, send=False, receive=True)
        yield from backward(gpu, MICRO_BATCHES - 1)
        return
    yield from transfer(gpu, send=False, receive=True)
    for i in range(MICRO_BATCHES):
        yield from forward(gpu, i)
        yield from backward(gpu, i)
        yield from transfer(gpu, send=True, receive=i < MICRO_BATCHES - 1)


def finish_step(gpu: Gpu) -> Generator[None, None, None]:
    """Tied embedding, gradient norm and optimizer, once the gradients have arrived."""
    gpu.wait(gpu.last[STREAMS["dp"]])
    yield from compute(gpu, "add", 6_000, "aten::mul_")
    yield from collective(gpu, "embedding", "allreduce", VOCAB * HIDDEN // TP, 1_490_000, "embedding", "Float")
    yield from compute(gpu, "norm", 96_000, "aten::linalg_vector_norm")
    yield from collective(gpu, "model", "allreduce", 1, 19_000, "housekeeping", "Float")
    yield from gpu.kernel("Memset (Device)", 1_600, '"bytes": 4, "memory bandwidth (GB/s)": 0.0025', "set")
    gpu.open("aten::_local_scalar_dense")
    yield from gpu.copy("Memcpy DtoH (Device -> Pinned)", 1_300, '"bytes": 4, "memory bandwidth (GB/s)": 0.003')
    yield from gpu.synchronize("cudaStreamSynchronize", 131)
    gpu.close()
    gpu.open("Optimizer.step#FusedAdam.step", "user_annotation")
    for _ in range(LAYERS):
        yield from compute(gpu, "adam", 212_000, "apex::multi_tensor_adam")
    gpu.close()


def program(gpu: Gpu) -> Generator[None, None, None]:
    """All profiled steps of one rank."""
    for step in range(FIRST_STEP, FIRST_STEP + STEPS):
        gpu.step = step
        gpu.done.clear()
        gpu.open(f"ProfilerStep#{step}", "user_annotation")
        yield from one_forward_one_backward(gpu)
        yield from finish_step(gpu)
        gpu.close()


# --------------------------------------------------------------------------------------------------- the file


def header(gpu: Gpu) -> str:
    """Everything before the events."""
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": WORLD,
               "ranks": list(range(WORLD))}]  # fmt: skip
    for axis, desc in DESCRIPTIONS.items():
        ranks = members(axis, gpu.rank)
        groups.append({"pg_name": NAMES[axis, gpu.rank], "pg_desc": desc, "backend_config": "cuda:nccl",
                       "pg_size": len(ranks), "ranks": ranks})  # fmt: skip
    info = {"backend": "nccl", "rank": gpu.rank, "world_size": WORLD, "pg_count": 1 + len(set(NAMES.values())),
            "pg_config": groups, "nccl_version": "2.29.7"}  # fmt: skip
    devices = ",\n".join(
        f'    {{\n      "id": {i}, "name": "{DEVICE_NAME}", "totalGlobalMem": 84929347584,\n'
        '      "computeMajor": 9, "computeMinor": 0,\n'
        '      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,\n'
        '      "regsPerBlock": 65536, "warpSize": 32,\n      "sharedMemPerBlock": 49152, "numSms": 132\n    }'
        for i in range(4)
    )
    return (
        f' {{\n    "schemaVersion": 1,\n    "deviceProperties": [\n{devices}\n    ],\n    \n'
        f'      "trace_id": "{gpu.rank:032X}",\n      "record_shapes": 1,\n      "cuda_runtime_version": 12080,\n'
        f'      "distributedInfo": {json.dumps(info)},\n      "host_name": "node{gpu.rank // 4}",\n'
        f'    "displayTimeUnit": "ms",\n    "baseTimeNanoseconds": {BASE_NS},\n    "traceEvents": [\n    \n'
    )


def rows(gpu: Gpu) -> list[str]:
    """All events in the order of the writer: host, runtime mixed with device work, annotations, metadata."""
    pid = 52_000 + gpu.rank
    device = gpu.rank % 4
    tids = {MAIN: pid, AUTOGRAD: pid + 640}
    out = [
        text.span(r.cat, r.name, pid, tids[r.thread], r.ts, r.dur,
                  f'"External id": {r.ext},"Record function id": 0, {r.args}"Ev Idx": {i}')
        for i, r in enumerate(gpu.host)
    ]  # fmt: skip
    end = max(gpu.cpu, max(w.end or 0 for w in gpu.device))
    out.append(text.span("Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", START_NS, end - START_NS, '"Op count": 0'))  # fmt: skip
    works = {w.corr: w for w in gpu.device}
    for call in gpu.runtime:
        ext = "" if call.ext is None else f'"External id": {call.ext}, '
        tid = tids[call.thread]
        out.append(text.span("cuda_runtime", call.name, pid, tid, call.ts, call.dur,
                             f'{ext}"cbid": {call.cbid}, "correlation": {call.corr}'))  # fmt: skip
        if call.flow:
            out.append(text.flow("s", call.corr, pid, tid, call.ts))
            out += device_rows(works[call.corr], device)
    for work in gpu.device:
        if work.title:
            out.append(text.span("gpu_user_annotation", work.title, device, work.stream, work.start - 1,
                                 (work.end or 0) - work.start + 2, f'"External id": {work.title_ext}'))  # fmt: skip
    return out + closing_rows(pid, device, tids, end)


def device_rows(work: Work, device: int) -> list[str]:
    """A kernel, copy or memset and the end of its arrow."""
    cat = {"copy": "gpu_memcpy", "set": "gpu_memset"}.get(work.kind, "kernel")
    ext = "" if work.ext is None else f'"External id": {work.ext}, '
    queued = '"queued": 0, ' if cat == "kernel" else ""
    args = f'{ext}{queued}"device": {device}, "context": 1, "stream": {work.stream}, "correlation": {work.corr}, {work.args}'
    span = text.span(cat, work.name, device, work.stream, work.start, (work.end or 0) - work.start, args)
    return [span, text.flow("f", work.corr, device, work.stream, work.start)]


def closing_rows(pid: int, device: int, tids: dict[int, int], end: int) -> list[str]:
    """Metadata rows and the instants at the end of the list."""
    out = [text.metadata("process_labels", pid, 0, START_NS, '"labels": "CPU"')]
    out += [text.metadata("process_labels", gpu, 0, START_NS, f'"labels": "GPU {gpu}"') for gpu in range(4)]
    names = {(pid, tids[MAIN]): f"thread {tids[MAIN]} (python)"}
    names[pid, tids[AUTOGRAD]] = f"thread {tids[AUTOGRAD]} (pt_autograd_0)"
    names.update({(device, s): f"stream {s}" for s in (COMPUTE, COPY, *STREAMS.values())})
    out += [text.metadata("thread_name", p, t, START_NS, f'"name": "{name}"') for (p, t), name in names.items()]
    out.append(text.instant("Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler", START_NS))
    out.append(text.instant("Record Window End", "", "", end + 1_000))
    return out


def simulate() -> list[Gpu]:
    """Run the job; the ranks' host clocks start within 40 µs of each other."""
    meetings: dict[tuple[object, ...], Meeting] = {}
    gpus = [
        Gpu(r, SLOW_FACTOR if r == SLOW_RANK else 1.0, meetings, START_NS + 120_000 + 5_000 * r) for r in range(WORLD)
    ]
    run([program(gpu) for gpu in gpus])
    return gpus


def truth(gpus: list[Gpu]) -> dict[str, Any]:
    """What is true of the job, in ns and global ranks."""
    return {
        "world_size": WORLD,
        "degrees": {"tp": TP, "dp": DP, "pp": PP},
        "schedule": "1F1B",
        "micro_batches": MICRO_BATCHES,
        "steps": list(range(FIRST_STEP, FIRST_STEP + STEPS)),
        "slow_rank": SLOW_RANK,
        "groups": {a: sorted({tuple(members(a, r)) for r in range(WORLD)}) for a in DESCRIPTIONS},
        "pipeline_order": {str(g.rank): list(g.done) for g in gpus},
        "ranks": {str(g.rank): rank_truth(g.device) for g in gpus},
    }


def main(output: Path) -> None:
    """Write one file a rank and the truth."""
    output.mkdir(parents=True, exist_ok=True)
    gpus = simulate()
    for gpu in gpus:
        body = header(gpu) + ",\n".join(rows(gpu)) + '\n  ],"traceName": "/tmp/trace.json" }\n'
        text.write_gzip(output / f"rank{gpu.rank}.json.gz", body)
    (output / "truth.json").write_text(json.dumps(truth(gpus), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "gpu-tp2-pp2-dp2")

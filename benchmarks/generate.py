#!/usr/bin/env python3
"""Write a Kineto-like trace of a wished size, with its truth beside it. Deterministic.

    python benchmarks/generate.py --mb 500 -o benchmarks/data/rank0.json
    python benchmarks/generate.py --mb 500 --gz -o benchmarks/data/rank0.json.gz

The file has the shape of what the PyTorch profiler writes on a GPU rank of a Megatron-like job with Python stacks:
kineto's own three-keys-a-line layout, host events first, then device work mixed with runtime calls and flows, then
metadata rows; all categories; NCCL arguments; process groups of a 1,024-rank world. About 294 bytes an event, 42 %
of them `python_function`. Steps stay at 20 whatever the size, so a bigger file has longer steps.

`<output>.truth.json` holds what a reader must find: events by `ph|cat`, exact sums of `ts` and `dur` in ns per
category, sums of ids, NCCL kernels by group description, and the interval algebra of the device.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, cast

BASE_NS = 1_767_189_312_000_000_000
START_NS = 3_738_565_150_787_965
WORLD, TP, PP = 1024, 8, 8
LAYERS = 32
PID, MAIN, AUTOGRAD = 4117, 4117, 4395
COMPUTE_STREAM, COPY_STREAM = 7, 13
STREAMS = {"tp": 20, "pp": 24, "dp": 28, "model": 32}
BYTES_PER_LAYER = 90_900
HIDDEN, SEQ = 8192, 4096

FRAMES = (
    "megatron/core/transformer/transformer_block.py(489): forward",
    "torch/nn/modules/module.py(1751): _call_impl",
    "torch/nn/modules/module.py(1740): _wrapped_call_impl",
    "megatron/core/transformer/transformer_layer.py(391): forward",
    "megatron/core/tensor_parallel/layers.py(895): forward",
    "torch/autograd/function.py(559): apply",
    "megatron/core/fusions/fused_layer_norm.py(118): forward",
    "torch/_ops.py(1158): __call__",
    "megatron/core/transformer/attention.py(512): forward",
    "torch/utils/_contextlib.py(116): decorate_context",
)
# operator chain (outermost first), kernel name, shortest kernel time in ns
FORWARD_OPS = (
    (("aten::layer_norm", "aten::native_layer_norm"), "ln_fwd", 21_000),
    (("aten::linear", "aten::matmul", "aten::mm"), "gemm_tn", 96_000),
    (("aten::add_", "aten::add"), "elementwise_add", 12_000),
    (("apex::flash_attn", "aten::_flash_attention_forward"), "flash_fwd", 78_000),
    (("aten::linear", "aten::matmul", "aten::mm"), "gemm_tn", 54_000),
    (("aten::dropout", "aten::native_dropout"), "dropout", 14_000),
    (("aten::add",), "elementwise_add", 12_500),
    (("aten::layer_norm", "aten::native_layer_norm"), "ln_fwd", 20_500),
    (("aten::linear", "aten::matmul", "aten::mm"), "gemm_tn", 141_000),
    (("aten::gelu",), "gelu", 17_000),
    (("aten::linear", "aten::matmul", "aten::mm"), "gemm_tn", 133_000),
)
BACKWARD_OPS = (
    ("AddBackward0", "elementwise_add", 12_500),
    ("MmBackward0", "gemm_nt", 138_000),
    ("MmBackward0", "gemm_nn", 136_000),
    ("GeluBackward0", "gelu_bwd", 19_000),
    ("MmBackward0", "gemm_nt", 129_000),
    ("MmBackward0", "gemm_nn", 127_000),
    ("NativeLayerNormBackward0", "ln_bwd", 33_000),
    ("NativeDropoutBackward0", "dropout_bwd", 12_000),
    ("MmBackward0", "gemm_nt", 55_000),
    ("FlashAttnBackward", "flash_bwd", 190_000),
    ("MmBackward0", "gemm_nt", 93_000),
    ("torch::autograd::AccumulateGrad", "elementwise_add", 9_000),
)
KERNELS = {
    "ln_fwd": "void layer_norm::ln_fwd_kernel<layer_norm::Kernel_traits<__nv_bfloat16, float, unsigned int, 8192u, 1u, 1u, 4u, 16u> >(layer_norm::FwdParams)",
    "ln_bwd": "void layer_norm::ln_bwd_kernel<layer_norm::Kernel_traits<__nv_bfloat16, float, unsigned int, 8192u, 1u, 1u, 8u, 16u> >(layer_norm::BwdParams)",
    "gemm_tn": "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
    "gemm_nt": "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NTN",
    "gemm_nn": "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NNT",
    "elementwise_add": "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
    "flash_fwd": "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cutlass::bfloat16_t> > >(flash::Params)",
    "flash_bwd": "void cutlass::device_kernel<flash::FlashAttnBwdSm90<flash::CollectiveMainloopBwdSm90<2, cutlass::bfloat16_t> > >(flash::Params)",
    "dropout": "void at::native::fused_dropout_kernel_vec<c10::BFloat16, float, unsigned int, 1, 4, bool>(at::cuda::detail::TensorInfo<c10::BFloat16 const, unsigned int>)",
    "dropout_bwd": "void at::native::elementwise_kernel<128, 4, at::native::masked_scale_kernel<bool, c10::BFloat16, float> >(int)",
    "gelu": "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)>(int)",
    "gelu_bwd": "void at::native::vectorized_elementwise_kernel<4, at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)>(int)",
}  # fmt: skip
NCCL = {
    "allreduce": ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "nccl:all_reduce", "c10d::allreduce_"),
    "_reduce_scatter_base": (
        "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "nccl:_reduce_scatter_base", "c10d::_reduce_scatter_base_",
    ),
    "_allgather_base": ("ncclDevKernel_AllGather_RING_LL", "nccl:_all_gather_base", "c10d::_allgather_base_"),
    "send": ("ncclDevKernel_SendRecv", "nccl:coalesced", "c10d::send"),
}  # fmt: skip
DTYPE_BYTES = {"BFloat16": 2, "Float": 4}
INPUT_TYPES = {"BFloat16": "c10::BFloat16", "Float": "float"}


def us(ns: int) -> str:
    """Nanoseconds as the writer's microseconds with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def group_ranks(axis: str, rank: int) -> list[int]:
    """Ranks of one group of `rank`, tensor axis fastest, then data, then pipeline."""
    data = WORLD // TP // PP
    if axis == "tp":
        return [rank - rank % TP + i for i in range(TP)]
    if axis == "dp":
        first = rank - (rank // TP % data) * TP
        return [first + i * TP for i in range(data)]
    stride = TP * data
    if axis == "pp":
        return [rank % stride + i * stride for i in range(PP)]
    return [first + t for first in range(0, WORLD, stride) for t in range(TP)]


GROUPS = {
    "tp": ("31", "TENSOR_MODEL_PARALLEL_GROUP"),
    "pp": ("187", "PIPELINE_MODEL_PARALLEL_GROUP"),
    "dp": ("5", "DATA_PARALLEL_GROUP_WITH_CP"),
    "model": ("23", "MODEL_PARALLEL_GROUP"),
}


def rank_text(ranks: list[int]) -> str:
    """Rank list as an event carries it: at most 30 entries, the middle left out."""
    if len(ranks) <= 30:
        return str(ranks)
    return "[" + ", ".join(map(str, ranks[:29])) + f", ..., {ranks[-1]}]"


class Truth:
    """What a reader of the file must find."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.ts: defaultdict[str, int] = defaultdict(int)
        self.dur: defaultdict[str, int] = defaultdict(int)
        self.sums: defaultdict[str, int] = defaultdict(int)
        self.nccl: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.compute: list[tuple[int, int]] = []
        self.comm: list[tuple[int, int]] = []
        self.copies: list[tuple[int, int]] = []
        self.calls = 0

    def span(self, cat: str, ts: int, dur: int) -> None:
        self.counts["X|" + cat] += 1
        self.ts[cat] += ts
        self.dur[cat] += dur

    def as_dict(self, **more: Any) -> dict[str, Any]:
        compute, comm = merge(self.compute), merge(self.comm)
        work = merge(compute + comm)
        busy = merge(work + merge(self.copies))
        hidden = length(compute) + length(comm) - length(work)
        window = busy[-1][1] - busy[0][0]
        return {
            **more,
            "events": sum(self.counts.values()),
            "counts": dict(self.counts),
            "ts_sum_ns": dict(self.ts),
            "dur_sum_ns": dict(self.dur),
            "id_sums": dict(self.sums),
            "nccl": {k: {"count": c, "dur_ns": d} for k, (c, d) in self.nccl.items()},
            "calls": self.calls,
            "device": {
                "window_ns": window,
                "compute_ns": length(compute),
                "comm_ns": length(comm),
                "hidden_ns": hidden,
                "exposed_ns": length(comm) - hidden,
                "copy_ns": length(busy) - length(work),
                "idle_ns": window - length(busy),
                "busy_ns": length(busy),
            },
        }


def merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Union of half-open spans, sorted."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def length(spans: list[tuple[int, int]]) -> int:
    """Total length of disjoint spans."""
    return sum(end - start for start, end in spans)


class Rank:
    """Clock, ids and text of one rank; `host` and `device` collect event texts of the running step."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.truth = Truth()
        self.host: list[str] = []
        self.device: list[str] = []
        self.annotations: list[str] = []
        self.cpu = {MAIN: START_NS + 350_000, AUTOGRAD: START_NS + 350_000}
        self.stream: defaultdict[int, int] = defaultdict(lambda: START_NS)
        self.corr = 29_000
        self.ext = 1
        self.pyid = 0
        self.ev_idx = 0
        self.seq: Counter[str] = Counter()
        self.noise = 2_463_534_242 + 7919 * rank

    def rand(self, below: int) -> int:
        """Next pseudo-random number (xorshift, 32 bit)."""
        x = self.noise
        x ^= (x << 13) & 0xFFFFFFFF
        x ^= x >> 17
        x ^= (x << 5) & 0xFFFFFFFF
        self.noise = x
        return x % below

    # ------------------------------------------------------------------ host rows

    def span_text(self, cat: str, name: str, tid: int, ts: int, dur: int, args: str) -> str:
        self.truth.span(cat, ts, dur)
        return (
            f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {PID}, "tid": {tid},\n'
            f'    "ts": {us(ts)}, "dur": {us(dur)},\n    "args": {{\n      {args}\n    }}\n  }},\n'
        )

    def python(self, name: str, tid: int, ts: int, dur: int) -> str:
        self.pyid += 1
        self.ev_idx += 1
        parent = self.pyid - 1 or "null"
        return self.span_text(
            "python_function", name, tid, ts, dur,
            f'"Python parent id": {parent}, "Python id": {self.pyid}, "Ev Idx": {self.ev_idx}',
        )  # fmt: skip

    def cpu_op(self, name: str, tid: int, ts: int, dur: int, more: str = "") -> str:
        self.ext += 1
        self.ev_idx += 1
        self.truth.sums["External id"] += self.ext
        return self.span_text(
            "cpu_op", name, tid, ts, dur,
            f'"External id": {self.ext},"Record function id": 0, {more}"Ev Idx": {self.ev_idx}',
        )  # fmt: skip

    def annotation(self, name: str, tid: int, ts: int, dur: int) -> str:
        self.ext += 1
        self.ev_idx += 1
        self.truth.sums["External id"] += self.ext
        return self.span_text(
            "user_annotation", name, tid, ts, dur,
            f'"External id": {self.ext},"Record function id": 0, "Ev Idx": {self.ev_idx}',
        )  # fmt: skip

    # ---------------------------------------------------------------- device rows

    def launch(self, tid: int, ts: int, dur: int, call: str, cbid: int, flow: bool = True) -> None:
        self.corr += 1 + self.rand(3)
        text = self.span_text(
            "cuda_runtime", call, tid, ts, dur,
            f'"External id": {self.ext},      "cbid": {cbid}, "correlation": {self.corr}',
        )  # fmt: skip
        self.truth.sums["External id"] += self.ext
        self.truth.sums["correlation"] += self.corr
        self.device.append(text)
        if flow:
            self.flow("s", PID, tid, ts)

    def flow(self, ph: str, pid: int, tid: int, ts: int) -> None:
        self.truth.counts[ph + "|ac2g"] += 1
        end = ', "bp": "e"' if ph == "f" else ""
        self.device.append(
            f'  {{\n    "ph": "{ph}", "id": {self.corr}, "pid": {pid}, "tid": {tid}, "ts": {us(ts)},\n'
            f'    "cat": "ac2g", "name": "ac2g"{end}\n  }},\n'
        )

    def device_row(self, cat: str, name: str, stream: int, ts: int, dur: int, args: str) -> None:
        self.truth.span(cat, ts, dur)
        self.truth.sums["correlation"] += self.corr
        self.truth.sums["External id"] += self.ext
        self.truth.sums["stream"] += stream
        self.stream[stream] = ts + dur
        self.device.append(
            f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": 0, "tid": {stream},\n'
            f'    "ts": {us(ts)}, "dur": {us(dur)},\n    "args": {{\n      "External id": {self.ext},      {args}\n'
            "    }\n  },\n"
        )
        self.flow("f", 0, stream, ts)

    def kernel(self, name: str, stream: int, ts: int, dur: int, more: str = "") -> None:
        grid = 64 + self.rand(512)
        self.device_row(
            "kernel", name, stream, ts, dur,
            f'"queued": 0, "device": 0, "context": 1,      "stream": {stream}, "correlation": {self.corr},'
            f'      "registers per thread": 128,      "shared memory": 49152,      "blocks per SM": {grid / 132:.6f},'
            f'      "warps per SM": {grid / 16.5:.6f},      "grid": [{grid}, 1, 1],      "block": [256, 1, 1],'
            f'      "est. achieved occupancy %": {grid % 100}{more}',
        )  # fmt: skip

    # ------------------------------------------------------------------ composites

    def compute(self, ops: tuple[str, ...], kernel: str, shortest: int, tid: int, frames: int) -> None:
        """One operator: Python frames, operator chain, launch, kernel on the compute stream."""
        ts = self.cpu[tid] + 300 + self.rand(900)
        dur = 21_000 + self.rand(9_000)
        depth = 0
        first = self.rand(len(FRAMES))
        for i in range(frames):
            depth += 350
            name = FRAMES[(first + i) % len(FRAMES)]
            self.host.append(self.python(name, tid, ts + depth, dur - 2 * depth))
        shape = f'"Concrete Inputs": ["", ""], "Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Strides": [[{HIDDEN}, 1], [1, {HIDDEN}]], "Input Dims": [[{SEQ}, {HIDDEN}], [{HIDDEN}, {HIDDEN}]], '
        for i, name in enumerate(ops):
            depth += 410
            self.host.append(self.cpu_op(name, tid, ts + depth, dur - 2 * depth, shape if i == 1 else ""))
        if self.rand(8) == 0:
            self.launch(tid, ts + depth + 200, 700, "cudaOccupancyMaxActiveBlocksPerMultiprocessor", 251, False)
        start = ts + depth + 1_500
        self.launch(tid, start, 4_200, "cudaLaunchKernel", 211)
        begin = max(self.stream[COMPUTE_STREAM] + 1_000, start + 6_000)
        took = shortest + self.rand(shortest // 8)
        self.kernel(KERNELS[kernel], COMPUTE_STREAM, begin, took)
        self.truth.compute.append((begin, begin + took))
        self.cpu[tid] = ts + dur

    def collective(
        self, axis: str, op: str, nelems: tuple[int, int], dtype: str, tid: int, *, wait: bool, ns: int
    ) -> None:
        """One NCCL call with its record, annotation, launch and kernel; `wait` holds the compute stream."""
        kernel, title, c10d = NCCL[op]
        ts = self.cpu[tid] + 500
        dur = 52_000 + self.rand(11_000)
        pg, desc = GROUPS[axis]
        ranks = group_ranks(axis, self.rank)
        calls = ("send", "recv") if op == "send" else (op,)
        step = dur // len(calls)
        for i, name in enumerate(calls):
            self.seq[axis] += 1
            self.truth.calls += 1
            args = self.nccl_args(name, nelems, dtype, ranks, pg, desc)
            host = f'{args}, "Global rank start": {ranks[0]}, "Global rank stride": {ranks[1] - ranks[0]}, "Rank": {ranks.index(self.rank)}, "Is asynchronized op": 1, '
            at = ts + i * step
            self.host.append(self.cpu_op(c10d if i == 0 else "c10d::recv_", tid, at, step))
            self.host.append(self.cpu_op("record_param_comms", tid, at + 2_000, step - 3_000, host))
            if op != "send":
                self.host.append(self.annotation(title, tid, at + 5_000, step - 8_000))
        if op == "send":
            args = ""
            self.host.append(self.annotation(title, tid, ts + dur + 500, 14_000))
            dur += 16_000
        start = ts + dur - 9_000
        self.launch(tid, start, 5_100, "cudaLaunchKernelExC", 430)
        stream = STREAMS[axis]
        begin = max(self.stream[stream], self.stream[COMPUTE_STREAM], start + 7_000) + 900
        took = ns + self.rand(ns // 5)
        self.kernel(kernel + "(ncclDevKernelArgsStorage<4096ul>)", stream, begin, took, args and ",      " + args)
        self.truth.comm.append((begin, begin + took))
        total = self.truth.nccl[desc]
        total[0] += 1
        total[1] += took
        self.gpu_annotation(title, stream, begin, took)
        if wait:
            self.stream[COMPUTE_STREAM] = max(self.stream[COMPUTE_STREAM], begin + took)
        self.cpu[tid] = ts + dur

    def nccl_args(self, op: str, nelems: tuple[int, int], dtype: str, ranks: list[int], pg: str, desc: str) -> str:
        seq = self.seq[desc] = self.seq[desc] + 1
        ident = (seq * 0x9E3779B97F4A7C15 + len(ranks) * 0xBF58476D1CE4E5B9 + int(pg)) % 2**64
        self.truth.sums["Seq"] += seq
        self.truth.sums["In msg nelems"] += nelems[0]
        peer = ""
        if op in ("send", "recv"):
            at = ranks.index(self.rank) + (1 if op == "send" else -1)
            peer = f', "{"Dst" if op == "send" else "Src"} Rank": {ranks[at % len(ranks)]}'
        return (
            f'"Collective name": "{op}", "In msg nelems": {nelems[0]}, "Out msg nelems": {nelems[1]}, "Group size": {len(ranks)},'
            f' "dtype": "{dtype}", "In split size": "[]", "Out split size": "[]", "Process Group Name": "{pg}",'
            f' "Process Group Description": "{desc}", "Process Group Ranks": "{rank_text(ranks)}"{peer}, "Seq": {seq}, "Comms Id": {ident}'
        )

    def gpu_annotation(self, name: str, stream: int, ts: int, dur: int) -> None:
        self.truth.span("gpu_user_annotation", ts - 1, dur + 2)
        self.annotations.append(
            f'  {{\n    "ph": "X", "cat": "gpu_user_annotation", "name": "{name}", "pid": 0, "tid": {stream},\n'
            f'    "ts": {us(ts - 1)}, "dur": {us(dur + 2)},\n    "args": {{\n      "External id": {self.ext}\n    }}\n  }},\n'
        )

    def synchronize(self, tid: int) -> None:
        """The host waits until the device is done, as reading the gradient norm makes it do."""
        ts = self.cpu[tid] + 200
        dur = max(2_000, max(self.stream.values()) + 4_000 - ts)
        self.host.append(self.cpu_op("aten::_local_scalar_dense", tid, ts, dur + 2_000))
        self.launch(tid, ts + 1_000, dur, "cudaStreamSynchronize", 131, flow=False)
        self.cpu[tid] = ts + dur + 3_000

    def copy(self, name: str, tid: int, nbytes: int, ns: int) -> None:
        """One asynchronous copy on its own stream."""
        ts = self.cpu[tid] + 400
        self.host.append(self.cpu_op("aten::copy_", tid, ts, 18_000))
        self.launch(tid, ts + 3_000, 9_000, "cudaMemcpyAsync", 41)
        begin = max(self.stream[COPY_STREAM], ts + 11_000)
        self.device_row(
            "gpu_memcpy", name, COPY_STREAM, begin, ns,
            f'"device": 0, "context": 1,      "stream": {COPY_STREAM}, "correlation": {self.corr},'
            f'      "bytes": {nbytes}, "memory bandwidth (GB/s)": {nbytes / ns:.6f}',
        )  # fmt: skip
        self.truth.copies.append((begin, begin + ns))
        self.cpu[tid] = ts + 19_000


def forward_layer(r: Rank, layer: int) -> None:
    """One transformer layer forward: eleven operators, two all-reduces nothing hides."""
    mark, ts = len(r.host), r.cpu[MAIN]
    for i, (ops, kernel, shortest) in enumerate(FORWARD_OPS):
        r.compute(ops, kernel, shortest, MAIN, 8)
        if i in (4, 10):
            r.collective("tp", "allreduce", (SEQ * HIDDEN,) * 2, "BFloat16", MAIN, wait=True, ns=88_000)
    dur = r.cpu[MAIN] - ts + 100
    r.host.insert(mark, r.python(f"nn.Module: TransformerLayer_{layer}", MAIN, ts + 50, dur))
    r.cpu[MAIN] += 200


def backward_layer(r: Rank) -> None:
    """One transformer layer backward on the autograd thread: all-reduces under the weight gradients."""
    for i, (node, kernel, shortest) in enumerate(BACKWARD_OPS):
        outer = f"autograd::engine::evaluate_function: {node}"
        r.compute((outer, node, "aten::mm"), kernel, shortest, AUTOGRAD, 4)
        if i in (1, 8):
            r.collective("tp", "allreduce", (SEQ * HIDDEN,) * 2, "BFloat16", AUTOGRAD, wait=False, ns=97_000)


def one_step(r: Rank, step: int, units: int) -> None:
    """One optimizer step: `units` layers forward and backward in micro-batches of `LAYERS`."""
    clock = max(r.cpu.values())
    r.cpu = dict.fromkeys(r.cpu, clock)
    mark, ts = len(r.host), clock
    r.cpu[MAIN] += 1_000
    r.copy("Memcpy HtoD (Pinned -> Device)", MAIN, 131_072, 11_000)
    shard = LAYERS * 12 * HIDDEN * HIDDEN // TP // 16
    r.collective("dp", "_allgather_base", (shard // 64, shard // 4), "BFloat16", MAIN, wait=False, ns=900_000)
    left = units
    while left > 0:
        layers = min(LAYERS, left)
        left -= layers
        r.collective("pp", "send", (SEQ * HIDDEN // TP,) * 2, "BFloat16", MAIN, wait=True, ns=120_000)
        for layer in range(layers):
            forward_layer(r, layer)
        r.cpu[AUTOGRAD] = r.cpu[MAIN]
        for layer in range(layers):
            backward_layer(r)
            if left <= 0 and layer % 8 == 7:
                r.collective(
                    "dp", "_reduce_scatter_base", (shard, shard // 16), "Float", AUTOGRAD, wait=False, ns=1_300_000
                )
        r.cpu[MAIN] = r.cpu[AUTOGRAD]
    r.collective("model", "allreduce", (1, 1), "Float", MAIN, wait=True, ns=24_000)
    for _ in range(8):
        r.compute(("Optimizer.step#AdamW.step", "aten::_fused_adamw_"), "elementwise_add", 210_000, MAIN, 4)
    r.synchronize(MAIN)
    r.copy("Memcpy DtoH (Device -> Pinned)", MAIN, 4, 1_500)
    r.cpu[MAIN] += 500
    name = f"ProfilerStep#{step}"
    r.host.insert(mark, r.annotation(name, MAIN, ts + 200, r.cpu[MAIN] - ts - 200))
    r.cpu[MAIN] += 1_000


def group_entry(name: str, desc: str, ranks: list[int]) -> dict[str, Any]:
    """One item of `pg_config`."""
    return {
        "pg_name": name, "pg_desc": desc, "backend_config": "cuda:nccl", "pg_size": len(ranks), "ranks": ranks,
    }  # fmt: skip


def header(rank: int) -> str:
    """Everything before the events; the groups of one rank in full."""
    groups = [group_entry("0", "default_pg", list(range(WORLD)))]
    groups += [group_entry(name, desc, group_ranks(axis, rank)) for axis, (name, desc) in GROUPS.items()]
    for i in range(35):
        ranks = [rank % TP + j for j in range(0, WORLD, 2 ** (i % 6 + 1))]
        groups.append(group_entry(str(300 + i), "undefined", ranks))
    info = {"backend": "nccl", "rank": rank, "world_size": WORLD, "pg_count": 735, "pg_config": groups}
    devices = ",\n".join(
        f'    {{\n      "id": {i}, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84929347584,\n'
        '      "computeMajor": 9, "computeMinor": 0,\n      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,\n'
        '      "regsPerBlock": 65536, "warpSize": 32,\n      "sharedMemPerBlock": 49152, "numSms": 132\n    }'
        for i in range(8)
    )
    return (
        '\n  {\n    "schemaVersion": 1,\n    "deviceProperties": [\n'
        + devices
        + '\n    ],\n      "cupti_version": 26,\n'
        '      "cuda_runtime_version": 12080,\n      "with_stack": 1,\n      "distributedInfo": '
        + json.dumps(info)
        + ",\n"
        '      "record_shapes": 1,\n      "trace_id": "3896CA7E1F964DB49539F6AC994D8C62",\n  "displayTimeUnit": "ms",\n'
        f'  "baseTimeNanoseconds": {BASE_NS},\n  "traceEvents": [\n'
    )


def footer(r: Rank) -> str:
    """Metadata rows and the instants that close the list of events."""
    rows = []
    names = {(0, s): f"stream {s}" for s in (COMPUTE_STREAM, COPY_STREAM, *STREAMS.values())}
    names |= {(PID, MAIN): f"thread {MAIN} (python)", (PID, AUTOGRAD): f"thread {AUTOGRAD} (pt_autograd_0)"}
    meta = [("process_labels", PID, 0, '"labels": "CPU"')]
    meta += [("process_labels", gpu, 0, f'"labels": "GPU {gpu}"') for gpu in range(16)]
    meta += [("thread_name", pid, tid, f'"name": "{name}"') for (pid, tid), name in names.items()]
    for name, pid, tid, args in meta:
        r.truth.counts["M|"] += 1
        rows.append(
            f'  {{\n    "name": "{name}", "ph": "M", "ts": {us(START_NS)}, "pid": {pid}, "tid": {tid},\n'
            f'    "args": {{\n      {args}\n    }}\n  }},\n'
        )
    r.truth.counts["i|"] += 1
    end = max(*r.stream.values(), *r.cpu.values()) + 1_000
    instant = (
        '  {\n    "name": "Record Window End", "ph": "i", "s": "g",\n'
        f'    "pid": "", "tid": "", "ts": {us(end)}\n  }}\n  ],\n  "traceName": "/tmp/tmpzlmfm96e.json"\n}}'
    )
    return "".join(rows) + instant


def write(out: IO[bytes], rank: int, megabytes: float, steps: int) -> dict[str, Any]:
    """Write one rank's file to `out`; returns its truth."""
    r = Rank(rank)
    units = max(steps, round(megabytes * 1e6 / BYTES_PER_LAYER))
    out.write(header(rank).encode())
    with tempfile.TemporaryFile() as device, tempfile.TemporaryFile() as annotations:
        for step in range(steps):
            one_step(r, 10 + step, units * (step + 1) // steps - units * step // steps)
            for rows, target in ((r.host, out), (r.device, device), (r.annotations, annotations)):
                target.write("".join(rows).encode())
                rows.clear()
        end = max(r.cpu.values())
        out.write(r.span_text("Trace", "PyTorch Profiler (0)", 0, START_NS, end - START_NS, '"Op count": 0')
                  .replace(f'"pid": {PID}, "tid": 0', '"pid": "Spans", "tid": "PyTorch Profiler"').encode())  # fmt: skip
        for part in (device, annotations):
            part.seek(0)
            while block := part.read(1 << 20):
                out.write(block)
    out.write(footer(r).encode())
    return r.truth.as_dict(rank=rank, steps=steps, base_ns=BASE_NS)


def generate(path: Path, megabytes: float, *, rank: int = 0, steps: int = 20) -> dict[str, Any]:
    """Write `path` (gzip when it ends in .gz) and its truth file; returns the truth."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        out: IO[bytes] = stack.enter_context(path.open("wb"))
        if path.suffix == ".gz":
            plain = gzip.GzipFile(filename="", mode="wb", compresslevel=5, fileobj=out, mtime=0)
            out = cast("IO[bytes]", stack.enter_context(plain))
        truth = write(out, rank, megabytes, steps)
    Path(f"{path}.truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return truth


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=500, help="size of the JSON in MB (10^6 bytes), about")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path, required=True, help="file; .gz compresses")
    args = parser.parse_args()
    truth = generate(args.output, args.mb, rank=args.rank, steps=args.steps)
    size = args.output.stat().st_size
    print(f"{args.output}: {size / 1e6:.1f} MB, {truth['events']:,} events, {truth['calls']:,} communication calls")


if __name__ == "__main__":
    main()

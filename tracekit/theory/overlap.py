"""Can communication be hidden, and by what: conditions and exposed remainders (symbols as in `volumes`)."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tracekit.theory.checks import not_negative, positive
from tracekit.theory.errors import OutsideDomain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Span = tuple[float, float]


def union(spans: Iterable[Span]) -> list[Span]:
    """Disjoint spans, in order, that cover the same instants."""
    out: list[Span] = []
    for start, end in sorted(s for s in spans if s[1] > s[0]):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)


def exposure_ns(comm: Iterable[Span], compute: Iterable[Span]) -> tuple[float, float, float]:
    """(union of communication, hidden |C ∩ K|, exposed |C \\ K|) of spans in ns."""
    c, k = union(comm), union(compute)
    both = _length(c) + _length(k) - _length(union([*c, *k]))
    return _length(c), both, _length(c) - both


def overlap_efficiency_ratio(serial_ns: float, overlapped_ns: float, compute_ns: float, comm_ns: float) -> float:
    """(T_serial − T_overlapped)/min(T_comp, T_comm): 1 is perfect, below 0 the overlap costs."""
    positive(compute_ns=compute_ns, comm_ns=comm_ns)
    return (serial_ns - overlapped_ns) / min(compute_ns, comm_ns)


def contended_ns(compute_ns: float, comm_ns: float, compute_slowdown_ratio: float, comm_slowdown_ratio: float) -> float:
    """max(T_comp(1+σ), T_comm(1+ρ)): two that share the device, without their tails, in ns."""
    return max(compute_ns * (1 + compute_slowdown_ratio), comm_ns * (1 + comm_slowdown_ratio))


def wave_loss_ratio(tiles: int, processors: int, taken: int) -> float:
    """Slowdown of a GEMM of whole waves when communication takes processors: ceil(t/(SM−c))/ceil(t/SM) − 1."""
    positive(tiles=tiles, processors=processors)
    if not 0 <= taken < processors:
        raise OutsideDomain(f"{taken} of {processors} processors cannot be taken")
    return ceil(tiles / (processors - taken)) / ceil(tiles / processors) - 1


def ddp_exposed_ns(backward_ns: Sequence[float], comm_ns: Sequence[float]) -> tuple[float, float]:
    """(end of the last bucket, exposed time) of DDP: end_i = max(end_{i−1}, ready_i) + c_i, from the backward's start.

    `backward_ns` are the backward times until each bucket is ready, `comm_ns` each bucket's all-reduce.
    """
    if len(backward_ns) != len(comm_ns):
        raise OutsideDomain("one communication time a bucket is needed")
    ready = end = 0.0
    for b, c in zip(backward_ns, comm_ns, strict=True):
        not_negative(backward_ns=b, comm_ns=c)
        ready += b
        end = max(end, ready) + c
    return end, end - ready


def data_parallel_tokens(flops_per_s: float, bytes_per_s: float) -> float:
    """Tokens a device from which bf16 FSDP or DP is bound by compute: C/W (scaling book; W counts both directions)."""
    positive(flops_per_s=flops_per_s, bytes_per_s=bytes_per_s)
    return flops_per_s / bytes_per_s


def fully_sharded_tokens(ranks: int, flops_per_s: float, link_gbps: float, element_bytes: int = 2) -> float:
    """Tokens a rank from which a layer's forward hides the next all-gather: (n−1)/n · F e/(2B).

    2 FLOPs a parameter and token against e bytes a parameter. The backward (all-gather and reduce-scatter of the same
    type, 4 FLOPs) has the same bound; fp32 gradients raise it by 1.5.
    """
    positive(ranks=ranks, flops_per_s=flops_per_s, link_gbps=link_gbps, element_bytes=element_bytes)
    return (ranks - 1) / ranks * flops_per_s * element_bytes / (2 * link_gbps * 1e9)


def fully_sharded_layer_ns(
    params: int, ranks: int, tokens: int, flops_per_s: float, link_gbps: float, element_bytes: int = 2
) -> tuple[float, float]:
    """(all-gather, forward) of one layer in ns: (n−1)/n Ψ e/B and 2 Ψ T/F."""
    positive(params=params, ranks=ranks, flops_per_s=flops_per_s, link_gbps=link_gbps)
    return (ranks - 1) / ranks * params * element_bytes / link_gbps, 2 * params * tokens / flops_per_s * 1e9


def tensor_parallel_ranks(ffn: int, flops_per_s: float, bytes_per_s: float) -> float:
    """Tensor ranks up to which an MLP hides its gather and scatter: F_ffn/(C/W), whatever the batch (scaling book)."""
    positive(ffn=ffn)
    return ffn / data_parallel_tokens(flops_per_s, bytes_per_s)


def ring_chunk_tokens(
    flops_per_s: float, q_width: int, kv_width: int, link_gbps: float, element_bytes: int = 2, *, zigzag: bool = False
) -> float:
    """Tokens a rank from which ring attention hides its next block: F kv e/(2 q B); twice that for zigzag causal."""
    positive(flops_per_s=flops_per_s, q_width=q_width, kv_width=kv_width, link_gbps=link_gbps)
    return flops_per_s * kv_width * element_bytes / (2 * q_width * link_gbps * 1e9) * (2 if zigzag else 1)


def split_exposed_ratio(splits: int) -> float:
    """Share of a reduce-scatter left exposed when its GEMM is run in k splits: 1/k."""
    positive(splits=splits)
    return 1 / splits


def two_batch_exposed_ns(exchange_ns: float, other_compute_ns: float) -> float:
    """Exposed part of an expert exchange behind the other batch's (or DualPipe chunk's) compute: max(0, t − t_comp)."""
    not_negative(exchange_ns=exchange_ns, other_compute_ns=other_compute_ns)
    return max(0.0, exchange_ns - other_compute_ns)


def straggler_waste_ratio(slowdown: float) -> float:
    """Share of the job's time that stragglers waste: 1 − 1/S with S = T/T_ideal (2505.05713)."""
    positive(slowdown=slowdown)
    return 1 - 1 / slowdown

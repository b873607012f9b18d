"""Context parallelism: ring attention, gathered K and V, Ulysses, pass-KV against pass-Q, causal balance.

s tokens of the whole sequence, N context ranks, b sequences, `kv_width` = kv heads × head size on this rank, e bytes an
element.
"""

from __future__ import annotations

from tracekit.theory.checks import divides, positive, share


def ring_block_bytes(sequence: int, ranks: int, batch: int, kv_width: int, element_bytes: int = 2) -> int:
    """K and V block of one hop: 2 (s/N) b kv e."""
    positive(sequence=sequence, ranks=ranks, batch=batch, kv_width=kv_width, element_bytes=element_bytes)
    return 2 * divides(ranks, sequence, "sequence by context ranks") * batch * kv_width * element_bytes


def ring_forward_bytes(sequence: int, ranks: int, batch: int, kv_width: int, element_bytes: int = 2) -> int:
    """Bytes a rank sends in a layer's forward: N − 1 blocks."""
    return (ranks - 1) * ring_block_bytes(sequence, ranks, batch, kv_width, element_bytes)


def gathered_bytes(sequence: int, batch: int, kv_width: int, element_bytes: int = 2) -> int:
    """Payload of the all-gather of K and V (and of its reduce-scatter in backward): 2 s b kv e."""
    positive(sequence=sequence, batch=batch, kv_width=kv_width, element_bytes=element_bytes)
    return 2 * sequence * batch * kv_width * element_bytes


def ulysses_payload_bytes(
    sequence: int, ranks: int, batch: int, q_width: int, kv_width: int, element_bytes: int = 2
) -> int:
    """Payload of a layer's forward all-to-alls (q, k, v, out) together: (s/P) b (2q + 2kv) e."""
    positive(ranks=ranks, batch=batch, q_width=q_width, kv_width=kv_width, element_bytes=element_bytes)
    local = divides(ranks, sequence, "sequence by Ulysses ranks")
    return local * batch * (2 * q_width + 2 * kv_width) * element_bytes


def ulysses_forward_bytes(
    sequence: int, ranks: int, batch: int, q_width: int, kv_width: int, element_bytes: int = 2
) -> int:
    """Bytes a rank sends in a layer's forward by Ulysses: the payload · (P−1)/P."""
    return share(ranks - 1, ranks, ulysses_payload_bytes(sequence, ranks, batch, q_width, kv_width, element_bytes))


def sequence_parallel_forward_bytes(sequence: int, ranks: int, hidden: int, element_bytes: int = 2) -> int:
    """The same layer by Megatron sequence parallelism: 4 s h (P−1)/P e; P times Ulysses' (multi-head attention)."""
    positive(sequence=sequence, ranks=ranks, hidden=hidden, element_bytes=element_bytes)
    return share(ranks - 1, ranks, 4 * sequence * hidden * element_bytes)


def zigzag_cost(ranks: int, rank: int) -> int:
    """Causal work of a rank that holds chunks i and 2N−1−i of 2N, in half blocks: 4N for every rank."""
    positive(ranks=ranks)
    return (2 * rank + 1) + (2 * (2 * ranks - 1 - rank) + 1)


def contiguous_imbalance_ratio(ranks: int) -> float:
    """Max over mean of the causal work when the sequence is cut into N plain pieces: (2N−1)/N."""
    positive(ranks=ranks)
    return (2 * ranks - 1) / ranks


def pass_kv_miss_ratio(kv_heads: int, heads: int) -> float:
    """Share of new tokens T/(T+P) from which K and V are fewer bytes to pass than Q: 2 N_KV/N_H (2411.01783)."""
    positive(kv_heads=kv_heads, heads=heads)
    return 2 * kv_heads / heads


def pass_kv_hidden_tokens(
    ranks: int, flops_per_s: float, kv_heads: int, heads: int, link_gbps: float, element_bytes: int = 2
) -> float:
    """New tokens from which passing K and V hides behind attention: N C N_KV e/(2 N_H B)."""
    positive(ranks=ranks, flops_per_s=flops_per_s, link_gbps=link_gbps)
    return ranks * flops_per_s * kv_heads * element_bytes / (2 * heads * link_gbps * 1e9)


def pass_q_hidden_tokens(ranks: int, flops_per_s: float, link_gbps: float, element_bytes: int = 2) -> float:
    """Tokens (new and cached) from which passing Q hides behind attention: N e C/(4 B); its all-to-all does not."""
    positive(ranks=ranks, flops_per_s=flops_per_s, link_gbps=link_gbps)
    return ranks * element_bytes * flops_per_s / (4 * link_gbps * 1e9)


def pass_kv(
    new_tokens: int, cached_tokens: int, ranks: int, flops_per_s: float, kv_heads: int, heads: int, link_gbps: float,
    element_bytes: int = 2,
) -> bool:  # fmt: skip
    """True where K and V should circulate instead of Q: fewer bytes, or hidden behind attention."""
    positive(new_tokens=new_tokens)
    share_new = new_tokens / (new_tokens + cached_tokens)
    hidden = pass_kv_hidden_tokens(ranks, flops_per_s, kv_heads, heads, link_gbps, element_bytes)
    return share_new >= pass_kv_miss_ratio(kv_heads, heads) or new_tokens >= hidden

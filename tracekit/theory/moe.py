"""Expert parallelism: bytes of dispatch and combine, node-limited routing, balance (DeepEP, DeepSeek-V3 3.2.2)."""

from __future__ import annotations

from math import comb

from tracekit.theory.checks import divides, not_negative, positive
from tracekit.theory.errors import OutsideDomain

FP8_BLOCK = 128
"""Elements that share one fp32 scale."""


def token_bytes(hidden: int, *, fp8: bool = False, block: int = FP8_BLOCK, element_bytes: int = 2) -> int:
    """Bytes of one token's vector: hidden · e, or hidden bytes of FP8 and one fp32 scale a block."""
    positive(hidden=hidden, block=block, element_bytes=element_bytes)
    return hidden + divides(block, hidden, "hidden by FP8 block") * 4 if fp8 else hidden * element_bytes


def fp8_ratio(block: int = FP8_BLOCK) -> float:
    """FP8 bytes over bf16 bytes, scales included: (1 + 4/block)/2."""
    positive(block=block)
    return (1 + 4 / block) / 2


def dispatch_bytes(
    tokens: int, top_k: int, hidden: int, *, fp8: bool = False, element_bytes: int = 2, extra_token_bytes: int = 0
) -> int:
    """Dispatch payload of a rank without de-duplication, local copies included: T · k · (vector + extra).

    DeepEP's low-latency kernels add 16 bytes to each vector.
    """
    not_negative(tokens=tokens, extra_token_bytes=extra_token_bytes)
    positive(top_k=top_k)
    return tokens * top_k * (token_bytes(hidden, fp8=fp8, element_bytes=element_bytes) + extra_token_bytes)


def combine_bytes(tokens: int, top_k: int, hidden: int, element_bytes: int = 2) -> int:
    """Combine payload of a rank: T · k · h · e."""
    return dispatch_bytes(tokens, top_k, hidden, element_bytes=element_bytes)


def node_limited_bytes(tokens: int, max_nodes: int, hidden: int, *, fp8: bool = False) -> int:
    """Most bytes that dispatch sends over the network when a token goes to at most M nodes, once a node."""
    return dispatch_bytes(tokens, max_nodes, hidden, fp8=fp8)


def expected_nodes(nodes: int, experts: int, top_k: int) -> float:
    """Distinct nodes a token reaches under uniform routing without limit: n(1 − C(E−E/n, k)/C(E, k))."""
    positive(nodes=nodes, experts=experts, top_k=top_k)
    a_node = divides(nodes, experts, "experts by nodes")
    if top_k > experts:
        raise OutsideDomain(f"top-{top_k} of {experts} experts")
    return nodes * (1 - comb(experts - a_node, top_k) / comb(experts, top_k))


def balancedness(loads: list[int]) -> float:
    """Mean over max of the tokens a rank receives: 1 is even; the layer takes the time of the largest."""
    if not loads or max(loads) <= 0:
        raise OutsideDomain("balance needs the load of at least one rank")
    return sum(loads) / len(loads) / max(loads)

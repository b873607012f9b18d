"""α-β times of the textbook algorithms: α ns a hop, 1/β GB/s a link, no reduction cost, payload S as in `collectives`.

Sources: Thakur, Rabenseifner, Gropp 2005 (ring, recursive doubling and halving, Bruck, pairwise); Sanders, Speck, Träff
2009 (two trees). Recursive algorithms need a power of two ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.theory.checks import not_negative, positive
from tracekit.theory.errors import OutsideDomain

if TYPE_CHECKING:
    from collections.abc import Callable


def _rounds(n: int) -> int:
    """log2 n of a power of two."""
    if n & (n - 1):
        raise OutsideDomain(f"recursive algorithms need a power of two ranks, not {n}")
    return n.bit_length() - 1


def _ring_all_reduce(n: int, s: float, a: float, b: float) -> float:
    return 2 * (n - 1) * a + 2 * (n - 1) / n * s / b


def _ring_shared(n: int, s: float, a: float, b: float) -> float:
    return (n - 1) * a + (n - 1) / n * s / b


def _recursive_all_reduce(n: int, s: float, a: float, b: float) -> float:
    return _rounds(n) * (a + s / b)


def _halving_doubling(n: int, s: float, a: float, b: float) -> float:
    return 2 * _rounds(n) * a + 2 * (n - 1) / n * s / b


def _double_tree(n: int, s: float, a: float, b: float) -> float:
    return 2 * _rounds(n) * a + 2 * s / b


def _recursive_shared(n: int, s: float, a: float, b: float) -> float:
    return _rounds(n) * a + (n - 1) / n * s / b


def _bruck(n: int, s: float, a: float, b: float) -> float:
    return _rounds(n) * (a + s / (2 * b))


def _binomial(n: int, s: float, a: float, b: float) -> float:
    return _rounds(n) * (a + s / b)


ALGORITHMS: dict[tuple[str, str], Callable[[int, float, float, float], float]] = {
    ("all_reduce", "ring"): _ring_all_reduce,
    ("all_reduce", "recursive_doubling"): _recursive_all_reduce,
    ("all_reduce", "halving_doubling"): _halving_doubling,
    ("all_reduce", "double_tree"): _double_tree,
    ("all_gather", "ring"): _ring_shared,
    ("all_gather", "recursive_doubling"): _recursive_shared,
    ("reduce_scatter", "ring"): _ring_shared,
    ("reduce_scatter", "recursive_halving"): _recursive_shared,
    ("all_to_all", "pairwise"): _ring_shared,
    ("all_to_all", "bruck"): _bruck,
    ("broadcast", "binomial"): _binomial,
}
"""(operation, algorithm) → time in ns of (ranks, payload bytes, α ns, GB/s)."""


def alpha_beta_ns(op: str, algorithm: str, group_size: int, payload: float, alpha_ns: float, link_gbps: float) -> float:
    """Time in ns. OutsideDomain for an unknown pair, or a recursive algorithm over no power of two."""
    positive(group_size=group_size, link_gbps=link_gbps)
    not_negative(payload=payload, alpha_ns=alpha_ns)
    formula = ALGORITHMS.get((op, algorithm))
    if formula is None:
        known = ", ".join(f"{o} {a}" for o, a in ALGORITHMS)
        raise OutsideDomain(f"no α-β formula for {op} by {algorithm!r}; there are {known}")
    return formula(group_size, payload, alpha_ns, link_gbps)


def pipelined_broadcast_ns(group_size: int, payload: float, chunks: int, alpha_ns: float, link_gbps: float) -> float:
    """Ring broadcast in chunks: (n − 2 + chunks)(α + S/(chunks · B)) ns."""
    positive(chunks=chunks, link_gbps=link_gbps)
    if group_size < 2:
        raise OutsideDomain("a broadcast needs two ranks or more")
    return (group_size - 2 + chunks) * (alpha_ns + payload / (chunks * link_gbps))


def recursive_doubling_wins(group_size: int, payload: float, alpha_ns: float, link_gbps: float) -> bool:
    """True where recursive doubling beats the ring: S(log2 n − 2(n−1)/n)/B < (2(n−1) − log2 n)α."""
    rounds = _rounds(group_size)
    extra = payload * (rounds - 2 * (group_size - 1) / group_size) / link_gbps
    return extra < (2 * (group_size - 1) - rounds) * alpha_ns

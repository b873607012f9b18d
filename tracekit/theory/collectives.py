"""What one collective moves: payload, wire bytes, algorithm and bus bandwidth, and the time a link allows.

Payload S is the *full* buffer, as nccl-tests counts it (doc/PERFORMANCE.md, src/*.cu): of all-reduce, broadcast, reduce
and send-receive the buffer itself, of the others the per-rank buffer times the ranks. One byte a nanosecond is 1 GB/s
(10^9 bytes/s), so no conversion stands between `_bytes`, `_ns` and `_gbps`. Bandwidths are per direction.
"""

from __future__ import annotations

from fractions import Fraction

from tracekit.theory.checks import not_negative, positive, share
from tracekit.theory.errors import OutsideDomain

_SHARED = frozenset({"all_gather", "reduce_scatter", "all_to_all", "all_to_allv", "gather", "scatter"})
_WHOLE = frozenset({"broadcast", "reduce", "send", "recv", "send_recv"})
OPS = frozenset({"all_reduce", "hypercube"}) | _SHARED | _WHOLE
"""Operations with a known bus factor."""


def factor(op: str, group_size: int) -> Fraction:
    """Bus factor as an exact fraction: 2(n−1)/n, (n−1)/n or 1 (nccl-tests). OutsideDomain for an unknown operation."""
    positive(group_size=group_size)
    if op == "all_reduce":
        return Fraction(2 * (group_size - 1), group_size)
    if op in _SHARED:
        return Fraction(group_size - 1, group_size)
    if op in _WHOLE or op == "hypercube":
        return Fraction(1 if group_size > 1 else 0)
    raise OutsideDomain(f"no bus factor is known for the operation {op!r}")


def bus_factor(op: str, group_size: int) -> float:
    """busbw / algbw of an operation over n ranks."""
    return float(factor(op, group_size))


def payload_bytes(op: str, group_size: int, count: int, element_bytes: int) -> int:
    """Full buffer S in bytes; `count` are the elements of one rank's smaller buffer (nccl-tests' sendcount/recvcount).

    For all_to_allv pass the largest of all ranks' send and receive counts: its S is that buffer, not a multiple of it.
    """
    positive(group_size=group_size, element_bytes=element_bytes)
    not_negative(count=count)
    factor(op, group_size)
    if op == "hypercube":
        return count * element_bytes * (group_size - 1)
    times = group_size if op in _SHARED and op != "all_to_allv" else 1
    return count * element_bytes * times


def wire_bytes(op: str, group_size: int, payload: int) -> int:
    """Bytes one rank sends with a ring-like algorithm: S · factor, rounded up to whole bytes.

    Gather and scatter: what the root receives or sends. In-switch reduction (NVLS, SHARP) sends less; see `nvls_bytes`.
    """
    not_negative(payload=payload)
    f = factor(op, group_size)
    return share(f.numerator, f.denominator, payload)


def nvls_bytes(payload: int) -> int:
    """Bytes a GPU sends in an all-reduce that the switch reduces (NVLS): about S, instead of 2(n−1)/n · S."""
    not_negative(payload=payload)
    return payload


def algbw_gbps(payload: int, dur_ns: float) -> float:
    """Algorithm bandwidth S/t in GB/s."""
    not_negative(payload=payload)
    positive(dur_ns=dur_ns)
    return payload / dur_ns


def busbw_gbps(op: str, group_size: int, payload: int, dur_ns: float) -> float:
    """Bus bandwidth S/t · factor in GB/s. A wire rate only for ring-like algorithms inside one kind of link."""
    return algbw_gbps(payload, dur_ns) * bus_factor(op, group_size)


def lower_bound_ns(op: str, group_size: int, payload: int, link_gbps: float) -> float:
    """Least time of a ring-like algorithm over links of one kind, in ns: S · factor / B, without any latency."""
    positive(link_gbps=link_gbps)
    return float(payload * factor(op, group_size)) / link_gbps


def nic_gbps_of(busbw: float, nodes: int, group_size: int) -> float:
    """Rate of each GPU's NIC behind a bus bandwidth measured over several nodes: busbw · (k−1)/(n−1), hierarchical."""
    positive(nodes=nodes)
    if not 1 < nodes <= group_size:
        raise OutsideDomain(f"a NIC rate needs 2 ≤ nodes ≤ ranks, not {nodes} nodes for {group_size} ranks")
    return busbw * (nodes - 1) / (group_size - 1)


def bandwidth_to_hide_gbps(wire: int, compute_ns: float) -> float:
    """Bandwidth at which `wire` bytes take no longer than the compute that could hide them."""
    not_negative(wire=wire)
    positive(compute_ns=compute_ns)
    return wire / compute_ns

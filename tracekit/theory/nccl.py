"""NCCL's own cost model, as its tuner uses it to choose algorithm and protocol (src/graph/tuning.cc, 2026-06).

time = latency + S / bandwidth. It is made for choosing, not for promising: expect a factor of two for small messages.
Not modelled: the tree's correction by size, tuner plugins, CollNet.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Final

from tracekit.theory.checks import not_negative, positive
from tracekit.theory.errors import OutsideDomain

PROTOCOLS: Final = ("LL", "LL128", "Simple")
_US = 1000.0

# Latencies in us by algorithm, for LL, LL128, Simple.
_BASE = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4), "pat": (8.0, 8.0, 8.0)}
_INTRA = {
    "nvlink": {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)},
    "pci": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)},
}
_NET = {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)}
_NVLS_INTRA_US, _NVLS_NET_US, _NVLS_TREE_NET_US = 25.0, 18.0, 20.9

_ARCHITECTURES = ("volta", "ampere", "hopper", "blackwell")
_LL_MAX_ONE_NODE = dict(zip(_ARCHITECTURES, (39.0, 87.7, 141.0, 282.0), strict=True))
_LL_MAX_NODES = {"intel": (39.0, 20.4), "amd": (22.5, 19.0)}  # 2 nodes, more
_LL128_CHANNEL = dict(zip(_ARCHITECTURES, (20.0, 20.0, 36.7, 40.0), strict=True))
_TREE_CHANNEL = dict(zip(_ARCHITECTURES, (26.5, 24.0, 38.7, 70.0), strict=True))
_NVLS_EFFICIENCY = {"hopper": 0.85, "blackwell": 0.74}

LINKS_GBPS: Final = {"ampere": (12, 20.0), "hopper": (18, 20.6), "blackwell": (18, 40.1)}
"""NVLinks of a full-width GPU and the GB/s NCCL counts for each (src/graph/topo.h)."""


def nvlink_ceiling_gbps(links: int, link_gbps: float) -> float:
    """Bus bandwidth that NCCL's rings can reach inside a node: links × GB/s a link."""
    positive(links=links, link_gbps=link_gbps)
    return links * link_gbps


@dataclass(frozen=True, slots=True)
class Fabric:
    """Where a communicator runs.

    `bus_gbps`: bandwidth of all channels together (channels × GB/s a channel), for several nodes the one that limits.
    """

    group_size: int
    nodes: int = 1
    bus_gbps: float | None = None
    architecture: str = "hopper"
    intra: str = "nvlink"
    cpu: str = "intel"
    channels: int | None = None
    latency_inter_us: float = 0.0
    net_overhead_us: float = 1.0

    def __post_init__(self) -> None:
        positive(group_size=self.group_size, nodes=self.nodes)
        if self.nodes > self.group_size:
            raise OutsideDomain(f"{self.nodes} nodes for {self.group_size} ranks")
        for what, value, known in (
            ("architecture", self.architecture, _ARCHITECTURES),
            ("intra", self.intra, tuple(_INTRA)),
            ("cpu", self.cpu, tuple(_LL_MAX_NODES)),
        ):
            if value not in known:
                raise OutsideDomain(f"NCCL's tables have no {what} {value!r}; there are {', '.join(known)}")


def _protocol(name: str) -> int:
    if name not in PROTOCOLS:
        raise OutsideDomain(f"no NCCL protocol {name!r}; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS.index(name)


def steps(op: str, group_size: int) -> int:
    """Ring steps: 2(n−1) for all-reduce, n−1 for all-gather and reduce-scatter, else n."""
    if op == "all_reduce":
        return 2 * (group_size - 1)
    return group_size - 1 if op in {"all_gather", "reduce_scatter"} else group_size


def ring_latency_ns(op: str, protocol: str, at: Fabric, payload: int | None = None) -> float:
    """Latency of a ring: base + (steps − inter) · max(intra, overhead) + inter · net, in ns.

    `payload` with `at.channels`: an all-reduce by Simple over nodes is 1.4 (before Ampere 1.9) times slower from
    64 bytes a channel and rank on.
    """
    p = _protocol(protocol)
    several = at.nodes > 1
    inter = (2 if op == "all_reduce" else 1) * (at.nodes - 1)
    overhead = at.net_overhead_us * (3 if protocol == "Simple" else 1) if several else 0.0
    one_a_node = several and at.nodes == at.group_size
    net = _NET["tree" if one_a_node else "ring"][p] + at.latency_inter_us
    lat = _BASE["ring"][p] + (steps(op, at.group_size) - inter) * max(_INTRA[at.intra]["ring"][p], overhead)
    lat += inter * net
    if several and op == "all_reduce" and protocol == "Simple" and payload is not None and at.channels:
        lat *= _congestion(payload, at)
    return lat * _US


def _congestion(payload: int, at: Fabric) -> float:
    if payload / ((at.channels or 1) * at.group_size) < 64:
        return 1.0
    return 1.9 if at.architecture == "volta" else 1.4


def hop_latency_ns(*, several_nodes: bool) -> float:
    """Base and one hop of a ring by Simple in ns, over NVLink or the network: what a lone send cannot go below."""
    return (_BASE["ring"][2] + (_NET if several_nodes else _INTRA["nvlink"])["ring"][2]) * _US


def tree_latency_ns(protocol: str, at: Fabric) -> float:
    """Latency of a tree all-reduce: base + 2[(n/k − 1) intra + log2 k · net], in ns."""
    p = _protocol(protocol)
    inside = (at.group_size / at.nodes - 1) * _INTRA[at.intra]["tree"][p]
    across = log2(at.nodes) * (_NET["tree"][p] + at.latency_inter_us)
    return (_BASE["tree"][p] + 2 * (inside + across)) * _US


def nvls_latency_ns(at: Fabric, *, tree: bool = False) -> float:
    """Latency of NVLS (no base; plus the network's on several nodes) or NVLSTree (base + intra + 2 log2 k · net)."""
    if tree:
        return (_BASE["tree"][2] + _NVLS_INTRA_US + 2 * log2(at.nodes) * _NVLS_TREE_NET_US) * _US
    return (_NVLS_INTRA_US + (_NVLS_NET_US if at.nodes > 1 else 0.0)) * _US


def _bus(at: Fabric) -> float:
    if at.bus_gbps is None:
        raise OutsideDomain("NCCL's model needs the bandwidth of all channels, bus_gbps")
    positive(bus_gbps=at.bus_gbps)
    return at.bus_gbps


def _ll_max(at: Fabric) -> float:
    if at.nodes == 1:
        return _LL_MAX_ONE_NODE[at.architecture]
    return _LL_MAX_NODES[at.cpu][0 if at.nodes == 2 else 1]


def ring_bus_gbps(protocol: str, at: Fabric) -> float:
    """Bus bandwidth of a ring: LL min(llMax, B/2), LL128 0.92 B (capped where channels are known), Simple B."""
    bus = _bus(at)
    _protocol(protocol)
    if protocol == "LL":
        return min(_ll_max(at), bus / 2)
    if protocol == "LL128":
        cap = at.channels * _LL128_CHANNEL[at.architecture] if at.channels else bus
        return min(0.92 * bus, cap)
    return bus


def tree_bus_gbps(protocol: str, at: Fabric) -> float:
    """Bus bandwidth of a tree all-reduce: 0.92 B, capped a channel; LL a 3.8th, LL128 7/9 (one node) or 120/128."""
    _protocol(protocol)
    bus = 0.92 * _bus(at)
    if at.channels:
        bus = min(bus, at.channels * _TREE_CHANNEL[at.architecture])
    if protocol == "LL":
        return bus / 3.8
    return bus * (7 / 9 if at.nodes == 1 else 120 / 128) if protocol == "LL128" else bus


def nvls_bus_gbps(op: str, at: Fabric) -> float:
    """Bus bandwidth of NVLS: B · efficiency · (channels − 1)/channels; twice for all-reduce, (p−1)/p for AG, RS."""
    efficiency = _NVLS_EFFICIENCY.get(at.architecture)
    if efficiency is None:
        raise OutsideDomain(f"NVLS needs Hopper or newer, not {at.architecture}")
    if not at.channels:
        raise OutsideDomain("NVLS bandwidth needs the number of channels")
    bus = _bus(at) * efficiency * (at.channels - 1) / at.channels
    a_node = at.group_size / at.nodes
    return bus * (2.0 if op == "all_reduce" else (a_node - 1) / a_node)


def ring_ns(op: str, protocol: str, payload: int, at: Fabric) -> float:
    """Time of a ring in ns: latency + S / (busbw · n / steps)."""
    not_negative(payload=payload)
    rate = ring_bus_gbps(protocol, at) * at.group_size / steps(op, at.group_size)
    return ring_latency_ns(op, protocol, at, payload) + payload / rate


def tree_ns(protocol: str, payload: int, at: Fabric) -> float:
    """Time of a tree all-reduce in ns: latency + S / (busbw / 2)."""
    not_negative(payload=payload)
    return tree_latency_ns(protocol, at) + payload / (tree_bus_gbps(protocol, at) / 2)


@dataclass(frozen=True, slots=True)
class Choice:
    """What the model would choose: algorithm, protocol, its time and the latency inside it, in ns."""

    algorithm: str
    protocol: str
    time_ns: float
    latency_ns: float


def best(op: str, payload: int, at: Fabric) -> Choice:
    """The cheapest of ring and (all-reduce only) tree over the protocols. OutsideDomain for one rank."""
    if at.group_size < 2:
        raise OutsideDomain("a group of one rank moves nothing")
    found = [Choice("ring", p, ring_ns(op, p, payload, at), ring_latency_ns(op, p, at, payload)) for p in PROTOCOLS]
    if op == "all_reduce":
        found += [Choice("tree", p, tree_ns(p, payload, at), tree_latency_ns(p, at)) for p in PROTOCOLS]
    return min(found, key=lambda c: c.time_ns)


def crossover_bytes(op: str, small: str, large: str, at: Fabric) -> float:
    """Payload in bytes from which ring protocol `large` beats `small`; latency without its congestion factor."""
    n = at.group_size / steps(op, at.group_size)
    slope = 1 / (ring_bus_gbps(small, at) * n) - 1 / (ring_bus_gbps(large, at) * n)
    gap = ring_latency_ns(op, large, at) - ring_latency_ns(op, small, at)
    if slope <= 0 or gap <= 0:
        raise OutsideDomain(f"{large} never overtakes {small} here")
    return gap / slope

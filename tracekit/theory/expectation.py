"""What one collective should take on given hardware: least time, expectation with its band, and a verdict.

Least time: for each link on its way the bytes that must cross it, over its rate; the slower of the two counts. Inside
a node the bytes are those of a ring; over k nodes with g ranks each a reduce or gather crosses the network with S/g for
each adapter: intra (g−1)/g · S, inter (k−1)/k · S/g, twice that for all-reduce. Phases may run one after the other or
together, so max(phases) ≤ t ≤ sum(phases).

Expected: from 64 MiB on, measured large collectives reach 0.75 to 0.95 of the links (A100 0.78, H200 0.82, B200 0.76),
the latency of NCCL's model added to the upper end. Below that NCCL's model with a band of a factor of two; for send,
receive and all-to-all, which it does not know, α-β with the latency of one hop from its tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.theory.checks import not_negative, positive
from tracekit.theory.collectives import busbw_gbps, factor
from tracekit.theory.errors import MissingInput, NoNumber, OutsideDomain
from tracekit.theory.nccl import Fabric, best, hop_latency_ns

if TYPE_CHECKING:
    from tracekit.theory.machine import Hardware, Placement

LARGE_BYTES = 64 << 20
"""Payload from which bandwidth alone decides."""
EFFICIENCY_LOW, EFFICIENCY_HIGH = 0.75, 0.95
BAND = 2.0
"""Factor up and down of an expectation from latencies."""
NVLS_FROM_BYTES = 2 << 20
LATENCY_BOUND_RATIO = 0.5
TOO_SMALL_RATIO = 0.9
_REDUCING = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
_RINGS = frozenset(_REDUCING) | {"broadcast", "reduce"}


@dataclass(frozen=True, slots=True)
class Bound:
    """Least time of a call. `limit`: the link that sets it (link | nic); `serial_ns`: phases one after the other."""

    lower_bound_ns: float
    serial_ns: float
    limit: str
    nvls_bound_ns: float | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected time of a call in ns with its band; `latency_ratio`: share of it that is latency, where modelled."""

    bound: Bound
    expected_ns: float | None
    low_ns: float | None
    high_ns: float | None
    latency_ratio: float | None
    basis: str
    reason: str | None = None


def phases_ns(op: str, payload: int, at: Placement, hw: Hardware) -> tuple[float, float]:
    """(inside nodes, between nodes) least times in ns. MissingInput where a link's rate is not known."""
    not_negative(payload=payload)
    n, g = at.group_size, at.ranks_a_node
    if n == 1:
        return 0.0, 0.0
    if at.nodes == 1:
        return float(payload * factor(op, n)) / hw.node_link_gbps(n), 0.0
    nic = hw.need("nic_gbps")
    if op in _REDUCING:
        times = _REDUCING[op]
        inside = times * (g - 1) / g * payload / hw.node_link_gbps(g) if g > 1 else 0.0
        return inside, times * (at.nodes - 1) / at.nodes * (payload / g) / nic
    if op in {"all_to_all", "all_to_allv"}:
        inside = (g - 1) / n * payload / hw.node_link_gbps(g) if g > 1 else 0.0
        return inside, (n - g) / n * payload / nic
    factor(op, n)  # refuses an unknown operation
    if op in {"gather", "scatter", "hypercube"}:
        raise OutsideDomain(f"no bound for {op} over several nodes")
    return 0.0, payload / nic


def bound(op: str, payload: int, at: Placement, hw: Hardware) -> Bound:
    """Least time of one call. In-switch reduction (NVLS) may beat it down to `nvls_bound_ns`."""
    inside, between = phases_ns(op, payload, at, hw)
    nvls = None
    switch = hw.nvls_min_ranks is not None and at.ranks_a_node >= hw.nvls_min_ranks
    if op == "all_reduce" and switch and payload >= NVLS_FROM_BYTES:
        nvls = max(payload / hw.node_link_gbps(at.ranks_a_node), between)
    return Bound(max(inside, between), inside + between, "nic" if between > inside else "link", nvls)


def expect(op: str, payload: int, at: Placement, hw: Hardware) -> Expectation:
    """Expected time of one call with its band; null with a reason where neither model reaches."""
    least = bound(op, payload, at, hw)
    if at.group_size == 1:
        return Expectation(least, 0.0, 0.0, 0.0, None, "a group of one moves nothing")
    model, why = None, None
    try:
        model = _model(op, payload, at, hw)
    except NoNumber as e:
        why = str(e)
    latency_ratio = model[1] / model[0] if model else None
    if payload >= LARGE_BYTES:
        latency = model[1] if model else 0.0
        low, high = least.lower_bound_ns / EFFICIENCY_HIGH, least.serial_ns / EFFICIENCY_LOW + latency
        middle = min(max(model[0], low), high) if model else (low + high) / 2
        low = min(low, least.nvls_bound_ns) if least.nvls_bound_ns else low
        return Expectation(least, middle, low, high, latency_ratio, _basis(op, True))
    if model is None:
        return Expectation(least, None, None, None, None, "", why)
    floor = least.lower_bound_ns if least.nvls_bound_ns is None else least.nvls_bound_ns
    return Expectation(least, model[0], max(floor, model[0] / BAND), model[0] * BAND, latency_ratio, _basis(op, False))


def _basis(op: str, large: bool) -> str:
    if large:
        return f"links at {EFFICIENCY_LOW} to {EFFICIENCY_HIGH} of their rate"
    return "NCCL's model" if op in _RINGS else "α-β, one hop of NCCL's tables"


def _model(op: str, payload: int, at: Placement, hw: Hardware) -> tuple[float, float]:
    """(time, latency of it) in ns: NCCL's latencies, and the rate of its rings or of the path over nodes."""
    if hw.architecture is None:
        raise MissingInput("hardware.architecture")
    bus = hw.need("ring_ceiling_gbps")
    if op not in _RINGS:
        alpha = hop_latency_ns(several_nodes=at.nodes > 1)
        inside, between = phases_ns(op, payload, at, hw)
        return alpha + max(inside * hw.node_link_gbps(at.ranks_a_node) / bus, between), alpha
    if at.nodes > 1:
        # The rate at which a ring's busbw equals the slower phase of the path.
        slower = max(phases_ns(op, payload, at, hw)) if payload else 0.0
        bus = float(payload * factor(op, at.group_size)) / slower if slower else bus
    found = best(op, payload, Fabric(at.group_size, at.nodes, bus, hw.architecture))
    return found.time_ns, found.latency_ns


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a measured call stands: at_limit | below_limit | latency_bound | too_small | above_limit, and by how much.

    `ratio` = measured / expected (middle); `bound_ratio` = measured / least time. `above_limit`: faster than the links
    allow; by NVLS where `nvls`, else the size, the group or the clock is wrong.
    """

    verdict: str
    ratio: float | None
    bound_ratio: float | None
    busbw_gbps: float
    expectation: Expectation
    nvls: bool = False
    reason: str | None = None


def verdict(op: str, payload: int, dur_ns: float, at: Placement, hw: Hardware) -> Verdict:
    """Judge one measured transfer (waiting taken off before) of `payload` bytes."""
    positive(dur_ns=dur_ns)
    e = expect(op, payload, at, hw)
    bus = busbw_gbps(op, at.group_size, payload, dur_ns)
    least = e.bound.lower_bound_ns
    bound_ratio = dur_ns / least if least else None
    ratio = dur_ns / e.expected_ns if e.expected_ns else None
    if least and dur_ns < least:
        nvls = e.bound.nvls_bound_ns is not None and dur_ns >= e.bound.nvls_bound_ns
        why = "in-switch reduction (NVLS) sends less" if nvls else "faster than the links: size, group or time is wrong"
        return Verdict("above_limit", ratio, bound_ratio, bus, e, nvls, why)
    if e.high_ns is None or ratio is None:
        return Verdict("unknown", ratio, bound_ratio, bus, e, reason=e.reason)
    if dur_ns > e.high_ns:
        return Verdict("below_limit", ratio, bound_ratio, bus, e)
    share = e.latency_ratio or 0.0
    if payload < LARGE_BYTES and share >= LATENCY_BOUND_RATIO:
        return Verdict("too_small" if share >= TOO_SMALL_RATIO else "latency_bound", ratio, bound_ratio, bus, e)
    return Verdict("at_limit", ratio, bound_ratio, bus, e)

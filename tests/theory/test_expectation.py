"""Time of a call on hardware: paths, bounds, bands and verdicts against measured tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit import theory
from tracekit.theory import collectives
from tracekit.theory.errors import MissingInput, OutsideDomain
from tracekit.theory.expectation import bound, phases_ns

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
NODE = theory.place(range(8), 8)
H200, B200 = theory.hardware("dgx-h200"), theory.hardware("dgx-b200")


@pytest.mark.parametrize(
    ("members", "gpus", "nodes", "here", "path"),
    [
        (range(8), 8, 1, 8, "intra"), (range(0, 64, 8), 8, 8, 1, "inter"), (range(32), 8, 4, 8, "hierarchical"),
        (range(0, 16, 2), 8, 2, 4, "hierarchical"), (range(6, 10), 8, 2, 2, "hierarchical"), ([3], 8, 1, 1, "intra"),
    ],
)  # fmt: skip
def test_placement(members: range, gpus: int, nodes: int, here: int, path: str) -> None:
    p = theory.place(members, gpus)
    assert (p.nodes, p.ranks_a_node, p.path) == (nodes, here, path)


def test_placement_refuses_nonsense() -> None:
    for wrong in ([], [1, 1]):
        with pytest.raises(OutsideDomain):
            theory.place(wrong, 8)
    with pytest.raises(OutsideDomain):
        theory.Placement(4, 5, 1)


def test_four_nodes_of_eight_b200() -> None:
    """4 GiB all-reduce, measured 22.05 ms: 16.1 ms over the NICs, and not the 85.9 ms of a single NIC."""
    at = theory.place(range(32), 8)
    inside, between = phases_ns("all_reduce", 4 * GIB, at, B200)
    assert between / 1e6 == pytest.approx(16.1, abs=0.05)
    assert inside / 1e6 == pytest.approx(2 * 7 / 8 * 4 * GIB / 900 / 1e6)
    b = bound("all_reduce", 4 * GIB, at, B200)
    assert b.limit == "nic"
    assert b.lower_bound_ns < 22.05e6 < theory.expect("all_reduce", 4 * GIB, at, B200).high_ns * 1.0
    assert collectives.nic_gbps_of(377.34, 4, 32) == pytest.approx(36.52, abs=0.005)
    assert theory.verdict("all_reduce", 4 * GIB, 22.05e6, at, B200).verdict == "at_limit"


@pytest.mark.parametrize(("part", "busbw"), [("a100", 234.89), ("h200", 367.61), ("b200", 682.2)])
def test_measured_rings_are_inside_the_band(part: str, busbw: float) -> None:
    """Large all-reduces by ring as published."""
    ns = 4 * GIB * 1.75 / busbw
    hw = theory.hardware(part)
    e = theory.expect("all_reduce", 4 * GIB, NODE, hw)
    assert e.low_ns is not None
    assert e.high_ns is not None
    assert e.low_ns <= ns <= e.high_ns
    v = theory.verdict("all_reduce", 4 * GIB, ns, NODE, hw)
    assert v.verdict == "at_limit"
    assert v.busbw_gbps == pytest.approx(busbw)


def test_nvls_beats_the_ring_and_is_flagged() -> None:
    v = theory.verdict("all_reduce", 4 * GIB, 4 * GIB * 1.75 / 482.26, NODE, H200)
    assert (v.verdict, v.nvls) == ("above_limit", True)
    assert v.busbw_gbps > 450
    assert v.bound_ratio is not None
    assert v.bound_ratio < 1


def test_faster_than_the_links_is_flagged_never_clipped() -> None:
    ns = 4 * GIB * 1.75 / 3000
    v = theory.verdict("all_reduce", 4 * GIB, ns, NODE, H200)
    assert (v.verdict, v.nvls) == ("above_limit", False)
    assert v.busbw_gbps == pytest.approx(3000)
    v = theory.verdict("all_gather", GIB, GIB * 0.875 / 500, NODE, H200)
    assert (v.verdict, v.nvls) == ("above_limit", False)


def test_slow_small_and_latency_bound() -> None:
    assert theory.verdict("all_gather", GIB, GIB * 0.875 / 100, NODE, H200).verdict == "below_limit"
    assert theory.verdict("all_reduce", KIB, 15e3, NODE, H200).verdict == "too_small"
    assert theory.verdict("all_reduce", MIB, 30e3, NODE, H200).verdict == "latency_bound"
    assert theory.verdict("all_reduce", KIB, 1e6, NODE, H200).verdict == "below_limit"
    assert theory.verdict("all_reduce", 32 * MIB, 200e3, NODE, H200).verdict == "at_limit"


def test_published_sizes_lie_in_the_band() -> None:
    """8 × H200 by size: bus bandwidth 40 (1 MiB), 220 (16 MiB), 402 (128 MiB), 464 GB/s (1 GiB)."""
    for size, busbw in ((MIB, 40), (16 * MIB, 220), (128 * MIB, 402), (GIB, 464)):
        e = theory.expect("all_reduce", size, NODE, H200)
        assert e.low_ns is not None
        assert e.high_ns is not None
        assert e.low_ns <= size * 1.75 / busbw <= e.high_ns, size


def test_what_lacks_an_input_says_so() -> None:
    far = theory.place(range(0, 16, 8), 8)
    with pytest.raises(MissingInput, match="nic_gbps"):
        theory.expect("all_reduce", MIB, far, theory.hardware("h100"))
    e = theory.expect("all_reduce", MIB, NODE, theory.hardware("h800"))
    assert e.expected_ns is None
    assert e.reason is not None
    assert "ring_ceiling" in e.reason
    assert theory.verdict("all_reduce", MIB, 30e3, NODE, theory.hardware("h800")).verdict == "unknown"
    # A mesh without NCCL's tables: large calls by their links, small ones not at all.
    amd = theory.hardware("mi300x")
    assert theory.expect("all_gather", GIB, NODE, amd).expected_ns is not None
    assert theory.expect("all_gather", MIB, NODE, amd).expected_ns is None
    with pytest.raises(OutsideDomain, match="gossip"):
        theory.expect("gossip", MIB, NODE, H200)


def test_measured_figures_override() -> None:
    slow = replace(H200, nic_gbps=10.0)
    far = theory.place(range(0, 16, 8), 8)
    assert bound("send", GIB, far, slow).lower_bound_ns == pytest.approx(GIB / 10)


@settings(deadline=None)
@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"]),
    st.integers(0, 1 << 36), st.sampled_from([(2, 1, 2), (8, 1, 8), (8, 8, 1), (16, 2, 8), (64, 8, 8)]),
)  # fmt: skip
def test_order_of_the_bounds(op: str, payload: int, shape: tuple[int, int, int]) -> None:
    e = theory.expect(op, payload, theory.Placement(*shape), H200)
    b = e.bound
    assert b.nvls_bound_ns is None or b.nvls_bound_ns <= b.lower_bound_ns
    assert b.lower_bound_ns <= b.serial_ns <= 2 * b.lower_bound_ns + 1e-9
    assert e.low_ns is not None
    assert e.expected_ns is not None
    assert e.high_ns is not None
    assert e.low_ns <= e.expected_ns * (1 + 1e-12)
    assert e.expected_ns <= e.high_ns * (1 + 1e-12)


def test_a_group_of_one_costs_nothing() -> None:
    assert theory.expect("all_reduce", GIB, theory.place([0], 8), H200).expected_ns == 0

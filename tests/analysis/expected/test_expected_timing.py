"""Where groups lie, what is expected of a call, and the verdict: against theory's own and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit import theory
from tracekit.analysis.expected.calls import Kind, Recording, element_bytes
from tracekit.analysis.expected.machine import Machine, machine_of
from tracekit.analysis.expected.timing import VERDICTS, judge, time_of
from tracekit.theory import MissingInput

H100 = "NVIDIA H100 80GB HBM3"


def _machine(ranks: int = 16, *, table: Any = None, devices: int = 8, hosts: bool = False, **more: Any) -> Machine:
    recordings = [
        Recording(r, {}, "one-rank", f"h{r // 4}" if hosts else None, more.pop("name", H100) if r == 0 else H100, devices)
        for r in range(ranks)
    ]  # fmt: skip
    groups = [{"group_id": "0-15", "rank": r, "position": r} for r in range(16)]
    groups += [{"group_id": "0-7", "rank": r, "position": r} for r in range(8)]
    return machine_of(recordings, table or {}, more.pop("world", 16), groups, {"tp": 8})


def _kind(**more: Any) -> Kind:
    values = Kind("tp", None, None, "all_reduce", "0-7", "nccl", None, None, 8, None, 1 << 30)
    return values._replace(**more)


def test_hosts_count_before_devices() -> None:
    at = _machine(hosts=True).place(tuple(range(8)), 8)
    # 8 devices a node are visible, but the files name 4 ranks a host; NVLink of the usual board ends there, too
    assert (at.nodes, at.ranks_a_node) == (2, 4)
    at = _machine().place(tuple(range(16)), 16)
    assert (at.nodes, at.ranks_a_node, at.path) == (2, 8, "hierarchical")


def test_one_visible_device_tells_nothing_of_the_node() -> None:
    with pytest.raises(MissingInput, match="gpus_per_node"):
        _machine(devices=1).place(tuple(range(8)), 8)
    given = _machine(devices=1, table={"name": "h100"})
    assert given.place(tuple(range(8)), 8).path == "intra"


def test_fewer_devices_than_the_board_has_may_still_share_links() -> None:
    with pytest.raises(MissingInput, match="share fast links"):
        _machine(devices=4).place(tuple(range(8)), 8)
    assert _machine(devices=4).place(tuple(range(4)), 4).path == "intra"


def test_racks_share_links_over_hosts() -> None:
    rack = machine_of(
        [Recording(r, {}, "one-rank", f"h{r // 4}", "NVIDIA GB200", 4) for r in range(8)], {}, 8, [], {}
    )  # fmt: skip
    assert rack.place(tuple(range(4)), 4).path == "intra"
    with pytest.raises(MissingInput, match="share fast links"):
        rack.place(tuple(range(8)), 8)


def test_a_group_without_ranks_is_placed_only_where_the_job_fits_a_node() -> None:
    assert _machine(8, world=8).place(None, 8).path == "intra"
    with pytest.raises(MissingInput, match="the ranks of the group"):
        _machine().place(None, 8)


def test_hardware_is_asked_for_not_guessed() -> None:
    r = Recording(0, {}, "one-rank", None, "NVIDIA H100 PCIe", 8)
    m = machine_of([r], {}, 8, [], {})
    assert m.hardware is None
    timed = time_of(_kind(), 0, m)
    assert timed.expectation is None
    assert timed.reason == "needs hardware: NVIDIA H100 PCIe is not in the catalogue; give [hardware]"
    given = machine_of([r], {"architecture": "hopper", "link_gbps": 32, "gpus_per_node": 8}, 8, [], {})
    assert given.hardware is not None
    assert given.hardware.link_gbps == 32


def test_over_nodes_the_network_is_asked_for() -> None:
    timed = time_of(_kind(group_id="0-15", size=16), 0, _machine())
    assert timed.placement is not None
    assert timed.reason == "needs hardware.nic_gbps"
    timed = time_of(_kind(group_id="0-15", size=16), 0, _machine(table={"network": "ndr"}))
    assert timed.expectation is not None
    # 2 nodes of 8: twice 1/2 · S/8 over the adapter, 2.7 ms; inside twice 7/8 · S over 450 GB/s, 4.2 ms
    assert timed.least_ns == pytest.approx(1.75 * (1 << 30) / 450)


def test_sizes_of_groups() -> None:
    m = _machine()
    assert time_of(_kind(size=None), 0, m).size == 8
    assert time_of(_kind(size=None, group_id=None), 0, m).size == 8  # tp = 8 by the layout
    unknown = time_of(_kind(size=None, group_id=None, strategy="dp", payload=None), 0, m)
    assert unknown.reason == "needs the size of the group, the size of the message (the file does not record it)"


def test_a_message_lies_between_its_two_ranks() -> None:
    m = _machine(table={"network": "ndr"})
    near = time_of(_kind(op="send", group_id=None, peer=3, payload=1 << 28), 0, m)
    far = time_of(_kind(op="send", group_id=None, peer=8, payload=1 << 28), 0, m)
    assert near.least_ns == pytest.approx((1 << 28) / 450)
    assert far.least_ns == pytest.approx((1 << 28) / 50)
    assert time_of(_kind(op="recv", peer=None), 0, m).reason is not None


def test_types_in_the_names_of_kernels() -> None:
    assert element_bytes("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, ...)") == 2
    assert element_bytes("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(...)") == 4
    assert element_bytes("ncclKernel_AllReduce_RING_LL_Sum_int8_t(ncclWorkElem)") is None
    assert element_bytes("ncclDevKernel_AllGather_RING_LL(...)") is None


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"]),
    st.integers(1, 1 << 34), st.integers(1, 10**9), st.sampled_from(["h100", "b200", "a100", "mi300x", "h800"]),
)  # fmt: skip
def test_verdicts_are_those_of_theory(op: str, payload: int, ns: int, name: str) -> None:
    hw, at = theory.hardware(name), theory.place(range(8), 8)
    want = theory.verdict(op, payload, ns, at, hw).verdict
    e = theory.expect(op, payload, at, hw)
    exact, one_sided = (VERDICTS[judge(e, payload, np.array([ns]), np.array([x]))[0]] for x in (True, False))
    assert exact == want
    assert one_sided == ("unknown" if want == "below_limit" else want)


def test_a_network_alone_tells_nothing_of_the_node() -> None:
    with pytest.raises(MissingInput, match="gpus_per_node"):
        _machine(devices=1, table={"network": "ndr"}).place(tuple(range(8)), 8)


def test_ranks_and_size_of_a_group_must_agree() -> None:
    assert time_of(_kind(size=4), 0, _machine()).reason == "the group has 8 ranks, the call says 4"

"""Published bubbles, collective times, hardware figures and overlap."""

from __future__ import annotations

import pytest
from theory_rows import Check, Row, row

from tracekit import theory
from tracekit.theory import (
    bubbles,
    catalogue,
    nccl,
    overlap,
)
from tracekit.theory.bubbles import StageTimes

MIB, GIB = 1 << 20, 1 << 30

# ---------------------------------------------------------------- bubbles


def times(r: Row) -> StageTimes:
    """F, B (whole, or input gradient beside W) and W of a row."""
    if "Bfull" in r.inputs:
        return StageTimes(r["F"], r["Bfull"])
    return StageTimes(r["F"], r.inputs.get("Bin", r.inputs.get("B", 0.0)), r["W"], r.inputs.get("c", 0.0))


def ratios(schedule: str) -> Check:
    def check(r: Row) -> None:
        b = bubbles.bubble(schedule, r.n("p"), r.n("m"), times(r), int(r.inputs.get("v", 1)))
        assert (b.window, b.kind) == ("step", "exact")
        r.check(b.over_ideal_ratio if r.id.endswith("a") else b.over_step_ratio)

    return check


row("BUB-1F1B-1a", "BUB-1F1B-1b", "BUB-1F1B-2a", "BUB-1F1B-2b")(ratios("1F1B"))
row("BUB-INT-1a", "BUB-INT-1b")(ratios("interleaved_1f1b"))
row("BUB-ZBH1-1a", "BUB-ZBH1-1b")(ratios("zb_h1"))
row("BUB-IZB-1a", "BUB-IZB-1b")(ratios("interleaved_zero_bubble"))


@row("BUB-ZBH2-1")
def _(r: Row) -> None:
    b = bubbles.bubble("zb_h2", r.n("p"), 32, times(r))
    assert b.window == "span"
    r.check(b.bubble_ns)


@row("BUB-ZBV-1")
def _(r: Row) -> None:
    b = bubbles.bubble("zb_v", r.n("p"), r.n("m"), StageTimes(1, 1, 1), 2)
    assert b.window == "span"
    r.check(b.bubble_ns)


@row("BUB-ZBV-2")
def _(r: Row) -> None:
    r.check(bubbles.zb_v_step_bubble_ns(r.n("p"), StageTimes(1, 1, 1)))


@row("BUB-DP-1", "BUB-DP-2")
def _(r: Row) -> None:
    b = bubbles.bubble("dualpipe", r.n("PP"), r.n("n"), StageTimes(1, 1, 1, overlapped_ns=r["FB"]))
    assert b.kind == "exact"
    r.check(b.bubble_ns)


@row("BUB-DP-3")
def _(r: Row) -> None:
    t = StageTimes(r["F"], r["Bin"], r["W"], overlapped_ns=r["FB"])
    b = bubbles.bubble("dualpipe", r.n("PP"), r.n("n"), t)
    assert b.kind == "upper"
    assert b.bubble_ns == pytest.approx(r.expected[0])
    assert b.bubble_ns > r.expected[1]  # what simulation gives


@row("BUB-DPV-1")
def _(r: Row) -> None:
    # A rank's whole share is two chunks.
    t = StageTimes(1, 1, 1, overlapped_ns=2 * r["FB"])
    r.check(bubbles.bubble("DualPipeV", r.n("p"), r.n("m"), t).bubble_ns)


@row("BUB-1F1B-C")
def _(r: Row) -> None:
    r.check(bubbles.bubble("1f1b", r.n("p"), r.n("m"), StageTimes(1, r["S"] - 1, p2p_ns=r["c"])).bubble_ns)


@row("BUB-INT-C")
def _(r: Row) -> None:
    with_c = bubbles.bubble("interleaved_1f1b", r.n("p"), r.n("m"), StageTimes(1, 2, p2p_ns=r["c"]), r.n("v"))
    without = bubbles.bubble("interleaved_1f1b", r.n("p"), r.n("m"), StageTimes(1, 2), r.n("v"))
    r.check(with_c.bubble_ns - without.bubble_ns)


@row("BUB-SPAN-1")
def _(r: Row) -> None:
    idle = bubbles.one_f_one_b_span_idle_ns(r.n("p"), StageTimes(1, 2))
    r.check(*idle, sum(idle) / len(idle), bubbles.bubble("1f1b", r.n("p"), 8, StageTimes(1, 2)).bubble_ns)


@row("BUB-MLEP-1")
def _(r: Row) -> None:
    r.check(bubbles.bubble("1f1b", r.n("p"), r.n("m"), times(r)).total_ns)


@row("BUB-MLEP-2")
def _(r: Row) -> None:
    r.check(bubbles.bubble("zb_h1", 8, 4, StageTimes(29.718, 29.444, 19.927)).total_ns)


def table_5(schedule: str) -> Check:
    def check(r: Row) -> None:
        if schedule == "paper":
            b = bubbles.zb_paper_interleaved_bubble(r.n("p"), r.n("m"), times(r), r.n("v"))
        else:
            b = bubbles.bubble(schedule, r.n("p"), r.n("m"), times(r))
        r.check(b.over_step_ratio)

    return check


for _model in ("1.5B", "6.2B"):
    for _m in (24, 32, 64):
        for _name, _schedule in (
            ("1F1B", "1f1b"), ("INT", "paper"), ("ZBH1", "zb_h1"), ("ZBH2", "zb_h2"),
        ):  # fmt: skip
            row(f"BUB-ZT5-{_model}-m{_m}-{_name}")(table_5(_schedule))

# ---------------------------------------------------------------- collectives


def bus(op: str) -> Check:
    return lambda r: r.check(theory.bus_factor(op, r.n("n")))


for _op, _ours in (
    ("all_reduce", "all_reduce"), ("all_gather", "all_gather"), ("reduce_scatter", "reduce_scatter"),
    ("alltoall", "all_to_all"), ("gather", "gather"), ("scatter", "scatter"), ("broadcast", "broadcast"),
    ("reduce", "reduce"), ("sendrecv", "send_recv"), ("alltoallv", "all_to_allv"), ("hypercube", "hypercube"),
):  # fmt: skip
    row(f"COL-BUS-{_op}")(bus(_ours))


def alpha_beta(op: str, algorithm: str) -> Check:
    return lambda r: r.check(*(theory.alpha_beta_ns(op, algorithm, 8, s * MIB, 5000, 50.0) / 1e3 for s in (1, 256)))


for _i, _pair in enumerate((
    ("all_reduce", "ring"), ("all_reduce", "recursive_doubling"), ("all_reduce", "halving_doubling"),
    ("all_gather", "ring"), ("all_gather", "recursive_doubling"), ("all_to_all", "pairwise"), ("all_to_all", "bruck"),
), 1):  # fmt: skip
    row(f"COL-AB-0{_i}")(alpha_beta(*_pair))


@row("NCCL-LAT-RING-8", "NCCL-LAT-RING-16", "NCCL-LAT-RING-64")
def _(r: Row) -> None:
    at = nccl.Fabric(r.n("n"), r.n("nodes"))
    r.check(*(nccl.ring_latency_ns("all_reduce", p, at) / 1e3 for p in nccl.PROTOCOLS))


@row("NCCL-LAT-AG-8")
def _(r: Row) -> None:
    at = nccl.Fabric(r.n("n"), r.n("nodes"))
    r.check(*(nccl.ring_latency_ns("all_gather", p, at) / 1e3 for p in nccl.PROTOCOLS))


@row("NCCL-T-01")
def _(r: Row) -> None:
    r.check(nccl.ring_ns("all_reduce", "Simple", GIB, nccl.Fabric(8, bus_gbps=360.0)) / 1e3)


@row("NCCL-T-02")
def _(r: Row) -> None:
    t = nccl.ring_ns("all_reduce", "Simple", GIB, nccl.Fabric(8, bus_gbps=360.0))
    r.check(theory.busbw_gbps("all_reduce", 8, GIB, t))


@row("NCCL-T-03")
def _(r: Row) -> None:
    r.check(nccl.crossover_bytes("all_reduce", "LL", "Simple", nccl.Fabric(r.n("n"), bus_gbps=r["B"])))


@row("NCCL-T-04")
def _(r: Row) -> None:
    at = nccl.Fabric(r.n("n"), r.n("nodes"), channels=16)
    r.check(nccl.ring_latency_ns("all_reduce", "Simple", at, GIB) / 1e3)


@row("NCCL-NVL-A100", "NCCL-NVL-H100/H200", "NCCL-NVL-B200")
def _(r: Row) -> None:
    part = r.id.removeprefix("NCCL-NVL-").split("/")[0].lower()
    assert theory.hardware(part).ring_ceiling_gbps == pytest.approx(r.expected[0])
    r.check(nccl.nvlink_ceiling_gbps(r.n("links"), r["bw"]))


@row("COL-FRAC-A100", "COL-FRAC-H200-ring", "COL-FRAC-H200-NVLS", "COL-FRAC-B200-ring", "COL-FRAC-B200-NVLS")
def _(r: Row) -> None:
    hw = theory.hardware(r.id.split("-")[2].lower())
    assert hw.link_gbps == r["spec"]
    # A call at that bus bandwidth stands at that share of its least time.
    ns = GIB * theory.bus_factor("all_reduce", 8) / r["busbw"]
    r.check(1 / (theory.verdict("all_reduce", GIB, ns, theory.place(range(8), 8), hw).bound_ratio or 0.0))


# ---------------------------------------------------------------- hardware


def parts(field: str, *names: str) -> Check:
    return lambda r: r.check(*(float(getattr(theory.hardware(n), field)) for n in names))


row("HW-01")(parts("link_gbps", "a100"))
row("HW-02")(parts("link_gbps", "h100"))
row("HW-03")(parts("link_gbps", "b200"))
row("HW-10")(parts("hbm_tbps", "a100", "h100", "h200", "b200", "mi300x"))


@row("HW-04")
def _(r: Row) -> None:
    h800 = theory.hardware("h800")
    r.check(h800.need("link_gbps"), h800.need("usable_link_gbps"))


@row("HW-05")
def _(r: Row) -> None:
    part = theory.hardware("mi300x")
    r.check(part.node_link_gbps(2), part.node_link_gbps(8))


@row("HW-06")
def _(r: Row) -> None:
    r.check(*(catalogue.network_gbps(n) for n in ("pcie4", "pcie5", "pcie6")))


@row("HW-07")
def _(r: Row) -> None:
    r.check(*(catalogue.network_gbps(n) for n in ("hdr", "ndr", "xdr")))


@row("HW-08")
def _(r: Row) -> None:
    r.check(*(theory.hardware(n).peak("bf16") for n in ("a100", "h100", "h200", "b200", "gb200", "mi300x")))


@row("HW-09")
def _(r: Row) -> None:
    r.check(*(theory.hardware(n).peak("fp8") for n in ("h100", "b200", "gb200", "mi300x")))


# ---------------------------------------------------------------- overlap


@row("OVL-01")
def _(r: Row) -> None:
    comm, compute = [(8, 14), (13, 16), (18, 22)], [(0, 10), (12, 20)]
    total, hidden, exposed = overlap.exposure_ns(comm, compute)
    assert (total, hidden, exposed, sum(b - a for a, b in comm)) == (12, 8, 4, 13)
    assert hidden / total == pytest.approx(r.expected[-1], abs=5e-5)


@row("OVL-02")
def _(r: Row) -> None:
    r.check(*overlap.ddp_exposed_ns([10] * 4, [12] * 4))


@row("OVL-03")
def _(r: Row) -> None:
    r.check(*overlap.ddp_exposed_ns([10] * 4, [8] * 4))


@row("OVL-04")
def _(r: Row) -> None:
    r.check(overlap.data_parallel_tokens(4.59e14, 1.8e11))


@row("OVL-05")
def _(r: Row) -> None:
    r.check(overlap.fully_sharded_tokens(r.n("n"), r["F_eff"], r["B"] / 1e9))


@row("OVL-06")
def _(r: Row) -> None:
    ns = overlap.fully_sharded_layer_ns(r.n("params"), r.n("n"), r.n("tokens"), r["F_eff"], r["B"] / 1e9)
    r.check(*(t / 1e6 for t in ns))


@row("OVL-07")
def _(r: Row) -> None:
    r.check(overlap.tensor_parallel_ranks(r.n("F"), 2550.0, 1.0))


@row("OVL-08")
def _(r: Row) -> None:
    r.check(overlap.ring_chunk_tokens(r["F"], 16, 1, r["B"] / 1e9, r.n("e")))


@row("OVL-09")
def _(r: Row) -> None:
    r.check(overlap.split_exposed_ratio(r.n("k")))


@row("OVL-10")
def _(r: Row) -> None:
    r.check(overlap.wave_loss_ratio(r.n("tiles"), r.n("SM"), r.n("c")))


@row("STR-WASTE-AR")
def _(r: Row) -> None:
    r.check(overlap.straggler_waste_ratio(r["S"]))

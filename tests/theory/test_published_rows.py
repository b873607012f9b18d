"""Published and derived numbers, one named test each, through the public functions.

The rows are read from the shared reference; the functions say how to compute them. A row without a function is an error
unless it is listed with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from theory_rows import Row, rows

from tracekit import theory
from tracekit.theory import (
    bubbles,
    catalogue,
    context,
    flops,
    inference,
    memory,
    moe,
    nccl,
    overlap,
    volumes,
)
from tracekit.theory.bubbles import StageTimes

if TYPE_CHECKING:
    from pathlib import Path

Check = Callable[[Row], None]
CHECKS: dict[str, Check] = {}
ELSEWHERE = {
    "OVL-11": "a published measurement, nothing to compute",
    "STR-OPT-AR": "needs the replay of a trace: analysis, not theory",
    "STR-DP-AR": "needs the replay of a trace: analysis, not theory",
    "BUB-IMB-1": "a property, tested in test_bubbles.py and against the simulator",
    **{f"STR-OSDI-{i}": "a fact about published jobs, nothing to compute" for i in range(1, 7)},
}
MIB, GIB = 1 << 20, 1 << 30


def row(*ids: str) -> Callable[[Check], Check]:
    def add(function: Check) -> Check:
        for i in ids:
            assert i not in CHECKS
            CHECKS[i] = function
        return function

    return add


@pytest.fixture(scope="module")
def table(shared: Path) -> dict[str, Row]:
    return rows(shared)


def test_every_row_has_a_check(table: dict[str, Row]) -> None:
    assert sorted(set(table) - set(CHECKS) - set(ELSEWHERE)) == []
    assert sorted((set(CHECKS) | set(ELSEWHERE)) - set(table)) == []


# ---------------------------------------------------------------- volumes

TP = {"b": 1, "s": 8192, "h": 8192, "t": 8}
PAYLOAD = volumes.activation_bytes(1, 8192, 8192)


@row("VOL-TP-01")
def _(r: Row) -> None:
    r.check(volumes.tensor_elements_sent(r.n("b"), r.n("s"), r.n("h"), r.n("t")))


@row("VOL-TP-02")
def _(r: Row) -> None:
    r.check(volumes.tensor_elements_sent(1, 8192, 8192, 8) * r.n("e"))


@row("VOL-TP-03")
def _(r: Row) -> None:
    r.check(volumes.activation_bytes(r.n("b"), r.n("s"), r.n("h"), r.n("e")))


@row("VOL-TP-04")
def _(r: Row) -> None:
    (c,) = volumes.tensor_calls(sequence_parallel=False, full_recompute=True)
    r.check(c.forward, c.backward, c.recompute)


@row("VOL-SP-01")
def _(r: Row) -> None:
    ag, rs = volumes.tensor_calls(sequence_parallel=True)
    assert (ag.op, rs.op) == ("all_gather", "reduce_scatter")
    r.check(ag.forward, rs.forward, ag.backward, rs.backward)


@row("VOL-SP-02", "VOL-SP-03")
def _(r: Row) -> None:
    payload = volumes.activation_bytes(r.n("b"), r.n("s"), r.n("h"), r.n("e"))
    r.check(volumes.sequence_parallel_wire_bytes(r.n("count"), payload, r.n("t")))


@row("VOL-CE-01")
def _(r: Row) -> None:
    assert volumes.CROSS_ENTROPY_CALLS == 3
    r.check(volumes.cross_entropy_payload_bytes(r.n("b"), r.n("s")))


@row("VOL-EMB-01")
def _(r: Row) -> None:
    r.check(volumes.tied_embedding_bytes(r.n("V"), r.n("h"), r.n("t")))


@row("VOL-PP-01")
def _(r: Row) -> None:
    r.check(volumes.stage_transfer_bytes(r.n("b"), r.n("s"), r.n("h"), r.n("e"), context=r.n("cp")))


@row("VOL-PP-02")
def _(r: Row) -> None:
    r.check(volumes.stage_transfer_bytes(1, 8192, 16384, 2, tensor=r.n("t"), sequence_parallel=True))


@row("VOL-PP-03")
def _(r: Row) -> None:
    r.check(volumes.pipeline_sends("1f1b", r.n("p"), r.n("m")))


@row("VOL-PP-04")
def _(r: Row) -> None:
    r.check(volumes.pipeline_sends("interleaved_1f1b", r.n("p"), r.n("m"), r.n("v")))


@row("VOL-PP-05")
def _(r: Row) -> None:
    r.check(volumes.pipeline_sends("zb_v", r.n("p"), r.n("m"), r.n("v")))
    r.check(volumes.pipeline_sends("dualpipe_v", r.n("p"), r.n("m"), r.n("v")))


@row("VOL-DP-01")
def _(r: Row) -> None:
    assert theory.parameters(theory.model("llama3-8b")) == r.n("Psi")
    r.check(volumes.data_parallel_wire_bytes(r.n("Psi"), r.n("d"), r.n("e")))


@row("VOL-DP-02")
def _(r: Row) -> None:
    r.check(volumes.sharded_optimizer_wire_bytes(r.n("Psi"), r.n("d"), r.n("e_grad"), r.n("e_param")))


@row("VOL-Z-01")
def _(r: Row) -> None:
    r.check(*(volumes.zero_volume_in_parameters(i) for i in range(4)))


@row("VOL-Z-02")
def _(r: Row) -> None:
    assert theory.parameters(theory.model("llama3-70b")) == r.n("Psi")
    r.check(volumes.fully_sharded_wire_bytes(r.n("Psi"), r.n("d")))


@row("VOL-Z-03")
def _(r: Row) -> None:
    r.check(volumes.fully_sharded_wire_bytes(r.n("Psi"), r.n("S")))


@row("VOL-Z-04")
def _(r: Row) -> None:
    r.check(volumes.hybrid_replica_wire_bytes(r.n("Psi"), r.n("S"), r.n("R")))


@row("VOL-Z-06")
def _(r: Row) -> None:
    r.check(*volumes.fully_sharded_calls(r.n("k"), reshard_after_forward=True))


@row("VOL-CP-01")
def _(r: Row) -> None:
    r.check(context.ring_block_bytes(r.n("s"), r.n("N"), r.n("b"), 128, r.n("e")))


@row("VOL-CP-02")
def _(r: Row) -> None:
    r.check(context.ring_forward_bytes(131072, 16, 1, 128, 2))


@row("VOL-CP-03")
def _(r: Row) -> None:
    r.check(*(context.zigzag_cost(r.n("N"), i) for i in range(4)))


@row("VOL-CP-04")
def _(r: Row) -> None:
    r.check(context.contiguous_imbalance_ratio(r.n("N")))


@row("VOL-UL-01")
def _(r: Row) -> None:
    r.check(context.ulysses_forward_bytes(r.n("s"), r.n("P"), r.n("b"), r.n("h"), r.n("d_kv"), r.n("e")))


@row("VOL-UL-02")
def _(r: Row) -> None:
    r.check(context.ulysses_forward_bytes(r.n("s"), r.n("P"), 1, r.n("h"), r.n("h")))


@row("VOL-UL-03")
def _(r: Row) -> None:
    sp = context.sequence_parallel_forward_bytes(r.n("s"), r.n("P"), r.n("h"))
    r.check(sp, sp / context.ulysses_forward_bytes(r.n("s"), r.n("P"), 1, r.n("h"), r.n("h")))


@row("VOL-PK-01")
def _(r: Row) -> None:
    r.check(context.pass_kv_miss_ratio(r.n("N_KV"), r.n("N_H")))


@row("VOL-PK-02")
def _(r: Row) -> None:
    r.check(context.pass_kv_hidden_tokens(r.n("N"), r["C"], 1, 16, r["BW"] / 1e9, r.n("e")))


@row("VOL-PK-03")
def _(r: Row) -> None:
    r.check(context.pass_q_hidden_tokens(r.n("N"), r["C"], r["BW"] / 1e9, r.n("e")))


@row("VOL-EP-01")
def _(r: Row) -> None:
    r.check(moe.dispatch_bytes(r.n("T"), r.n("k"), r.n("h"), fp8=True))


@row("VOL-EP-02", "VOL-EP-07")
def _(r: Row) -> None:
    r.check(moe.combine_bytes(r.n("T"), r.n("k"), r.n("h")))


@row("VOL-EP-03")
def _(r: Row) -> None:
    r.check(moe.fp8_ratio(r.n("block")))


@row("VOL-EP-04")
def _(r: Row) -> None:
    r.check(moe.node_limited_bytes(r.n("T"), r.n("M"), r.n("h"), fp8=True))


@row("VOL-EP-05")
def _(r: Row) -> None:
    assert moe.expected_nodes(r.n("n"), r.n("E"), r.n("k")) == pytest.approx(r.expected[0], abs=5e-5)


@row("VOL-EP-06")
def _(r: Row) -> None:
    r.check(moe.dispatch_bytes(r.n("T"), r.n("k"), r.n("h"), fp8=True, extra_token_bytes=16))


@row("VOL-EP-LL-008-D", "VOL-EP-LL-016-D", "VOL-EP-LL-064-D")
def _(r: Row) -> None:
    sent = moe.dispatch_bytes(128, 8, 7168, fp8=True, extra_token_bytes=16)
    r.check(theory.algbw_gbps(sent, r["lat_us"] * 1e3))


@row("VOL-EP-LL-008-C", "VOL-EP-LL-016-C", "VOL-EP-LL-064-C")
def _(r: Row) -> None:
    r.check(theory.algbw_gbps(moe.combine_bytes(128, 8, 7168), r["lat_us"] * 1e3))


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


# ---------------------------------------------------------------- FLOPs


def tflops(name: str, *, mtp: bool = True) -> Check:
    return lambda r: r.check(
        flops.achieved_tflops(theory.token_flops(theory.model(name), r["s"], mtp=mtp), r["tok/s/GPU"])
    )


row("FLOP-MB-8B-GB300", "FLOP-MB-8B-H100")(tflops("llama3-8b"))
row("FLOP-MB-405B-GB300", "FLOP-MB-405B-GB300-26.06", "FLOP-MB-405B-H100-26.06")(tflops("llama3-405b"))
row("FLOP-MB-DSV3-noMTP-BF16", "FLOP-MB-DSV3-noMTP-MXFP8")(tflops("deepseek-v3", mtp=False))


def per_token(name: str) -> Check:
    return lambda r: r.check(
        *(theory.token_flops(theory.model(name), r["s"], causal=c, mtp=False) / 1e9 for c in (True, False))
    )


for _id, _name in (
    ("FLOP-TOK-8B", "llama3-8b"), ("FLOP-TOK-70B", "llama3-70b"), ("FLOP-TOK-405B", "llama3-405b"),
    ("FLOP-DSV3-TOK", "deepseek-v3"),
):  # fmt: skip
    row(_id)(per_token(_name))


def sc21(r: Row) -> None:
    billions, percent, petaflops = r.expected
    assert flops.gpt_parameters(r.n("l"), r.n("h"), r.n("V"), r.n("s")) / 1e9 == pytest.approx(billions, abs=0.06)
    one_second = r["TF/GPU"] * 1e12 * r.n("gpus")
    share = theory.utilisation_ratio(one_second, r.n("gpus"), theory.hardware("a100").peak("bf16"), 1.0)
    assert 100 * share == pytest.approx(percent, abs=0.6)
    assert one_second / 1e15 == pytest.approx(petaflops, rel=0.005)


row(*(f"FLOP-SC21-{b}" for b in ("1.7", "3.6", "7.5", "18.4", "39.1", "76.1", "145.6", "310.1", "529.6", "1008.0")))(
    sc21
)


@row("FLOP-KO-MFU-22B", "FLOP-KO-MFU-175B", "FLOP-KO-MFU-530B", "FLOP-KO-MFU-1T")
def _(r: Row) -> None:
    f = flops.korthikanti_flops(r.n("B"), r.n("s"), r.n("L"), r.n("h"), r.n("V"))
    r.check(100 * theory.utilisation_ratio(f, r.n("n"), 312, r["t"]))


@row("FLOP-KO-530Bx8")
def _(r: Row) -> None:
    f = flops.korthikanti_flops(r.n("B"), 2048, 105, 20480, 51200)
    r.check(100 * theory.utilisation_ratio(f, r.n("n"), 312, r["t"]))


@row("FLOP-MTNLG")
def _(r: Row) -> None:
    token = flops.palm_token_flops(r["N"], r.n("L"), r.n("H") * r.n("Q"), r.n("T"))
    r.check(100 * theory.utilisation_ratio(token * r["tok/s"], r.n("n"), r["peak"] / 1e12, 1.0))


def mosaic(r: Row) -> float:
    token = flops.palm_token_flops(r["N"], r.n("L"), r.n("d"), r.n("T"))
    return 100 * theory.utilisation_ratio(token * r["tok/s"], r.n("n"), 989, 1.0)


row("FLOP-MOS-7b-2k", "FLOP-MOS-70b-2k", "FLOP-MOS-7b-64k")(lambda r: r.check(mosaic(r)))


@row("FLOP-MOS-conv")
def _(r: Row) -> None:
    n, rate = 6918905856, 15654
    core = [12.0, 6.0, 0.0]  # non-causal, causal, none
    tokens = [flops.palm_token_flops(n, 32, 4096, 65536) - (12 - c) * 32 * 4096 * 65536 for c in core]
    assert tokens[2] == flops.six_nd(n, 1)
    r.check(*(100 * theory.utilisation_ratio(t * rate, 8, 989, 1.0) for t in tokens))


@row("FLOP-HFU-1")
def _(r: Row) -> None:
    r.check(flops.hfu_over_mfu("full"))
    r.check(54.83 / 41.12)


LLAMA3 = {"8k": (8, 1, 16, 64, 32, 8192, 430), "16k": (8, 1, 16, 128, 16, 8192, 400),
          "128k-ctx": (8, 16, 16, 8, 16, 131072, 380)}  # fmt: skip


@row(*(f"FLOP-L3-{k}" for k in LLAMA3))
def _(r: Row) -> None:
    tp, cp, pp, dp, batch, sequence, tf = LLAMA3[r.id.removeprefix("FLOP-L3-")]
    layout = theory.LayoutSpec(tp=tp, cp=cp, pp=pp, dp=dp)
    training = theory.TrainingSpec(micro_batch=1, micro_batches=batch, sequence=sequence)
    p = theory.plan(theory.Job(theory.model("llama3-405b"), training, layout))
    assert (layout.world_size, p.tokens_per_step) == r.expected[:2]
    share = theory.utilisation_ratio(tf * 1e12, 1, theory.hardware("h100").peak("bf16"), 1.0)
    assert 100 * share == pytest.approx(r.expected[2], abs=1)


@row("FLOP-L3-TOT")
def _(r: Row) -> None:
    r.check(flops.six_nd(r["N"], r["D"]))


@row("FLOP-DS-MFU")
def _(r: Row) -> None:
    rate = r["tokens/day"] / 86400
    both = (theory.token_flops(theory.model("deepseek-v3"), r["s"], causal=c, mtp=False) for c in (True, False))
    r.check(*(100 * theory.utilisation_ratio(t * rate, r.n("gpus"), r["peak"] / 1e12, 1.0) for t in both))


@row("FLOP-DS-STEP")
def _(r: Row) -> None:
    r.check(flops.tokens_per_step(272.80e9, r["t_step"]))


# ---------------------------------------------------------------- memory, inference

MEMORY = {
    "none": {}, "TP8": {"tensor": 8}, "TP8+SP": {"tensor": 8, "sequence_parallel": True},
    "SP+selective": {"tensor": 8, "sequence_parallel": True, "recompute": "selective"},
    "full_recompute": {"recompute": "full"},
}  # fmt: skip


@row(*(f"MEM-ACT-{k}" for k in MEMORY))
def _(r: Row) -> None:
    options = MEMORY[r.id.removeprefix("MEM-ACT-")]
    r.check(memory.activation_bytes_per_layer(r.n("s"), r.n("b"), r.n("h"), r.n("a"), **options) / GIB)


@row("INF-KV-Llama3-8B", "INF-KV-Llama3-70B", "INF-KV-Llama3-405B")
def _(r: Row) -> None:
    r.check(inference.kv_bytes_per_token(theory.model(r.id.removeprefix("INF-KV-").lower())))


@row("INF-KV-MLA")
def _(r: Row) -> None:
    r.check(inference.kv_bytes_per_token(theory.model("deepseek-v3")))


@row("INF-EP-02")
def _(r: Row) -> None:
    step, rate = inference.expert_decode_bound(inference.expert_decode_layer_ns(32, 9, 7000, 50.0), 61)
    r.check(step / 1e6, rate)


@row("INF-EP-03")
def _(r: Row) -> None:
    layer = inference.expert_decode_layer_ns(32, 9, 7000, r["BW"] / 1e9)
    r.check(layer / 1e3, inference.expert_decode_bound(layer, 61)[0] / 1e6)


@row("INF-BCRIT-A100", "INF-BCRIT-H100", "INF-BCRIT-H200", "INF-BCRIT-B200")
def _(r: Row) -> None:
    hw = theory.hardware(r.id.removeprefix("INF-BCRIT-").lower())
    r.check(inference.critical_batch(hw.peak("bf16"), hw.need("hbm_tbps")))


@row("INF-BCRIT-v5e")
def _(r: Row) -> None:
    r.check(inference.critical_batch(197, 0.82))


@row("INF-STEP-01")
def _(r: Row) -> None:
    ns = inference.decode_floor_ns(r.n("B"), r["KV"], r["params"], r.n("n"), r["BW"] / 1e9)
    r.check(ns / 1e6)


@row("INF-STEP-02")
def _(r: Row) -> None:
    r.check(inference.decode_large_batch_ns(r.n("B"), 819.2e6, 30e9, 16, 810.0, r["C"] / 1e12) / 1e6)


@row("INF-STEP-03")
def _(r: Row) -> None:
    weights = 2 * theory.parameters(theory.model("llama3-70b"))
    cache = r["ctx"] * r["KV/token"]
    r.check(
        inference.decode_floor_ns(r.n("B"), cache, weights, 8, theory.hardware("h100").need("hbm_tbps") * 1e3) / 1e6
    )


@row("INF-TP-01")
def _(r: Row) -> None:
    r.check(*inference.tensor_decode_collectives(r.n("B"), r.n("h"), r.n("L")))


@pytest.mark.shared
@pytest.mark.parametrize("ident", sorted(CHECKS))
def test_row(ident: str, table: dict[str, Row]) -> None:
    CHECKS[ident](table[ident])

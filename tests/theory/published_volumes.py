"""Published and derived volumes of each strategy."""

from __future__ import annotations

import pytest
from theory_rows import Row, row

from tracekit import theory
from tracekit.theory import (
    context,
    moe,
    volumes,
)

MIB, GIB = 1 << 20, 1 << 30

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

"""Published FLOPs, memory and inference figures."""

from __future__ import annotations

import pytest
from theory_rows import Check, Row, row

from tracekit import theory
from tracekit.theory import (
    flops,
    inference,
    memory,
)

MIB, GIB = 1 << 20, 1 << 30

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

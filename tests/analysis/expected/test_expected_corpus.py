"""Public traces against arithmetic done by hand: bytes, bus bandwidth, ceilings, verdicts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

import tracekit as tk

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]


@cache
def _analysed(folder: Path) -> tuple[list[Row], list[Row]]:
    """(rows of theory, calls) of a folder."""
    result = tk.analyze(folder, workers=1)
    return result.document["theory"], result.arrow("collectives").to_pylist()


def _row(rows: list[Row], **want: Any) -> Row:
    found = [r for r in rows if all(r[k] == v for k, v in want.items())]
    assert len(found) == 1, (want, found)
    return found[0]


def test_eight_h100_of_one_rank(shared: Path) -> None:
    """modded-nanogpt: bf16 reduce-scatter over 8 H100; one rank, so durations bound the transfer from above."""
    rows, calls = _analysed(shared / "corpus/KellerJordan+modded-nanogpt/nanogpt_h2d_rank0")
    r = _row(rows, op="reduce_scatter", group_id="0-7")
    assert (r["group_size"], r["path"], r["bus_factor"], r["basis"]) == (8, "intra", 7 / 8, "duration")
    assert r["payload_bytes"] == 113_246_208  # 56,623,104 elements of 2 bytes
    assert (r["limit_gbps"], r["ceiling_gbps"]) == (450, 370.8)  # 18 links of 25 GB/s; NCCL counts 20.6 each
    large = next(c for c in calls if c["op"] == "reduce_scatter" and c["payload_bytes"] == 386_334_720)
    assert large["least_ns"] == round(386_334_720 * 7 / 8 / 450) == 751_206
    # The fastest call of that size: 1,017,539 ns → 386,334,720 · 7/8 / 1,017,539 = 332.2 GB/s, below the ceiling.
    times = [c["dur_ns"] for c in calls if c["op"] == "reduce_scatter" and c["payload_bytes"] == 386_334_720]
    assert min(times) == 1_017_539
    assert r["busbw_max_gbps"] == pytest.approx(332.216, abs=1e-3)
    # at the limit: within 0.75 of the links; a longer duration may be waiting and proves nothing
    band = 751_206 / 0.75 + 32_200  # and the ring's latency: 8.4 + 7 · 3.4 µs
    for c in calls:
        if c["op"] == "reduce_scatter" and c["payload_bytes"] == 386_334_720:
            assert c["verdict"] == ("at_limit" if c["dur_ns"] <= band else "unknown")
    small = _row(rows, op="all_reduce", group_id="0-7")
    assert (small["verdict"], small["payload_bytes"]) == ("too_small", 44)


def test_eight_a100_tensor_parallel(shared: Path) -> None:
    """Megatron-LM: 4 × 2048 × 4096 fp16 activations all-reduced over 8 A100, all ranks there."""
    rows, calls = _analysed(shared / "corpus/astra-sim+astra-sim/megatron_tp8_kineto")
    r = _row(rows, strategy="tp", op="all_reduce")
    assert r["payload_bytes"] == 4 * 2048 * 4096 * 2 == 67_108_864
    assert (r["calls"], r["calls_per_step"], r["basis"]) == (672, 84, "transfer")
    assert (r["limit_gbps"], r["ceiling_gbps"], r["bus_factor"]) == (300, 240, 1.75)
    whole = [c for c in calls if c["dur_ns"] and c["in_nelems"] == 33_554_432]
    assert whole[0]["least_ns"] == round(67_108_864 * 1.75 / 300) == 391_468
    # median transfer 603 µs: 67,108,864 · 1.75 / 603,000 = 194.8 GB/s, 65 % of the links, 81 % of NCCL's rings;
    # the band ends at 391.5/0.75 + 56 µs of latency = 578 µs.
    assert r["busbw_gbps"] == pytest.approx(194.76, abs=0.01)
    assert r["verdict"] == "below_limit"
    assert r["ratio"] == pytest.approx(603_000 / 545_335, rel=1e-3)
    assert all(c["verdict"] == "below_limit" for c in whole if c["transfer_ns"] == 603_000)


def test_four_h100_fully_sharded(shared: Path) -> None:
    """torchtitan: FSDP of a debug model; messages of 1–3 MB take as long as NCCL's latency model says."""
    rows, _ = _analysed(shared / "corpus/felipemello1+torchtitan/torchtitan_4rank_obs-pr8a")
    scatter = _row(rows, strategy="zero3", op="reduce_scatter")
    gather = _row(rows, strategy="zero3", op="all_gather", phase="forward")
    assert (scatter["calls_per_step"], gather["calls_per_step"]) == (8, 8)
    # fp32 gradients of bf16 parameters: twice the bytes
    assert scatter["step_payload_bytes"] == 2 * gather["step_payload_bytes"]
    assert gather["step_payload_bytes"] == 1_049_088 + 1_704_960 * 6 + 1_048_576
    assert gather["verdict"] == "at_limit"
    assert scatter["verdict"] == "latency_bound"
    assert scatter["busbw_max_gbps"] < scatter["ceiling_gbps"] == 370.8
    assert _row(rows, strategy="housekeeping")["verdict"] == "too_small"


def test_four_v100_without_sizes(shared: Path) -> None:
    """torchrec: the files name neither sizes nor groups, so nothing is expected and the reason says why."""
    rows, calls = _analysed(shared / "corpus/pytorch+torchrec/torchrec_a2a_4rank")
    assert rows
    for r in rows:
        assert r["expected_ns"] is r["busbw_gbps"] is r["verdict"] is None
        assert "the size of the message" in r["reason"]
    assert {c["verdict"] for c in calls} == {None}


def test_eight_b200_in_switch(shared: Path) -> None:
    """vLLM: 73 all-reduces by in-switch (multimem) kernels; 5,114,880 bytes are 1,332 tokens × 1,920 in bf16."""
    rows, calls = _analysed(shared / "corpus/AMD-AGI+TraceLens/tl_b200")
    r = _row(rows, op="all_reduce")
    assert (r["calls"], r["payload_bytes"], r["group_size"], r["path"]) == (73, 5_114_880, 8, "intra")
    assert (r["limit_gbps"], r["ceiling_gbps"]) == (900, 721.8)
    fastest = min(c["dur_ns"] for c in calls if c["op"] == "all_reduce")
    assert fastest == 24_704
    assert r["busbw_max_gbps"] == pytest.approx(5_114_880 * 1.75 / 24_704)  # 362.3 GB/s of 900: latency counts
    assert r["busbw_max_gbps"] < 721.8
    assert "symm_mem" in r["reason"]
    assert r["ratio"] < 1  # faster than NCCL's model of a ring or tree

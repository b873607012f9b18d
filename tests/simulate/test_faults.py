"""Faults do what they say, measured on what was placed: by how much they change the run without them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from simulate_cases import DENSE, job

from tracekit.errors import UsageError
from tracekit.simulate import Simulation, options_of, simulate, truth
from tracekit.simulate.clock import Clock, recorded
from tracekit.simulate.files import text

if TYPE_CHECKING:
    from tracekit.simulate.device import Gpu

LAYOUT = "pp=2,dp=2,order=dp-pp"


def ran(layout: str = LAYOUT, **faults: Any) -> Simulation:
    return simulate(job(layout, {**DENSE, "layers": 2}), options_of({"steps": 1, **faults}))


def compute(gpu: Gpu) -> int:
    return sum(w.end - w.start for w in gpu.device if w.kind == "compute")


def transfers(gpu: Gpu, strategy: str) -> list[int]:
    """ns of each transfer of a strategy, from the start of the last member on."""
    return [
        w.end - max(m.start for m in w.meetings[0].members)
        for w in gpu.device if w.labels and w.labels[0].strategy == strategy
    ]  # fmt: skip


def test_a_slow_stage_and_a_slow_rank_multiply() -> None:
    plain, slow = ran(), ran(slow_stage={"1": 1.5}, slow={"3": 2.0})
    ratio = [compute(b) / compute(a) for a, b in zip(plain.gpus, slow.gpus, strict=True)]
    assert ratio == pytest.approx([1, 1, 1.5, 3.0], rel=1e-3)


def test_a_long_micro_batch_is_long_on_all_ranks() -> None:
    plain, long = ran(), ran(long_micro_batches={"2": 3.0})
    for a, b in zip(plain.gpus, long.gpus, strict=True):
        # four micro-batches of which one takes three times as long; the optimizer is none
        assert compute(a) < compute(b) < compute(a) * 6 / 4
    took = [e - s for s, e in long.spans[0][3]]  # of the last stage: F0 B0 F1 B1 ...
    assert took[4] > 2.5 * took[6]
    assert took[5] > 2.5 * took[3]


def test_messages_take_longer_by_the_latency_and_links_by_their_factor() -> None:
    plain, late, slow = ran(), ran(p2p_latency_us=250), ran(slow_link={"0": 4})
    for a, b in zip(plain.gpus, late.gpus, strict=True):
        assert [y - x for x, y in zip(transfers(a, "pp"), transfers(b, "pp"), strict=True)] == [250_000] * 8
        assert transfers(a, "dp") == transfers(b, "dp")
    for rank, factor in ((0, 4), (1, 1)):
        assert sum(transfers(slow.gpus[rank], "pp")) == factor * sum(transfers(plain.gpus[rank], "pp"))


def test_late_input_delays_the_launches_and_no_kernel() -> None:
    plain, late = ran(), ran(late_input_us={"2": 900})
    assert [compute(g) for g in plain.gpus] == [compute(g) for g in late.gpus]
    assert late.gpus[2].device[0].start - plain.gpus[2].device[0].start == 900_000


def test_ends_differ_by_less_than_the_skew() -> None:
    apart = set()
    for gpu in ran(end_skew_us=20, seed=3).gpus:
        for work in gpu.device:
            for meeting in work.meetings:
                ends = [m.end for m in meeting.members]
                apart.add(max(ends) - min(ends))
    assert 0 < max(apart) < 20_000


def test_the_seed_changes_the_jitter_and_nothing_else() -> None:
    one, again, other = (ran(jitter_ratio=0.1, seed=s) for s in (1, 1, 2))
    assert truth(one) == truth(again)
    assert truth(one)["ranks"] != truth(other)["ranks"]
    assert [len(g.device) for g in one.gpus] == [len(g.device) for g in other.gpus]


def test_a_clock_moves_all_that_its_node_recorded() -> None:
    plain = simulate(job("dp=16", {**DENSE, "layers": 2}, micro_batches=1), options_of({"steps": 1}))
    moved = simulate(
        job("dp=16", {**DENSE, "layers": 2}, micro_batches=1),
        options_of({"steps": 1, "clock_us": {"1": -3500}, "drift_ppm": {"1": 40}}),
    )
    assert text(plain, plain.gpus[7]) == text(moved, moved.gpus[7])
    clock = moved.clock(8)
    rows = [json.loads(text(s, s.gpus[8]))["traceEvents"] for s in (plain, moved)]
    starts = [[round(1000 * e["ts"]) for e in r if e.get("cat") in ("kernel", "cpu_op", "cuda_runtime")] for r in rows]
    assert [clock.at(t) for t in starts[0]] == pytest.approx(starts[1], abs=1)
    assert truth(moved)["clocks"]["8"] == {"offset_ns": -3_500_000, "drift_ppm": 40}
    assert truth(moved)["ranks"] == truth(plain)["ranks"]


def test_a_clock_that_runs_fast_shows_longer_times() -> None:
    gpu = ran().gpus[0]
    shown = recorded(gpu, Clock(gpu.device[0].start, 0, 1000.0))
    whole = gpu.device[-1].end - gpu.device[0].start
    assert shown.device[-1].end - shown.device[0].start == pytest.approx(whole * 1.001, abs=1)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"slow_stage": {"2": 1.5}}, "stage 2: the job has stages 0 to 1"),
        ({"late_input_us": {"4": 1}}, "rank 4: the job has ranks 0 to 3"),
        ({"long_micro_batches": {"4": 1.5}}, "micro-batch 4: the job has micro-batches 0 to 3"),
        ({"clock_us": {"1": 5}}, "node 1: the job has nodes 0 to 0"),
        ({"late_input_us": {"1": -1}}, "a number from 0"),
        ({"slow_link": {"1": 0}}, "a factor above zero"),
        ({"clock_us": {"0": float("nan")}}, "expected a number and a number"),
        ({"p2p_latency_us": -1}, "p2p_latency_us"),
    ],
)  # fmt: skip
def test_faults_of_nobody_are_refused(faults: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ran(**faults)

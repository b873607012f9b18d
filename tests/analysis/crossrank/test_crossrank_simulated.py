"""Simulated jobs whose clocks differ and drift: every aligned time is within the stated error."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

import tracekit as tk
from tracekit import simulate, theory
from tracekit.simulate.files import BASE_NS

if TYPE_CHECKING:
    from pathlib import Path

LAYOUTS = ("tp=2,pp=2,dp=2", "pp=2,dp=2", "dp=4", "tp=2,dp=2", "pp=4", "tp=4")


@pytest.mark.parametrize("seed", range(6))
def test_arrivals_are_within_the_error_of_their_clock(tmp_path: Path, seed: int) -> None:
    """Offsets up to ±5 ms, half of the jobs with drifts up to ±50 ppm, ends up to 20 µs apart, a slow rank, jitter."""
    rng = random.Random(seed)
    layout = LAYOUTS[seed]
    job = theory.job_of(
        {"model": {"name": "llama3-8b", "layers": 4 if layout == "pp=4" else 2, "vocab": 8192}, "layout": layout,
         "training": {"sequence": 4096, "micro_batch": 1, "micro_batches": 4},
         "hardware": {"name": "h100", "network": "ndr", "gpus_per_node": rng.choice([1, 2])}},
        defaults=True,
    )  # fmt: skip
    world, hw = job.layout.world_size, job.hardware
    assert hw is not None
    nodes = -(-world // int(hw.need("gpus_per_node")))
    faults = {
        "steps": rng.choice([1, 2, 3]), "seed": seed, "jitter_ratio": 0.02, "end_skew_us": rng.choice([0, 2, 10, 20]),
        "slow": {"1": rng.choice([1, 1.2])}, "clock_us": {str(n): rng.uniform(-5000, 5000) for n in range(nodes)},
        "drift_ppm": {str(n): rng.uniform(-50, 50) for n in range(nodes)} if seed % 2 else {},
    }  # fmt: skip
    made = simulate.simulate(job, simulate.options_of(faults))
    simulate.write(made, tmp_path, level=1)
    run = tk.analyze(tmp_path, workers=1)
    clocks = {c["rank"]: c for c in run.run.tables["clocks"]}
    assert all(c["offset_ns"] is not None for c in clocks.values())
    rows = run.arrow("collectives").select(["rank", "ts_ns", "arrival_ns"]).to_pylist()
    axis = run.run.origin_ns - BASE_NS
    for row in rows:
        own, reference = (made.clock(r) for r in (row["rank"], clocks[row["rank"]]["reference_rank"]))
        true = own.start_ns + round((row["ts_ns"] + axis - own.offset_ns - own.start_ns) / (1 + own.drift_ppm * 1e-6))
        error = clocks[row["rank"]]["error_ns"]
        assert abs(row["arrival_ns"] + axis - reference.at(true)) <= error + 2  # two roundings

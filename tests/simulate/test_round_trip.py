"""What the simulator placed is what tracekit finds in its files: labels, counts, bytes, and every ns of each step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from simulate_cases import CASES, job

import tracekit as tk
from tracekit import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.simulate import Simulation

PARTS = ("window_ns", "compute_only_ns", "overlapped_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")


def run(name: str, folder: Path) -> tuple[Simulation, list[int], Any]:
    """(simulation, ranks with a file, result) of a case; of large jobs the pipelines of two corners are written."""
    layout, model, training, options = CASES[name]
    simulation = simulate.simulate(job(layout, model, **training), simulate.Options(**{"steps": 1, **options}))
    ranks = list(range(len(simulation.gpus)))
    if len(ranks) > 8:
        corners = [g for g in simulation.job.layout.groups("pp") if 0 in g or len(ranks) - 1 in g]
        ranks = sorted({r for g in corners for r in g})
    simulate.write(simulation, folder, ranks, level=1)
    return simulation, ranks, tk.analyze(folder, workers=1)


@pytest.mark.parametrize("name", CASES)
def test_round_trip(name: str, tmp_path: Path) -> None:
    simulation, ranks, result = run(name, tmp_path)
    truth = simulate.truth(simulation)
    check_labels(simulation, ranks, result)
    check_steps(truth, ranks, result)
    check_strategies(truth, ranks, result)


def check_labels(simulation: Simulation, ranks: list[int], result: Any) -> None:
    """Every call has the strategy, size and step it was made with; its purpose is right or not told."""
    placed = Counter(
        (rank, work.step, label.op, label.payload_bytes, label.strategy, label.purpose)
        for rank in ranks
        for work in simulation.gpus[rank].device
        for label in work.labels
    )
    names = ["rank", "step", "op", "payload_bytes", "strategy", "purpose"]
    found = Counter(tuple(row[n] for n in names) for row in result.arrow("collectives").select(names).to_pylist())
    assert _strategies(found) == _strategies(placed)
    told = Counter({key: count for key, count in found.items() if key[-1] is not None})
    assert not told - placed


def _strategies(calls: Counter[Any]) -> Counter[Any]:
    out: Counter[Any] = Counter()
    for key, count in calls.items():
        out[key[:-1]] += count
    return out


def check_steps(truth: dict[str, Any], ranks: list[int], result: Any) -> None:
    """Compute, exposed, hidden and idle time of each rank and step, to the ns."""
    rows = {(row["rank"], row["step"]): row for row in result.document["breakdown"]}
    assert sorted(rows) == [(rank, step) for rank in ranks for step in truth["steps"]]
    for (rank, step), row in rows.items():
        known = truth["ranks"][str(rank)]["steps"][str(step)]
        assert {p: row[p] for p in PARTS} == {p: known[p] for p in PARTS}, (rank, step)
        assert row["fused_ns"] == 0


def check_strategies(truth: dict[str, Any], ranks: list[int], result: Any) -> None:
    """Calls, bytes, exposed and exposed-alone time by strategy."""
    totals = {t["rank"]: t for t in result.document["totals"]}
    for rank in ranks:
        known, found = truth["ranks"][str(rank)]["whole"], totals[rank]["by_strategy"]
        assert {s: f["count"] for s, f in found.items()} == known["calls"]
        for strategy, times in known["by_strategy"].items():
            assert {key: found[strategy][key] for key in times} == times, (rank, strategy)


def test_all_strategies_and_schedules_are_there() -> None:
    schedules, strategies = set(), set()
    for layout, model, training, options in CASES.values():
        simulation = simulate.simulate(job(layout, model, **training), simulate.Options(**{"steps": 1, **options}))
        schedules.add(simulation.schedule.name)
        strategies |= {label.strategy for g in simulation.gpus for w in g.device for label in w.labels}
    assert strategies == {
        "tp", "sp", "pp", "dp", "zero1", "zero2", "zero3", "hsdp", "cp", "ep", "embedding", "housekeeping",
    }  # fmt: skip
    assert schedules == {
        "GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "ZB-H1", "ZB-H2", "InterleavedZeroBubble", "ZBVZeroBubble",
        "DualPipe", "DualPipeV",
    }  # fmt: skip

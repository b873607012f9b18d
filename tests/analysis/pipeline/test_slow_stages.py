"""A slow stage is named with its ranks and its cost; ends of the model, slow ranks and healthy jobs are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tracekit as tk
from tracekit import simulate, theory
from tracekit.analysis.pipeline.pace import pace_of, ratio, reference

if TYPE_CHECKING:
    from pathlib import Path

INTERLEAVED = {"schedule": "Interleaved1F1B", "virtual": 2}


def tables(
    folder: Path, layout: str, pipeline: dict[str, Any] | None = None, vocab: int = 8192, **faults: Any
) -> dict[str, Any]:
    """A small job of eight equal layers, and faults."""
    job = theory.job_of(
        {"model": {"name": "llama3-8b", "layers": 8, "vocab": vocab}, "layout": layout,
         "training": {"sequence": 2048, "micro_batch": 1, "micro_batches": 8, **(pipeline or {})},
         "hardware": {"name": "h100", "network": "ndr"}},
        defaults=True,
    )  # fmt: skip
    simulate.write(simulate.simulate(job, simulate.options_of({"steps": 2, **faults})), folder, level=1)
    return dict(tk.analyze(folder, detail=False, workers=1).run.tables)


def slow(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [f for f in found["findings"] if f["code"] == "slow-stage"]


@pytest.mark.parametrize(
    ("layout", "pipeline", "stage", "ranks"),
    [
        ("pp=4,dp=2,order=dp-pp", {}, 2, "ranks 4, 5"),
        ("pp=4", {}, 0, "rank 0"),
        ("pp=4", {}, 3, "rank 3"),
        ("tp=2,pp=2,order=tp-pp", {}, 1, "ranks 2, 3"),
        ("pp=4", INTERLEAVED, 1, "rank 1"),
    ],
)
def test_a_slow_stage_is_named_with_its_cost(
    tmp_path: Path, layout: str, pipeline: dict[str, Any], stage: int, ranks: str
) -> None:
    found = tables(tmp_path / "slow", layout, pipeline, slow_stage={str(stage): 1.3}, jitter_ratio=0.02)
    fine = tables(tmp_path / "fine", layout, pipeline, jitter_ratio=0.02)
    (finding,) = slow(found)
    assert finding["where"] == f"stage {stage}"
    assert f"({ranks};" in finding["message"]
    assert ("look alike" in finding["message"]) == ranks.startswith("rank ")
    healthy = {(b["pipeline"], b["step"]): b["window_ns"] for b in fine["bubble"]}
    rows = [w for w in found["what_if"] if w["what"] == "no-slow-stage"]
    assert {(w["pipeline"], w["step"]) for w in rows} == set(healthy)
    for row in rows:
        assert row["subject"] == f"stage {stage}"
        assert row["what_if_ns"] == pytest.approx(healthy[row["pipeline"], row["step"]], rel=0.01)
    mean = sum(w["saved_ns"] for w in rows) / len(rows)
    assert finding["cost_ns"] == pytest.approx(mean, abs=1)
    assert mean > 0.05 * rows[0]["window_ns"]
    assert slow(fine) == []


@pytest.mark.parametrize(
    ("layout", "faults"),
    [
        ("tp=2,pp=2,order=tp-pp", {"slow": {"3": 1.4}}),
        ("pp=2,dp=3,order=dp-pp", {"slow": {"4": 1.4}}),
        ("pp=4", {"long_micro_batches": {"2": 1.6}, "jitter_ratio": 0.05}),
        ("pp=4", {"slow_stage": {"1": 1.03}, "jitter_ratio": 0.02}),
    ],
)
def test_a_slow_rank_a_long_micro_batch_and_a_little_are_no_slow_stage(
    tmp_path: Path, layout: str, faults: dict[str, Any]
) -> None:
    assert slow(tables(tmp_path, layout, **faults)) == []


def test_the_end_of_the_model_is_structural(tmp_path: Path) -> None:
    """The last stage has the head: more compute than the others, by kernels that are as fast as theirs."""
    found = tables(tmp_path, "pp=4", vocab=65536)
    (finding,) = (f for f in found["findings"] if f["code"] == "stage-imbalance")
    assert (finding["severity"], finding["where"]) == ("info", "stage 3")
    assert "structural" in finding["message"]
    assert finding["measured"] > 1.1 * finding["expected"]


@pytest.mark.parametrize("seed", range(20))
def test_kernels_of_one_name_and_many_sizes(seed: int) -> None:
    """One name for all: kernels that one stage has besides those of its layers never make it slow; slowness does."""
    rng = np.random.default_rng(seed)
    layer = rng.integers(5_000, 2_000_000, rng.integers(4, 12))
    times, pace = int(rng.integers(8, 40)), float(rng.uniform(1.1, 3))
    sizes = np.repeat(layer, times)
    head = rng.integers(layer.max(), 9_000_000, times)

    def of(durations: Any) -> Any:
        return pace_of(["gemm"], np.zeros(len(durations), np.int32), durations)

    same = reference([[of(sizes)], [of(sizes)]])
    found = ratio(of((sizes * pace).astype(np.int64)), same)
    assert found is not None
    assert found[0] == pytest.approx(pace, rel=0.001)
    at_the_end = ratio(of(np.append(sizes, head)), same)
    assert at_the_end is not None
    assert at_the_end[0] < 1.05


def test_without_kernels_in_common_nothing_is_said() -> None:
    one, other = (pace_of([name], np.zeros(20, np.int32), np.full(20, ns)) for name, ns in (("a", 10), ("b", 20)))
    assert ratio(one, reference([[other]])) is None
    assert ratio(one, {}) is None

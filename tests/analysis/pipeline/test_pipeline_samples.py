"""Pipelines of the sample traces: a simulated GPU job with its exact truth, and a recorded one without annotations."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

import tracekit as tk

SAMPLES = Path(__file__).resolve().parents[3] / "sample_traces"


@pytest.fixture(scope="module")
def gpu() -> tk.Result:
    return tk.analyze(SAMPLES / "gpu-tp2-pp2-dp2", detail=False, workers=1)


def test_the_order_of_the_gpu_sample(gpu: tk.Result) -> None:
    truth = json.loads((SAMPLES / "gpu-tp2-pp2-dp2" / "truth.json").read_text())
    order = defaultdict(list)
    for row in gpu.run.rows("pipeline"):
        if row["op"] in "FB":
            order[row["rank"], row["step"]].append(f"{row['stage']}{row['op']}{row['micro_batch']}")
            assert row["source"] == ("annotation" if row["op"] == "F" else "kernels")  # no scope tells of backwards
    assert len(order) == 8 * len(truth["steps"])
    for (rank, _), found in order.items():
        assert found == truth["pipeline_order"][str(rank)]
    assert {b["schedule"] for b in gpu.run.tables["bubble"]} == {truth["schedule"]}


def test_messages_of_the_gpu_sample_pair_up(gpu: tk.Result) -> None:
    sides = defaultdict(list)
    for row in gpu.run.rows("pipeline"):
        if row["op"] in ("send", "recv"):
            boundary = row["stage"] - (row["carries"] == ("gradient" if row["op"] == "send" else "activation"))
            sides[row["pipeline"], row["step"], row["carries"], row["micro_batch"], boundary].append(row["op"])
    assert len(sides) == 4 * 3 * 2 * 4
    assert all(sorted(found) == ["recv", "send"] for found in sides.values())


def test_the_slow_stage_of_the_gpu_sample(gpu: tk.Result) -> None:
    """Rank 5 computes 15 % slower, its tensor-parallel peer 4 waits for it: their stage is busy for longer."""
    busy = {(b["rank"], b["step"]): b["busy_ns"] for b in gpu.run.tables["bubble"]}
    for step in (20, 21, 22):
        assert min(busy[r, step] for r in (4, 5)) > 1.08 * max(busy[r, step] for r in (6, 7))
    for row in gpu.run.tables["bubble"]:
        slowed = row["rank"] in (0, 1)
        assert (row["straggler_ns"] > 1_000_000) == slowed
        waits = row["rank"] in (2, 3, 6, 7)  # the loss is averaged with the slow replica
        assert (row["comm_ns"] > 1_000_000) == waits
        assert abs(row["unexplained_ns"]) < 10_000


def test_a_recorded_job_without_annotations() -> None:
    result = tk.analyze(SAMPLES / "gloo-tp2-pp2-dp2", detail=False, workers=1)
    rows = result.run.tables["bubble"]
    assert {(b["schedule"], b["micro_batches"], b["reason"]) for b in rows} == {("1F1B", 4, None)}
    assert {b["pipeline"] for b in rows} == {"0,4", "1,5", "2,6", "3,7"}
    work = [r for r in result.run.rows("pipeline") if r["op"] in "FB"]
    assert len(work) == 8 * 2 * 8
    assert {r["source"] for r in work} == {"operators"}


def test_a_missing_rank_takes_the_bubble_with_it(tmp_path: Path) -> None:
    for rank in (0, 1, 2, 3, 5, 6, 7):
        name = f"rank{rank}.json.gz"
        (tmp_path / name).symlink_to(SAMPLES / "gpu-tp2-pp2-dp2" / name)
    result = tk.analyze(tmp_path, detail=False, workers=1)
    by_rank = {b["rank"]: b for b in result.run.tables["bubble"]}
    assert by_rank[0]["bubble_ns"] is None
    assert by_rank[0]["reason"] == "ranks-missing"
    assert by_rank[1]["bubble_ns"] is not None
    assert "pipeline-ranks-missing" in {f["code"] for f in result.run.tables["findings"]}
    assert any(r["rank"] == 0 and r["op"] == "F" for r in result.run.rows("pipeline"))


def test_the_report_shows_the_bubble(gpu: tk.Result) -> None:
    text = gpu.to_text(width=200)
    assert "pipeline: 1F1B, 2 ranks, 4 micro-batches" in text
    assert "bubble by formula" in text
    assert gpu.document["bubble"] == gpu.run.tables["bubble"]
    assert gpu.document["pipeline"] == gpu.run.rows("pipeline")

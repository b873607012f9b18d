"""The what-if of traced pipelines: faults that were put in are named, and the table of operations says it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit import simulate, theory
from tracekit.commands import cli
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = (
    "slowdown",
    "recovered_ratio",
    "added_ratio",
    "launch_slowdown",
    "step_ns",
    "replayed_ns",
    "wait_ns",
    "reason",
)


def made(folder: Path, layout: str, *, layers: int = 4, schedule: str | None = None, **faults: Any) -> Path:
    """Traces of a job with faults."""
    training = {"sequence": 4096, "micro_batch": 1, "micro_batches": 4} | ({"schedule": schedule} if schedule else {})
    job = theory.job_of(
        {"model": {"name": "llama3-8b", "layers": layers, "vocab": 8192}, "layout": layout, "training": training,
         "hardware": {"name": "h100", "network": "ndr"}},
        defaults=True,
    )  # fmt: skip
    simulate.write(simulate.simulate(job, simulate.options_of({"steps": 2, **faults})), folder, level=1)
    return folder


def stragglers(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = tk.analyze(path, detail=False, workers=1).run.tables["stragglers"]
    return rows


def of(rows: list[dict[str, Any]], scope: str) -> list[dict[str, Any]]:
    return [r for r in rows if r["scope"] == scope]


@pytest.mark.parametrize(("layout", "slow"), [("pp=2,dp=3,order=dp-pp", 4), ("tp=2,pp=2,dp=2,order=tp-dp-pp", 7)])
def test_a_slow_rank_is_the_worker_that_fixing_helps(tmp_path: Path, layout: str, slow: int) -> None:
    """Of tensor-parallel ranks the slow one stands for the worker."""
    rows = stragglers(made(tmp_path, layout, slow={str(slow): 1.5}))
    (job,) = of(rows, "job")
    assert job["source"] == "traces"
    assert job["reason"] is None
    assert job["replay_error_ratio"] < 0.01
    assert job["slowdown"] > 1.2
    assert of(rows, "worker")[0]["rank"] == slow
    (top,) = of(rows, "top_workers")
    assert top["recovered_ratio"] > 0.6


def test_a_slow_last_stage_is_named(tmp_path: Path) -> None:
    rows = stragglers(made(tmp_path, "pp=4,dp=2,order=dp-pp", slow_stage={"3": 1.5}))
    (last,) = of(rows, "last_stage")
    assert last["recovered_ratio"] > 0.9
    assert max(of(rows, "stage"), key=lambda r: r["slowdown"])["stage"] == 3


def test_the_table_of_operations_gives_the_same_numbers(tmp_path: Path) -> None:
    folder = made(tmp_path / "traces", "pp=2,dp=2,order=dp-pp", slow={"2": 1.4}, long_micro_batches={"1": 1.5})
    table = tmp_path / "ops.parquet"
    done = CliRunner().invoke(cli, ["ops", str(folder), "-o", str(table)])
    assert done.exit_code == 0, done.output
    assert "4 workers" in done.output
    direct, read = stragglers(folder), stragglers(table)
    assert [r["scope"] for r in direct] == [r["scope"] for r in read]
    for a, b in zip(direct, read, strict=True):
        assert {n: a[n] for n in NUMBERS} == {n: b[n] for n in NUMBERS}, a["scope"]
    again = CliRunner().invoke(cli, ["ops", str(folder), "-o", str(table)])
    assert isinstance(again.exception, UsageError)


def test_interleaved_chunks_keep_their_places_in_the_model(tmp_path: Path) -> None:
    (job,) = of(stragglers(made(tmp_path, "pp=2,dp=2,order=dp-pp", schedule="Interleaved1F1B")), "job")
    assert job["reason"] is None
    assert job["replay_error_ratio"] < 0.01


@pytest.mark.parametrize("schedule", ["ZBVZeroBubble", "DualPipeV"])
def test_what_the_replay_has_no_model_of_is_refused(tmp_path: Path, schedule: str) -> None:
    rows = stragglers(made(tmp_path, "pp=2,dp=1", schedule=schedule, framework="torch"))
    assert [(r["scope"], r["reason"], r["slowdown"]) for r in rows] == [("job", "split-backward", None)]
    done = CliRunner().invoke(cli, ["ops", str(tmp_path), "-o", str(tmp_path / "x.parquet")])
    assert done.exit_code != 0
    assert not (tmp_path / "x.parquet").exists()


def test_a_missing_rank_leaves_no_number(tmp_path: Path) -> None:
    made(tmp_path, "pp=2,dp=2,order=dp-pp")
    (tmp_path / "rank3.json.gz").unlink()
    rows = stragglers(tmp_path)
    assert [(r["scope"], r["slowdown"]) for r in rows] == [("job", None)]
    assert rows[0]["reason"] == "ranks-missing"


def test_jobs_without_a_pipeline_have_no_such_rows(tmp_path: Path) -> None:
    assert not stragglers(made(tmp_path, "dp=2"))

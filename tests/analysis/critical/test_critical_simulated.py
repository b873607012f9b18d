"""Simulated jobs: a change that the replay makes is a job that the simulator can run."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.commands import cli

if TYPE_CHECKING:
    from pathlib import Path

PIPELINE = ("--layout", "tp=2,pp=2,dp=2", "--layers", "4", "--micro-batches", "4")
FSDP = ("--layout", "dp=4", "--layers", "3", "--micro-batches", "1", "--data-parallel", "fsdp")


def tables(result: tk.Result) -> dict[str, Any]:
    return result.run.tables | {"critical_path": result.run.rows("critical_path")}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Tables of simulated jobs, each made once."""

    @lru_cache
    def made(*args: str, steps: int = 2) -> dict[str, Any]:
        folder: Path = tmp_path_factory.mktemp("job") / "files"
        result = CliRunner().invoke(
            cli, ["simulate", *args, "--steps", str(steps), "-o", str(folder)], catch_exceptions=False
        )
        assert result.exit_code == 0, result.output
        return tables(tk.analyze(folder, detail=False, workers=1))

    return made


def what_if(tables: dict[str, Any], what: str, subject: str | None = None) -> list[dict[str, Any]]:
    return [
        w for w in tables["what_if"]
        if (w["basis"], w["what"], w["subject"]) == ("critical-path", what, subject)
    ]  # fmt: skip


@pytest.mark.parametrize(("args", "rank"), [(PIPELINE, 5), (FSDP, 3)])
def test_without_the_straggler_it_is_the_job_without_the_fault(job: Any, args: tuple[str, ...], rank: int) -> None:
    slow, fine = job(*args, "--slow", f"{rank}=1.3"), job(*args)
    healthy = {s["step"]: s["dur_ns"] for s in fine["critical_steps"]}
    for what, subject in (("no-straggler", f"rank {rank}"), ("no-stragglers", None)):
        found = what_if(slow, what, subject)
        assert len(found) == len(healthy)
        for row in found:
            assert row["replay_error_ratio"] < 0.001
            assert row["what_if_ns"] == pytest.approx(healthy[row["step"]], rel=0.01)
            assert row["saved_ns"] > 0.05 * row["window_ns"]
    for row in what_if(fine, "no-stragglers"):
        assert abs(row["saved_ns"]) <= 0.001 * row["window_ns"]


def test_the_path_goes_through_the_slow_rank(job: Any) -> None:
    slow = job(*FSDP, "--slow", "3=1.3")
    for step in slow["critical_steps"]:
        rows = [r for r in slow["critical_shares"] if (r["step"], r["kind"]) == (step["step"], "compute")]
        on = {r["rank"]: r["dur_ns"] for r in rows}
        assert on[3] >= 0.95 * sum(on.values())


@pytest.mark.parametrize("args", [PIPELINE, (*PIPELINE, "--slow", "5=1.3"), FSDP])
def test_every_step_adds_up_and_the_replay_gives_it_back(job: Any, args: tuple[str, ...]) -> None:
    found = job(*args)
    assert len(found["critical_steps"]) == 2
    for step in found["critical_steps"]:
        segments = [p for p in found["critical_path"] if p["step"] == step["step"]]
        assert segments[0]["ts_ns"] == step["ts_ns"]
        (own,) = (s for s in found["steps"] if (s["rank"], s["step"]) == (step["last_rank"], step["step"]))
        if step["step"] == 0:
            assert step["dur_ns"] == own["dur_ns"]
        ends = [p["ts_ns"] + p["dur_ns"] for p in segments]
        assert ends[:-1] == [p["ts_ns"] for p in segments[1:]]
        assert ends[-1] - step["ts_ns"] == step["dur_ns"]
        assert min(p["dur_ns"] - p["gap_ns"] - p["copy_ns"] for p in segments) >= 0
        kinds = [v for k, v in step.items() if k in {f"{p}_ns" for p in KINDS}]
        assert sum(kinds) == step["dur_ns"]
        assert sum(r["dur_ns"] for r in found["critical_shares"] if r["step"] == step["step"]) == step["dur_ns"]
        assert step["replay_error_ratio"] < 0.001
        assert step["unsplit_ns"] == 0


KINDS = ("compute", "comm", "unsplit", "copy", "launch", "host", "sync", "wait")


def test_transfers_at_the_speed_of_theory_change_nothing_where_they_have_it(job: Any) -> None:
    """The simulator's transfers take what theory expects."""
    found = [w for w in job(*FSDP)["what_if"] if w["what"] == "theory-speed" and w["reason"] is None]
    assert {w["subject"] for w in found} >= {None, "zero3 all_gather", "zero3 reduce_scatter"}
    assert all(abs(w["saved_ns"]) <= 0.001 * w["window_ns"] for w in found)


def test_hidden_transfers_leave_the_work(job: Any) -> None:
    """No step is shorter than the compute of a rank, and hiding the only large traffic leaves little else."""
    tables = job(*FSDP)
    compute = {(b["step"]): b["compute_only_ns"] + b["overlapped_ns"] for b in tables["breakdown"] if b["rank"] == 0}
    for row in what_if(tables, "perfect-overlap", "zero3"):
        assert row["saved_ns"] > 0
        assert compute[row["step"]] <= row["what_if_ns"] <= 1.02 * compute[row["step"]]


NODES = """
[layout]
dp = 4
[hardware]
name = "h100"
network = "ndr"
gpus_per_node = 2
[model]
name = "llama3-8b"
layers = 3
vocab = 32768
[training]
micro_batches = 1
data_parallel = "fsdp"
"""
STAGES = """
[layout]
pp = 4
[hardware]
name = "h100"
network = "ndr"
[model]
name = "llama3-8b"
layers = 8
vocab = 256
[training]
micro_batches = 8
"""


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Any:
    def made(text: str) -> str:
        path = tmp_path_factory.getbasetemp() / f"run{abs(hash(text))}.toml"
        path.write_text(text)
        return str(path)

    return made


def test_clocks_milliseconds_apart_that_drift_change_little(job: Any, run_file: Any) -> None:
    fine = job("--run", run_file(NODES))
    moved = job("--run", run_file(NODES), "--clock", "1=4000", "--drift", "1=20", "--end-skew", "5", "--slow", "3=1.2")
    for step, row in zip(fine["critical_steps"], what_if(moved, "no-straggler", "rank 3"), strict=True):
        assert row["what_if_ns"] == pytest.approx(step["dur_ns"], rel=0.01)
        assert row["replay_error_ratio"] < 0.01
    assert all(s["replay_error_ratio"] < 0.01 and s["wait_ns"] < 100_000 for s in moved["critical_steps"])


def test_late_input_is_host_time_of_the_rank_that_waits(job: Any, run_file: Any) -> None:
    """Its host waits 20 ms for data at the start of each step."""
    late, fine = job("--run", run_file(NODES), "--late-input", "3=20000"), job("--run", run_file(NODES))
    (step, _), (healthy, _) = late["critical_steps"], fine["critical_steps"]
    assert step["dur_ns"] - healthy["dur_ns"] == pytest.approx(20_000_000, rel=0.01)
    assert step["host_ns"] - healthy["host_ns"] == pytest.approx(20_000_000, rel=0.01)
    on = [r for r in late["critical_shares"] if r["kind"] == "host" and r["step"] == 0]
    assert max(on, key=lambda r: r["dur_ns"])["rank"] == 3


def test_transfers_of_a_slow_link_at_the_speed_of_theory_are_those_without_it(job: Any) -> None:
    slow, fine = job(*FSDP, "--slow-link", "2=2"), job(*FSDP)
    assert slow["critical_steps"][0]["dur_ns"] > 1.1 * fine["critical_steps"][0]["dur_ns"]
    for op in ("all_gather", "reduce_scatter"):
        assert all(w["saved_ns"] > 0 for w in what_if(slow, "theory-speed", f"zero3 {op}"))
    for step, row in zip(fine["critical_steps"], what_if(slow, "theory-speed"), strict=True):
        assert row["what_if_ns"] == pytest.approx(step["dur_ns"], rel=0.01)


def test_levelled_stages_are_a_job_of_equal_stages(job: Any, run_file: Any) -> None:
    """Stage 1 of four computes 1.4 times as long; with the same work spread evenly each takes 1.1 times as long."""
    uneven = job("--run", run_file(STAGES), "--slow-stage", "1=1.4")
    even = job("--run", run_file(STAGES), *(w for i in range(4) for w in ("--slow-stage", f"{i}=1.1")))
    for step, row in zip(even["critical_steps"], what_if(uneven, "balanced-stages"), strict=True):
        assert row["what_if_ns"] == pytest.approx(step["dur_ns"], rel=0.01)
        assert row["saved_ns"] > 0.05 * row["window_ns"]


def test_balanced_stages_carry_the_same_work(job: Any) -> None:
    """The last stage has the loss: levelled, the step is shorter, but no shorter than the mean stage needs."""
    tables = job(*PIPELINE)
    loads = [b["compute_only_ns"] + b["overlapped_ns"] for b in tables["breakdown"] if b["step"] == 1]
    (row,) = (w for w in what_if(tables, "balanced-stages") if w["step"] == 1)
    assert row["saved_ns"] > 0
    assert sum(loads) / len(loads) < row["what_if_ns"] < row["window_ns"]


def test_one_rank_alone_has_a_path_but_no_split(job: Any, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    args = ["simulate", *FSDP, "--steps", "1", "-o", str(folder)]
    assert CliRunner().invoke(cli, args, catch_exceptions=False).exit_code == 0
    one = sorted(folder.glob("*.json*"))
    rank0 = next(p for p in one if p.name != "truth.json")
    found = tables(tk.analyze(rank0, detail=False, workers=1))
    (step,) = found["critical_steps"]
    assert step["reason"] == "one-rank"
    assert step["comm_ns"] == 0
    assert step["unsplit_ns"] > 0
    assert {p["reason"] for p in found["critical_path"] if p["kind"] == "unsplit"} == {"one-rank"}
    assert {w["reason"] for w in found["what_if"]} == {"no-peers", "unsplit"}

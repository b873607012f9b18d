"""Simulated jobs: idle time as placed by the simulator, and causes that were put in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.commands import cli

if TYPE_CHECKING:
    from pathlib import Path

EDGES = 50_000
"""The simulator counts an action from its launch latency and input copy on, which are no compute: ns a step."""
CAUSES = ("schedule", "order", "imbalance", "straggler", "p2p", "comm", "launch", "unexplained")
SHAPE = "tp=1,pp={pp},dp={dp},order=tp-dp-pp"


def simulated(folder: Path, schedule: str, framework: str, *more: str, pp: int = 4, dp: int = 1) -> dict[str, Any]:
    """Tables of a job of eight layers, and its truth."""
    args = ["simulate", "--layers", "8", "--micro-batches", "8", "--steps", "1", "--schedule", schedule, "--framework",
            framework, "--layout", SHAPE.format(pp=pp, dp=dp), "-o", str(folder), *more]  # fmt: skip
    made = CliRunner().invoke(cli, args, catch_exceptions=False)
    assert made.exit_code == 0, made.output
    tables: dict[str, Any] = dict(tk.analyze(folder, detail=False, workers=1).run.tables)
    return tables | {"truth": json.loads((folder / "truth.json").read_text())}


@pytest.mark.parametrize(
    ("schedule", "framework"),
    [("ZBVZeroBubble", "torch"), ("DualPipeV", "torch"), ("1F1B", "megatron"), ("GPipe", "megatron"),
     ("Interleaved1F1B", "megatron")],
)  # fmt: skip
def test_idle_time_is_the_simulators(tmp_path: Path, schedule: str, framework: str) -> None:
    found = simulated(tmp_path, schedule, framework)
    assert len(found["bubble"]) == 4
    for row in found["bubble"]:
        true = found["truth"]["ranks"][str(row["rank"])]["steps"]["0"]["pipeline"]
        assert row["schedule"] == schedule
        for name, ns in true.items():
            assert row[name] == pytest.approx(ns, abs=EDGES)
        assert abs(row["unexplained_ns"]) <= 1000


@pytest.mark.parametrize(
    ("schedule", "pp", "batches"),
    [("ZB-H1", 4, "8"), ("ZBVZeroBubble", 4, "4"), ("DualPipeV", 4, "9"), ("DualPipe", 2, "4"), ("DualPipeV", 2, "4"),
     ("DualPipe", 4, "8")],
)  # fmt: skip
def test_halves_of_a_backward_need_no_names_to_be_work(tmp_path: Path, schedule: str, pp: int, batches: str) -> None:
    """Names of Megatron tell forwards alone: the schedule shows between its sends, and the bubble is that of the work."""
    found = simulated(tmp_path, schedule, "megatron", "--micro-batches", batches, pp=pp)
    assert len(found["bubble"]) == pp
    for row in found["bubble"]:
        assert schedule in row["schedule"].split("|")
        assert row["reason"] in (None, "micro-batches-merged")
        true = found["truth"]["ranks"][str(row["rank"])]["steps"]["0"]["pipeline"]
        for name, ns in true.items():
            assert row[name] == pytest.approx(ns, abs=EDGES)


def test_a_slow_replica_is_a_straggler(tmp_path: Path) -> None:
    """Of three replicas one has a slow rank: what is typical is what the others do, and the job without it."""
    found = simulated(tmp_path / "slow", "1F1B", "megatron", "--slow", "4=1.3", pp=2, dp=3)
    fine = simulated(tmp_path / "fine", "1F1B", "megatron", pp=2, dp=3)
    (healthy,) = {b["window_ns"] for b in fine["bubble"] if b["pipeline"] == "1,4"}
    (without,) = (
        w
        for w in found["what_if"]
        if w["basis"] == "pipeline" and w["pipeline"] == "1,4" and w["what"] == "no-stragglers"
    )
    assert without["replay_error_ratio"] < 0.001
    assert without["window_ns"] > 1.05 * healthy
    assert without["what_if_ns"] == pytest.approx(healthy, rel=0.01)
    for row in found["bubble"]:
        partner = row["rank"] == 1  # in the pipeline of rank 4, waiting for it
        assert (row["straggler_ns"] > 5_000_000) == partner, row
        assert row["order_ns"] == 0


def test_what_if_of_a_job_without_faults_changes_little(tmp_path: Path) -> None:
    found = simulated(tmp_path, "ZBVZeroBubble", "torch")["what_if"]
    rows = {w["what"]: w for w in found if w["basis"] == "pipeline"}
    assert set(rows) == {"no-stragglers", "balanced-stages", "no-p2p", "no-other-comm", "no-gaps"}
    for what in ("no-stragglers", "no-p2p", "no-other-comm", "no-gaps"):
        assert 0 <= rows[what]["saved_ratio"] < 0.01
    assert rows["balanced-stages"]["saved_ratio"] > 0.3  # the first rank holds both ends of the model


@pytest.mark.parametrize(
    ("fault", "what"), [(("--long", "3=1.6"), "no-stragglers"), (("--p2p-latency", "4000"), "no-p2p")]
)
def test_the_what_if_is_the_run_without_the_fault(tmp_path: Path, fault: tuple[str, ...], what: str) -> None:
    """A long micro-batch: as typical. Latency of messages: without any time of messages, which is little here."""
    found = simulated(tmp_path / "faulty", "1F1B", "megatron", *fault)
    fine = simulated(tmp_path / "fine", "1F1B", "megatron")
    (healthy,) = {b["window_ns"] for b in fine["bubble"]}
    (row,) = (w for w in found["what_if"] if w["basis"] == "pipeline" and w["what"] == what)
    assert row["window_ns"] > 1.05 * healthy
    assert row["replay_error_ratio"] < 0.01
    assert row["what_if_ns"] == pytest.approx(healthy, rel=0.01)


@pytest.mark.parametrize(
    "faults",
    [("--slow-stage", "1=1.4", "--jitter", "0.05"), ("--long", "2=1.7", "--p2p-latency", "300", "--seed", "3"),
     ("--slow", "2=1.3", "--clock", "0=900", "--end-skew", "5")],
)  # fmt: skip
def test_causes_add_up_whatever_is_wrong(tmp_path: Path, faults: tuple[str, ...]) -> None:
    found = simulated(tmp_path, "1F1B", "megatron", *faults)
    assert len(found["bubble"]) == 4
    for row in found["bubble"]:
        assert row["reason"] is None
        assert sum(row[f"{c}_ns"] for c in CAUSES) == row["bubble_ns"]
    if "--slow-stage" in faults:
        assert max(found["bubble"], key=lambda b: b["busy_ns"])["position"] in (1, 3)  # the last one has the head
        assert sum(b["imbalance_ns"] for b in found["bubble"]) > 0

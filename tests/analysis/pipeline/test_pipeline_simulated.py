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


def test_what_cannot_be_told_has_no_number(tmp_path: Path) -> None:
    """Names of Megatron tell no weight gradients, so a split backward shows as work that does not pair up."""
    found = simulated(tmp_path, "ZB-H1", "megatron")
    assert {(r["bubble_ns"], r["schedule"], r["reason"]) for r in found["bubble"]} == {(None, None, "incomplete")}


def test_a_slow_replica_is_a_straggler(tmp_path: Path) -> None:
    """Of three replicas one has a slow rank: what is typical is what the others do."""
    found = simulated(tmp_path, "1F1B", "megatron", "--slow", "1=1.3", pp=2, dp=3)
    for row in found["bubble"]:
        partner = row["rank"] == 4  # in the pipeline of rank 1, waiting for it
        assert (row["straggler_ns"] > 5_000_000) == partner, row
        assert row["order_ns"] == 0

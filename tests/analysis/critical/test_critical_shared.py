"""Real recordings: delays that were put in, and what public traces show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tracekit as tk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MS = 1_000_000


def analysed(*paths: Path) -> dict[str, Any]:
    run = tk.analyze([str(p) for p in paths], detail=False, workers=1).run
    return run.tables | {"critical_path": run.rows("critical_path")}


def exact(tables: dict[str, Any]) -> None:
    """The accounts of every step add up."""
    assert tables["critical_steps"]
    for step in tables["critical_steps"]:
        segments = [p for p in tables["critical_path"] if p["step"] == step["step"]]
        assert sum(p["dur_ns"] for p in segments) == step["dur_ns"]
        ends = [p["ts_ns"] + p["dur_ns"] for p in segments]
        assert ends[:-1] == [p["ts_ns"] for p in segments[1:]]
        assert sum(r["dur_ns"] for r in tables["critical_shares"] if r["step"] == step["step"]) == step["dur_ns"]


def compute_of(tables: dict[str, Any], step: int) -> dict[int, int]:
    rows = [r for r in tables["critical_shares"] if (r["step"], r["kind"]) == (step, "compute")]
    return {r["rank"]: r["dur_ns"] for r in rows}


def test_a_planted_straggler_of_80_ms(shared: Path) -> None:
    """overlap_timed2: sleeps of 30, 150 and 5 ms on both ranks, and of 80 ms on rank 1 alone."""
    found = analysed(shared / "recordings" / "overlap_timed2")
    exact(found)
    assert len(found["critical_steps"]) == 3
    for step in found["critical_steps"]:
        assert sum(compute_of(found, step["step"]).values()) == pytest.approx(265 * MS, rel=0.05)
        assert compute_of(found, step["step"])[1] >= 80 * MS
        assert step["replay_error_ratio"] < 0.01
    cases = [w for w in found["what_if"] if w["what"] == "no-straggler"]
    assert {w["subject"] for w in cases} == {"rank 1"}
    assert [w["saved_ns"] for w in cases] == pytest.approx([80 * MS] * 3, abs=8 * MS)


@pytest.mark.parametrize("name", ["pptime_1f1b4", "pptime_gpipe4"])
def test_a_pipeline_of_timed_sleeps(shared: Path, name: str) -> None:
    """Every action sleeps 40 ms (a whole backward 80): the path holds the actions that nothing can run beside.

    With p stages and m micro-batches at least one rank's whole work, m (F + B) = 960 ms, is on it, and with the first
    micro-batch's way through the other stages (p - 1)(F + B) = 360 ms.
    """
    found = analysed(shared / "recordings" / name)
    exact(found)
    whole = found["critical_steps"][-1]
    assert whole["ranks_on_path"] == 4
    assert whole["compute_ns"] >= 0.92 * 1320 * MS
    assert whole["compute_ns"] >= 0.75 * whole["dur_ns"]  # the rest: the threads' own time on two busy cores
    assert whole["wait_ns"] == 0
    assert whole["unsplit_ns"] == 0
    assert whole["replay_error_ratio"] < 0.01


def corpus(shared: Path, pattern: str) -> Sequence[Path]:
    found = sorted((shared / "corpus").glob(pattern))
    assert found
    return found


def test_eight_ranks_that_wait_for_the_host_of_the_slowest(shared: Path) -> None:
    """megatron_tp8: 20 ms between launches, so no kernel limits the step; rank 0 comes last to most all-reduces."""
    found = analysed(*corpus(shared, "*/megatron_tp8_kineto/*.json.gz"))
    exact(found)
    (step,) = found["critical_steps"]
    assert step["ranks"] == 8
    assert step["host_ns"] > 0.9 * step["dur_ns"]
    assert step["unsplit_ns"] == 0
    assert all(abs(w["saved_ns"]) < 0.01 * w["window_ns"] for w in found["what_if"] if w["saved_ns"] is not None)


def test_one_rank_of_eight(shared: Path) -> None:
    found = analysed(*corpus(shared, "*/nanogpt_h2d_rank0/*.json.gz"))
    exact(found)
    assert {s["reason"] for s in found["critical_steps"]} == {"one-rank"}
    assert all(s["comm_ns"] == 0 for s in found["critical_steps"])
    assert any(s["unsplit_ns"] for s in found["critical_steps"])
    assert {w["reason"] for w in found["what_if"]} == {"no-peers", "unsplit"}

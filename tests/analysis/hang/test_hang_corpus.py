"""Dumps of real jobs into which faults were injected, and what torch's own analyzer reports on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tracekit.ingest.hanging import post_mortem

INJECTED = {"fr_gpu_error_1st": {12, 14}, "fr_gpu_error_2nd": {9, 14}, "fr_lock_gil_1st": {9, 14}}
KINDS = {"fr_gpu_error_1st": "held", "fr_gpu_error_2nd": "held", "fr_lock_gil_1st": "silent"}
TORCH = Path(__file__).with_name("torch_reports.txt")
"""What the analyzer of torch 2.13 (torch.distributed.flight_recorder.fr_trace) reports on these sets: set, group,
sequence number, ranks that did not join. Its rows on sends and receives are left out: it takes them for collectives."""


def reports() -> list[tuple[str, str, int, set[int]]]:
    """Rows of `TORCH`."""
    out = []
    for line in TORCH.read_text("utf-8").splitlines():
        name, group, seq, ranks = line.split()
        out.append((name, group, int(seq), {int(r) for r in ranks.split(",")}))
    return out


@pytest.fixture(scope="module")
def results(shared: Path) -> dict[str, dict[str, Any]]:
    """Post-mortem of every set."""
    folder = shared / "corpus" / "NVIDIA+nvidia-resiliency-ext"
    return {name: post_mortem([folder / name]) for name in INJECTED}


@pytest.mark.parametrize("name", INJECTED)
def test_the_injected_ranks_are_the_suspects(results: dict[str, dict[str, Any]], name: str) -> None:
    found = results[name]
    assert {s["rank"] for s in found["suspects"]} == INJECTED[name]
    assert {s["kind"] for s in found["suspects"]} == {KINDS[name]}
    assert found["hung"]
    assert found["without_dump"] == []
    assert all(s["chain"] for s in found["suspects"])


def test_everything_torch_reports_is_reported(results: dict[str, dict[str, Any]]) -> None:
    rows = reports()
    assert len(rows) > 40
    for name, group, seq, ranks in rows:
        told = [r for r in results[name]["unfinished"] if (r["group_name"], r["seq"]) == (group, seq)]
        assert len(told) == 1, (name, group, seq)
        assert ranks <= {*told[0]["missing"], *told[0]["completed_on"]}


def test_what_torch_calls_missing_although_it_completed_is_told_apart(results: dict[str, dict[str, Any]]) -> None:
    row = next(r for r in results["fr_gpu_error_1st"]["unfinished"] if (r["group_name"], r["seq"]) == ("42", 42818))
    assert (row["pending_on"], row["missing"], row["completed_on"]) == ([14], [], [15])

"""The simulated GPU job: the generator makes the committed bytes, and tracekit finds what the simulator knows."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tracekit as tk

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
SAMPLE = SAMPLES / "gpu-tp2-pp2-dp2"
RANKS = range(8)
PARTS = ("window_ns", "compute_only_ns", "overlapped_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((SAMPLE / "truth.json").read_text("utf-8"))
    return loaded


@pytest.fixture(scope="module")
def result() -> Any:
    return tk.analyze(SAMPLE, workers=1)


def test_the_generator_makes_the_committed_files(tmp_path: Path) -> None:
    subprocess.run([sys.executable, SAMPLES / "generate_gpu.py", tmp_path], check=True)
    assert (tmp_path / "truth.json").read_bytes() == (SAMPLE / "truth.json").read_bytes()
    for rank in RANKS:
        # The text is compared, not the gzip container: compressors differ between builds of Python.
        name = f"rank{rank}.json.gz"
        made, kept = (tmp_path / name).read_bytes(), (SAMPLE / name).read_bytes()
        assert kept[4:8] == bytes(4), "no time stamp in the container"
        assert gzip.decompress(made) == gzip.decompress(kept)


def test_the_files_are_what_json_says_they_are() -> None:
    with gzip.open(SAMPLE / "rank4.json.gz") as file:
        trace = json.load(file)
    rows = trace["traceEvents"]
    kernels = [e for e in rows if e.get("cat") == "kernel" and "Seq" in e["args"]]
    assert {"ac2g", "cpu_op", "cuda_runtime", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "user_annotation"} < {
        e.get("cat") for e in rows
    }
    assert any(e["args"]["Comms Id"] >= 2**63 for e in kernels)
    assert trace["distributedInfo"]["rank"] == 4
    bare = [e for e in rows if e.get("cat") == "kernel" and "SendRecv" in e["name"]]
    assert bare
    assert all("Collective name" not in e["args"] for e in bare)


def test_samples_stay_small() -> None:
    assert sum(p.stat().st_size for p in SAMPLES.rglob("*") if p.is_file()) < 6_000_000


def test_whole_file_accounting_is_the_truth(result: Any, truth: dict[str, Any]) -> None:
    totals = {t["rank"]: t for t in result.document["totals"]}
    assert sorted(totals) == list(RANKS)
    for rank in RANKS:
        known, found = truth["ranks"][str(rank)]["whole"], totals[rank]
        assert found["window_ns"] == known["window_ns"]
        assert found["compute_ns"] == known["compute_only_ns"] + known["overlapped_ns"]
        assert found["hidden_ns"] == known["overlapped_ns"]
        assert found["exposed_ns"] == known["exposed_comm_ns"]
        assert found["comm_ns"] == known["overlapped_ns"] + known["exposed_comm_ns"]
        assert (found["copy_ns"], found["idle_ns"]) == (known["exposed_copy_ns"], known["idle_ns"])
        assert found["collectives"] == sum(known["calls"].values())


def test_strategies_are_the_truth(result: Any, truth: dict[str, Any]) -> None:
    for total in result.document["totals"]:
        known = truth["ranks"][str(total["rank"])]["whole"]
        found = total["by_strategy"]
        assert {s: f["count"] for s, f in found.items()} == known["calls"]
        for strategy, times in known["by_strategy"].items():
            assert {key: found[strategy][key] for key in times} == times, strategy
        assert sum(f["attributed_ns"] for f in found.values()) == known["exposed_comm_ns"]


def test_every_step_is_the_truth(result: Any, truth: dict[str, Any]) -> None:
    rows = {(b["rank"], b["step"]): b for b in result.document["breakdown"]}
    assert sorted(rows) == [(rank, step) for rank in RANKS for step in truth["steps"]]
    for (rank, step), row in rows.items():
        known = truth["ranks"][str(rank)]["steps"][str(step)]
        assert {key: row[key] for key in PARTS} == {key: known[key] for key in PARTS}, (rank, step)
        assert row["fused_ns"] == 0


def test_calls_of_every_step_are_the_truth(result: Any, truth: dict[str, Any]) -> None:
    found: dict[tuple[int, int], dict[str, int]] = {}
    for row in result.document["exposure"]:
        calls = found.setdefault((row["rank"], row["step"]), {})
        calls[row["strategy"]] = calls.get(row["strategy"], 0) + row["count"]
    for rank in RANKS:
        for step in truth["steps"]:
            assert found[rank, step] == truth["ranks"][str(rank)]["steps"][str(step)]["calls"], (rank, step)


def test_groups_are_the_truth(result: Any, truth: dict[str, Any]) -> None:
    members: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in result.arrow("groups").to_pylist():
        members.setdefault((row["group_desc"], row["group_name"]), []).append((row["position"], row["rank"]))
    found: dict[str, set[tuple[int, ...]]] = {}
    for (desc, _), ranks in members.items():
        found.setdefault(desc, set()).add(tuple(rank for _, rank in sorted(set(ranks))))
    for desc, groups in truth["groups"].items():
        assert found[desc] == {tuple(g) for g in groups}, desc


def test_same_call_has_the_same_identity_on_all_ranks(result: Any) -> None:
    rows = result.arrow("collectives").select(["rank", "op", "group_id", "seq", "comms_id"]).to_pylist()
    ranks: dict[int, set[int]] = {}
    for row in rows:
        if row["op"] == "all_reduce":
            assert row["comms_id"] is not None
            ranks.setdefault(row["comms_id"], set()).add(row["rank"])
    assert {len(members) for members in ranks.values()} == {2, 4}

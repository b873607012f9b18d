"""The recorded CPU samples: the calls that the recording script knows it issued are found, and labelled right."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tracekit as tk

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


@pytest.fixture(scope="module", params=["gloo-tp2-pp2-dp2", "gloo-fsdp2"])
def sample(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any], Any]:
    """(name, truth, result)"""
    folder = SAMPLES / request.param
    truth = json.loads((folder / "truth.json").read_text("utf-8"))
    return request.param, truth, tk.analyze(folder, workers=1)


def test_every_rank_and_step_is_there(sample: tuple[str, dict[str, Any], Any]) -> None:
    _, truth, result = sample
    ranks = [r["rank"] for r in result.document["ranks"] if r["used"]]
    assert ranks == list(range(truth["world_size"]))
    steps = Counter(s["rank"] for s in result.document["steps"])
    assert set(steps.values()) == {truth["steps"]}


def test_calls_per_step_are_what_the_script_issues(sample: tuple[str, dict[str, Any], Any]) -> None:
    name, truth, result = sample
    rows = result.arrow("collectives").select(["rank", "step", "op"]).to_pylist()
    seen = Counter((r["rank"], r["step"], r["op"]) for r in rows if r["op"] != "barrier")
    calls = truth["calls_per_step"]
    numbers = sorted({r["step"] for r in rows})
    for rank in range(truth["world_size"]):
        if name == "gloo-fsdp2":
            expected = calls["zero3"]
        else:
            first = rank in {r for group in truth["groups"]["pp"] for r in group[:1]}
            tensor = calls["tp"]["all_reduce"]["first stage" if first else "last stage"]
            expected = {**calls["pp"], "all_reduce": tensor + calls["dp"]["all_reduce"]}
        for step in numbers:
            assert {op: seen[rank, step, op] for op in expected} == expected, (rank, step)
    assert sum(seen.values()) == sum(n for (r, s, op), n in seen.items() if op in expected)


def test_labels_are_right_or_unknown(sample: tuple[str, dict[str, Any], Any]) -> None:
    name, _, result = sample
    rows = result.arrow("collectives").select(["op", "strategy"]).to_pylist()
    found = {(r["op"], r["strategy"]) for r in rows}
    right = {
        "gloo-fsdp2": {("all_gather", "zero3"), ("reduce_scatter", "zero3"), ("barrier", "housekeeping")},
        "gloo-tp2-pp2-dp2": {
            ("all_reduce", "tp"), ("all_reduce", "dp"), ("send", "pp"), ("recv", "pp"), ("barrier", "housekeeping"),
        },
    }  # fmt: skip
    assert all(strategy == "unknown" or (op, strategy) in right[name] for op, strategy in found)


def test_every_call_has_its_worker_time(sample: tuple[str, dict[str, Any], Any]) -> None:
    _, _, result = sample
    rows = result.arrow("collectives").select(["op", "ts_ns", "dur_ns", "call_ts_ns"]).to_pylist()
    assert all(r["dur_ns"] is not None for r in rows if r["op"] != "send")  # a send span says nothing
    assert all(r["ts_ns"] >= r["call_ts_ns"] for r in rows if r["op"] not in {"send", "recv"})

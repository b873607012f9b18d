"""Two simulated jobs that differ in one thing: the comparison names it first, in both directions."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import tracekit as tk
from tracekit import simulate, theory
from tracekit.analysis.diff.compare import compare
from tracekit.analysis.diff.side import Side, side

Q = dict[str, Any]
HARDWARE = {"name": "h100", "network": "ndr"}
BASE: Q = {"layout": "tp=2,pp=2,dp=2,order=tp-dp-pp"}
FSDP: Q = {"layout": "dp=4", "data_parallel": "fsdp", "micro_batches": 2}
NODES: Q = {"hardware": {"name": "h100", "nic_gbps": 50.0, "gpus_per_node": 4}}
JOBS: dict[str, Q] = {
    "base": BASE,
    "again": BASE | {"steps": 4},
    "noise": BASE | {"options": {"jitter_ratio": 0.02}, "steps": 6},
    "other noise": BASE | {"options": {"jitter_ratio": 0.0203}, "steps": 6},
    "slow rank": BASE | {"options": {"slow": {5: 1.15}}},
    "slow rank in noise": BASE | {"options": {"slow": {5: 1.15}, "jitter_ratio": 0.0203}, "steps": 6},
    "slow stage": BASE | {"options": {"slow": dict.fromkeys((4, 5, 6, 7), 1.2)}},
    "over nodes": BASE | NODES,
    "slower link": BASE | {"hardware": {"name": "h100", "nic_gbps": 12.5, "gpus_per_node": 4}},
    "blocking exchanges": BASE | {"options": {"batched": True}},
    "nothing hidden": BASE | {"options": {"framework": "torch"}},
    "more micro-batches": BASE | {"micro_batches": 8},
    "longer sequences": BASE | {"sequence": 8192},
    "another schedule": BASE | {"schedule": "GPipe"},
    "wider gradients": BASE | {"grad_dtype": "fp32"},
    "narrow gradients": BASE | {"grad_dtype": "bf16"},
    "recomputation": BASE | {"recompute": "full"},
    "another GPU": BASE | {"hardware": {"name": "a100", "network": "hdr"}},
    "zero1": BASE | {"data_parallel": "zero1"},
    "fsdp": FSDP,
    "fsdp slow rank": FSDP | {"options": {"slow": {3: 1.2}}},
    "fsdp over nodes": FSDP | {"hardware": {"name": "h100", "nic_gbps": 50.0, "gpus_per_node": 2}},
    "fsdp slower link": FSDP | {"hardware": {"name": "h100", "nic_gbps": 20.0, "gpus_per_node": 2}},
    "fsdp kept": FSDP | {"reshard": False},
}


@cache
def run(name: str) -> Side:
    job = JOBS[name].copy()
    layout, options = job.pop("layout"), job.pop("options", {})
    tables = {
        "model": {"name": "llama3-8b", "layers": job.pop("layers", 2), "vocab": 32768},
        "layout": layout, "hardware": job.pop("hardware", HARDWARE),
    }  # fmt: skip
    how = simulate.Options(**{"steps": job.pop("steps", 2), **options})
    tables["training"] = {"sequence": 4096, "micro_batch": 1, "micro_batches": 4, **job}
    with TemporaryDirectory() as folder:
        simulate.write(simulate.simulate(theory.job_of(tables, defaults=True), how), Path(folder), level=1)
        return side(tk.analyze(folder, workers=1, detail=False).document, name)


PLANTED = [
    ("base", "slow rank", "rank", "rank 5", None),
    ("noise", "slow rank in noise", "rank", "rank 5", None),
    ("base", "slow stage", "stage", "pipeline stage 1", None),
    ("over nodes", "slower link", "transfer", "pp stage_transfer", None),
    ("base", "blocking exchanges", "overlap", "pp stage_transfer", None),
    ("base", "nothing hidden", "setup", "framework", ("overlap", "tp activation backward")),
    ("base", "more micro-batches", "setup", "micro-batches", ("load", "activations")),
    ("base", "longer sequences", "load", "activations", None),
    ("base", "another schedule", "setup", "schedule", None),
    ("narrow gradients", "wider gradients", "payload", "dp grad_reduce backward", None),
    ("base", "recomputation", "compute", "all ranks", None),
    ("base", "another GPU", "setup", "hardware", ("compute", "all ranks")),
    ("base", "zero1", "setup", "strategies", None),
    ("fsdp", "fsdp slow rank", "rank", "rank 3", None),
    ("fsdp over nodes", "fsdp slower link", "transfer", "zero3", None),
    ("fsdp", "fsdp kept", "setup", "strategies", None),
]


@pytest.mark.parametrize(("a", "b", "kind", "where", "measured"), PLANTED, ids=[b for _, b, *_ in PLANTED])
@pytest.mark.parametrize("turned", [False, True])
def test_the_planted_cause_comes_first(
    a: str, b: str, kind: str, where: str, measured: tuple[str, str] | None, turned: bool
) -> None:
    found = compare(run(b), run(a)) if turned else compare(run(a), run(b))
    assert (found["causes"][0]["kind"], found["causes"][0]["where"]) == (kind, where), found["causes"]
    if measured is not None:
        first = next(c for c in found["causes"] if c["cost_ns"] is not None)
        assert (first["kind"], first["where"]) == measured
    assert found["causes"][0]["sentence"] in found["sentence"]


@pytest.mark.parametrize(("a", "b"), [("base", "base"), ("base", "again"), ("noise", "other noise"),
                                      ("other noise", "noise"), ("base", "noise")])  # fmt: skip
def test_the_same_job_gives_no_finding(a: str, b: str) -> None:
    found = compare(run(a), run(b))
    assert found["causes"] == []
    assert {p["verdict"] for p in found["parts"]} == {"same"}
    assert {c["verdict"] for c in found["communication"]} <= {"same"}
    assert "as long as before" in found["sentence"]
    assert "nothing else differs" in found["sentence"]


@pytest.mark.parametrize("name", ["slow rank", "longer sequences", "fsdp slower link"])
def test_changes_add_up(name: str) -> None:
    """Parts add up to the step, keys to the exposed part, and the price of the cause is near the step's change."""
    found = compare(run("fsdp over nodes" if name.startswith("fsdp") else "base"), run(name))
    parts = {p["part"]: p for p in found["parts"]}
    step = parts.pop("step")
    for column in ("a_ns", "b_ns", "change_ns"):
        assert sum(p[column] for p in parts.values()) == pytest.approx(step[column], abs=1)
        keys = sum(c[column] for c in found["communication"])
        assert keys == pytest.approx(parts["exposed_comm"][column], abs=1)
    assert step["change_ns"] == step["b_ns"] - step["a_ns"]
    assert found["causes"][0]["cost_ns"] == pytest.approx(step["change_ns"], rel=0.3)

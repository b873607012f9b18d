"""Late arrivals against the faults that were put into simulated jobs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import tracekit as tk
from tracekit import simulate, theory

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.api import Result


def analysed(folder: Path, layout: str, **faults: Any) -> Result:
    """A small job of three steps with faults."""
    job = theory.job_of(
        {"model": {"name": "llama3-8b", "layers": 2, "vocab": 8192}, "layout": layout,
         "training": {"sequence": 4096, "micro_batch": 1, "micro_batches": 2},
         "hardware": {"name": "h100", "network": "ndr"}},
        defaults=True,
    )  # fmt: skip
    simulate.write(simulate.simulate(job, simulate.options_of({"steps": 3, **faults})), folder, level=1)
    return tk.analyze(folder, detail=False, workers=1)


def named(result: Result) -> list[tuple[int, str]]:
    """(rank, what it says) of the findings."""
    return [(f["rank"], f["message"]) for f in result.run.tables["findings"] if f["code"] == "late-rank"]


def origins(result: Result) -> Counter[tuple[int | None, str]]:
    out: Counter[tuple[int | None, str]] = Counter()
    for row in result.run.tables["blame"]:
        assert 0 <= row["direct_ns"] <= row["wait_ns"]
        out[row["rank"], row["cause"]] += row["wait_ns"]
    return out


@pytest.mark.parametrize(
    ("layout", "faults", "rank", "cause"),
    [
        ("dp=4", {"slow": {"2": 1.4}}, 2, "compute"),
        ("dp=4", {"late_input_us": {"2": 6000}}, 2, "input"),
        ("tp=2,dp=2,order=tp-dp", {"slow": {"3": 1.4}}, 3, "compute"),
        ("tp=2,dp=2,order=tp-dp", {"slow": {"3": 1.4}, "clock_us": {"0": 700}, "end_skew_us": 10}, 3, "compute"),
        ("pp=2,dp=3,order=dp-pp", {"slow": {"1": 1.5}}, 1, "compute"),
    ],
)  # fmt: skip
def test_the_cause_that_was_put_in_is_found(
    tmp_path: Path, layout: str, faults: dict[str, Any], rank: int, cause: str
) -> None:
    result = analysed(tmp_path, layout, **faults)
    (origin, _) = next(o for o in origins(result).most_common() if o[0][0] is not None)
    assert origin == (rank, cause)
    assert [r for r, _ in named(result)] == [rank]


def test_a_late_gradient_reduction_is_traced_through_the_pipeline(tmp_path: Path) -> None:
    """Stage 0 of replica 1 is slow; its stage 1 waits for it, comes last to its own data-parallel call, and is no cause."""
    result = analysed(tmp_path, "pp=2,dp=3,order=dp-pp", slow={"1": 1.5})
    late = {w["late_rank"] for w in result.run.tables["waiting"] if w["strategy"] == "dp"}
    found = origins(result)
    assert found[4, "compute"] < 0.05 * found[1, "compute"]
    passed_on = [r for r in result.run.tables["blame"] if r["rank"] == 1 and r["direct_ns"] < r["wait_ns"]]
    assert passed_on, late


def test_slow_links_are_no_slow_compute(tmp_path: Path) -> None:
    """Both members of the pair with the slow link come late; nobody's compute is blamed."""
    found = origins(analysed(tmp_path, "tp=2,dp=2,order=tp-dp", slow_link={"3": 8}))
    by_cause: Counter[str] = Counter()
    for (rank, cause), ns in found.items():
        if rank is not None:
            by_cause[cause] += ns
    assert by_cause.most_common(1)[0][0] == "transfer"


@pytest.mark.parametrize(("layout", "faults"), [("tp=2,dp=2", {}), ("dp=4", {"jitter_ratio": 0.05, "seed": 2})])
def test_a_healthy_job_accuses_nobody(tmp_path: Path, layout: str, faults: dict[str, Any]) -> None:
    assert named(analysed(tmp_path, layout, **faults)) == []


def test_a_stage_with_more_to_do_in_every_replica_is_nobodys_lateness(tmp_path: Path) -> None:
    assert named(analysed(tmp_path, "pp=2,dp=2,order=dp-pp", slow_stage={"1": 1.5})) == []


def test_all_waiting_in_collectives_has_an_origin_or_none(tmp_path: Path) -> None:
    result = analysed(tmp_path, "tp=2,dp=2,order=tp-dp", slow={"0": 1.3}, jitter_ratio=0.03)
    waited = sum(m["wait_ns"] or 0 for m in result.run.rows("matches") if m["kind"] == "collective")
    assert sum(origins(result).values()) == pytest.approx(waited, abs=len(result.run.tables["blame"]))

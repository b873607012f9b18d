"""The cross-rank step through the public face, on the sample jobs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import tracekit

if TYPE_CHECKING:
    from tracekit.api import Result

SAMPLE = Path(__file__).resolve().parents[3] / "sample_traces" / "gpu-tp2-pp2-dp2"
PARTS = ("attributed_wait_ns", "attributed_transfer_ns", "attributed_unsplit_ns")


@pytest.fixture(scope="module")
def result() -> Result:
    return tracekit.analyze(sorted(SAMPLE.glob("rank*.json.gz")), workers=1)


def test_every_call_of_a_whole_job_is_matched(result: Result) -> None:
    rows = result.arrow("collectives").to_pylist()
    assert {r["match"] for r in rows} <= {"comms-id", "order-in-step"}
    matches = {m["match_id"]: m for m in result.run.rows("matches")}
    assert {r["match_id"] for r in rows} == set(matches)
    assert all(m["ranks_present"] == m["ranks_expected"] for m in matches.values())
    for r in rows:
        assert (r["wait_ns"] is None) == (r["wait_reason"] is not None)
        if r["wait_ns"] is not None:
            assert r["wait_ns"] >= 0
            assert r["wait_ns"] + r["transfer_ns"] == r["dur_ns"]


def test_attributed_time_is_split_exactly(result: Result) -> None:
    for table in ("exposure", "by_strategy"):
        rows = [r for r in result.run.tables[table] if r["wait_ns"] is not None]
        assert rows
        for r in rows:
            assert sum(r[p] for p in PARTS) == r["attributed_ns"]
            assert 0 <= r["wait_ns"] + r["transfer_ns"] <= r["total_ns"]


def test_the_slow_rank_of_the_sample_is_waited_for(result: Result) -> None:
    """Rank 5 computes slower than the others (truth.json): messages wait for it and its tensor-parallel partner."""
    (slow,) = map(int, json.loads((SAMPLE / "truth.json").read_text("utf-8"))["slow_ranks"])
    late = {r["late_rank"] for r in result.run.tables["waiting"] if r["late_rank"] is not None and r["wait_ns"]}
    assert slow in late
    compute = [r for r in result.run.tables["imbalance"] if r["kind"] == "compute" and r["group_id"] is None]
    assert {r["max_rank"] for r in compute} == {slow}


def test_one_host_has_one_clock(result: Result) -> None:
    clocks = result.run.tables["clocks"]
    assert [c["rank"] for c in clocks] == list(range(8))
    assert all(abs(c["offset_ns"]) <= c["error_ns"] + 1000 for c in clocks)


def test_the_document_and_the_report_show_it(result: Result) -> None:
    for key in ("matches", "waiting", "clocks", "imbalance"):
        assert result.document[key] == result.run.rows(key)
        assert result.document[key]
    for text in (result.to_text(), result.to_markdown()):
        assert "waiting for other ranks by strategy" in text
        assert "clocks: 8 of 8 ranks aligned" in text


def test_the_order_of_the_files_changes_nothing(tmp_path: Path) -> None:
    names = [3, 0, 2, 1]
    for number, rank in enumerate(names):
        shutil.copy(SAMPLE / f"rank{rank}.json.gz", tmp_path / f"file{number}.json.gz")
    a = tracekit.analyze([SAMPLE / f"rank{r}.json.gz" for r in range(4)], detail=False, workers=1)
    b = tracekit.analyze(tmp_path, detail=False, workers=1)
    for table in ("matches", "waiting", "clocks", "imbalance"):
        assert a.run.rows(table) == b.run.rows(table)


def test_missing_ranks_leave_matches_and_take_the_split(result: Result) -> None:
    some = tracekit.analyze([SAMPLE / f"rank{r}.json.gz" for r in (0, 1, 2)], detail=False, workers=1)
    rows = some.run.rows("matches")
    assert {m["ranks_present"] == m["ranks_expected"] for m in rows} == {True, False}
    for m in rows:
        assert (m["wait_ns"] is None) == (m["ranks_present"] < m["ranks_expected"])
        if m["wait_ns"] is None:
            assert m["reason"] == "ranks-missing"


def test_one_rank_alone_says_so(tmp_path: Path) -> None:
    one = tracekit.analyze(SAMPLE / "rank0.json.gz")
    assert not any(one.run.rows(t) for t in ("matches", "waiting", "clocks", "imbalance"))
    rows = one.arrow("collectives").to_pylist()
    assert {r["match"] for r in rows} == {"one-rank"}
    assert all(r["wait_ns"] is None for r in rows)
    assert all(r["wait_ns"] is None for r in one.run.tables["exposure"])
    one.write(tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "matches").num_rows == 0


def test_the_dataset_holds_what_matching_adds(result: Result, tmp_path: Path) -> None:
    result.write(tmp_path / "out")
    read = pq.read_table(tmp_path / "out" / "collectives").to_pylist()
    own = result.arrow("collectives").to_pylist()
    columns = ("match_id", "match", "arrival_ns", "wait_ns", "transfer_ns", "wait_reason")
    key = lambda r: (r["rank"], r["id"])  # noqa: E731
    assert [[r[c] for c in columns] for r in sorted(read, key=key)] == [
        [r[c] for c in columns] for r in sorted(own, key=key)
    ]
    assert pq.read_table(tmp_path / "out" / "matches").num_rows == len(result.run.rows("matches"))

"""All tables of one rank."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
from analysis_builder import Act, call, marker, rank
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis import RankTables, analyze_rank
from tracekit.analysis.tables import from_rows
from tracekit.model import CPU_DEVICE, Kind, LabelledRank, TraceMeta, arrow_schema

COMM, COPY, FUSED = Kind.COMM, Kind.COPY, Kind.FUSED

OF_OTHER_RANKS = ("wait_ns", "transfer_ns", "attributed_wait_ns", "attributed_transfer_ns", "attributed_unsplit_ns")


def _one(labelled: LabelledRank, origin: int = 0) -> RankTables:
    return analyze_rank(labelled, origin_ns=origin)


def _codes(tables: RankTables) -> set[str]:
    return {f["code"] for f in tables.findings}


def _message(tables: RankTables, code: str) -> str:
    (found,) = [f["message"] for f in tables.findings if f["code"] == code]
    return str(found)


def _job() -> LabelledRank:
    """Two steps; in each 10 ns of compute, then 6 of dp traffic of which 4 lie under compute."""
    acts = []
    for step, start in ((0, 100), (1, 130)):
        acts += [
            Act(start, start + 10, launch=start - 50),
            Act(start + 6, start + 12, COMM, 2 * step, launch=start - 49, stream=20),
            Act(start + 12, start + 14, COMM, 2 * step + 1, launch=start - 48, stream=21),
            Act(start + 20, start + 24, COPY, launch=start - 47),
        ]
    calls = [call("dp", "grad_reduce", "backward", call_ts=51), call("tp", "activation", "forward", call_ts=52)]
    calls += [call("dp", "grad_reduce", "backward", call_ts=81), call("tp", "activation", "forward", call_ts=82)]
    return rank(acts, calls, [marker(7, 40, 70), marker(8, 70, 100)])


def test_totals_of_a_job() -> None:
    (total,) = _one(_job()).totals
    by_strategy = total.pop("by_strategy")
    assert total == {
        "rank": 3, "device": 0, "window_ns": 54, "busy_ns": 36, "compute_ns": 20, "comm_ns": 16, "hidden_ns": 8,
        "exposed_ns": 8, "overlap_ratio": 0.5, "copy_ns": 8, "fused_ns": 0, "idle_ns": 18, "collectives": 4,
        "slowdown_ratio": None, "slowdown_kernels": 0, "slowdown_runs": 0, "slowdown_ns": None,
        "reason": None,
    }  # fmt: skip
    assert set(by_strategy) == {"dp", "tp"}
    assert by_strategy["dp"] == {
        "count": 2, "total_ns": 12, "hidden_ns": 8, "exposed_ns": 4, "exposed_alone_ns": 4, "attributed_ns": 4,
        **dict.fromkeys(OF_OTHER_RANKS),
    }  # fmt: skip


def test_steps_breakdown_and_exposure_of_a_job() -> None:
    found = _one(_job(), origin=90)
    assert [(s["step"], s["ts_ns"], s["dur_ns"], s["complete"]) for s in found.steps] == [
        (7, 10, 30, False),
        (8, 40, 24, False),
    ]
    head = {"rank": 3, "device": 0}
    assert found.breakdown[0] == head | {
        "step": 7, "window_ns": 30, "compute_only_ns": 6, "overlapped_ns": 4, "fused_ns": 0, "exposed_comm_ns": 4,
        "exposed_copy_ns": 4, "idle_ns": 12,
    }  # fmt: skip
    assert [(e["step"], e["strategy"], e["count"], e["attributed_ns"]) for e in found.exposure] == [
        (7, "dp", 1, 2),
        (7, "tp", 1, 2),
        (8, "dp", 1, 2),
        (8, "tp", 1, 2),
    ]
    assert found.collectives.column("step").to_pylist() == [7, 7, 8, 8]
    assert found.activities.column("step").to_pylist() == [7] * 4 + [8] * 4
    assert found.activities.column("ts_ns").to_pylist()[0] == 10


def test_tables_have_the_published_schemas() -> None:
    found = _one(_job())
    for name in ("activities", "collectives"):
        assert getattr(found, name).schema.equals(arrow_schema(name))
    for name in ("steps", "exposure", "breakdown", "totals", "findings"):
        table = from_rows(name, getattr(found, name))
        table.validate(full=True)
        assert table.num_rows == len(getattr(found, name))


def test_devices_are_apart() -> None:
    acts = [Act(0, 10), Act(5, 20, COMM, 0, device=1), Act(8, 12, device=1)]
    found = _one(rank(acts, [call("dp", device=1)]))
    assert [(t["device"], t["compute_ns"], t["comm_ns"], t["collectives"]) for t in found.totals] == [
        (0, 10, 0, 0),
        (1, 4, 15, 1),
    ]
    assert [t["reason"] for t in found.totals] == ["no-comm", None]
    assert found.totals[1]["hidden_ns"] == 4
    assert {s["device"] for s in found.steps} == {0, 1}


# ------------------------------------------------------------------------- nulls and findings


def test_no_communication_is_null_with_a_reason_and_its_nearest_misses() -> None:
    acts = [Act(0, 10, name="my_allreduce_thing"), Act(10, 12, name="gemm")]
    found = _one(rank(acts))
    (total,) = found.totals
    assert (total["comm_ns"], total["overlap_ratio"], total["reason"]) == (0, None, "no-comm")
    assert "my_allreduce_thing" in _message(found, "no-comm")
    assert "gemm" not in _message(found, "no-comm")


def test_no_device_activity() -> None:
    found = _one(rank([], [call("dp", call_ts=5)]))
    assert found.totals == found.steps == found.breakdown == found.exposure == []
    assert _codes(found) == {"no-device-activity"}
    assert found.activities.num_rows == 0
    assert found.collectives.num_rows == 1


def test_fused_kernels_are_neither_exposed_nor_hidden_nor_missing() -> None:
    acts = [Act(0, 10, FUSED, 0), Act(12, 20), Act(15, 18, FUSED, 1)]
    found = _one(rank(acts, [call("tp"), call("tp")]))
    (total,) = found.totals
    assert (total["fused_ns"], total["comm_ns"], total["exposed_ns"], total["busy_ns"]) == (10, 0, 0, 18)
    assert total["by_strategy"]["tp"]["count"] == total["collectives"] == 2
    assert "no-comm" not in _codes(found)


def test_calls_of_a_host_trace_without_any_time_are_null() -> None:
    acts = [Act(0, 10, device=CPU_DEVICE, launch=0)]
    found = _one(rank(acts, [call("dp", call_ts=3), call("dp", call_ts=6)]))
    (total,) = found.totals
    assert total["reason"] == "comm-not-timed"
    assert [total[c] for c in ("comm_ns", "hidden_ns", "exposed_ns", "overlap_ratio")] == [None] * 4
    assert total["collectives"] == total["by_strategy"]["dp"]["count"] == 2
    assert total["by_strategy"]["dp"]["total_ns"] is None
    (row,) = found.exposure
    assert (row["count"], row["attributed_ns"]) == (2, None)
    assert {"comm-not-timed", "host-trace"} <= _codes(found)
    assert from_rows("exposure", found.exposure).column("total_ns").to_pylist() == [None]


def test_a_device_shows_its_own_work_so_calls_without_kernels_took_none() -> None:
    (total,) = _one(rank([Act(0, 10, launch=0)], [call("dp", call_ts=3)])).totals
    assert (total["comm_ns"], total["reason"], total["collectives"]) == (0, "no-comm", 1)


def test_calls_without_activity_count_in_the_step_of_their_host_call() -> None:
    acts = [Act(10, 20, launch=5), Act(110, 130, COMM, 0, launch=105), Act(310, 320, launch=305)]
    calls = [call("tp", call_ts=104, ts=110), call("pp", call_ts=106), call("pp", call_ts=450)]
    found = _one(rank(acts, calls, [marker(0, 0, 100), marker(1, 100, 200), marker(2, 300, 400)]))
    assert [(e["step"], e["strategy"], e["count"]) for e in found.exposure] == [(1, "pp", 1), (1, "tp", 1)]
    assert found.collectives.column("step").to_pylist() == [1, 1, None]
    assert found.totals[0]["collectives"] == 3
    assert "2 of 3" in _message(found, "calls-without-device-work")


def test_coalesced_calls_count_each_and_time_once() -> None:
    acts = [Act(0, 10, COMM, 0, launch=0)]
    calls = [call("pp", call_ts=0, ts=0), call("pp", call_ts=0, ts=0, coalesced_into=0)]
    found = _one(rank(acts, calls))
    strategy = found.totals[0]["by_strategy"]["pp"]
    assert (strategy["count"], strategy["total_ns"], strategy["attributed_ns"]) == (2, 10, 10)
    assert found.collectives.column("step").to_pylist() == [0, 0]


def test_a_call_with_kernels_on_two_devices_counts_on_each() -> None:
    acts = [Act(0, 10, COMM, 0), Act(0, 12, COMM, 0, device=1)]
    found = _one(rank(acts, [call("tp", device=0, ts=0)]))
    assert [t["comm_ns"] for t in found.totals] == [10, 12]


def test_one_endless_activity_is_reported() -> None:
    acts = [Act(0, 10**6), Act(2 * 10**6, 60 * 10**9, name="stuck"), Act(5, 90 * 10**9, COPY)]
    assert "stuck" in _message(_one(rank(acts)), "duration-outlier")


def test_thin_and_blown_up_steps_are_reported() -> None:
    acts, markers = [], []
    for step in range(5):
        start = 10_000 * step
        markers.append(marker(step, start, start + 10_000))
        n = 1 if step == 3 else 40
        acts += [Act(start + 100 + 10 * i, start + 108 + 10 * i, launch=start + 50) for i in range(n)]
    acts.append(Act(40_600, 400_000, launch=40_060, name="huge"))
    found = _one(rank(acts, markers=markers))
    assert "3 (1)" in _message(found, "step-thin")
    assert "step 4" in _message(found, "step-outlier")
    assert "huge" in _message(found, "step-outlier")


def test_steps_of_no_length_have_no_usual_one() -> None:
    acts = [Act(0, 0, device=1), Act(1, 1, launch=0), Act(1, 2, launch=1)]
    found = _one(rank(acts, markers=[marker(0, 0, 1), marker(1, 1, 2)]))
    assert 0 in [s["dur_ns"] for s in found.steps]
    assert "step-outlier" not in {f["code"] for f in found.findings}


def test_time_outside_the_steps_is_reported() -> None:
    acts = [Act(0, 10, launch=0), Act(200, 210, launch=150), Act(310, 320, launch=250), Act(900, 910, launch=890)]
    found = _one(rank(acts, markers=[marker(1, 100, 200), marker(2, 200, 300)]))
    assert "2 of 4 activities" in _message(found, "outside-steps")
    assert found.activities.column("step").to_pylist() == [None, 1, 2, None]


def test_repeated_step_numbers_are_reported() -> None:
    acts = [Act(10, 20, launch=5), Act(210, 220, launch=205)]
    found = _one(rank(acts, markers=[marker(1, 0, 100), marker(1, 200, 300)]))
    assert [s["step"] for s in found.steps] == [1, 2]
    assert _message(found, "step-renumbered").startswith("1 ")


@pytest.mark.parametrize(("base", "first", "expected"), [(10**18, 5, True), (None, 5, False), (None, 2 * 10**18, True)])
def test_absolute_times_only_on_a_known_clock(base: int | None, first: int, expected: bool) -> None:
    labelled = rank([Act(first, first + 1)], meta=TraceMeta("a.json", base_ns=base))
    (value,) = _one(labelled).activities.column("ts").cast("int64").to_pylist()
    assert value == (first if expected else None)


# ------------------------------------------------------------------------------ invariants


@st.composite
def _jobs(draw: st.DrawFn) -> LabelledRank:
    n_calls = draw(st.integers(0, 4))
    calls = [
        call(draw(st.sampled_from(["tp", "dp", "unknown"])), call_ts=draw(st.integers(0, 99))) for _ in range(n_calls)
    ]
    acts = []
    for _ in range(draw(st.integers(1, 14))):
        start, kind = draw(st.integers(0, 150)), draw(st.sampled_from(list(Kind)))
        tied = kind in (COMM, FUSED) and n_calls
        acts.append(
            Act(
                start, start + draw(st.integers(0, 25)), kind, draw(st.integers(0, n_calls - 1)) if tied else -1,
                launch=draw(st.none() | st.integers(0, start)), device=draw(st.integers(0, 1)),
            )
        )  # fmt: skip
    edges = draw(st.lists(st.integers(0, 120), min_size=2, max_size=5, unique=True).map(sorted))
    markers = [marker(i, a, b) for i, (a, b) in enumerate(itertools.pairwise(edges))]
    return rank(acts, calls, markers if draw(st.booleans()) else [])


def _sum(rows: list[dict[str, Any]], column: str, **where: object) -> int:
    return sum(r[column] or 0 for r in rows if all(r[k] == v for k, v in where.items()))


@given(_jobs())
def test_tables_agree_with_each_other(labelled: LabelledRank) -> None:
    found = _one(labelled)
    split = ("compute_only_ns", "overlapped_ns", "fused_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    for b, s in zip(found.breakdown, found.steps, strict=True):
        where = {"device": b["device"], "step": b["step"]}
        assert sum(b[c] for c in split) == b["window_ns"] == s["dur_ns"]
        assert _sum(found.exposure, "attributed_ns", **where) == b["exposed_comm_ns"]
    for t in found.totals:
        rows = list(t["by_strategy"].values())
        assert t["hidden_ns"] + t["exposed_ns"] == t["comm_ns"]
        assert t["busy_ns"] + t["idle_ns"] == t["window_ns"]
        assert t["compute_ns"] + t["exposed_ns"] + t["fused_ns"] + t["copy_ns"] == t["busy_ns"]
        assert sum(r["attributed_ns"] for r in rows) == t["exposed_ns"] <= sum(r["exposed_ns"] for r in rows)
        assert _sum(found.breakdown, "window_ns", device=t["device"]) <= t["window_ns"]
        assert _sum(found.exposure, "attributed_ns", device=t["device"]) <= t["exposed_ns"]
    assert _sum(found.exposure, "count") <= sum(t["collectives"] for t in found.totals)


@given(_jobs())
def test_without_markers_the_window_is_the_recording(labelled: LabelledRank) -> None:
    labelled.markers = []
    found = _one(labelled)
    for t, b in zip(found.totals, found.breakdown, strict=True):
        assert b["window_ns"] == t["window_ns"]
        assert b["exposed_comm_ns"] == t["exposed_ns"]
        assert b["overlapped_ns"] == t["hidden_ns"]


def test_main_path_leaves_pandas_alone() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests/analysis'); import test_analysis_rank as t;"
        "before = 'pandas' in sys.modules; t._one(t._job());"
        "assert not before and 'pandas' not in sys.modules, 'pandas was imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=_root(), check=False)
    assert done.returncode == 0, done.stderr


def _root() -> str:
    from pathlib import Path

    return str(Path(__file__).resolve().parents[2])

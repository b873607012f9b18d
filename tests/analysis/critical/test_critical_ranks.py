"""Two ranks and an all-reduce: who was late is on the path, whatever the clocks and the numbers of ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tracekit.analysis.critical.compress import rank_graph
from tracekit.analysis.critical.joint import RankInput
from tracekit.analysis.critical.run import CriticalTables, critical
from tracekit.analysis.crossrank.clocks import Clock
from tracekit.analysis.tables import from_rows, to_rows
from tracekit.model import NO_TIME, Kind

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from analysis_builder import Act, call, rank

US = 1_000
DONE, END = 190, 250


def recording(
    number: int, busy_until: int, *, op: str = "all_reduce", moved_ns: int = 0, done: int = DONE
) -> RankInput:
    """A kernel until `busy_until` µs, the call until `done`, a kernel until END; its clock is `moved_ns` ahead."""
    acts = [
        Act(10 * US, busy_until * US, launch=1 * US),
        Act((busy_until + 1) * US, done * US, launch=2 * US, kind=Kind.COMM, call=0, stream=20),
        Act((done + 1) * US, END * US, launch=3 * US),
    ]
    calls = [
        call("dp", op=op, ts=(busy_until + 1) * US, dur=(done - busy_until - 1) * US, device=0, stream=20,
             call_ts=2 * US, n_activities=1)
    ]  # fmt: skip
    step = {"step": 5, "ts_ns": 10 * US, "dur_ns": (END - 10) * US, "complete": True, "device": 0}
    graph = rank_graph(rank(acts, calls, number=number), [step], 0)
    assert graph is not None
    clock = Clock("reference", -moved_ns, 0, component=0)
    return RankInput(number, graph, moved_ns, clock, np.array([0]), [None])


def tables(*inputs: RankInput, **match: Any) -> CriticalTables:
    row = {"kind": "collective", "reason": None, "src_rank": None} | match
    return critical(inputs, from_rows("matches", [row]), world=len(inputs))


def brief(found: CriticalTables) -> list[tuple[int, str, int, int]]:
    return [(p["rank"], p["kind"], p["ts_ns"] // US, p["dur_ns"] // US) for p in to_rows(found.path)]


def test_the_late_rank_is_on_the_path_and_waiting_is_not() -> None:
    found = tables(recording(0, 40), recording(1, 150))
    segments = brief(found)
    assert segments[0] == (1, "compute", 10, 140)
    assert segments[1] == (1, "launch", 150, 1)
    assert [s[1:] for s in segments[2:]] == [("comm", 151, 39), ("compute", 190, 60)]
    (step,) = found.steps
    assert (step["comm_ns"], step["wait_ns"], step["unsplit_ns"]) == (39 * US, 0, 0)
    assert (step["replay_error_ratio"], step["reason"]) == (0, None)


def test_without_the_late_rank_the_step_is_that_of_the_other() -> None:
    found = tables(recording(0, 40), recording(1, 150))
    (row,) = (w for w in found.what_if if w["what"] == "no-straggler")
    assert row["subject"] == "rank 1"
    assert row["saved_ns"] == 110 * US
    (finding,) = found.findings
    assert (finding["code"], finding["rank"], finding["cost_ns"]) == ("straggler-on-path", 1, 110 * US)
    assert tables(recording(0, 149), recording(1, 150)).findings == []


@pytest.mark.parametrize("ahead", [0, 3_000_000, -4_999_999])
def test_a_clock_ahead_changes_nothing(ahead: int) -> None:
    moved, straight = (
        tables(recording(0, 40), recording(1, 150, moved_ns=ahead)),
        tables(recording(0, 40), recording(1, 150)),
    )
    assert (moved.path, moved.shares, moved.what_if) == (straight.path, straight.shares, straight.what_if)


def test_other_numbers_of_ranks_change_the_numbers_only() -> None:
    named, straight = tables(recording(3, 40), recording(9, 150)), tables(recording(0, 40), recording(1, 150))
    new = {0: 3, 1: 9}
    assert brief(named) == [(new[r], *rest) for r, *rest in brief(straight)]


def test_an_order_of_recordings_changes_nothing() -> None:
    a, b = recording(0, 40), recording(1, 150)
    assert [w["what_if_ns"] for w in tables(a, b).what_if] == [w["what_if_ns"] for w in tables(b, a).what_if]
    assert [s[1:] for s in brief(tables(a, b))] == [s[1:] for s in brief(tables(b, a))]


def test_a_call_that_cannot_be_split_stays_whole_with_its_reason() -> None:
    a, b = (replace_why(one, "not-synchronising") for one in (recording(0, 40), recording(1, 150)))
    found = tables(a, b, reason="not-synchronising")
    assert {p["reason"] for p in to_rows(found.path) if p["kind"] == "unsplit"} == {"not-synchronising"}
    assert {w["reason"] for w in found.what_if if w["what"] == "perfect-overlap"} == {"unsplit"}


def replace_why(one: RankInput, why: str) -> RankInput:
    return replace(one, why=[why])


def test_a_message_waits_for_its_sender_and_no_buffered_send_for_the_receiver() -> None:
    receiver = recording(0, 40, op="recv")
    sender = recording(1, 150, op="send")
    found = tables(receiver, sender, kind="p2p", src_rank=1)
    assert (1, "compute", 10, 140) in brief(found)
    early = recording(1, 20, op="send", done=30)  # gone before the receiver came
    found = tables(recording(0, 150, op="recv"), replace_why(early, "eager-send"), kind="p2p", src_rank=1)
    assert (0, "compute", 10, 140) in brief(found)


def test_clocks_that_contradict_the_call_show_in_the_replay_and_forbid_what_if() -> None:
    """Rank 1 seems to come 60 µs after the call was over on rank 0."""
    late = recording(1, 150)
    found = tables(recording(0, 40), RankInput(1, late.graph, 100 * US, late.clock, late.match, late.why))
    (step,) = found.steps
    assert step["replay_error_ratio"] > 0.05
    assert {w["reason"] for w in found.what_if} == {"replay-error"}
    assert sum(p["dur_ns"] for p in to_rows(found.path)) == step["dur_ns"]


def test_a_rank_without_a_common_clock_is_left_out() -> None:
    lost = recording(1, 150)
    lost.clock = Clock("infeasible", component=0)
    found = tables(recording(0, 40), recording(2, 60), lost)
    (step,) = found.steps
    assert (step["ranks"], step["reason"]) == (2, "clock")
    assert "critical-path-clock" in {f["code"] for f in found.findings}


def test_recordings_without_any_common_clock_have_no_path_but_a_finding() -> None:
    pair = [recording(0, 40), recording(1, 150)]
    for one in pair:
        one.clock = Clock("not-connected")
    found = tables(*pair)
    assert (found.path.num_rows, found.steps, found.what_if) == (0, [], [])
    assert [f["code"] for f in found.findings] == ["critical-path-clock"]


def test_a_job_with_ranks_missing_says_so() -> None:
    row = {"kind": "collective", "reason": "ranks-missing", "src_rank": None}
    one = [replace_why(recording(n, 40 + 20 * n), "ranks-missing") for n in range(2)]
    (step,) = critical(one, from_rows("matches", [row]), world=8).steps
    assert step["reason"] == "ranks-missing"
    assert step["comm_ns"] == 0


def test_the_theory_speed_of_a_call() -> None:
    pair = [recording(0, 150), recording(1, 150)]
    for one in pair:
        one.expected = np.array([9 * US])
    found = tables(*pair)
    rows = [w for w in found.what_if if w["what"] == "theory-speed"]
    assert [(w["subject"], w["saved_ns"]) for w in rows] == [(None, 30 * US), ("dp all_reduce", 30 * US)]
    for one in pair:
        one.expected = np.array([NO_TIME])
    rows = [w for w in tables(*pair).what_if if w["what"] == "theory-speed"]
    assert {(w["what_if_ns"], w["reason"]) for w in rows} == {(None, "no-expectation")}

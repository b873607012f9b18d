"""Recorded pipelines: every action and message of the order that torch ran, and times that were set by sleeps."""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections import defaultdict
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import tracekit as tk

if TYPE_CHECKING:
    from pathlib import Path

SCHEDULES = {
    "ScheduleGPipe": "GPipe",
    "Schedule1F1B": "1F1B",
    "ScheduleLoopedBFS": "LoopedBFS",
    "ScheduleInterleaved1F1B": "Interleaved1F1B",
    "ScheduleZBVZeroBubble": "ZBVZeroBubble",
}
TIMED = ("pptime_gpipe4", "pptime_1f1b4", "pptime_loopedbfs4", "pptime_interleaved4", "pptime_zbv4", "rec_pp_1f1b4")
ORDERED = (
    *TIMED, "pp_gpipe2", "pp_1f1b2", "pp_1f1b4", "pp_ddp4", "pp_bfs2", "pp_interleaved2", "pp_zbv2", "fr_pp_1f1b2",
    "stack_pp_1f1b2", "tkgloo_pp_1f1b2", "tkgloo_pp_ddp4", "tkgloo_pp_interleaved2", "tkgloo_pp_zbv2",
)  # fmt: skip
CAUSES = ("schedule", "order", "imbalance", "straggler", "p2p", "comm", "launch", "unexplained")


@cache
def tables(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Tables of a recording; `pp_ddp4` is gloo without names of groups, so its layout is declared."""
    layout = "dp=2,pp=2,order=dp-pp" if folder.name in ("pp_ddp4",) else None
    run = tk.analyze(folder, detail=False, workers=1, layout=layout).run
    return run.tables | {"pipeline": run.rows("pipeline")}


def truth_of(folder: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    return truth


def true_order(truth: dict[str, Any], place: int) -> list[str]:
    """Computations of one pipeline rank; torch prints the forwards of the last 1F1B rank one too high."""
    order = [a for a in truth["pipeline_order"][str(place)] if a and re.fullmatch(r"\d+[FBIW]\d+", a)]
    if truth["schedule_name"] == "Schedule1F1B" and place == truth["n_stages"] - 1:
        order = [re.sub(r"F(\d+)", lambda m: f"F{int(m[1]) - 1}", a) for a in order]
    return order


def true_messages(truth: dict[str, Any], place: int) -> set[tuple[str, str, int, int]]:
    """(send or recv, what, own stage, micro-batch) that the computations of a rank bring with them."""
    home = {stage: rank for rank, stages in enumerate(truth["stage_ids_by_pp_rank"]) for stage in stages}
    out = set()
    for action in true_order(truth, place):
        match = re.fullmatch(r"(\d+)([FBIW])(\d+)", action)
        assert match
        stage, kind, mb = int(match[1]), match[2], int(match[3])
        if kind == "W":
            continue
        what, source, target = ("activation", -1, 1) if kind == "F" else ("gradient", 1, -1)
        if home.get(stage + source, place) != place:
            out.add(("recv", what, stage, mb))
        if home.get(stage + target, place) != place:
            out.add(("send", what, stage, mb))
    return out


@pytest.mark.parametrize("case", ORDERED)
def test_every_action_and_message_is_found_in_order(shared: Path, case: str) -> None:
    folder = shared / "recordings" / case
    truth, found = truth_of(folder), tables(folder)
    rows = defaultdict(list)
    for row in found["pipeline"]:
        rows[row["rank"], row["step"]].append(row)
    place = {b["rank"]: b["position"] for b in found["bubble"]}
    assert len(rows) == truth["schedule"]["active"] * truth["world"]
    for (rank, _), mine in rows.items():
        work = [r for r in mine if r["op"] in "FBIW"]
        assert [f"{r['stage']}{r['op']}{r['micro_batch']}" for r in work] == true_order(truth, place[rank])
        assert all(a["ts_ns"] <= b["ts_ns"] for a, b in pairwise(work))
        messages = [r for r in mine if r["op"] in ("send", "recv")]
        told = [(r["op"], r["carries"], r["stage"], r["micro_batch"]) for r in messages]
        assert len(told) == len(set(told))
        assert set(told) == true_messages(truth, place[rank])
        stages = truth["stage_ids_by_pp_rank"][place[rank]]
        assert all(r["chunk"] == stages.index(r["stage"]) for r in mine)


@pytest.mark.parametrize("case", ORDERED)
def test_the_schedule_is_recognised(shared: Path, case: str) -> None:
    folder = shared / "recordings" / case
    truth = truth_of(folder)
    for row in tables(folder)["bubble"]:
        assert row["reason"] is None
        assert row["schedule"] == SCHEDULES[truth["schedule_name"]]
        assert (row["stages"], row["micro_batches"]) == (truth["n_stages"], truth["micro_batches"])
        assert (row["deviations"], row["deviation"], row["order_ns"]) == (0, None, 0)


@pytest.mark.parametrize("case", ORDERED)
def test_the_bubble_adds_up(shared: Path, case: str) -> None:
    windows = defaultdict(set)
    for row in tables(shared / "recordings" / case)["bubble"]:
        assert row["window_ns"] - row["busy_ns"] == row["bubble_ns"]
        assert row["warmup_ns"] + row["steady_ns"] + row["drain_ns"] == row["bubble_ns"]
        assert sum(row[f"{c}_ns"] for c in CAUSES) == row["bubble_ns"]
        assert min(row["warmup_ns"], row["steady_ns"], row["drain_ns"], row["held_ns"]) >= 0
        assert row["compute_ns"] <= row["busy_ns"] <= row["window_ns"]
        assert row["simulated_ns"] <= row["window_ns"]
        windows[row["pipeline"], row["step"]].add(row["window_ns"])
    assert all(len(w) == 1 for w in windows.values())


@pytest.mark.parametrize("case", TIMED)
def test_compute_is_what_the_sleeps_were(shared: Path, case: str) -> None:
    """Sleeps overrun on a loaded machine, most of all single ones: means over ranks and steps, medians of actions."""
    folder = shared / "recordings" / case
    truth, found = truth_of(folder), tables(folder)
    part = {"F": truth["forward_ms"], "I": truth["backward_input_ms"], "W": truth["backward_weight_ms"]}
    part["B"] = part["I"] + part["W"]
    whole = truth["micro_batches"] * truth["stages_per_rank"] * (part["F"] + part["B"]) * 1e6
    assert statistics.fmean(b["compute_ns"] for b in found["bubble"]) == pytest.approx(whole, rel=0.08)
    times = defaultdict(list)
    for row in found["pipeline"]:
        if row["op"] in "FB" or (row["op"] in "IW" and row["stage"] > 0):  # the first stage has no input gradient
            times[row["op"]].append(row["compute_ns"])
    for op, values in times.items():
        assert statistics.median(values) == pytest.approx(part[op] * 1e6, rel=0.08)


@pytest.mark.parametrize("case", TIMED)
def test_compute_equals_the_operators_that_slept(shared: Path, case: str) -> None:
    """Against the files themselves: at least the operators that sleep, and little more (loss, scaling, bookkeeping)."""
    folder = shared / "recordings" / case
    found = {(b["rank"], b["step"]): b["compute_ns"] for b in tables(folder)["bubble"]}
    for path in sorted(folder.glob("rank*.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
        rank = document["distributedInfo"]["rank"]
        for mark in (e for e in events if e["name"].startswith("ProfilerStep#")):
            slept = sum(
                e["dur"] for e in events
                if e["name"] in ("Fwd", "FwdBackward", "WgtBackward") and 0 <= e["ts"] - mark["ts"] < mark["dur"]
            )  # fmt: skip
            compute = found[rank, int(mark["name"].split("#")[1])] / 1e3
            assert slept <= compute <= 1.08 * slept


def test_schedules_idle_in_the_right_order(shared: Path) -> None:
    idle = [
        statistics.fmean(b["bubble_over_step_ratio"] for b in tables(shared / "recordings" / case)["bubble"])
        for case in ("pptime_gpipe4", "pptime_1f1b4", "pptime_loopedbfs4", "pptime_interleaved4", "pptime_zbv4")
    ]
    assert idle == sorted(idle, reverse=True)


@pytest.mark.parametrize("case", TIMED)
def test_the_schedule_part_is_the_formula(shared: Path, case: str) -> None:
    """With the mean times of stages, whose sum a rank has: (p-1)(F+B)/v, within the rounding of means."""
    for row in tables(shared / "recordings" / case)["bubble"]:
        if row["schedule"] != "ZBVZeroBubble":
            assert row["schedule_ns"] == pytest.approx(row["closed_form_ns"], abs=1000)
        else:
            assert row["closed_form_ns"] is None  # none holds for unequal halves

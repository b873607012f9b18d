"""Pipelines without the annotations that name their actions: what the work between messages tells of the order."""

from __future__ import annotations

import gzip
import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.commands import cli

if TYPE_CHECKING:
    from pathlib import Path

NAMED = re.compile(r"PP:.*|(Forward|Backward) \d+|(forward|backward)_step")
EDGES = 50_000
"""The simulator counts an action from its launch latency and input copy on, which are no compute: ns a step."""


def unannotated(source: Path, target: Path) -> Path:
    """A copy of a folder of traces without rows that name pipeline work, nor what a recorder wrote of the job."""
    target.mkdir()
    for path in source.glob("rank*.json*"):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt") as file:
            document = json.load(file)
        document.pop("tracekit", None)
        rows = document["traceEvents"]
        kept = [e for e in rows if "user_annotation" not in str(e.get("cat")) or not NAMED.fullmatch(e["name"])]
        document["traceEvents"] = kept
        with opened(target / path.name, "wt") as file:
            json.dump(document, file)
    return target


def tables(folder: Path) -> dict[str, list[dict[str, Any]]]:
    run = tk.analyze(folder, detail=False, workers=1).run
    return run.tables | {"pipeline": run.rows("pipeline")}


@pytest.mark.parametrize(
    ("case", "schedule"),
    [("pptime_gpipe4", "GPipe"), ("pptime_interleaved4", "Interleaved1F1B"), ("pptime_loopedbfs4", "LoopedBFS"),
     ("pp_gpipe2", "GPipe"), ("pp_bfs2", "LoopedBFS"), ("pp_interleaved2", "Interleaved1F1B"),
     ("tkgloo_pp_interleaved2", "Interleaved1F1B")],
)  # fmt: skip
def test_the_order_of_recordings_is_found_without_names(shared: Path, tmp_path: Path, case: str, schedule: str) -> None:
    """Micro-batches of backwards are numbered as the schedule does: GPipe's could run in another order."""
    truth = json.loads((shared / "recordings" / case / "truth.json").read_text())
    found = tables(unannotated(shared / "recordings" / case, tmp_path / case))
    for row in found["bubble"]:
        assert (row["schedule"], row["reason"]) == (schedule, None)
        assert (row["stages"], row["micro_batches"]) == (truth["n_stages"], truth["micro_batches"])
    place = {b["rank"]: b["position"] for b in found["bubble"]}
    for rank, step in {(r["rank"], r["step"]) for r in found["pipeline"]}:
        work = [r for r in found["pipeline"] if (r["rank"], r["step"]) == (rank, step) and r["op"] in "FBIW"]
        true = [a for a in truth["pipeline_order"][str(place[rank])] if a and re.fullmatch(r"\d+[FBIW]\d+", a)]
        assert [f"{r['stage']}{r['op']}{r['micro_batch']}" for r in work] == true
        assert all(a["ts_ns"] <= b["ts_ns"] for a, b in pairwise(work))


@pytest.mark.parametrize("case", ["pptime_gpipe4", "pptime_interleaved4", "pptime_loopedbfs4", "pptime_zbv4"])
def test_the_bubble_is_that_of_the_names(shared: Path, tmp_path: Path, case: str) -> None:
    """Sleeps are the work: within the Python around them the bubble is the same, whether actions have names or not."""
    named = {(b["rank"], b["step"]): b for b in tables(shared / "recordings" / case)["bubble"]}
    for row in tables(unannotated(shared / "recordings" / case, tmp_path / case))["bubble"]:
        true = named[row["rank"], row["step"]]
        assert row["schedule"] == true["schedule"]
        assert row["bubble_over_step_ratio"] == pytest.approx(true["bubble_over_step_ratio"], abs=0.03)
        assert row["compute_ns"] == pytest.approx(true["compute_ns"], rel=0.03)


def simulated(folder: Path, *options: str) -> tuple[dict[str, Any], dict[str, Any]]:
    made = CliRunner().invoke(cli, ["simulate", "--steps", "1", *options, "-o", str(folder)], catch_exceptions=False)
    assert made.exit_code == 0, made.output
    truth = json.loads((folder / "truth.json").read_text())
    return tables(unannotated(folder, folder.parent / "bare")), truth


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize(
    ("schedule", "more"),
    [("GPipe", ()), ("1F1B", ()), ("1F1B", ("--batched",)), ("Interleaved1F1B", ("--virtual", "2")),
     ("LoopedBFS", ("--virtual", "2")), ("InterleavedZeroBubble", ("--virtual", "2")), ("ZB-H1", ()), ("ZB-H2", ()),
     ("ZBVZeroBubble", ())],
)  # fmt: skip
def test_schedule_and_bubble_of_a_simulated_job(tmp_path: Path, pp: int, schedule: str, more: tuple[str, ...]) -> None:
    found, truth = simulated(
        tmp_path / "made", "--layout", f"tp=1,pp={pp},dp=1,order=tp-dp-pp", "--layers", str(2 * pp), "--micro-batches",
        str(2 * pp), "--schedule", schedule, "--framework", "megatron", *more,
    )  # fmt: skip
    assert len(found["bubble"]) == pp
    for row in found["bubble"]:
        assert schedule in row["schedule"].split("|")
        assert row["schedule"] in (schedule, "InterleavedZeroBubble|ZB-H1")  # one order under two names
        assert (row["reason"], row["micro_batches"]) == (None, 2 * pp)
        if "--batched" not in more:  # the truth counts waiting in its exchanges otherwise
            true = truth["ranks"][str(row["rank"])]["steps"]["0"]["pipeline"]
            assert all(row[name] == pytest.approx(ns, abs=EDGES) for name, ns in true.items())


@pytest.mark.parametrize(
    ("schedule", "pp", "more"),
    [("1F1B", 2, ()), ("GPipe", 2, ()), ("1F1B", 4, ()), ("Interleaved1F1B", 2, ("--virtual", "2")),
     ("Interleaved1F1B", 4, ("--virtual", "2")), ("LoopedBFS", 4, ("--virtual", "2"))],
)  # fmt: skip
@pytest.mark.parametrize("rounds", [1, 2])
def test_stages_of_a_torch_job_on_the_group_of_all(
    tmp_path: Path, schedule: str, pp: int, more: tuple[str, ...], rounds: int
) -> None:
    """Its messages are on `default_pg`: a rank that answers one with one looks like a ring, but its peer does not."""
    found, truth = simulated(
        tmp_path / "made", "--layout", f"tp=1,pp={pp},dp=1,order=tp-dp-pp", "--layers", str(2 * pp), "--micro-batches",
        str(rounds * pp), "--schedule", schedule, "--framework", "torch", *more,
    )  # fmt: skip
    assert len(found["bubble"]) == pp
    for row in found["bubble"]:
        assert schedule in row["schedule"].split("|")
        assert (row["reason"], row["micro_batches"]) == (None, rounds * pp)
        true = truth["ranks"][str(row["rank"])]["steps"]["0"]["pipeline"]
        assert all(row[name] == pytest.approx(ns, abs=EDGES) for name, ns in true.items())


@pytest.mark.parametrize(("schedule", "pp"), [("DualPipe", 2), ("DualPipe", 4), ("DualPipeV", 2), ("DualPipeV", 4)])
def test_pairs_that_run_as_one_are_told_by_their_turns(tmp_path: Path, schedule: str, pp: int) -> None:
    """Forward and backward of a pair launch in turn. Between their kernels a device idles, which truth counts in."""
    found, truth = simulated(
        tmp_path / "made", "--layout", f"tp=1,pp={pp},dp=1,order=tp-dp-pp", "--layers", str(2 * pp), "--micro-batches",
        str(2 * pp), "--schedule", schedule, "--framework", "megatron",
    )  # fmt: skip
    for row in found["bubble"]:
        assert (row["schedule"], row["micro_batches"]) == (schedule, 2 * pp)
        true = truth["ranks"][str(row["rank"])]["steps"]["0"]["pipeline"]
        assert all(row[name] == pytest.approx(ns, abs=8 * EDGES) for name, ns in true.items())


def test_a_cut_recording_is_no_shorter_job(shared: Path, tmp_path: Path) -> None:
    """The first half of eight micro-batches looks much like four, but for messages that nobody receives."""
    bare = unannotated(shared / "recordings" / "pp_1f1b2", tmp_path / "bare")
    for path in bare.glob("rank*.json.gz"):
        document = json.loads(gzip.decompress(path.read_bytes()))
        spans = [e for e in document["traceEvents"] if e.get("ph") == "X"]
        first = min(e["ts"] for e in spans)
        last = max(e["ts"] + e["dur"] for e in spans if not e["name"].startswith("PyTorch Profiler"))
        cut = first + 0.35 * (last - first)
        document["traceEvents"] = [
            e for e in document["traceEvents"] if e.get("ph") != "X" or e["ts"] + e["dur"] <= cut or e["cat"] == "Trace"
        ]
        path.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    found = tables(bare)["bubble"]
    assert found
    assert {(b["schedule"], b["bubble_ns"], b["reason"]) for b in found} == {(None, None, "incomplete")}

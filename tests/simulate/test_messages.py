"""Messages between stages: asked for in the order in which they are sent, and matched with their true partner."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from simulate_cases import DENSE, job

import tracekit as tk
from tracekit import simulate
from tracekit.simulate.files import BASE_NS
from tracekit.simulate.pipeline import Pipeline
from tracekit.theory.schedules import NAMES, ScheduleError, build

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.simulate import Simulation


def schedules() -> list[Any]:
    """All schedules of two and four ranks for 4, 8 and 9 micro-batches, as far as they are defined."""
    out = []
    for name, p, m in product(NAMES, (2, 4), (4, 8, 9)):
        try:
            v = 2 if name.startswith(("Interleaved", "Looped")) else None
            out.append(pytest.param(build(name, p, m, v), id=f"{name} pp={p} m={m}"))
        except ScheduleError:
            continue
    return out


@pytest.mark.parametrize("schedule", schedules())
def test_the_nth_receive_takes_the_nth_send(schedule: Any) -> None:
    """Of every pair of ranks, as NCCL has it; none is asked for after it is needed, and none twice."""
    pipeline = Pipeline(schedule)
    for source, target in product(range(schedule.ranks), repeat=2):
        sent = [t.key for row in pipeline.sends[source] for t in row if t.target == target]
        asked = [t.key for row in pipeline.posts[target] for t in row if t.source == source]
        assert sent == asked
    for posts, receives in zip(pipeline.posts, pipeline.receives, strict=True):
        when = {t.key: i for i, row in enumerate(posts) for t in row}
        assert all(when[t.key] <= i for i, row in enumerate(receives) for t in row)


CASES = [
    ("ZBVZeroBubble", 2, 4), ("ZBVZeroBubble", 4, 9), ("DualPipeV", 4, 8), ("ZB-H1", 4, 4), ("Interleaved1F1B", 4, 8),
    ("InterleavedZeroBubble", 4, 8), ("1F1B", 2, 4),
]  # fmt: skip


@pytest.mark.parametrize(("schedule", "pp", "micro_batches"), CASES)
def test_every_message_is_matched_with_its_partner(tmp_path: Path, schedule: str, pp: int, micro_batches: int) -> None:
    virtual = {"virtual": 2} if schedule.startswith("Interleaved") else {}
    made = simulate.simulate(
        job(f"pp={pp}", {**DENSE, "layers": 2 * pp}, schedule=schedule, micro_batches=micro_batches, **virtual),
        simulate.Options(steps=1),
    )
    simulate.write(made, tmp_path, level=1)
    assert check_matches(made, tk.analyze(tmp_path, workers=1)) == made.schedule.sends


def check_matches(made: Simulation, result: Any) -> int:
    """Messages of which both ends have one match, which has no other; all are checked."""
    axis = result.run.origin_ns - BASE_NS
    rows = result.arrow("collectives").select(["rank", "ts_ns", "op", "match_id"]).to_pylist()
    assert not [f for f in result.document["findings"] if f["code"].startswith("unmatched")]
    ends: dict[int, list[tuple[int, str]]] = {}
    of: dict[int, int] = {}
    for gpu in made.gpus:
        found = [r for r in rows if r["rank"] == gpu.rank and r["op"] in ("send", "recv")]
        placed = [w for w in gpu.device if any(x.op in ("send", "recv") for x in w.labels)]
        for row, work in zip(found, placed, strict=True):  # both in order of issue
            assert (row["ts_ns"] + axis, row["op"]) == (work.start, work.labels[0].op)
            (meeting,) = work.meetings
            assert of.setdefault(id(meeting), row["match_id"]) == row["match_id"]
            ends.setdefault(row["match_id"], []).append((gpu.rank, row["op"]))
    assert len(of) == len(ends)
    assert all(sorted(op for _, op in pair) == ["recv", "send"] for pair in ends.values())
    return len(ends)

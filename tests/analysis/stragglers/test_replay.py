"""The replay against a plain recursion over random jobs, and what must hold of any replay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_builder import Job, even, from_rows, noisy, simulate, slow, step_times, table, to_rows

from tracekit.analysis.stragglers import NotReplayableError, grid_of
from tracekit.analysis.stragglers.graph import Graph, graph_of
from tracekit.analysis.stragglers.replay import Scenario, Work, measure, replay, timeline

if TYPE_CHECKING:
    from tracekit.analysis.stragglers.optable import OpGrid

JOBS = st.builds(
    Job,
    stages=st.integers(1, 4), dp=st.integers(1, 3), batches=st.integers(4, 6), steps=st.integers(1, 3),
    takes=st.integers(0, 10**6).map(noisy), overlap=st.booleans(),
)  # fmt: skip


def parts(job: Job) -> tuple[OpGrid, Graph, Work]:
    grid = grid_of(table(job))
    graph = graph_of(grid)
    return grid, graph, measure(grid, graph)


def everyone(grid: OpGrid) -> Any:
    return np.ones(grid.ranks.shape, np.bool_)


@settings(deadline=None, max_examples=15)
@given(JOBS)
def test_a_job_without_delays_is_replayed_exactly(job: Job) -> None:
    grid, graph, work = parts(job)
    times = replay(grid, graph, work, [Scenario(everyone(grid))])
    assert times[0].tolist() == step_times(job) == grid.step_ns().tolist()
    assert int(np.abs(work.delay).max()) == 0


@settings(deadline=None, max_examples=15)
@given(JOBS, st.integers(0, 10**6))
def test_with_its_delays_a_job_is_replayed_exactly_and_without_them_as_if_there_were_none(job: Job, seed: int) -> None:
    late = noisy(seed, 0.0, 0.4)
    grid, graph, work = parts(replace(job, delay=late))
    kept, gone = replay(grid, graph, work, [Scenario(everyone(grid), delayed=everyone(grid)), Scenario(everyone(grid))])
    assert kept.tolist() == grid.step_ns().tolist()
    assert gone.tolist() == step_times(job)


@settings(deadline=None, max_examples=15)
@given(JOBS)
def test_work_and_waiting_are_what_the_job_was_made_of(job: Job) -> None:
    grid, _, work = parts(job)
    assert ((work.wait >= 0) & (work.measured >= 0)).all()
    assert (work.wait + work.measured == grid.dur).all()
    spans = simulate(job)
    for i, node in enumerate(grid.nodes):
        if not node.op.endswith(("-send", "-recv")):
            taken = [
                [job.takes((node.op, node.seq, node.stage), k, d) for d in range(job.dp)] for k in range(job.steps)
            ]
            assert work.measured[i].tolist() == taken
            assert grid.start[i, 0, 0] == spans[(node.op, node.seq, node.stage), 0, 0][0]


@settings(deadline=None, max_examples=15)
@given(JOBS)
def test_ideal_durations_are_replayed_as_a_job_that_has_them(job: Job) -> None:
    grid, graph, work = parts(job)
    by_op = {n.op: int(work.ideal[i]) for i, n in enumerate(grid.nodes)}
    ideal = replay(grid, graph, work, [Scenario(~everyone(grid))])[0]
    assert ideal.tolist() == step_times(replace(job, takes=lambda op, _, __: by_op[op[0]]))


@settings(deadline=None, max_examples=15)
@given(JOBS, st.data())
def test_faster_operations_never_make_a_step_longer(job: Job, data: Any) -> None:
    grid, graph, work = parts(job)
    before = replay(grid, graph, work, [Scenario(everyone(grid))])[0]
    share = data.draw(st.floats(0, 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    less = work.measured * np.where(rng.random(work.measured.shape) < share, rng.random(work.measured.shape), 1)
    after = replay(
        grid, graph, msgspec.structs.replace(work, measured=less.astype(np.int64)), [Scenario(everyone(grid))]
    )[0]
    assert (after <= before).all()


def test_scenarios_in_batches_are_those_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, graph, work = parts(Job(takes=noisy(3)))
    rng = np.random.default_rng(5)
    some = [Scenario(rng.random(grid.ranks.shape) < 0.5, rng.random(len(grid.nodes)) < 0.5) for _ in range(7)]
    at_once = replay(grid, graph, work, some)
    monkeypatch.setattr("tracekit.analysis.stragglers.replay.MEMORY_BYTES", 1)
    assert (replay(grid, graph, work, some) == at_once).all()
    assert replay(grid, graph, work, []).shape == (0, 2)


def test_a_timeline_keeps_streams_and_groups() -> None:
    grid, graph, work = parts(Job(stages=3, takes=noisy(8)))
    start, end = timeline(grid, graph, work, Scenario(~everyone(grid)))
    for i, deps in enumerate(graph.deps):
        for d in deps:
            assert (start[i] >= end[d]).all()
    for group in graph.groups:
        assert len({end[m].tobytes() for m in group.members if work.ideal[m] == work.ideal[group.members[0]]}) == 1


@pytest.mark.parametrize("noted", ["crossing", "all", "all but the first recv"])
def test_chunks_of_an_interleaved_pipeline_meet_their_neighbours(noted: str) -> None:
    job = Job(stages=2, dp=2, chunks=2, takes=noisy(4))
    rows = to_rows(table(job))
    if noted != "crossing":
        rows = with_idle_transfers(rows, job, skip_first=noted != "all")
    grid = grid_of(from_rows(rows))
    graph = graph_of(grid)
    times = replay(grid, graph, measure(grid, graph), [Scenario(everyone(grid))])[0]
    assert times.tolist() == step_times(job)
    assert sum(len(g.members) == 2 for g in graph.groups if not g.over_dp) == 2 * 3 * 4 + 1


def with_idle_transfers(rows: list[Any], job: Job, *, skip_first: bool) -> list[Any]:
    """Add transfers of no length where the model begins and ends, as some writers note them."""
    out = []
    spans = {(r[0], r[1], r[3], r[4], r[7]): r for r in rows}
    for (dp, stage, step, name, seq), row in spans.items():
        if not name.endswith("-compute"):
            continue
        way = name.split("-")[0]
        for end in ("send", "recv"):
            chunk = row[10] + (1 if (way == "forward") == (end == "send") else -1)
            if 0 <= chunk < job.stages * job.chunks or (skip_first and (way, end, seq) == ("forward", "recv", 0)):
                continue
            before = spans.get((dp, stage, step, name, seq - 1))
            start = row[5] + row[6] if end == "send" else before[5] + before[6] if before else 0
            out.append((dp, stage, row[2], step, f"{way}-{end}", start, 0, -1, -1, -1, -1))
    return renumbered(rows + out)


def renumbered(rows: list[Any]) -> list[Any]:
    """Numbers of every transfer by its start (that of a real one by its end, where equal)."""
    seen: dict[Any, int] = {}
    out = []
    for r in sorted(rows, key=lambda r: (r[5], r[5] + r[6])):
        if r[4].endswith(("-send", "-recv")):
            key = (r[0], r[1], r[3], r[4])
            seen[key] = seen.get(key, -1) + 1
            r = (*r[:7], seen[key], *r[8:])
        out.append(r)
    return out


def test_transfers_before_the_first_and_after_the_last_compute_move_nothing() -> None:
    job = Job(takes=even)
    rows = to_rows(table(job))
    late = max(r[5] for r in rows)
    ghosts = [(d, 0, d, 100 + k, "forward-recv", late, 0, 0, -1, -1, -1) for d in range(2) for k in range(2)]
    grid = grid_of(from_rows(rows + ghosts))
    graph = graph_of(grid)
    assert replay(grid, graph, measure(grid, graph), [Scenario(everyone(grid))])[0].tolist() == step_times(job)


@pytest.mark.parametrize(
    ("code", "spoil"),
    [
        ("incomplete-grid", lambda r: None if (r[0], r[1]) == (1, 1) else r),
        ("unpaired", lambda r: None if (r[4], r[7]) == ("forward-send", 3) else r),
        ("no-compute", lambda r: None if r[1] == 1 and r[4].endswith("-compute") else r),
        ("irregular", lambda r: None if r[0] == 1 and (r[4], r[7]) == ("forward-send", 3) else r),
        ("empty", lambda r: (*r[:4], "something-else", *r[5:])),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_its_reason(code: str, spoil: Any) -> None:
    rows = [s for r in to_rows(table(Job(takes=even))) if (s := spoil(r)) is not None]
    with pytest.raises(NotReplayableError) as refused:
        graph_of(grid_of(from_rows(rows)))
    assert refused.value.code == code


def test_steps_of_another_shape_or_order_are_dropped_and_counted() -> None:
    rows = to_rows(table(Job(takes=even, steps=5)))
    cut = [r for r in rows if not (r[3] == 101 and r[4] == "optimizer" and r[1] == 0)]
    grid = grid_of(from_rows(cut))
    assert grid.steps.tolist() == [100, 102, 103, 104]
    assert [(d[0][:5], d[2]) for d in grid.dropped] == [("steps", "step 101")]
    swapped = []
    for r in rows:  # in step 103 one worker starts its second forward before its first
        if r[3] == 103 and (r[0], r[1], r[4]) == (0, 0, "forward-compute") and r[7] < 2:
            r = (*r[:5], r[5] + (1 if r[7] == 0 else -(10**9)), *r[6:])
        swapped.append(r)
    grid = grid_of(from_rows(swapped))
    assert grid.steps.tolist() == [100, 101, 102, 104]
    assert "order" in grid.dropped[0][0]


def test_operations_of_unknown_types_are_left_out_and_counted() -> None:
    rows = to_rows(table(Job(takes=even)))
    extra = [(0, 0, 0, 100, "data-load", 0, 5, 0, -1, -1, -1)]
    grid = grid_of(from_rows(rows + extra))
    assert grid.dropped[0][1:] == (1, "data-load")
    assert grid.step_ns().tolist() == grid_of(from_rows(rows)).step_ns().tolist()


def test_a_circle_of_waiting_is_refused() -> None:
    """Transfers in an order no schedule could have: stage 0 sends what stage 1 takes the other way round."""
    job = Job(dp=1, steps=1, takes=slow(0, None, 1.0))
    rows = []
    for r in to_rows(table(job)):
        if r[1] == 1 and r[4] in ("forward-compute", "backward-compute"):
            r = (*r[:9], 3 - r[9], r[10])
        rows.append(r)
    with pytest.raises(NotReplayableError) as refused:
        graph_of(grid_of(from_rows(rows)))
    assert refused.value.code == "cycle"

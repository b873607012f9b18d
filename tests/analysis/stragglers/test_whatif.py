"""The what-if: properties on made jobs, and the published figures of public jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_builder import Job, even, from_rows, noisy, slow, step_times, table, to_rows

from tracekit.analysis.stragglers import analyze_ops, grid_of
from tracekit.analysis.stragglers.graph import graph_of
from tracekit.analysis.stragglers.replay import measure
from tracekit.analysis.stragglers.whatif import forward_backward_correlation, what_if
from tracekit.model import TABLES
from tracekit.parsers.straggler_table import parse

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.analysis.stragglers.whatif import WhatIf
    from tracekit.model import OpRows

SLOW = st.tuples(st.integers(2, 4), st.integers(2, 3), st.floats(1.2, 4)).flatmap(
    lambda t: st.tuples(st.just(t[0]), st.just(t[1]), st.just(t[2]), st.integers(0, t[0] - 1), st.integers(0, t[1] - 1))
)


def ask(ops: OpRows) -> WhatIf:
    grid = grid_of(ops)
    graph = graph_of(grid)
    return what_if(grid, graph, measure(grid, graph))


def rows_of(ops: OpRows, scope: str) -> list[dict[str, Any]]:
    return [r for r in analyze_ops(ops).rows if r["scope"] == scope]


@settings(deadline=None, max_examples=12)
@given(SLOW)
def test_one_slow_worker_is_named_and_without_it_nothing_straggles(case: tuple[int, int, float, int, int]) -> None:
    stages, dp, factor, stage, rank = case
    job = Job(stages=stages, dp=dp, batches=6, takes=slow(stage, rank, factor))
    found = ask(table(job))
    assert found.top == ((stage, rank),)
    assert found.slowdown > 1
    assert (found.ideal <= found.nodelay).all()
    assert found.recovered(found.top_workers) >= 1 - 1e-9  # the ideal still holds a share of the slow worker
    assert found.slowdown_of(found.top_workers) == pytest.approx(found.slowdown, rel=0.1)
    healthy = ask(table(replace(job, takes=even)))
    assert healthy.slowdown == 1.0
    assert found.top_workers.without.tolist() == step_times(replace(job, takes=_fixed(found, job, stage, rank)))


def _fixed(found: WhatIf, job: Job, stage: int, rank: int) -> Any:
    """The job with the slow worker at its ideal durations."""
    grid = grid_of(table(job))
    work = measure(grid, graph_of(grid))
    ideal = {n.op: int(work.ideal[i]) for i, n in enumerate(grid.nodes)}

    def takes(op: Any, step: int, dp: int) -> int:
        return ideal[op[0]] if (op[2], dp) == (stage, rank) else int(job.takes(op, step, dp))

    return takes


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 999), st.integers(2, 1000))
def test_a_slower_clock_changes_no_ratio(seed: int, factor: int) -> None:
    job = Job(takes=noisy(seed), delay=noisy(seed + 1, 0, 0.01))
    one, other = ask(table(job)), ask(from_rows([_scaled(r, factor) for r in to_rows(table(job))]))
    assert other.slowdown == pytest.approx(one.slowdown, rel=1e-6)
    assert other.replay_error == pytest.approx(one.replay_error, rel=1e-6)
    assert other.scores == pytest.approx(one.scores, rel=1e-6)
    assert other.top == one.top


def _scaled(row: tuple[Any, ...], factor: int) -> tuple[Any, ...]:
    return (*row[:5], row[5] * factor, row[6] * factor, *row[7:])


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 999), st.permutations(range(3)), st.integers(0, 99))
def test_names_of_workers_and_order_of_rows_do_not_matter(seed: int, names: list[int], shuffle: int) -> None:
    job = Job(dp=3, takes=noisy(seed))
    one = ask(table(job))
    renamed = ask(from_rows([(names[r[0]], *r[1:]) for r in to_rows(table(job, shuffle=shuffle))]))
    assert renamed.slowdown == one.slowdown
    assert (renamed.scores[:, names] == one.scores).all()
    assert sorted(e.alone.tolist() for e in renamed.dp_ranks) == sorted(e.alone.tolist() for e in one.dp_ranks)


def test_a_slow_last_stage_is_the_last_stages() -> None:
    found = ask(table(Job(stages=4, batches=8, takes=slow(3, None, 2.0))))
    assert found.recovered(found.stages[-1]) > 0.9
    assert found.recovered(found.top_workers) < 0.1  # the other DP rank's last stage is as slow


def test_a_slow_operation_type_is_blamed() -> None:
    def takes(op: Any, step: int, dp: int) -> int:
        return even(op, step, dp) * (5 if (op[0], op[2], dp) == ("optimizer", 0, 1) else 1)

    rows = rows_of(table(Job(takes=takes)), "op_type")
    assert rows[0]["op"] == "optimizer"
    assert all(r["slowdown"] == 1 for r in rows[1:])


def test_launch_delays_are_the_replays_error_and_above_five_per_cent_nothing_is_said() -> None:
    late = ask(table(Job(takes=slow(0, 0, 2.0), delay=lambda op, step, dp: 3_000_000)))
    assert 0 < late.replay_error < 0.05
    ops = table(Job(takes=slow(0, 0, 2.0), delay=lambda op, step, dp: 30_000_000))
    result = analyze_ops(ops)
    job = result.rows[0]
    assert job["replay_error_ratio"] > 0.05
    assert (job["slowdown"], job["waste_ratio"], job["ideal_ns"], job["reason"]) == (None, None, None, "replay-error")
    assert all(r["slowdown"] is None and r["recovered_ratio"] is None for r in result.rows)
    assert "no slowdown is given" in result.findings[0]["message"]


def test_a_slow_input_is_the_launches_of_its_rank() -> None:
    def late(op: Any, step: int, dp: int) -> int:
        return 900_000_000 if (op, dp) == (("forward-compute", 0, 0), 1) else 0

    result = analyze_ops(table(Job(stages=2, dp=3, takes=even, delay=late)))
    job, workers = result.rows[0], [r for r in result.rows if r["scope"] == "worker"]
    without, measured = step_times(Job(stages=2, dp=3, takes=even))[0], job["step_ns"]
    assert job["launch_slowdown"] == pytest.approx(measured / without)
    assert job["reason"] == "replay-error"
    worst = max(workers, key=lambda r: r["launch_slowdown"])
    assert (worst["rank"], worst["launch_slowdown"]) == (1, pytest.approx(measured / without))
    assert [r["launch_slowdown"] for r in workers if r["rank"] != 1] == [1.0] * 5
    assert "launch delays of rank 1 alone" in result.findings[0]["message"]


@pytest.mark.parametrize(("op", "column"), [("compute", "compute_slowdown"), ("send", "communication_slowdown")])
def test_a_worker_slow_in_one_kind_is_slow_in_that_kind(op: str, column: str) -> None:
    def takes(o: Any, step: int, dp: int) -> int:
        hit = (o[2], dp) == (1, 0) and o[0] in (f"forward-{op}", f"backward-{op}")
        return even(o, step, dp) * (1 if not hit else 2 if op == "compute" else 300)

    worst = rows_of(table(Job(stages=3, dp=2, takes=takes)), "worker")[0]
    other = {"compute_slowdown", "communication_slowdown"} - {column}
    if op == "compute":
        assert (worst["stage"], worst["dp_rank"]) == (1, 0)
    assert worst[column] == pytest.approx(worst["slowdown"], rel=0.02)
    assert worst[other.pop()] <= 1 + 1e-6


def test_a_small_slowdown_is_not_shared_out() -> None:
    rows = analyze_ops(table(Job(takes=even))).rows
    assert rows[0]["slowdown"] == 1
    assert rows[0]["waste_ratio"] == 0
    assert {r["reason"] for r in rows if r["scope"] in ("top_workers", "last_stage", "stage", "op_type")} == {
        "no-slowdown"
    }
    assert all(r["recovered_ratio"] is None for r in rows)


def test_one_worker_alone_has_no_stragglers() -> None:
    result = analyze_ops(table(Job(stages=1, dp=1, takes=even)))
    assert result.rows[0]["slowdown"] is None
    assert result.rows[0]["reason"] == "one-worker"


def test_a_table_that_cannot_be_replayed_gives_one_row_with_the_reason() -> None:
    rows = [r for r in to_rows(table(Job(takes=even))) if (r[0], r[1]) != (1, 1)]
    result = analyze_ops(from_rows(rows))
    assert [(r["scope"], r["reason"], r["slowdown"]) for r in result.rows] == [("job", "incomplete-grid", None)]
    assert "3 of 2 × 2 workers" in result.findings[0]["message"]


def test_rows_have_the_columns_of_the_table_and_a_cell_for_each_rank_and_step() -> None:
    ops = table(Job(stages=3, dp=2, steps=3, takes=noisy(1)))
    rows = analyze_ops(ops).rows
    assert {tuple(r) for r in rows} == {tuple(c.name for c in TABLES["stragglers"].columns)}
    cells = [(r["rank"], r["step"]) for r in rows if r["scope"] == "worker_step"]
    assert sorted(cells) == [(rank, 100 + k) for rank in range(6) for k in range(3)]
    assert [r["step"] for r in rows if r["scope"] == "step"] == [100, 101, 102]


def test_persistence_counts_the_steps_a_worker_straggles_in() -> None:
    def takes(op: Any, step: int, dp: int) -> int:
        return int(slow(0, 0, 2.0)(op, step, dp) if step < 3 else even(op, step, dp))

    worst = rows_of(table(Job(steps=4, takes=takes)), "worker")[0]
    assert (worst["rank"], worst["straggling_steps_ratio"]) == (0, 0.75)


def test_waiting_is_that_of_the_group_and_missing_where_it_was_not_recorded() -> None:
    ops = table(Job(dp=2, takes=slow(0, 0, 3.0)))
    scatter = next(r for r in rows_of(ops, "op_type") if r["op"] == "grads-reduce-scatter")
    assert 0.5 < scatter["wait_ratio"] < 1
    compute = next(r for r in rows_of(ops, "op_type") if r["op"] == "forward-compute")
    assert (compute["wait_ns"], compute["total_ns"] > 0) == (None, True)
    grid = grid_of(ops)
    graph = graph_of(grid)
    work = measure(grid, graph)
    waits = {(n.stage, n.op, n.seq): work.wait[i] for i, n in enumerate(grid.nodes)}
    cut = []
    for r in to_rows(ops):
        wait = int(waits[r[1], r[4], r[7]][r[3] - 100, r[0]])
        cut.append((*r[:5], r[5] + wait, r[6] - wait, *r[7:]))
    result = analyze_ops(from_rows(cut))
    assert all(r["wait_ns"] is None for r in result.rows)
    assert any("waiting was taken out" in f["message"] for f in result.findings)
    assert result.rows[0]["slowdown"] == pytest.approx(analyze_ops(ops).rows[0]["slowdown"], rel=1e-9)


def test_uneven_micro_batches_correlate_and_a_slow_worker_does_not() -> None:
    def uneven(op: Any, step: int, dp: int) -> int:
        compute = op[0].endswith("-compute")
        return int(even(op, step, dp) * (1 + (op[1] * 7 + step * 5 + dp * 3) % 4 if compute else 1))

    assert forward_backward_correlation(grid_of(table(Job(takes=uneven)))) == pytest.approx(1)
    random = forward_backward_correlation(grid_of(table(Job(batches=6, steps=3, takes=noisy(2)))))
    assert random is not None
    assert abs(random) < 0.5
    assert forward_backward_correlation(grid_of(table(Job(takes=slow(0, 0, 3.0))))) is None
    message = analyze_ops(table(Job(takes=uneven, steps=3))).findings[0]["message"]
    assert "micro-batches of unequal length" in message


# ------------------------------------------------------------------ published figures
# Jobs AR (one slowed worker) and ST (a long last stage) of ByteDance-Seed/StragglerAnalysis: result-*.json, mw-*.json
# and ms-*.json beside the traces.

PUBLISHED: dict[str, dict[str, Any]] = {
    "AR": {
        "slowdown": 1.9730450967, "launch": 1.0067506609, "m_w": 1.0017012777, "m_s": -0.0012119640,
        "t_ns": 46.336372597e9, "ideal_ns": 23.4847002097e9, "added": (1.0063130211, 0.0024347065),
        "rs_wait": 0.973, "stages": {0: 1.97919, 3: 1.00237, 1: 0.99711, 2: 0.99560},
        "dp": {0: 1.97304, 1: 1.01089, 2: 1.01115, 3: 1.01114},
        "ops": {
            "backward-compute": 1.5805062, "forward-compute": 1.3688857, "grads-reduce-scatter": 1.0107821,
            "params-all-gather": 1.0054763, "embedding-grads-all-reduce": 1.0051523, "optimizer": 1.0011049,
            "forward-pp-comm": 1.0010707, "backward-pp-comm": 1.0009217, "gc": 1.0,
        },
    },
    "ST": {
        "slowdown": 1.1787021837, "launch": 1.0192161756, "m_w": 0.0314042691, "m_s": 1.2193563789,
        "t_ns": 2.1726968133e9, "ideal_ns": 1.8432958244e9, "added": (1.2979309008, 1.2996816802),
        "rs_wait": 0.104, "stages": {0: 0.99805, 1: 0.98306, 2: 0.98249, 3: 1.23226}, "dp": {0: 1.17308, 1: 1.17787},
        "ops": {
            "forward-compute": 1.0874990, "backward-compute": 1.0741565, "embedding-grads-all-reduce": 1.0095504,
            "grads-reduce-scatter": 1.0026670, "optimizer-clip-main-grad": 1.0023506, "backward-pp-comm": 0.9999930,
            "forward-pp-comm": 0.9998586,
        },
    },
}  # fmt: skip


def published_file(shared: Path, name: str) -> Path:
    (path,) = (shared / "corpus").glob(f"ByteDance-Seed+StragglerAnalysis/*/{name}")
    return path


@pytest.mark.shared
@pytest.mark.parametrize("job", sorted(PUBLISHED))
@pytest.mark.parametrize("form", ["trace-{}.parquet", "timeline-{}.json.gz"])
def test_public_jobs_give_the_published_figures(shared: Path, job: str, form: str) -> None:
    want = PUBLISHED[job]
    rows = analyze_ops(parse(published_file(shared, form.format(job)))).rows
    by = {scope: [r for r in rows if r["scope"] == scope] for scope in {r["scope"] for r in rows}}
    (whole,), (top,), (last,) = by["job"], by["top_workers"], by["last_stage"]
    near = 1e-4
    assert whole["slowdown"] == pytest.approx(want["slowdown"], rel=near)
    assert (whole["replayed_ns"], whole["ideal_ns"]) == pytest.approx((want["t_ns"], want["ideal_ns"]), rel=near)
    assert whole["waste_ratio"] == pytest.approx(1 - 1 / want["slowdown"], rel=near)
    assert (top["recovered_ratio"], last["recovered_ratio"]) == pytest.approx((want["m_w"], want["m_s"]), abs=5e-4)
    assert (top["added_ratio"], last["added_ratio"]) == pytest.approx(want["added"], abs=5e-4)
    assert {r["stage"]: r["slowdown"] for r in by["stage"]} == pytest.approx(want["stages"], abs=near)
    assert {r["dp_rank"]: r["slowdown"] for r in by["dp_rank"]} == pytest.approx(want["dp"], abs=near)
    ops = {r["op"]: r["slowdown"] for r in by["op_type"]}
    assert {k: ops[k] for k in want["ops"]} == pytest.approx(want["ops"], abs=near)
    scatter = next(r for r in by["op_type"] if r["op"] == "grads-reduce-scatter")
    if form.endswith("parquet"):
        assert whole["step_ns"] / whole["replayed_ns"] == pytest.approx(want["launch"], rel=near)
        assert whole["replay_error_ratio"] == pytest.approx(1 - 1 / want["launch"], abs=near)
        assert scatter["wait_ratio"] == pytest.approx(want["rs_wait"], abs=5e-4)
    else:
        assert scatter["wait_ratio"] is None


@pytest.mark.shared
def test_transfer_of_public_jobs_is_their_shortest_duration(shared: Path) -> None:
    """The clock-free estimate of a transfer, the shortest duration in the group, agrees (theory.md §6.1)."""
    for job, ratio in (("AR", 1.0001), ("ST", 1.0000)):
        grid = grid_of(parse(published_file(shared, f"trace-{job}.parquet")))
        work = measure(grid, graph_of(grid))
        mine = [i for i, n in enumerate(grid.nodes) if n.op == "grads-reduce-scatter"]
        shortest = grid.dur[mine].min(axis=2, keepdims=True) * np.ones((1, 1, grid.dp))
        assert shortest.sum() / work.measured[mine].sum() == pytest.approx(ratio, abs=1e-4)


@pytest.mark.shared
def test_the_slowed_worker_of_a_public_job_straggles_in_every_step(shared: Path) -> None:
    rows = analyze_ops(parse(published_file(shared, "trace-AR.parquet"))).rows
    workers = [r for r in rows if r["scope"] == "worker"]
    assert [(r["rank"], r["straggling_steps_ratio"]) for r in workers[:2]] == [(0, 1.0), (8, 0.0)]
    assert workers[0]["wait_ratio"] < 0.5 < min(r["wait_ratio"] for r in workers[1:])

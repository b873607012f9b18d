"""What waited for what on one rank, from small traces whose causes are put in by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tracekit.analysis.critical.compress import rank_graph
from tracekit.analysis.critical.joint import RankInput, join
from tracekit.analysis.critical.path import Walk
from tracekit.analysis.critical.run import critical
from tracekit.analysis.critical.segments import Shares, path_table
from tracekit.analysis.tables import from_rows, to_rows
from tracekit.model import CPU_DEVICE, HostTimes, Kind, LabelledRank

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from analysis_builder import Act, call, rank

US = 1_000
NO_MATCHES = from_rows("matches", [])
NCCL = 20


def host(*syncs: tuple[int, int], launches: tuple[int, ...] = ()) -> HostTimes:
    begins, ends = (np.array([s[i] * US for s in syncs], np.int64) for i in (0, 1))
    times = np.array(sorted([*launches, *(s[0] for s in syncs)]), np.int64) * US
    return HostTimes(["python"], times, np.zeros(len(times), np.int32), begins, ends, np.zeros(len(syncs), np.int32))


def step(start: int, end: int, number: int = 0) -> dict[str, Any]:
    return {"step": number, "ts_ns": start * US, "dur_ns": (end - start) * US, "complete": True, "device": 0}


def act(start: float, end: float, *, launch: float | None = None, **more: Any) -> Act:
    at = None if launch is None else round(launch * US)
    return Act(round(start * US), round(end * US), launch=at, **more)


def path(labelled: LabelledRank, start: int, end: int) -> list[dict[str, Any]]:
    """Rows of `critical_path` of the only step."""
    graph = rank_graph(labelled, [step(start, end)], 0)
    assert graph is not None
    joint = join([RankInput(3, graph)], NO_MATCHES)
    walk = Walk(joint)
    return to_rows(path_table(walk, walk.paths([(start * US, joint.ends[0][0])]), [0]))


def brief(segments: list[dict[str, Any]]) -> list[tuple[str, float]]:
    return [(s["kind"], s["dur_ns"] / US) for s in segments]


def test_kernels_one_after_the_other_are_one_segment_with_their_gaps() -> None:
    acts = [act(10, 20, launch=0), act(21, 40, launch=1), act(42, 60, launch=2)]
    (segment,) = path(rank(acts), 10, 60)
    assert (segment["kind"], segment["gap_ns"], segment["count"]) == ("compute", 3 * US, 3)
    graph = rank_graph(rank(acts), [step(10, 60)], 0)
    assert graph is not None
    joint = join([RankInput(3, graph)], NO_MATCHES)
    shares = Shares(joint, Walk(joint).paths([(10 * US, joint.ends[0][0])])).rows(0, 0, 50 * US)
    assert {r["kind"]: r["dur_ns"] for r in shares} == {"compute": 47 * US, "launch": 3 * US}


@pytest.mark.parametrize(("us", "size"), [(2, 4), (2_000_000, 8)])
def test_work_of_any_length_keeps_it(us: int, size: int) -> None:
    acts = [act(10, 10 + us, launch=0), act(10 + us, 10 + 3 * us, launch=1)]
    graph = rank_graph(rank(acts), [step(10, 10 + 3 * us)], 0)
    assert graph is not None
    assert graph.parts.itemsize == size
    assert brief(path(rank(acts), 10, 10 + 3 * us)) == [("compute", 3 * us)]
    assert join([RankInput(3, graph)], NO_MATCHES).compute.max() == 2 * us * US


def test_an_idle_device_waits_for_the_launch_and_so_for_the_host() -> None:
    acts = [act(10, 20, launch=5), act(100, 120, launch=95)]
    labelled = rank(acts)
    labelled.host = host(launches=(5, 95))
    assert brief(path(labelled, 10, 120)) == [("host", 85), ("launch", 5), ("compute", 20)]


def test_a_host_that_waited_for_the_device_goes_back_to_what_it_waited_for() -> None:
    acts = [act(10, 80, launch=5), act(100, 120, launch=95)]
    labelled = rank(acts)
    labelled.host = host((30, 83), launches=(5, 95))
    assert brief(path(labelled, 10, 120)) == [
        ("compute", 70), ("sync", 3), ("host", 12), ("launch", 5), ("compute", 20)
    ]  # fmt: skip


def test_a_wait_that_found_the_device_idle_is_host_time() -> None:
    acts = [act(10, 20, launch=5), act(100, 120, launch=95)]
    labelled = rank(acts)
    labelled.host = host((30, 33), launches=(5, 95))
    assert brief(path(labelled, 10, 120)) == [("host", 85), ("launch", 5), ("compute", 20)]


def reduced(*, wait: bool) -> LabelledRank:
    """Kernel, all-reduce on its own stream, and a kernel that waits for it or not."""
    acts = [
        act(10, 40, launch=1), act(41, 90, launch=2, kind=Kind.COMM, call=0, stream=NCCL),
        act(91 if wait else 41, 120, launch=3),
    ]  # fmt: skip
    calls = [call("dp", ts=41 * US, dur=49 * US, device=0, stream=NCCL, call_ts=2 * US, n_activities=1)]
    return rank(acts, calls)


def test_compute_that_waits_for_a_call_has_it_on_its_path() -> None:
    assert brief(path(reduced(wait=True), 10, 120)) == [
        ("compute", 30), ("launch", 1), ("unsplit", 49), ("compute", 30)
    ]  # fmt: skip
    (segment,) = [s for s in path(reduced(wait=True), 10, 120) if s["kind"] == "unsplit"]
    assert (segment["call_id"], segment["reason"]) == (0, "one-rank")


def test_a_hidden_call_is_not_on_it() -> None:
    (segment,) = path(reduced(wait=False), 10, 120)
    assert (segment["kind"], segment["count"]) == ("compute", 2)


def test_a_gap_that_nothing_explains_is_waiting() -> None:
    acts = [act(10, 20, launch=1), act(500, 520, launch=2)]
    found = path(rank(acts), 10, 520)
    assert brief(found) == [("compute", 10), ("wait", 480), ("compute", 20)]
    assert found[1]["reason"] == "unexplained"
    tables = critical([RankInput(3, rank_graph(rank(acts), [step(10, 520)], 0))], NO_MATCHES)  # type: ignore[arg-type]
    (row,) = tables.steps
    assert row["replay_error_ratio"] == pytest.approx(480 / 510)
    assert {w["reason"] for w in tables.what_if} == {"replay-error"}


def test_the_kernels_of_a_graph_wait_for_calls_inside_it() -> None:
    acts = [
        act(10, 40, launch=1), act(41, 90, launch=1, kind=Kind.COMM, call=0, stream=NCCL), act(95, 120, launch=1),
    ]  # fmt: skip
    calls = [call("tp", ts=41 * US, dur=49 * US, device=0, stream=NCCL, call_ts=1 * US, n_activities=1)]
    assert [s["kind"] for s in path(rank(acts, calls), 10, 120)] == [
        "compute", "launch", "unsplit", "launch", "compute"
    ]  # fmt: skip


def cpu(**more: Any) -> LabelledRank:
    """Operators of a thread, a collective on a worker, and the thread waiting for it."""
    acts = [
        Act(10 * US, 100 * US, device=CPU_DEVICE, stream=0, launch=10 * US),
        Act(120 * US, 900 * US, device=CPU_DEVICE, stream=1, kind=Kind.COMM, call=0, launch=110 * US),
        Act(more.get("resume", 930) * US, 1000 * US, device=CPU_DEVICE, stream=0, launch=0),
    ]
    calls = [call("dp", ts=120 * US, dur=780 * US, device=CPU_DEVICE, stream=1, call_ts=110 * US, n_activities=1)]
    return rank(acts, calls)


def test_a_host_trace_has_the_thread_and_the_worker_that_it_waits_for() -> None:
    assert brief(path(cpu(), 10, 1000)) == [
        ("compute", 90), ("host", 10), ("launch", 10), ("unsplit", 780), ("host", 30), ("compute", 70)
    ]  # fmt: skip


def test_a_thread_that_goes_on_waits_for_no_worker() -> None:
    assert brief(path(cpu(resume=115), 10, 1000)) == [("compute", 90), ("host", 15), ("compute", 885)]

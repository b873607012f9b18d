"""The trace for Perfetto: strict format, no slice that a viewer would drop, and the published numbers in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chrome_reader import Trace, read, union
from hypothesis import given
from hypothesis import strategies as st

import tracekit as tk
from tracekit.analysis.timeline import lanes, uncovered
from tracekit.commands.perfetto import numbers, times
from tracekit.errors import UsageError
from tracekit.output.chrome import micros, quoted

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=["gpu-tp2-pp2-dp2", "gloo-fsdp2"])
def drawn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Trace]:
    result = tk.analyze(ROOT / "sample_traces" / request.param, workers=1)
    path = tmp_path_factory.mktemp("drawn") / "out.json.gz"
    result.perfetto(path)
    return result, read(path)


def test_exposed_parts_add_up_to_the_published_time(drawn: tuple[Any, Trace]) -> None:
    result, trace = drawn
    for total in result.document["totals"]:
        process = f"rank {total['rank']}"
        every: list[tuple[int, int]] = []
        for strategy, row in total["by_strategy"].items():
            parts = [(s.start, s.end) for s in trace.on(process, strategy) if s.cat == "exposed"]
            calls = [(s.start, s.end) for s in trace.on(process, strategy) if s.cat == "communication"]
            assert union(parts) == row["exposed_ns"], strategy
            assert len(calls) <= row["count"]
            assert union(calls) >= row["total_ns"]
            every += parts
        assert union(every) == total["exposed_ns"]
        compute = [(s.start, s.end) for s in trace.on(process, "compute")]
        assert union(compute) == total["compute_ns"]


def test_every_exposed_part_lies_in_its_call(drawn: tuple[Any, Trace]) -> None:
    _, trace = drawn
    inside: dict[int, int] = {}
    for s in trace.slices:
        if s.cat == "exposed":
            assert s.parent is not None
            assert s.parent.cat == "communication"
            inside[id(s.parent)] = inside.get(id(s.parent), 0) + s.end - s.start
    calls = [s for s in trace.slices if s.cat == "communication"]
    assert calls
    assert all(s.args["exposed_ns"] == inside.get(id(s), 0) for s in calls)


def test_waiting_steps_and_bubbles_are_the_tables(drawn: tuple[Any, Trace]) -> None:
    result, trace = drawn
    rows = result.arrow("collectives").to_pylist()
    for rank in {r["rank"] for r in rows}:
        waits = [r["wait_ns"] for r in rows if r["rank"] == rank and r["wait_ns"] and r["coalesced_into"] is None]
        assert sum(s.end - s.start for s in trace.on(f"rank {rank}", "waiting")) == sum(waits)
    for step in result.document["steps"]:
        found = [s for s in trace.on(f"rank {step['rank']}", "steps") if s.args["step"] == step["step"]]
        assert [s.end - s.start for s in found] == [step["dur_ns"]]
    for bubble in result.document["bubble"]:
        found = [s for s in trace.on(f"rank {bubble['rank']}", "bubbles") if s.args["step"] == bubble["step"]]
        assert sum(s.end - s.start for s in found) == (bubble["bubble_ns"] or 0)


def test_messages_lead_from_send_to_receive(drawn: tuple[Any, Trace]) -> None:
    result, trace = drawn
    pairs = [m for m in result.document["matches"] if m["kind"] == "p2p"]
    messages = [(a, b) for a, b in trace.flows if "rank" in a.process and a.args["strategy"] == "pp"]
    assert len(messages) >= len(pairs)
    assert all(a.process != b.process and a.start < b.end for a, b in trace.flows)


def test_late_ranks_point_at_those_that_waited(tmp_path: Path) -> None:
    from tracekit import simulate, theory

    tables = {
        "model": {"name": "llama3-8b", "layers": 2, "vocab": 32768},
        "layout": "dp=4",
        "training": {"sequence": 2048, "micro_batch": 1, "micro_batches": 2},
        "hardware": {"name": "h100", "network": "ndr"},
    }
    made = simulate.simulate(theory.job_of(tables, defaults=True), simulate.Options(steps=1, slow={2: 1.3}))
    simulate.write(made, tmp_path / "job", level=1)
    written = tk.analyze(tmp_path / "job", workers=1).perfetto(tmp_path / "t.json")
    trace = read(tmp_path / "t.json")
    late = [(a, b) for a, b in trace.flows if a.args["strategy"] != "pp"]
    assert late
    assert {a.process for a, _ in late} == {"rank 2"}
    assert {b.process for _, b in late} == {"rank 0", "rank 1", "rank 3"}
    ends = [b.parent if b.cat == "exposed" else b for _, b in late]  # an arrow ends at the innermost slice
    assert all(b is not None and b.args["wait_ns"] > 0 for b in ends)
    assert written.flows == len(trace.flows)
    assert written.slices == len(trace.slices)


def test_selections(tmp_path: Path) -> None:
    result = tk.analyze(ROOT / "sample_traces" / "gpu-tp2-pp2-dp2", workers=1)
    result.perfetto(tmp_path / "a.json", ranks=[0, 4], steps=[21])
    few = read(tmp_path / "a.json")
    assert {s.process for s in few.slices} == {"rank 0", "rank 4"}
    assert {s.args["step"] for s in few.slices if "step" in s.args} == {21}
    assert {a.process for a, _ in few.flows} <= {"rank 0", "rank 4"}
    low, high = 40_000_000, 41_000_000
    result.perfetto(tmp_path / "b.json", window=(low, high))
    part = read(tmp_path / "b.json")
    tops = [s for s in part.slices if s.parent is None]
    assert tops
    shift = part.other["shift_ns"]
    assert all(s.end > low + shift and s.start < high + shift for s in tops)
    with pytest.raises(UsageError, match="nothing to draw"):
        result.perfetto(tmp_path / "c.json", ranks=[99])
    with pytest.raises(UsageError, match="nothing to draw"):
        result.perfetto(tmp_path / "c.json", window=(10**15, None))
    assert not (tmp_path / "c.json").exists()


def test_same_tables_same_bytes(tmp_path: Path) -> None:
    result = tk.analyze(ROOT / "sample_traces" / "gloo-fsdp2", workers=1)
    result.perfetto(tmp_path / "a.json.gz")
    result.perfetto(tmp_path / "b.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_a_dataset_gives_the_same_trace(tmp_path: Path) -> None:
    result = tk.analyze(ROOT / "sample_traces" / "gpu-tp2-pp2-dp2", workers=1)
    result.perfetto(tmp_path / "a.json")
    tk.read(result.write(tmp_path / "out")).perfetto(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_no_file_of_others_is_replaced(tmp_path: Path) -> None:
    result = tk.analyze(ROOT / "sample_traces" / "gloo-fsdp2", workers=1)
    for name in ("a.json", "a.json.gz"):
        result.perfetto(tmp_path / name)
        result.perfetto(tmp_path / name)  # its own
        (tmp_path / name).write_bytes(b"\x1f\x8b not gzip" if name.endswith("gz") else b'{"traceEvents": []}')
        with pytest.raises(UsageError, match="did not write"):
            result.perfetto(tmp_path / name)
        result.perfetto(tmp_path / name, overwrite=True)
        assert read(tmp_path / name).slices
    assert {p.name for p in tmp_path.iterdir()} == {"a.json", "a.json.gz"}


def test_needs_detail_and_a_file(tmp_path: Path) -> None:
    result = tk.analyze(ROOT / "sample_traces" / "gloo-fsdp2", workers=1, detail=False)
    with pytest.raises(UsageError, match="detail=True"):
        result.perfetto(tmp_path / "a.json")
    with pytest.raises(UsageError, match="is a folder"):
        tk.analyze(ROOT / "sample_traces" / "gloo-fsdp2", workers=1).perfetto(tmp_path)
    assert list(tmp_path.iterdir()) == []


@given(st.integers(0, 10**16))
def test_micros_survive_a_double_that_is_cut(ns: int) -> None:
    """Up to 10^16 ns from the origin (115 days); Perfetto cuts, others round."""
    value = float(micros(ns)) * 1000.0
    assert ns > 2**50 or int(value) == ns
    assert abs(value - ns) < 2.1


def test_names_are_inert() -> None:
    text = quoted('</script>"\u202e\x1b[31m\n' + "x" * 10_000)
    assert text.isascii()
    assert len(text) < 700
    assert "\x1b" not in text
    assert "\\u202e" not in text


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=24)


@given(spans)
def test_lanes_never_overlap(given_: list[tuple[int, int]]) -> None:
    start = np.array([a for a, _ in given_], np.int64)
    end = start + np.array([d for _, d in given_], np.int64)
    lane = lanes(start, end)
    for i in range(len(given_)):
        for j in range(i):
            if lane[i] == lane[j]:
                assert end[i] <= start[j] or end[j] <= start[i]
    if len(given_):
        assert sorted(set(lane.tolist())) == list(range(int(lane.max()) + 1))


@given(spans, spans)
def test_uncovered_is_set_difference(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    from tracekit.analysis.intervals import union as joined

    start, end = (np.array([f(s) for s in a], np.int64) for f in (lambda s: s[0], lambda s: s[0] + s[1]))
    cover = joined(*(np.array([f(s) for s in b], np.int64) for f in (lambda s: s[0], lambda s: s[0] + s[1])))
    which, begin, stop = uncovered(start, end, cover)
    covered = {t for s, d in b for t in range(s, s + d)}
    for i, (s, d) in enumerate(a):
        mine = {t for w, x, y in zip(which, begin, stop, strict=True) if w == i for t in range(x, y)}
        assert mine == set(range(s, s + d)) - covered
    assert bool((stop > begin).all())


def test_options() -> None:
    assert numbers("0-3,7", "--ranks") == [0, 1, 2, 3, 7]
    assert numbers(None, "--ranks") is None
    assert times("120:180ms") == (120_000_000, 180_000_000)
    assert times(":5us") == (None, 5_000)
    assert times("1.5s:") == (1_500_000_000, None)
    for wrong in ("3-1", "a", "-1", "1,", "0-99999999", "9" * 5000):
        with pytest.raises(UsageError, match="--ranks"):
            numbers(wrong, "--ranks")
    for wrong in ("5", ":", "a:b", "9:5", f"0:{'9' * 400}s"):
        with pytest.raises(UsageError, match="--window"):
            times(wrong)


def test_a_drifting_clock_is_placed_as_published() -> None:
    """offset 1 ms, 100 ppm from t = 5 s: at 15 s that is 1 ms more."""
    from tracekit.analysis.timeline import clock_of

    row = {
        "method": "collective-ends",
        "offset_ns": 1_000_000,
        "error_ns": 9,
        "drift_ppm": 100.0,
        "drift_from_ns": 5 * 10**9,
    }
    clock = clock_of(row)
    assert clock is not None
    assert clock.place(np.array([5 * 10**9, 15 * 10**9])).tolist() == [5_001_000_000, 15_002_000_000]
    assert clock_of(row | {"offset_ns": None}) is None
    assert clock_of(None) is None

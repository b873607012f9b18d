"""One result for every layout, compression, chunk size and order of events."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_writer import BASE, LAYOUTS, job, kernel, launch, op, text, us, write
from same import assert_same
from second_reading import DEVICE, HOST, counts, load, of_table, summary

from tracekit.parsers import kineto, prefilter

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("way")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return kineto.parse(write(tmp_path_factory.mktemp("r") / "a.json", job()))[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("suffix", [".json", ".gz"])
@pytest.mark.parametrize("block", [700, 3_001, 20_000, 1 << 20])
def test_layouts_and_chunks_agree(tmp_path: Path, reference: Any, layout: str, suffix: str, block: int) -> None:
    traces = kineto.parse(write(tmp_path / f"a{suffix}", job(), layout=layout), block=block)
    assert len(traces) == 1
    assert_same(traces[0], reference)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strict_reading_of_a_sound_file_agrees(tmp_path: Path, reference: Any, layout: str) -> None:
    assert_same(kineto.parse(write(tmp_path / "a.json", job(), layout=layout), strict=True)[0], reference)


@pytest.mark.parametrize("seed", range(6))
def test_order_of_events_does_not_matter(tmp_path: Path, reference: Any, seed: int) -> None:
    events = job()
    random.Random(seed).shuffle(events)
    layout = LAYOUTS[seed % len(LAYOUTS)]
    assert_same(kineto.parse(write(tmp_path / "a.json", events, layout=layout), block=5_000)[0], reference)


@pytest.mark.parametrize("keys", [("baseTimeNanoseconds",), ("distributedInfo", "baseTimeNanoseconds")])
def test_metadata_may_stand_after_the_events(tmp_path: Path, reference: Any, keys: tuple[str, ...]) -> None:
    head = {"schemaVersion": 1, "distributedInfo": {"rank": 3, "world_size": 8}, "baseTimeNanoseconds": BASE}
    tail = {k: head.pop(k) for k in keys}
    trace = kineto.parse(write(tmp_path / "a.json", job(), head=head, tail=tail))[0]
    assert_same(trace, reference)
    assert (trace.meta.rank, trace.meta.world_size, trace.meta.base_ns) == (3, 8, BASE)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_equal_a_second_reading(tmp_path: Path, layout: str) -> None:
    path = write(tmp_path / "a.json", job(), layout=layout)
    trace, doc = kineto.parse(path, block=9_000)[0], load(path)
    assert trace.event_counts == counts(doc)
    assert of_table(trace, trace.host) == summary(doc, HOST)
    assert of_table(trace, trace.device) == summary(doc, DEVICE)


def test_rows_are_sorted_as_the_model_says(reference: Any) -> None:
    h, d = reference.host, reference.device
    assert list(zip(h.ts, -h.dur, strict=True)) == sorted(zip(h.ts, -h.dur, strict=True))
    key = list(zip(d.ts, d.device, d.stream, d.dur, d.name, strict=True))
    assert key == sorted(key)


@pytest.mark.parametrize("layout", ["classic", "lines"])
def test_prefilter_takes_kinetos_layouts(layout: str) -> None:
    data = text(job(), {}, {}, layout)
    chunk = data[data.index("[") + 1 : data.rindex("\n  ]")].encode()
    found = prefilter.split(chunk)
    assert found is not None
    batch, skipped = found
    assert skipped == {"X:python_function": 40, "s:ac2g": 40, "f:ac2g": 40, "s:fwdbwd": 40}
    assert sum(len(events) for _, _, events in batch) + sum(skipped.values()) == len(job())


@pytest.mark.parametrize("category", ["python_function_x", "python_functio", "kernel2", "ac2gx", "cpu_opera"])
@pytest.mark.parametrize("layout", ["classic", "lines"])
def test_similar_categories_are_not_confused(tmp_path: Path, category: str, layout: str) -> None:
    odd = [{**op("a", 5_000 + i, 10), "cat": category} for i in range(3)]
    flow = {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": us(1), "cat": category, "name": "x"}
    trace = kineto.parse(write(tmp_path / "a.json", [*job(), *odd, flow], layout=layout))[0]
    assert trace.event_counts[f"X:{category}"] == 3
    assert trace.event_counts[f"s:{category}"] == 1


_PIECES = [*'ab"\\/{}[],: \t\n', "\u00e9", "\U0001f600", '},{"ph"', "\n  },\n  {\n", '"cat": "kernel"', "]}"]
NASTY = st.lists(st.sampled_from(_PIECES), max_size=12).map("".join)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_separators_inside_strings_never_cut_an_event(tmp_path: Path, data: st.DataObject) -> None:
    names = data.draw(st.lists(NASTY, min_size=1, max_size=40))
    nested = data.draw(st.sampled_from([{}, {"a": [{"ph": "X"}, {"name": "},{"}]}, {"x": {"ts": 1, "cat": "kernel"}}]))
    events = []
    for i, name in enumerate(names):
        events += [op(name, 10 * i + 1, 5, ext=i, extra=nested, note=name), kernel(name, 10 * i + 2, 5, corr=i)]
    layout = data.draw(st.sampled_from(LAYOUTS))
    block = data.draw(st.integers(700, 8_000))
    path = write(tmp_path / "n.json", events, layout=layout)
    trace = kineto.parse(path, block=block)[0]
    doc = json.loads(path.read_text())
    assert trace.event_counts == counts(doc)
    assert of_table(trace, trace.host) == summary(load(path), HOST)
    assert of_table(trace, trace.device) == summary(load(path), DEVICE)
    assert trace.health == []


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(1, 1 << 52), st.integers(0, 1 << 45)), min_size=1, max_size=30),
    st.sampled_from(["us", "float", "text"]),
)
def test_times_are_exact(tmp_path: Path, spans: list[tuple[int, int]], spelling: str) -> None:
    spell = {"us": us, "float": us, "text": lambda ns: us(ns).text}[spelling]
    events = [{**kernel("k", 1, 1, corr=i), "ts": spell(t), "dur": spell(d)} for i, (t, d) in enumerate(spans)]
    path = write(tmp_path / "t.json", events, head={"schemaVersion": 1})
    trace = kineto.parse(path)[0]
    assert sorted(zip(trace.device.ts.tolist(), trace.device.dur.tolist(), strict=True)) == sorted(spans)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_absolute_fractions_are_exact(tmp_path: Path, layout: str) -> None:
    """Nightlies of 2024 wrote µs since 1970 with a fraction: no float holds that."""
    starts = [1_712_195_495_502_094_565 + 1_001 * i for i in range(400)]
    events = [e for i, t in enumerate(starts) for e in (op("aten::mm", t, 501, ext=i), launch(t + 3, 7, i))]
    events += [kernel("k", t + 9, 333, corr=i) for i, t in enumerate(starts)]
    trace = kineto.parse(write(tmp_path / "a.json", events, head={"schemaVersion": 1}, layout=layout), block=9_000)[0]
    assert np.array_equal(trace.device.ts, np.array(starts) + 9)
    assert trace.meta.era == "torch nightly of 2024"
    assert trace.health == []


def test_integer_times_of_older_writers_are_absolute(tmp_path: Path) -> None:
    row = {**kernel("k", 1, 1), "ts": 1669783687389324, "dur": 3}
    trace = kineto.parse(write(tmp_path / "a.json", [row], head={"schemaVersion": 1}))[0]
    assert trace.window_ns == (1669783687389324000, 1669783687389327000)


def test_memory_and_time_do_not_depend_on_the_cycle_collector(tmp_path: Path) -> None:
    import gc

    kineto.parse(write(tmp_path / "a.json", job()))
    assert gc.isenabled()

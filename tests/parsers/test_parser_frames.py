"""Python frames that are asked for become host rows, the same in every layout; all others are only counted."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_writer import LAYOUTS, Event, job, op, text, us, write
from same import assert_same
from second_reading import counts, load, rows

import tracekit.parsers
from tracekit.model import HostCat
from tracekit.parsers import kineto, parse, prefilter
from tracekit.parsers.frames import Frames
from tracekit.parsers.links import link

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("way")

SYNC = "megatron/core/distributed/param_and_grad_buffer.py(123): start_grad_sync"


def frame(name: str, ts: int, dur: int = 400, tid: Any = 900) -> Event:
    args = {"Python parent id": None, "Python id": 1, "Ev Idx": 4}
    return {"ph": "X", "cat": "python_function", "name": name, "pid": 900, "tid": tid, "ts": us(ts), "dur": us(dur),
            "args": args}  # fmt: skip


def kept(trace: Any) -> Counter[str]:
    h = trace.host
    return Counter(trace.names[i] for i in h.name[h.cat == HostCat.PYTHON].tolist())


def without_frames(trace: Any) -> Any:
    """The rows that no choice of frames may change."""
    h = trace.host
    rows = h.cat != HostCat.PYTHON
    names = [trace.names[i] for i in h.name[rows].tolist()]
    return names, h.ts[rows].tolist(), h.dur[rows].tolist(), h.comm[rows].tolist()


_PIECES = [
    "start_grad_sync",
    "nn.Module: ",
    "a/b.py(12): ",
    "x" * 33,
    "y" * 64,
    'q"',
    "\\",
    "\u00e9",
    "\n",
    "},{",
    ", ",
]
NAMES = st.lists(st.lists(st.sampled_from(_PIECES), max_size=6).map("".join), min_size=20, max_size=60)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES, st.sampled_from(["grad_sync", "^a/b", "x{34}", 'q"$', r"\\", "\u00e9", "nothing like it", ""]), st.data())
def test_every_layout_keeps_the_same_frames(tmp_path: Path, names: list[str], wanted: str, data: st.DataObject) -> None:
    pattern = re.compile(wanted)
    events = [*job(), *(frame(name, 5_239_871_117_900_000 + 900 * i, 500 + i) for i, name in enumerate(names))]
    expected = Counter(n for n in [*names, *["torch/nn: f"] * 40] if pattern.search(n))
    first = None
    for layout in LAYOUTS:
        block = data.draw(st.sampled_from([900, 4_000, 1 << 20]))
        path = write(tmp_path / "f.json", events, layout=layout)
        (trace,) = kineto.parse(path, frames=pattern, block=block)
        assert kept(trace) == expected
        assert trace.event_counts == counts(load(path))
        first = first or trace
        assert_same(trace, first)


@pytest.mark.parametrize("layout", ["classic", "lines"])
def test_only_wanted_frames_are_decoded(layout: str) -> None:
    names = [f"torch/a.py({i}): {'g' * i}" for i in range(70)]
    events = [*job(), *(frame(n, 6_000_000 + i) for i, n in enumerate([*names, SYNC] * 5))]
    data = text(events, {}, {}, layout)
    chunk = data[data.index("[") + 1 : data.rindex("\n  ]")].encode()
    found = prefilter.split(chunk, Frames(re.compile("grad_sync")))
    assert found is not None
    batch, skipped = found
    assert skipped["X:python_function"] == 40 + 350
    assert sum(len(e) for _, cat, e in batch if cat == "python_function") == 5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_frames_change_neither_other_rows_nor_window(tmp_path: Path, layout: str) -> None:
    events = [
        *job(),
        frame("main.py(1): <module>", 5_239_871_000_000_000, 8 * 10**14),
        frame(SYNC, 5_239_871_118_000_000),
    ]
    path = write(tmp_path / "w.json", events, layout=layout)
    (plain,), (full,) = kineto.parse(path), kineto.parse(path, frames=re.compile(""))
    assert not kept(plain)
    assert kept(full).total() == 42
    assert plain.window_ns == full.window_ns
    assert plain.health == full.health
    assert plain.event_counts == full.event_counts
    assert without_frames(plain) == without_frames(full)


def test_frames_alone_are_no_work(tmp_path: Path) -> None:
    path = write(tmp_path / "p.json", [frame(SYNC, 5_000 + i) for i in range(30)])
    with pytest.raises(tracekit.errors.UnusableInput, match="no timed work"):
        kineto.parse(path, frames=re.compile("sync"))


@pytest.mark.parametrize("layout", ["classic", "lines"])
@pytest.mark.parametrize("name", ['a "quoted" start_grad_sync', "caf\udce9 start_grad_sync"])
def test_damaged_names_are_repaired_when_frames_are_read(tmp_path: Path, layout: str, name: str) -> None:
    path = write(tmp_path / "d.json", [*job(), frame("XX start_grad_sync", 5_239_871_118_000_000)], layout=layout)
    path.write_bytes(path.read_bytes().replace(b"XX start_grad_sync", name.encode("utf-8", "surrogateescape")))
    (trace,) = kineto.parse(path, frames=re.compile("start_grad_sync"), block=4_000)
    (found,) = kept(trace)
    assert found.endswith("start_grad_sync")
    assert [h.severity for h in trace.health] == ["repaired"]


def test_frames_enclose_what_runs_in_them(tmp_path: Path) -> None:
    start = 5_239_871_117_788_785
    events = [*job(), frame(SYNC, start + 50, 600), op("c10d::allreduce_", start + 100, 80, ext=77)]
    (trace,) = parse(write(tmp_path / "s.json", events), frames=re.compile(r"_grad_sync$"))
    row = np.flatnonzero(trace.host.ext == 77)
    h = trace.host
    for python, expected in ((False, []), (True, [SYNC])):
        _, found = link(trace).scopes(h.track[row], h.ts[row], h.ts[row] + h.dur[row], row, python=python)
        assert [trace.names[h.name[r]] for r in found.tolist() if trace.names[h.name[r]] == SYNC] == expected


def test_parsers_of_others_get_frames_only_if_they_take_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ts,dur\n1,2\n")
    seen = []

    def old(path: Path, *, strict: bool) -> list[Any]:
        seen.append(("old", strict))
        return []

    def new(path: Path, *, strict: bool, frames: re.Pattern[str] | None = None) -> list[Any]:
        seen.append(("new", frames))
        return []

    pattern = re.compile("x")
    for parser in (old, new):
        monkeypatch.setattr(tracekit.parsers, "_third_party", lambda _, parser=parser: ("x", parser))
        parse(path, frames=pattern)
    assert seen == [("old", False), ("new", pattern)]


def test_call_stack_of_old_recordings(tmp_path: Path) -> None:
    stack = "torch/distributed/distributed_c10d.py(1320): all_reduce;train.py(54): step"
    events = [*job(), op("c10d::allreduce_", 5_239_871_118_000_000, 80, ext=77, **{"Call stack": stack}),
              op("c10d::barrier", 5_239_871_118_001_000, 80, ext=78, **{"Call stack": ""})]  # fmt: skip
    (trace,) = parse(write(tmp_path / "c.json", events))
    of = {ext: trace.comm[trace.host.comm[np.flatnonzero(trace.host.ext == ext)[0]]].stack for ext in (77, 78)}
    assert of == {77: stack, 78: None}


@pytest.mark.shared
@pytest.mark.parametrize("pattern", ["(?i)reduce|gather|send|recv|unshard", r"torch/autograd"])
def test_frames_of_real_files_against_a_second_reading(shared: Path, pattern: str) -> None:
    found = re.compile(pattern)
    files = [*sorted(shared.glob("recordings/stack_*/rank0.json.gz")),
             *sorted(shared.glob("corpus/AMD-AGI+TraceLens/tl_h100_single/*.json.gz"))]  # fmt: skip
    assert files
    for path in files:
        (trace,) = parse(path, frames=found)
        names = Counter(e["name"] for e in rows(load(path), {"python_function"}))
        assert kept(trace) == Counter({n: k for n, k in names.items() if found.search(n)}), path

"""Rows read in place give what the decoder gives, whatever stands in them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_writer import COMM, Event, Number, kernel, launch, op, us, write
from same import assert_same
from second_reading import DEVICE, HOST, load, of_table, summary

from tracekit.parsers import kineto, prefilter
from tracekit.parsers.fixed import FixedRows, Heads, _digits, _integers
from tracekit.parsers.repeats import Repeats

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("pure")

START = 5_239_871_117_788_785
NAMES = [
    "aten::mm",
    "void gemm<float, 4>(int)",
    "k" * 200,
    "caf\u00e9",
    'q"uote',
    "back\\slash",
    "",
    "Memset",
    "x" * 64,
]
IDS = st.one_of(
    st.integers(0, 300),
    st.sampled_from([10**7, 10**8 - 1, 10**8, 10**15, 10**16 - 1, 10**16, 2**63, 2**64 - 1, -1, -7]),
)
NANOS = st.one_of(
    st.integers(0, 5_000), st.integers(0, 10**13), st.sampled_from([9 * 10**14, 10**12 - 1, 99_999_999_999])
)


def annotation(name: str, ts: int, dur: int, ext: Any, cat: str = "user_annotation", tid: Any = 900) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 900, "tid": tid, "ts": us(ts), "dur": us(dur),
            "args": {"External id": ext}}  # fmt: skip


def real(path: Path, *, spread: bool = False, loose: bool = False) -> Path:
    """With the blanks (or line breaks) that Kineto leaves between groups of arguments."""
    data = path.read_bytes()
    for key in (b"queued", b"stream", b"registers", b"cbid"):
        data = data.replace(b', "%s": ' % key, b',%s      "%s": ' % (b"\n" if spread else b"", key))
    if loose:
        data = data.replace(b',\n    "args": {', b'\n    ,\n    "args": {')
    path.write_bytes(data)
    return path


def rows(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Rows read in place and rows decoded, by category."""
    data = path.read_bytes()
    chunk = data[data.index(b'"traceEvents": [') + 16 : data.rindex(b"\n  ]")]
    found = prefilter.split(chunk, None, (Heads(), Heads()))
    assert found is not None
    fixed, decoded = Counter[str](), Counter[str]()
    for _, cat, events in found[0]:
        (fixed if isinstance(events, FixedRows) else decoded)[cat] += len(events)
    return +fixed, decoded


@st.composite
def jobs(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = []
    for i in range(20):
        ts, name = START + draw(NANOS), draw(st.sampled_from(NAMES))
        ids = {"ext": draw(IDS), "corr": draw(IDS)}
        row = launch(ts, draw(NANOS), ids["corr"])
        row["args"]["External id"] = ids["ext"]
        device, stream = draw(st.sampled_from([(0, 7), (3, 20), (1, 0), ("0", "stream 7")]))
        work = kernel(name, ts + 5, draw(NANOS), corr=ids["corr"], device=device, stream=stream)
        work["args"]["External id"] = draw(IDS)
        if draw(st.integers(0, 6)) == 0:
            work["args"] |= COMM
        if draw(st.integers(0, 8)) == 0:
            del row["args"]["External id"], work["args"]["External id"]
        tid = draw(st.sampled_from([900, 901, "main"]))
        events += [op(name, ts, draw(NANOS), ext=draw(IDS), tid=tid), row, work, annotation(f"nccl:{name}", ts, 9, i),
                   annotation("ProfilerStep#3", ts, 70, draw(IDS), "gpu_user_annotation", tid)]  # fmt: skip
    return events


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs(), st.booleans(), st.booleans())
def test_in_place_equals_decoded(tmp_path: Path, events: list[Event], spread: bool, loose: bool) -> None:
    (expected,) = kineto.parse(write(tmp_path / "e.json", events, layout="compact"))
    for layout in ("classic", "lines"):
        path = real(write(tmp_path / "a.json", events, layout=layout), spread=spread, loose=loose)
        (trace,) = kineto.parse(path)
        assert_same(trace, expected)


@pytest.mark.parametrize("layout", ["classic", "lines"])
@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("loose", [False, True])
def test_kinetos_spelling_is_read_in_place(tmp_path: Path, layout: str, spread: bool, loose: bool) -> None:
    events: list[Event] = []
    for i in range(60):
        at = START + 1_000 * i
        events += [op(f"aten::op{i % 7}", at, 10 + i, ext=i), launch(at, 3, 90 + i), kernel("gemm", at + 5, 700 * i, corr=i),
                   annotation("nccl:all_reduce", at, 5, i), annotation("s", at, 5, i, "gpu_user_annotation")]  # fmt: skip
    path = real(write(tmp_path / "k.json", events, layout=layout), spread=spread, loose=loose)
    fixed, decoded = rows(path)
    assert all(
        fixed[cat] >= 55 for cat in ("cpu_op", "cuda_runtime", "kernel", "user_annotation", "gpu_user_annotation")
    )
    assert fixed + decoded == Counter(e["cat"] for e in events)
    (trace,) = kineto.parse(path)
    assert of_table(trace, trace.host) == summary(load(path), HOST)
    assert of_table(trace, trace.device) == summary(load(path), DEVICE)


ODD = {
    "times": ["5.5", "1e3", "-4.000", "1.0000", "1.00", "00.000", "12.", "4.000e1", '"7.000"', "9007199254740993"],
    "ids": ["1.5", "1e3", "-1", '"12"', "null", "[1]", "true", "0x1f", "12 "],
}


@pytest.mark.parametrize("layout", ["classic", "lines"])
@pytest.mark.parametrize(("field", "spelled"), [(f, s) for f, values in ODD.items() for s in values])
def test_odd_numbers_are_left_to_the_decoder(tmp_path: Path, layout: str, field: str, spelled: str) -> None:
    """One odd row among plain ones: the same answer as for the odd row alone, which is never read in place."""

    class Text(Number):
        def __new__(cls, spelling: str) -> Text:
            self = float.__new__(cls, 0.0)
            self.text = spelling
            return self

    odd = op("odd", START + 7_000, 50, ext=5)
    if field == "times":
        odd["dur"] = Text(spelled)
    else:
        odd["args"]["External id"] = Text(spelled)
    plain = [op("aten::mm", START + 100 * i, 10, ext=i) for i in range(40)]
    (many,) = kineto.parse(write(tmp_path / "m.json", [*plain, odd, *plain], layout=layout))
    try:
        alone = kineto.parse(write(tmp_path / "o.json", [odd, plain[0]], layout=layout))[0]
    except kineto.UnusableInput:
        alone = None
    found = [[(t.host.dur[i], t.host.ext[i]) for i in np.flatnonzero(t.host.name == t.names.index("odd"))]
             if t and "odd" in t.names else [] for t in (many, alone)]  # fmt: skip
    assert found[0] == found[1]
    if alone:
        assert sum(h.count for h in many.health) == sum(h.count for h in alone.health)


@given(
    st.lists(
        st.tuples(st.text("0123456789", max_size=16), st.sampled_from([",", ".", "\n", " ", "e", "\x80", "\u00ff"])),
        min_size=1,
    )
)
def test_digits_are_read_as_python_reads_them(values: list[tuple[str, str]]) -> None:
    data = b"".join((digits + after).encode("latin-1").ljust(17, b"9")[:16] for digits, after in values)
    words = np.frombuffer(data, "<u8").reshape(-1, 2).copy()
    number, count = _integers(words[:, 0], words[:, 1])
    for i, (digits, after) in enumerate(values):
        seen = data[16 * i : 16 * i + 16]
        stop = next((j for j, b in enumerate(seen) if not 48 <= b <= 57), 16)
        assert (number[i], count[i]) == (int(seen[:stop] or b"0"), stop), (digits, after)
    first, n = _digits(words[:, 0])
    assert n.max() <= 8
    assert first.max() < 10**8


def test_texts_are_told_apart_by_every_byte() -> None:
    texts = [bytes(64)]
    for size in (1, 63, 64, 65, 128, 129, 300):
        base = bytes(range(97, 123)) * 12
        texts += [base[:size], *(base[:i] + b"#" + base[i + 1 : size] for i in range(size))]
    seen: dict[bytes, int] = {}
    repeats = Repeats(lambda text: seen.setdefault(text, len(seen)))
    data = bytes(64) + b"".join(b"|" + bytes(63) + t for t in texts)
    end = 64 + np.cumsum([64 + len(t) for t in texts])
    begin = end - np.array([len(t) for t in texts])
    first = repeats.codes(data, begin, end)
    assert [data[a:b] for a, b in zip(begin, end, strict=True)] == texts
    assert first.tolist() == [seen[t] for t in texts]
    assert len(seen) == len(set(texts))
    assert repeats.codes(data, begin, end).tolist() == first.tolist()

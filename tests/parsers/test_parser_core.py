"""The compiled core gives what the pure Python path gives: on sound, odd and damaged input, to the ns."""

from __future__ import annotations

import json
import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_writer import LAYOUTS, job, text, write
from same import assert_same
from test_parser_fuzz import HEAD, mutate

from tracekit.errors import TracekitError
from tracekit.parsers import core, kineto
from tracekit.parsers.columns import Columns

if TYPE_CHECKING:
    from tracekit.model import RankTrace
    from tracekit.parsers.frames import Frames

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _built() -> None:
    if not core.available():
        if core.asked() == "1":
            pytest.fail("TRACEKIT_CORE=1, and the compiled core is not built")
        pytest.skip("the compiled core is not built")


def read(way: str, path: Path, **options: Any) -> list[RankTrace] | str:
    """Traces, or the message why there are none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(core.VARIABLE, {"compiled": "1", "pure": "0"}[way])
        try:
            return kineto.parse(path, **options)
        except TracekitError as e:
            return f"{type(e).__name__}: {e}"


def compare(path: Path, other: Path | None = None, **options: Any) -> list[RankTrace] | str:
    """What the core reads, after it was found equal to what the pure path reads (of another file)."""
    one, two = read("compiled", path, **options), read("pure", other or path, **options)
    if isinstance(one, str) or isinstance(two, str):
        assert one == two
        return one
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert_same(a, b)
        if other is None:
            assert a.meta == b.meta
    return one


def events_of(data: bytes) -> bytes:
    return data[data.index(b'"traceEvents"') :].split(b"[", 1)[1].rsplit(b"]", 1)[0]


@dataclass
class Taken:
    """What the core made of a chunk."""

    rest: bytes
    n_rest: int
    counts: dict[str, int]
    host: dict[str, Any]
    device: dict[str, Any]
    notes: dict[str, Any]


def scan(data: bytes, frames: Frames | None = None, *, text_times: bool = False) -> Taken | None:
    columns = Columns(frames)
    reader = core.Core(columns)
    found = reader.scan(data, text_times=text_times)
    if found is None:
        reader.finish()
        assert not columns.counts
        return None
    reader.add(found)
    reader.finish()
    rows = ({field: c.take() for field, c in t.items()} for t in (columns.host, columns.device, columns.annotations))
    return Taken(found.rest, found.n_rest, dict(columns.counts), *rows)


# ---------------------------------------------------------------- the core takes its share


@pytest.mark.parametrize("layout", LAYOUTS)
def test_frequent_rows_are_taken_and_nothing_is_lost(layout: str) -> None:
    """In every layout the same rows: all but metadata and the end of the window."""
    found = scan(events_of(text(job(), {}, {}, layout).encode()))
    assert found is not None
    taken = sum(found.counts.values())
    assert taken + found.n_rest == len(job())
    assert len(found.host["ts"]) == 40 * 3 + 14
    assert len(found.device["ts"]) == 40 + 14 * 2
    assert len(found.notes["ts"]) == 14
    assert found.n_rest == 3
    assert found.counts["X:python_function"] == 40
    assert len(json.loads(b"[" + found.rest + b"]")) == found.n_rest


SOUND = [b'{"ph":"s","cat":"ac2g"}', b' {"ph" : "s" , "cat" : "ac2g" , "x" : [ 1 , { } , [ ] , "a" ] } ',
         b'{"ph":"C","args":{"a":-0.5,"b":true,"c":null,"d":false,"e":0}},\n{"ph":"C"}']  # fmt: skip
UNSOUND = [b"", b" ", b"{", b"}", b"{}x", b"{},", b"{},,{}", b"[]", b"1", b'{"ph"}', b'{"ph":}', b'{"ph":"s",}', b'{"ph":"s"',
           b'{"ph":"s" "a":1}', b'{"a":01}', b'{"a":1.}', b'{"a":.5}', b'{"a":+1}', b'{"a":-}', b'{"a":1e}', b'{"a":tru}', b'{"a":nul',
           b'{"a":NaN}', b'{"a":[1,]}', b'{"a":[1 2]}', b'{"a":[1}', b'{"a":{"b":1]}', b'{"a":"', b'{"a":"\\', b'{"a":"\\"', b"{1:2}",
           b'{"a":' + b"[" * 60 + b"]" * 60 + b"}"]  # fmt: skip


@pytest.mark.parametrize("data", SOUND)
def test_sound_chunks_are_counted(data: bytes) -> None:
    found = scan(data)
    assert found is not None
    assert sum(found.counts.values()) == len(json.loads(b"[" + data + b"]"))
    assert not found.n_rest


@pytest.mark.parametrize("data", UNSOUND)
def test_chunks_that_are_not_json_are_not_taken(data: bytes) -> None:
    assert scan(data) is None
    assert scan(b'{"ph":"s","cat":"ac2g"},' + data) is None


ODD = [b'{"a":"\x01"}', b'{"a":"\\x"}', b'{"a":"\\u00e9"}', b'{"\\u0070h":"s"}', b'{"ph":"s","ph":"s"}', b'{"ph":1}', b"{}", b'{"ph":"M"}',
       b'{"ph":"s","name":[]}', b'{"ph":"s","pid":{}}', b'{"ph":"s","args":[]}', b'{"ph":"s","args":{"device":[]}}', b'{"ph":"s","cat":null}',
       b'{"ph":"i","name":"Record Window End"}', b'{"ph":"s","id":1e5}', b'{"ph":"s","id":123456789012345678901}', "{\"a\":\"\u00e9\"}".encode(),
       b'{"a":"\xff"}']  # fmt: skip


@pytest.mark.parametrize("data", ODD)
def test_odd_events_are_left_to_the_decoder(data: bytes) -> None:
    found = scan(b'{"ph":"s","cat":"ac2g"}, ' + data + b' ,{"ph":"s","cat":"ac2g"}')
    assert found is not None
    assert found.rest == data
    assert found.counts == {"s:ac2g": 2}


def test_times_that_a_float_rounds_need_all_of_it_as_text() -> None:
    row = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":2,"ts":1712195495502094.565,"dur":0.5}'
    assert scan(row) is None
    found = scan(row, text_times=True)
    assert found is not None
    assert found.host["ts"].tolist() == [1712195495502094565]
    assert found.host["dur"].tolist() == [500]


def test_wrong_use_is_an_error_not_a_crash() -> None:
    scanner = core._core.Scanner
    wrong: list[tuple[Any, Any, Any]] = [
        ((), (b"abc",), ()),
        (((b"X", 1, 1),), (), ()),
        (((b"X:a", 99, 1),), (), ()),
        ((1,), (), ()),
    ]
    for args in [
        *wrong,
        ((), (), (b"k" * 40,)),
        ((), (), (b"ab", b"a")),
        ((), (), (b"a",) * 99),
        ((), (b"abcd",) * 17, ()),
    ]:
        with pytest.raises((TypeError, ValueError)):
            scanner(*args, 1)
    with pytest.raises(TypeError):
        scanner((), (), (), 1).scan("text", False)
    with pytest.raises(ValueError, match="no such texts"):
        scanner((), (), (), 1).texts(99, 0)
    assert scanner((), (), (), 1).texts(0, 5) == []


def test_what_it_remembers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "_MAX_TEXTS", 3)
    path = write(tmp_path / "a.json", job())
    compare(path, block=5_000, frames=re.compile("nn"))
    monkeypatch.setattr(core, "_MAX_UNSOUND", 1)
    path.write_bytes(path.read_bytes().replace(b'"Python id": 3}', b'"Python id": 3,}'))
    compare(path, block=5_000, frames=re.compile("nn"))


# ---------------------------------------------------------------- equal to the pure path


SAMPLES = sorted(p for p in (ROOT / "sample_traces").glob("*/rank0*.json*"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.parent.name)
def test_samples_are_read_alike(path: Path) -> None:
    compare(path, frames=re.compile("forward"), frame_names=re.compile("megatron"))


@pytest.mark.shared
def test_small_files_of_the_corpus_are_read_alike(shared: Path) -> None:
    lines = (shared / "corpus" / "MANIFEST.tsv").read_text("utf-8").splitlines()
    kinds = {"chrome-obj", "chrome-list"}
    names = [cells[0] for cells in (line.split("\t") for line in lines) if kinds & set(cells)]
    files = [p for p in (shared / "corpus" / n for n in names) if p.is_file() and p.stat().st_size < 60_000]
    assert len(files) > 10
    taken = sum(not isinstance(compare(path), str) for path in files)
    assert taken > 10


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("block", [700, 1 << 20])
def test_layouts_are_read_alike(tmp_path: Path, layout: str, block: int) -> None:
    path = write(tmp_path / "a.json", job(), layout=layout)
    compare(path, block=block)
    compare(path, block=block, frames=re.compile("nn: f"))
    compare(path, block=block, frames=re.compile("no such"), frame_names=re.compile("torch"))
    compare(path, block=block, strict=True)


def test_strict_reading_of_damage_is_alike(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", job())
    for old, new in [
        (b'"Python id": 3}', b'"Python id": 3,}'),
        (b'"dur": 25.500', b'"dur": -5'),
        (b"aten::mm", b"aten::\xffmm"),
    ]:
        data = path.read_bytes()
        bad = tmp_path / "bad.json"
        bad.write_bytes(data.replace(old, new, 1))
        compare(bad, strict=True)
        compare(bad)


@pytest.mark.parametrize("seed", range(24))
def test_damage_is_read_alike(tmp_path: Path, seed: int) -> None:
    rng = random.Random(1_000 + seed)
    path = tmp_path / "m.json"
    data = text(job(12), HEAD, {"traceName": "x"}, LAYOUTS[seed % len(LAYOUTS)]).encode()
    for _ in range(6):
        path.write_bytes(mutate(data, rng))
        compare(path, block=rng.choice([900, 1 << 20]), frames=re.compile("nn"))


NUMBERS = ["0", "7", "-0", "-3", "12.5", "0.001", "3.1415", "1e3", "1E-2", "-0.5", "00", "1.", "123456789012345678",
           "1234567890123456789", "18446744073709551615", "99999999999999999999999", "8796093022208", "8796093022208.001",
           "9007199254740991", "9007199254740992", "864000000000", "864000000001", "1e400"]  # fmt: skip
STRINGS = ['""', '"a"', '"7"', '"stream 7"', '"0x1f"', r'"q\"uote"', r'"back\\slash"', r'"sl\/ash"', r'"\u00e9"', r'"\ud800"', '"café"',
           '"tab\there"', r'"\x"', '"record_param_comms"', '"c10d::allreduce_"', '"nccl:all_reduce"', '"ncclDevKernel(x)"',
           '"Memcpy PtoP"', '"Memcpy HtoD"', '"Record Window End"', '"' + "k" * 300 + '"']  # fmt: skip
OTHERS = ["null", "true", "false", "[]", "{}", '[1, "a", {"b": [2.5]}]', '{"name": {"ts": 1}}', "nul"]
CATS = ["cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "python_function",
        "ac2g", "Operator", "Kernel", "mtia_ccp_events", "cuda_sync", "overhead", ""]  # fmt: skip
USUAL = {
    "ph": ['"X"'] * 12 + ['"s"', '"f"', '"i"', '"M"', '"C"', '"XX"'],
    "cat": [json.dumps(c) for c in CATS],
    "name": STRINGS[:8] + STRINGS[13:],
    "pid": ["0", "900", '"[TP00-PP01] 83"', '"p"'],
    "tid": ["7", "900", '"stream 7"', "18446744073709551615"],
    "ts": ["5", "5.125", "6.5", "100.25", "0", "8796093022207.999"],
    "dur": ["1", "0.5", "0", "12.345"],
    "args": ["{}"],
    "External id": ["1", "2", "-1"],
    "correlation": ["3", "4"],
    "device": ["0", "1", '"0"', "-1"],
    "stream": ["7", "20", '"stream 3"'],
    "bytes": ["64"],
    "Collective name": ['"allreduce"', "null"],
    "external id": ["9"],
    "fromDevice": ["0"],
    "toDevice": ["1"],
    "name in args": ['"x"'],
    "Seq": ["5", "6"],
    "Comms Id": ["16215888877925988064", "18446744073709551616", "9223372036854775808"],
    "Process Group Name": ['"7"'],
    "Input Dims": ["[[2, 3], []]"],
    "other": ["[1, 1]"],
}
TOP = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]
ARGS = [k for k in USUAL if k not in TOP]


def value_of(draw: st.DrawFn, key: str, odd: bool) -> str:
    return draw(st.sampled_from(NUMBERS + STRINGS + OTHERS if odd else USUAL[key]))


def member(draw: st.DrawFn, key: str, oddity: int, gap: str) -> str:
    odd = draw(st.integers(0, 99)) < oddity
    spelled = json.dumps(key.removesuffix(" in args"))
    return f"{spelled}:{gap}{value_of(draw, key, odd)}"


@st.composite
def spelled_events(draw: st.DrawFn, oddity: int) -> str:
    """Events as text: any order of keys, missing and repeated ones, values in all spellings."""
    gap = draw(st.sampled_from(["", " ", "\n\t "]))
    out = []
    for _ in range(draw(st.integers(1, 6))):
        keys = [k for k in TOP if draw(st.integers(0, 99)) >= oddity]
        if draw(st.integers(0, 3)) == 0:
            keys = draw(st.permutations(keys))
        if draw(st.integers(0, 99)) < oddity:
            keys += [draw(st.sampled_from(TOP))]
        members = []
        for key in keys:
            if key == "args" and draw(st.integers(0, 99)) >= oddity // 3:
                inner = draw(st.lists(st.sampled_from(ARGS), max_size=7, unique=draw(st.integers(0, 99)) >= oddity))
                pairs = f",{gap}".join(member(draw, k, oddity, gap) for k in inner)
                members.append(f'"args":{gap}{{{gap}{pairs}{gap}}}')
            else:
                members.append(member(draw, key, oddity, gap))
        out.append("{" + gap + f"{gap},{gap}".join(members) + gap + "}")
    return f",{gap}".join(out)


@pytest.mark.parametrize("oddity", [0, 4, 25])
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_spelling_is_read_alike(tmp_path: Path, oddity: int, data: st.DataObject) -> None:
    path = tmp_path / "s.json"
    whole = f'{{"schemaVersion": 1, "traceEvents": [{data.draw(spelled_events(oddity))}]}}'
    path.write_bytes(whole.encode("utf-8", "surrogatepass"))
    strict = data.draw(st.booleans())
    compare(path, strict=strict, frames=data.draw(st.sampled_from([None, re.compile("a"), re.compile("zz")])))


@pytest.mark.parametrize("oddity", [0, 6])
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_spellings_that_come_again_are_read_alike(tmp_path: Path, oddity: int, data: st.DataObject) -> None:
    """What stood in an event before is recognised in a later one, and never where it only looks like it."""
    few = [data.draw(spelled_events(oddity)) for _ in range(3)]
    events = data.draw(st.lists(st.sampled_from(few), min_size=8, max_size=25))
    filler = '{"ph": "C", "name": "' + "x" * 200 + '"}'  # only far from the end of a chunk is anything recognised
    path = tmp_path / "a.json"
    path.write_bytes(f'{{"traceEvents": [{", ".join([*events, filler])}]}}'.encode("utf-8", "surrogatepass"))
    compare(path, frames=data.draw(st.sampled_from([None, re.compile("a"), re.compile("zz")])))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_bytes_of_any_kind_are_read_alike(tmp_path: Path, data: st.DataObject) -> None:
    sound = text(job(3), HEAD, {}, data.draw(st.sampled_from(LAYOUTS))).encode()
    at = data.draw(st.integers(0, len(sound)))
    cut = data.draw(st.sampled_from([0, 0, 1, 5]))
    junk = data.draw(
        st.one_of(st.binary(max_size=3), st.sampled_from([b'"', b"\\", b"{", b"}", b",", b"]", b"1e9", b"\xc3\xa9"]))
    )
    path = tmp_path / "b.json"
    path.write_bytes(sound[:at] + junk + sound[at + cut :])
    compare(path)


def test_a_core_of_older_sources_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the C files, and before the next install, the pure path reads."""
    monkeypatch.setattr(core, "_REVISION", -1)
    monkeypatch.delenv(core.VARIABLE, raising=False)
    assert "another revision" in core.state()
    assert kineto.parse(write(tmp_path / "a.json", job()))
    monkeypatch.setenv(core.VARIABLE, "1")
    with pytest.raises(TracekitError, match="not built"):
        kineto.parse(tmp_path / "a.json")


def test_threads_read_side_by_side(tmp_path: Path) -> None:
    """The core works without the GIL; each file has its own scanner."""
    files = [write(tmp_path / f"{layout}.json", job(200), layout=layout) for layout in LAYOUTS]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda path: kineto.parse(path, block=20_000)[0], files * 3))
    for trace in found[1:]:
        assert_same(trace, found[0])


def test_a_large_time_between_small_ones_keeps_its_ns(tmp_path: Path) -> None:
    """A float64 holds a Unix time in µs to a quarter of a µs: the text must be read, wherever in a chunk it stands."""
    rows = [{"ph": "X", "cat": "cpu_op", "name": f"n{i}", "pid": 1, "tid": 1, "ts": i, "dur": 1} for i in range(3)]
    path = tmp_path / "mixed.json"
    path.write_text(json.dumps({"traceEvents": rows}).replace('"ts": 1', '"ts": 1700000000000000.123'))
    (trace,) = compare(path)
    assert sorted(trace.host.ts.tolist()) == [0, 2000, 1_700_000_000_000_000_123]

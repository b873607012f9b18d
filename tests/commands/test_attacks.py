"""Input that once gave a wrong number, an internal error or no end: each with its right answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.commands import cli
from tracekit.errors import RuleError, TracekitError, UnusableInput, UsageError
from tracekit.label import load_rules

if TYPE_CHECKING:
    from pathlib import Path


def kernel(name: str, ts: float, dur: float) -> dict[str, Any]:
    """A kernel event."""
    args = {"device": 0, "stream": 7, "correlation": 1}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


REAL = [kernel("gemm", 100, 50), kernel("gemm", 200, 50)]
FAKE = [kernel("fake", 1, 10_000)]
HEAD = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 2}}


def analysed(tmp_path: Path, text: str) -> dict[str, Any]:
    """The JSON of one file with this text."""
    (tmp_path / "t.json").write_text(text)
    document: dict[str, Any] = tk.analyze(tmp_path / "t.json", workers=1, detail=False).document
    return document


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "other", [FAKE, {"k": FAKE, "z": 1}, {"traceEvents": FAKE}, [[FAKE]], '"traceEvents": [{"ph": "X"']
)
@pytest.mark.parametrize("before", [True, False])
def test_metadata_that_looks_like_events_is_metadata(
    tmp_path: Path, other: Any, before: bool, indent: int | None
) -> None:
    pairs = {"m": other, "traceEvents": REAL} if before else {"traceEvents": REAL, "m": other}
    document = analysed(tmp_path, json.dumps({**HEAD, **pairs}, indent=indent))
    assert [t["compute_ns"] for t in document["totals"]] == [100_000]
    assert [r["events"] for r in document["ranks"]] == [2]
    assert [h for h in document["health"] if h["severity"] != "info"] == []


@pytest.mark.parametrize("first", [True, False])
def test_two_documents_keep_their_ranks(tmp_path: Path, first: bool) -> None:
    def text(rank: int) -> str:
        info = {"distributedInfo": {"rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}}
        return json.dumps({**info, "traceEvents": REAL} if first else {"traceEvents": REAL, **info})

    document = analysed(tmp_path, text(0) + text(1))
    assert [(r["rank"], r["used"], r["events"]) for r in document["ranks"]] == [(0, True, 2), (1, True, 2)]


@pytest.mark.parametrize("number", [2_000_000_000, 99_999_999_999_999, -1, True, "many"])
def test_impossible_worlds_are_not_believed(tmp_path: Path, number: Any) -> None:
    info = {"rank": number, "world_size": number}
    document = analysed(tmp_path, json.dumps({"distributedInfo": info, "traceEvents": REAL}))
    assert [(r["rank"], r["world_size"]) for r in document["ranks"]] == [(None, None)]
    assert document["totals"][0]["compute_ns"] == 100_000


@pytest.mark.parametrize("base", [99_999_999_999_999_999_999, 9_223_372_036_854_775_000, -5])
def test_impossible_bases_are_not_believed(tmp_path: Path, base: int) -> None:
    document = analysed(tmp_path, json.dumps({**HEAD, "baseTimeNanoseconds": base, "traceEvents": REAL}))
    assert document["totals"][0]["compute_ns"] == 100_000


def test_a_rank_beyond_its_world_is_unknown_not_empty(tmp_path: Path) -> None:
    document = analysed(tmp_path, json.dumps({"distributedInfo": {"rank": 5, "world_size": 2}, "traceEvents": REAL}))
    assert document["totals"][0]["compute_ns"] == 100_000
    assert "rank-doubtful" in {f["code"] for f in document["findings"]}


def test_times_too_small_to_be_times(tmp_path: Path) -> None:
    event = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1e-400,"dur":1e-400,"args":{"device":0}}'
    with pytest.raises(UnusableInput):
        analysed(tmp_path, '{"deviceProperties":[],"traceEvents":[' + event + "]}")


def test_a_step_group_need_not_be_a_number(tmp_path: Path) -> None:
    marker = {"ph": "X", "cat": "user_annotation", "name": "warm up", "pid": 1, "tid": 1, "ts": 90, "dur": 200}
    (tmp_path / "t.json").write_text(json.dumps({**HEAD, "traceEvents": [marker, *REAL]}))
    document = tk.analyze(tmp_path / "t.json", step_pattern="(?P<step>.*)", workers=1, detail=False).document
    assert [s["step"] for s in document["steps"]] == [0]


@pytest.mark.parametrize("text", ["a=" + "[" * 20_000, "\x00", "[[kernel]]\nid = 3"])
def test_rule_files_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.toml").write_text(text)
    (tmp_path / "t.json").write_text(json.dumps({**HEAD, "traceEvents": REAL}))
    with pytest.raises(RuleError, match=r"r\.toml"):
        tk.analyze(tmp_path / "t.json", rules=[tmp_path / "r.toml"])


ENTRY = '[[rule]]\nid = "x"\ntier = "A"\nconfidence = 0.9\nthen = {strategy = "tp"}\nwhen = '


@pytest.mark.parametrize("pattern", ["(a+)+!", "((a*))*", "x(?:a+b?)+$", "(a*b*)*", "b|(a+){2,}", "a{99999999999999999999}",
                                     "(" * 3000 + "a" + ")" * 3000])  # fmt: skip
def test_patterns_that_never_end_or_break_the_compiler(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "r.toml").write_text(f"{ENTRY}{{scope = '{pattern}'}}")
    with pytest.raises(RuleError, match=r"r\.toml: \[\[rule\]\] 'x', field 'when.scope'"):
        load_rules([tmp_path / "r.toml"])


@pytest.mark.parametrize("pattern", ["(a+b)+", "(?:ab?)*", r"(\d+,)*\d+", "(a{2,3})+", "(?:x|y+z)*", "a+b+"])
def test_repetitions_with_an_end_are_patterns(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "r.toml").write_text(f"{ENTRY}{{scope = '{pattern}'}}")
    assert load_rules([tmp_path / "r.toml"]).labels[0].when.scope is not None


@pytest.mark.parametrize("pattern", ["(?i)MINE", r"(?P<a>m)ine", r"(.)in\1"])
def test_frame_patterns_mean_together_what_they_mean_alone(tmp_path: Path, pattern: str) -> None:
    text = f"{ENTRY}{{frame = '{pattern}'}}\n" + f"{ENTRY}{{frame = '{pattern}'}}\n".replace('"x"', '"y"')
    (tmp_path / "r.toml").write_text(text)
    frames = load_rules([tmp_path / "r.toml"]).frames
    assert frames is not None
    assert all(frames.search(name) for name in ("mine", "minm"))


def test_a_number_without_end_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("a = " + "9" * 5000)
    for command in (["rules", "check"], ["analyze", "-q", "x.json", "--map"], ["analyze", "-q", "x.json", "--run"]):
        found = CliRunner().invoke(cli, [*command, str(tmp_path / "r.toml")]).exception
        assert isinstance(found, TracekitError)
        assert "not a TOML file" in str(found)


def test_an_id_must_be_of_plain_digits(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps({**HEAD, "traceEvents": REAL}))
    for text in ("²", "²:1"):
        found = CliRunner().invoke(cli, ["explain", str(tmp_path / "t.json"), "--collective", text]).exception
        assert isinstance(found, UsageError)


def test_a_map_entry_that_fits_no_group_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps({**HEAD, "traceEvents": REAL}))
    (tmp_path / "m.toml").write_text("[[group]]\nname = 'typo'\naxes = 'tp'\n")
    found = tk.analyze(tmp_path / "t.json", group_map=tmp_path / "m.toml", workers=1, detail=False).document["findings"]
    assert [f["message"].partition(" fits")[0] for f in found if f["code"] == "map-unmatched"] == [
        f"{tmp_path / 'm.toml'}: [[group]] #1"
    ]


def test_devices_and_folders_are_no_rule_files(tmp_path: Path) -> None:
    for path in ("/dev/zero", str(tmp_path)):
        assert CliRunner().invoke(cli, ["rules", "check", path]).exception.__class__ is RuleError


def test_a_path_too_long_is_an_input_error() -> None:
    with pytest.raises(UnusableInput, match="check the path"):
        tk.analyze("a" * 5000)


@pytest.mark.parametrize(("base", "stamped"), [(0, False), (5_000, False), (1_767_189_312_000_000_000, True)])
def test_a_base_that_is_no_date_gives_no_date(tmp_path: Path, base: int, stamped: bool) -> None:
    (tmp_path / "t.json").write_text(json.dumps({**HEAD, "baseTimeNanoseconds": base, "traceEvents": REAL}))
    result = tk.analyze(tmp_path / "t.json", workers=1)
    assert result.run.absolute is stamped
    stamps = result.arrow("activities").column("ts")
    assert stamps.null_count == (0 if stamped else 2)


def test_shapes_may_nest_as_they_like(tmp_path: Path) -> None:
    def host(cat: str, name: str, tid: int, ts: float, dims: Any) -> dict[str, Any]:
        args = {"Input Dims": dims, "Input type": ["float"]}
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": 5, "args": args}

    dims = [[[[2, 3]], [4]]]
    events = [
        host("cpu_op", "aten::mm", 1, 1, [[2, 3]]),
        host("cpu_op", "c10d::allreduce_", 1, 10, [dims]),
        host("user_annotation", "gloo:all_reduce", 2, 12, dims),
    ]
    document = analysed(tmp_path, json.dumps({**HEAD, "traceEvents": events}))
    assert document["totals"][0]["collectives"] == 1
    assert document["totals"][0]["comm_ns"] == 5000

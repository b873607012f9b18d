"""`tracekit diff` and `--gate` as CI meets them: inputs, forms, exit codes, inert text."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

import tracekit as tk
from tracekit.analysis.diff.compare import compare
from tracekit.analysis.diff.side import side
from tracekit.commands import main
from tracekit.output.diff import markdown, show

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "gloo-fsdp2"
EVIL = "a|b `c`\n<script>@all</script> \x1b[31m | http://x.y"


def call(*args: object) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) through the real entry point."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        main([str(a) for a in args])
    return int(end.value.code or 0), out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run as traces, as a dataset and as a saved document, and a run that takes longer."""
    folder = tmp_path_factory.mktemp("forms")
    result = tk.analyze(SAMPLE, workers=1)
    (folder / "saved.json").write_text(result.to_json())
    result.write(folder / "dataset")
    slow = json.loads(result.to_json())
    for row in slow["breakdown"]:
        row["window_ns"] += 500_000_000
        row["idle_ns"] += 500_000_000
    (folder / "slow.json").write_text(json.dumps(slow))
    return {"traces": SAMPLE, **{n: folder / n for n in ("saved.json", "dataset", "slow.json")}}


def test_traces_dataset_and_document_are_the_same_run(forms: dict[str, Path]) -> None:
    found = {}
    for name in ("traces", "dataset", "saved.json"):
        code, out, err = call("diff", forms["saved.json"], forms[name], "--json", "--workers", 1)
        assert (code, err) == (0, "")
        found[name] = json.loads(out)
        assert found[name]["causes"] == []
        assert all(p["change_ns"] == 0 for p in found[name]["parts"])
        assert found[name]["sites"]
        assert all(s["change_ns"] == 0 for s in found[name]["sites"])
        found[name]["b"].pop("name")
    again = tk.diff(tk.read(forms["dataset"]), tk.read(forms["dataset"]))
    assert (again["parts"], again["sites"]) == (found["dataset"]["parts"], found["dataset"]["sites"])
    assert found["traces"] == found["dataset"] == found["saved.json"]


def test_what_changed_is_said_in_every_form(forms: dict[str, Path]) -> None:
    code, out, _ = call("diff", forms["saved.json"], forms["slow.json"])
    assert code == 0
    assert re.search(r"A step takes .* more than before .*: the device is idle 500 ms more", out)
    code, text, _ = call("diff", forms["saved.json"], forms["slow.json"], "--format", "markdown")
    assert code == 0
    assert text.startswith("**A step takes")
    assert "| idle |" in text
    assert call("diff", forms["saved.json"], forms["slow.json"], "-q") == (0, "", "")


def test_gates_of_a_comparison(forms: dict[str, Path]) -> None:
    two = (forms["saved.json"], forms["slow.json"])
    code, out, err = call("diff", *two, "--json", "--gate", "step_ns<+1%", "--gate", "idle_ns<+600ms")
    assert code == 4
    rows = json.loads(out)["gates"]
    assert [r["passed"] for r in rows] == [False, True]
    assert rows[1]["change"] == pytest.approx(500_000_000)
    assert err.count("\n") == 1
    assert err.startswith("tracekit: gate crossed: step_ns changes by +")
    assert call("diff", *two, "-q", "--gate", "step_ns<+100000%") == (0, "", "")
    code, out, _ = call("diff", *two, "--format", "markdown", "--gate", "step_ns<+1%")
    assert code == 4
    assert "| crossed |" in out


def test_gates_of_one_run() -> None:
    args = ("analyze", SAMPLE, "--workers", 1)
    code, out, err = call(*args, "--gate", "exposed_ratio<1", "--gate", "exposed.zero3_ratio < 0.001", "--json")
    assert code == 4
    assert [r["passed"] for r in json.loads(out)["gates"]] == [True, False]
    assert "exposed.zero3_ratio = " in err
    assert err.count("\n") == 1
    code, out, err = call(*args, "--gate", "bubble_ns<1ms", "-q")
    assert (code, out) == (4, "")
    assert "bubble_ns" in err or "no pipeline" in err
    code, out, err = call(*args, "--gate", "bubble_ns?<1ms")
    assert (code, err) == (0, "")
    assert "gate    passed" in out
    code, out, _ = call(*args, "--gate", "step_ns<1ns", "--format", "markdown")
    assert code == 4
    assert "step\\_ns\\<1ns | crossed" in out


def test_mistakes(forms: dict[str, Path], tmp_path: Path) -> None:
    code, _, err = call("analyze", SAMPLE, "--gate", "step_ns<+3%")
    assert code == 2
    assert "diff A B" in err
    code, _, err = call("diff", SAMPLE, SAMPLE, "--gate", "stepp_ns<3")
    assert code == 2
    assert "position 1" in err
    code, _, err = call("diff", forms["dataset"], forms["dataset"], "--step-pattern", "x")
    assert code == 2
    assert "--step-pattern" in err
    code, _, err = call("diff", SAMPLE, tmp_path / "missing")
    assert code == 2 or code == 3
    for text, said in (
        ('{"schema_version": "1.0", "tool', "no whole JSON"),
        ('{"schema_version": "9.0"}', "schema version 9.0"),
        ('{"schema_version": "1.0", "steps": 3}', "not as `tracekit analyze --json` writes it"),
        ('{"schema_version": "1.0", "steps": [{}], "breakdown": [{}]}', "not as `tracekit analyze --json` writes it"),
    ):
        (tmp_path / "bad.json").write_text(text)
        code, _, err = call("diff", forms["saved.json"], tmp_path / "bad.json")
        assert code == 3, text
        assert said in err


def test_names_are_inert(forms: dict[str, Path]) -> None:
    document: dict[str, Any] = json.loads(forms["saved.json"].read_text())
    for row in document["exposure"]:
        row["purpose"] = EVIL
    for row in document["sites"]:
        row["site"] = row["op"] = EVIL
        row["exposed_ns"] += 50_000_000
    for row in document["ranks"]:
        row["device_name"] = EVIL
    found = compare(side(json.loads(forms["saved.json"].read_text()), "a"), side(document, EVIL))
    text = markdown(found)
    for bad in ("<script>", "\x1b", "`c`", "@all", "http://"):
        assert bad not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for line in rows:
        assert len(re.findall(r"(?<!\\)\|", line)) in (4, 8, 11, 13)
    assert len(rows) > 10
    from rich.console import Console

    screen = io.StringIO()
    show(found, Console(file=screen, width=200))
    assert "\x1b" not in screen.getvalue()


def test_call_sites_are_told_apart_by_purpose_and_phase(forms: dict[str, Path]) -> None:
    from tracekit.output.diff import grids

    document: dict[str, Any] = json.loads(forms["saved.json"].read_text())
    first = document["sites"][0]
    first |= {"purpose": "gradient", "phase": "backward"}
    before = json.loads(json.dumps(document))
    document["sites"].append(first | {"phase": "forward", "exposed_ns": 90_000_000})
    (sites,) = (g for g in grids(compare(side(before, "a"), side(document, "b"))) if "call sites" in g.title)
    assert sites.columns[:4] == ("strategy", "purpose", "phase", "operation")
    assert sites.rows[0][:4] == (first["strategy"], "gradient", "forward", first["op"])
    assert sites.rows[0][4] == "0"


@pytest.mark.parametrize(
    ("table", "column", "value", "told"),
    [
        ("breakdown", "window_ns", float("nan"), "NaN is no number of JSON"),
        ("breakdown", "window_ns", float("inf"), "Infinity is no number of JSON"),
        ("breakdown", "window_ns", 10**400, "breakdown[0].window_ns: expected int64"),
        ("breakdown", "window_ns", "12", "breakdown[0].window_ns: expected int64, found '12'"),
        ("breakdown", "idle_ns", None, "breakdown[0].idle_ns: expected int64, found None"),
        ("breakdown", "rank", "zero", "breakdown[0].rank: expected int32"),
        ("exposure", "strategy", None, "exposure[0].strategy: expected text"),
        ("exposure", "attributed_ns", True, "exposure[0].attributed_ns: expected int64, found True"),
        ("sites", "payload_bytes", "1", "sites[0].payload_bytes: expected a number"),
        ("steps", None, [3], "steps: expected a list of rows"),
        ("frameworks", None, "fsdp", "frameworks: expected a list of names"),
    ],
)
def test_a_saved_document_with_a_wrong_value_is_refused_at_its_place(
    forms: dict[str, Path], tmp_path: Path, table: str, column: str | None, value: object, told: str
) -> None:
    broken = json.loads(forms["saved.json"].read_text())
    if column is None:
        broken[table] = value
    else:
        broken[table][0][column] = value
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    for two in (("broken.json", "saved.json"), ("saved.json", "broken.json")):
        code, out, err = call("diff", *(tmp_path / n if n == "broken.json" else forms[n] for n in two), "--json")
        assert (code, out) == (3, "")
        assert told in err
        assert "broken.json" in err


def test_columns_that_an_older_document_does_not_know_are_null(forms: dict[str, Path], tmp_path: Path) -> None:
    old = json.loads(forms["saved.json"].read_text())
    for row in old["exposure"]:
        for column in (
            "wait_ns",
            "transfer_ns",
            "attributed_wait_ns",
            "attributed_transfer_ns",
            "attributed_unsplit_ns",
        ):
            del row[column]
    (tmp_path / "old.json").write_text(json.dumps(old))
    code, out, _ = call("diff", tmp_path / "old.json", forms["saved.json"], "--json")
    assert code == 0
    found = json.loads(out)
    assert all(c["wait"]["a_ns"] is None for c in found["communication"])
    assert all(p["change_ns"] == 0 for p in found["parts"])


def test_a_folder_of_runs_is_told_from_a_folder_of_traces(forms: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "run=a").symlink_to(forms["dataset"])
    code, _, err = call("diff", tmp_path / "runs", forms["saved.json"])
    assert code == 3
    assert "name one of them, as" in err
    assert "run=a" in err


def test_plain_text_that_github_links_stays_text() -> None:
    from tracekit.output.markdown import escape

    for text in ("www.evil.com", "see #12", "GH-7", "a WWW.x.y"):
        assert text not in escape(text).replace("\\", "")
        assert escape(text).replace("\\", "").replace("\u2060", "") == text
    assert escape("ProfilerStep#20 awww.x") == "ProfilerStep\\#20 awww.x"

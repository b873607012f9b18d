"""The command line as a user meets it: outputs, exit codes, start-up."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tracekit.commands import cli, main
from tracekit.parsers import identify

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "sample_traces" / "gloo-fsdp2"
KEYS = [
    "schema_version", "tool_version", "sources", "ranks", "layout", "totals", "breakdown", "exposure", "groups",
    "pipeline", "stragglers", "theory", "findings", "health",
]  # fmt: skip


def call(*args: object) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a run in this process, through the real entry point."""
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        main([str(a) for a in args])
    return int(end.value.code or 0), out.getvalue(), err.getvalue()


def test_json_has_the_promised_keys() -> None:
    code, out, _ = call("analyze", SAMPLE, "--json", "--workers", 1)
    assert code == 0
    document = json.loads(out)
    assert [k for k in KEYS if k not in document] == []
    total = document["totals"][0]
    assert {"rank", "device", "window_ns", "compute_ns", "comm_ns", "hidden_ns", "exposed_ns", "copy_ns", "fused_ns",
            "idle_ns", "collectives", "by_strategy"} <= total.keys()  # fmt: skip
    assert {"count", "total_ns", "exposed_ns", "exposed_alone_ns", "attributed_ns", "hidden_ns", "wait_ns",
            "transfer_ns"} <= total["by_strategy"]["zero3"].keys()  # fmt: skip
    assert sum(s["attributed_ns"] for s in total["by_strategy"].values()) == total["exposed_ns"]


def test_workers_and_order_do_not_change_the_answer() -> None:
    files = sorted(SAMPLE.glob("rank*.json.gz"))
    one = json.loads(call("analyze", *files, "--json", "--workers", 1)[1])
    two = json.loads(call("analyze", *reversed(files), "--json", "--workers", 2)[1])
    assert one == two


def test_report_says_the_verdict_first_and_the_data_last() -> None:
    code, out, _ = call("analyze", SAMPLE, "--workers", 1, "--steps")
    assert code == 0
    lines = [line for line in out.splitlines() if line.strip()]
    assert "% of a step is communication that nothing hid" in lines[1]
    assert any(line.startswith("data ") for line in lines)
    assert "2 of 2 traces used" in out


def test_markdown_is_a_table() -> None:
    code, out, _ = call("analyze", SAMPLE, "--format", "markdown", "--workers", 1)
    assert code == 0
    assert "| strategy | calls |" in out
    assert "| zero3 |" in out


def test_quiet_says_nothing(tmp_path: Path) -> None:
    assert call("analyze", SAMPLE, "-q", "-o", tmp_path / "out", "--workers", 1) == (0, "", "")
    assert (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    "args",
    [
        ("analyze",),
        ("analyze", SAMPLE, "--no-such-option"),
        ("analyze", SAMPLE, "--rank-regex", "("),
        ("analyze", SAMPLE, "--step-pattern", "("),
        ("explain", SAMPLE, "--collective", "first"),
        ("explain", SAMPLE, "--collective", "0:999999"),
        ("explain", SAMPLE, "--collective", "7:0"),
        ("rules", "show", "no-such-rule"),
        ("schema", "no-such-table"),
    ],
)
def test_wrong_usage_is_code_2(args: tuple[object, ...]) -> None:
    code, out, err = call(*args)
    assert code == 2
    assert err
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.json", b"", "empty"),
        ("text.json", b"hello\nworld\n", "text"),
        ("list.json", b"[1, 2, 3]", "JSON"),
        ("nothing.json", b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}', "no usable event"),
        ("cut.json.gz", gzip.compress(b'{"traceEvents": [', mtime=0)[:8], "gzip"),
        ("archive.json", b"PK\x03\x04rest", "zip"),
    ],
)
def test_unusable_input_is_code_3(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for command in ("analyze", "doctor"):
        code, out, err = call(command, path)
        assert code == 3, command
        assert said in out + err
        assert str(path) in out + err
        assert "Traceback" not in out + err


def test_a_missing_path_is_code_3(tmp_path: Path) -> None:
    code, _, err = call("analyze", tmp_path / "nothing")
    assert code == 3
    assert "no such file" in err


def test_explain_names_the_rules() -> None:
    code, out, _ = call("explain", SAMPLE, "--collective", "0:0")
    assert code == 0
    assert "zero3" in out
    assert "FSDP::all_gather" in out


def test_doctor_describes_a_file() -> None:
    code, out, _ = call("doctor", SAMPLE / "rank0.json.gz")
    assert code == 0
    assert "Kineto" in out
    assert "rank      0 of 2" in out
    document = json.loads(call("doctor", SAMPLE / "rank0.json.gz", "--json")[1])
    assert document["files"][0]["usable"] is True


def test_doctor_names_foreign_files_once(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    code, out, err = call("doctor", tmp_path / "notes.txt")
    assert code == 3
    assert out.count("plain text") == 1
    assert "plain text" not in err
    code, out, _ = call("doctor", tmp_path / "notes.txt", SAMPLE / "rank0.json.gz")
    assert code == 0
    assert "not usable: plain text" in out


def test_a_folder_in_the_way_is_told_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.txt").write_text("")
    monkeypatch.setattr("tracekit.api.analyze", None)
    code, _, err = call("analyze", SAMPLE, "-o", tmp_path)
    assert code == 2
    assert "did not write" in err


def test_a_mixed_folder_uses_the_traces_and_lists_the_rest(tmp_path: Path) -> None:
    for file in SAMPLE.glob("rank*.json.gz"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty.json").write_bytes(b"")
    (tmp_path / ".hidden.json").write_bytes(b"{}")
    document = json.loads(call("analyze", tmp_path, "--json", "--workers", 1)[1])
    assert len(document["totals"]) == 2
    passed_over = {Path(h["source"]).name for h in document["health"] if h["reason"].startswith("not a trace")}
    assert passed_over == {"notes.txt", "empty.json"}


def test_one_file_given_twice_counts_once(tmp_path: Path) -> None:
    (tmp_path / "link.json.gz").symlink_to(SAMPLE / "rank0.json.gz")
    document = json.loads(call("analyze", SAMPLE / "rank0.json.gz", tmp_path, "--json", "--workers", 1)[1])
    assert len(document["ranks"]) == 1


def test_a_rank_pattern_that_matches_nothing_is_code_2() -> None:
    code, _, err = call("analyze", SAMPLE, "--rank-regex", r"worker-(\d+)")
    assert code == 2
    assert "none of the 2 files" in err


def test_a_script_without_main_guard_may_use_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import tracekit as tk\nprint(len(tk.analyze({str(SAMPLE)!r}, workers=2).document['totals']))\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_a_worker_that_dies_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracekit.ingest.pool._end_with_the_command", _die)
    code, _, err = call("analyze", SAMPLE, "--workers", 2)
    assert code == 1
    assert "--workers" in err
    assert "defect" not in err


def _die() -> None:
    import os

    os._exit(1)


def test_rules_list_show_check(tmp_path: Path) -> None:
    code, out, _ = call("rules", "list", "--kind", "kernel")
    assert code == 0
    assert "nccl" in out
    assert call("rules", "show", "nccl")[0] == 0
    mine = tmp_path / "mine.toml"
    mine.write_text("[[kernel]]\nid = 'mine'\nkind = 'comm'\nfamily = 'mine'\nbase = '^my_exchange'\n")
    assert call("rules", "check", mine)[0] == 0
    mine.write_text("[[kernel]]\nid = 'mine'\nkind = 'com'\n")
    code, _, err = call("rules", "check", mine)
    assert code == 2
    assert "mine.toml" in err
    assert "kind" in err


def test_schema_lists_every_table() -> None:
    code, out, _ = call("schema")
    assert code == 0
    assert "attributed_ns" in out
    assert "[ns]" in out
    assert call("schema", "totals", "--format", "markdown")[0] == 0
    assert json.loads(call("schema", "--format", "json")[1])["schema_version"]


def test_an_unexpected_error_is_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def boom(*_: Any, **__: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("tracekit.api.analyze", boom)
    code, _, err = call("analyze", SAMPLE)
    assert code == 1
    assert "internal error" in err
    assert "Traceback" not in err


def test_help_of_every_command() -> None:
    runner = CliRunner()
    for args in ([], ["analyze"], ["doctor"], ["explain"], ["rules"], ["schema"], ["rules", "list"]):
        result = runner.invoke(cli, [*args, "--help"])
        assert result.exit_code == 0, args
        assert "Usage" in result.output
    assert "Exit codes" in runner.invoke(cli, ["--help"]).output


@pytest.mark.parametrize(
    ("args", "absent"),
    [
        (["--help"], ["numpy", "pyarrow", "pandas", "rich", "msgspec"]),
        (["analyze", str(SAMPLE), "-q", "-o", "OUT", "--workers", "1"], ["pandas", "torch", "holoviews"]),
        (["analyze", str(SAMPLE), "--json", "--workers", "1"], ["pandas", "torch", "holoviews", "rich"]),
    ],
)
def test_start_up_imports_nothing_heavy(args: list[str], absent: list[str], tmp_path: Path) -> None:
    args = [str(tmp_path / "out") if a == "OUT" else a for a in args]
    code = (
        "import sys, atexit; from tracekit.commands import main\n"
        "atexit.register(lambda: sys.stderr.write('\\n' + ' '.join(sys.modules)))\n"
        f"main({args!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.splitlines()[-1].split())
    assert [m for m in absent if m in loaded] == []


@pytest.mark.parametrize("args", ["schema", f"analyze --workers 1 {SAMPLE}", f"analyze --workers 1 --json {SAMPLE}"])
def test_a_closed_pipe_is_quiet(args: str) -> None:
    command = f"set -o pipefail; {sys.executable} -c 'from tracekit.commands import main; main()' {args} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.shared
def test_every_other_file_of_the_corpus_is_named_and_refused(shared: Path) -> None:
    with (shared / "corpus" / "MANIFEST.tsv").open(newline="") as rows:
        files = [r for r in csv.DictReader(rows, delimiter="\t") if not r["format"].startswith("chrome-obj")]
    for row in files:
        path = shared / "corpus" / row["file"]
        if identify(path).name == "op-table" or identify(path).witness:
            continue  # analysed: tests/analysis/stragglers, tests/analysis/hang
        code, out, err = call("analyze", path)
        assert (code, out) == (3, ""), row["file"]
        assert ": " in err
        assert "Traceback" not in err


def test_explain_of_a_site_gives_one_explanation_a_label() -> None:
    code, out, _ = call("explain", SAMPLE, "--site", "0:FSDP::all_gather")
    assert code == 0
    assert "calls labelled zero3" in out
    assert "scope.fsdp2.gather" in out


@pytest.mark.parametrize(
    "args", [(), ("--site", "0:"), ("--site", "0:no such place"), ("--site", "x", "--collective", "0:0")]
)
def test_explain_wants_one_place_that_exists(args: tuple[str, ...]) -> None:
    code, _, err = call("explain", SAMPLE, *args)
    assert code == 2
    assert "--site" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_that_cannot_be_written_is_no_defect() -> None:
    code = "from tracekit.commands import main; main()"
    command = [sys.executable, "-P", "-c", code, "rules", "list"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "TMPDIR" in done.stderr
    assert "defect" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_closed_output_is_no_defect() -> None:
    code = "from tracekit.commands import main; main()"
    command = f"exec '{sys.executable}' -P -c '{code}' rules list >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

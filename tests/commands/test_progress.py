"""Bars on standard error, only where somebody watches."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from flight_writer import Rank

import tracekit as tk
from tracekit.commands import cli, main
from tracekit.commands.progress import Progress

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "gloo-fsdp2"


class Terminal(io.StringIO):
    """Standard error of somebody who watches."""

    def isatty(self) -> bool:
        return True


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    with Progress(quiet=False) as progress:
        report = progress.reading
        assert report is not None
        report(1, 8, "rank0.json \x1b[31m[red]")
        report(0, 0, "matching 8 ranks")
        report(3, 8, "again")
        progress.say("writing")
    text = screen.getvalue()
    assert "ranks read" in text
    assert "1/8" in text
    assert "matching 8 ranks" in text
    assert "3/8" in text
    assert "writing" in text
    assert "[red]" in text
    assert "\x1b[31m[red]" not in text


@pytest.mark.parametrize("quiet", [True, False])
def test_nothing_in_a_pipe_and_nothing_when_quiet(quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal() if quiet else io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with Progress(quiet) as progress:
        assert progress.reading is None
        progress.say("writing")
    assert screen.getvalue() == ""


def test_a_run_says_its_steps() -> None:
    told: list[tuple[int, int, str]] = []
    tk.analyze(SAMPLE, workers=1, detail=False, progress=lambda *step: told.append(step))
    assert [(done, total) for done, total, what in told if what.endswith(".gz")] == [(1, 2), (2, 2)]
    assert (0, 0, "matching 2 ranks") in told


def test_output_in_a_pipe_is_the_report_alone(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["analyze", str(SAMPLE), "-o", str(tmp_path / "out"), "--workers", "1", "-q"])
    assert result.exit_code == 0
    assert result.output == ""


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, *args: object) -> str:
    """What a command shows to somebody who watches."""
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    with pytest.raises(SystemExit) as e:
        main(list(map(str, args)))
    assert e.value.code == 0, screen.getvalue()
    return screen.getvalue()


def dumps(folder: Path) -> Path:
    """Flight recorder dumps of two ranks."""
    for rank in range(2):
        Rank(rank, world=2).call("0", state="completed" if rank else "started").write(folder)
    return folder


@pytest.mark.parametrize("command", ["simulate", "doctor", "hang"])
def test_long_steps_of_other_commands_are_counted(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ("--layout", "pp=2", "--layers", 2, "--micro-batches", 2, "--steps", 1)  # fmt: skip
    args, titles = {
        "simulate": (
            (*job, "-o", tmp_path / "out"),
            ("steps simulated", "1/1", "ranks written", "2/2", "rank1.json.gz"),
        ),
        "doctor": ((SAMPLE,), ("files examined", "2/2")),
        "hang": ((dumps(tmp_path),), ("dumps read", "2/2", "who waits for whom")),
    }[command]
    shown = on_a_terminal(monkeypatch, command, *args)
    for title in titles:
        assert title in shown
    again = ("--force",) if command == "simulate" else ()
    assert on_a_terminal(monkeypatch, command, *args, *again, "-q") == ""

"""What `simulate` and `theory` cannot read or write is the user's to mend: exit 2 and a sentence, never a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.commands import main

if TYPE_CHECKING:
    from pathlib import Path


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(list(args))
    assert end.value.code == 2
    return capsys.readouterr().err


def test_the_output_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = tmp_path / "taken"
    taken.write_text("x")
    err = refused(capsys, "simulate", "--layout", "tp=2", "--steps", "1", "-o", str(taken))
    assert "is a file" in err
    assert taken.read_text() == "x"


@pytest.mark.parametrize("command", ["theory", "simulate"])
def test_a_device_is_no_run_file(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["-o", str(tmp_path / "out")] if command == "simulate" else []
    assert "no regular file" in refused(capsys, command, "--run", "/dev/zero", *more)

"""The public face: what a notebook or a script sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tracekit as tk
from tracekit.errors import UnusableInput, UsageError
from tracekit.model import TABLES

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "gloo-fsdp2"


@pytest.fixture(scope="module")
def result() -> Any:
    """The analysed sample."""
    return tk.analyze(SAMPLE, workers=1)


def test_public_names() -> None:
    assert set(tk.__all__) <= set(dir(tk)) | {"Result", "Run", "TracekitError", "analyze", "diff", "open", "read"}
    for name in tk.__all__:
        assert getattr(tk, name) is not None
    with pytest.raises(AttributeError):
        _ = tk.no_such_name


def test_every_table_is_a_frame_and_an_arrow_table(result: Any) -> None:
    for name in TABLES:
        frame, table = getattr(result, name), result.arrow(name)
        assert len(frame) == table.num_rows, name
        assert list(frame.columns) == table.column_names
    assert set(TABLES) <= set(dir(result))
    assert str(result.collectives["rank"].dtype) == "Int32"
    with pytest.raises(UsageError, match="no table"):
        result.arrow("no_such_table")
    with pytest.raises(AttributeError):
        _ = result.no_such_table


def test_opening_and_analysing_in_two_steps(result: Any) -> None:
    run = tk.open([SAMPLE / "rank1.json.gz", SAMPLE / "rank0.json.gz"], workers=1)
    assert tk.analyze(run).document["totals"] == result.document["totals"]
    with pytest.raises(UsageError, match="strict"):
        tk.analyze(run, strict=True)
    with pytest.raises(UsageError, match="no path"):
        tk.open([])
    with pytest.raises(UnusableInput, match="no such file"):
        tk.analyze(SAMPLE / "nothing")


def test_report_is_plain_text(result: Any) -> None:
    text = result.to_text(steps=True)
    assert "communication that nothing hid" in text
    assert "\x1b" not in text
    assert "| zero3 |" in result.to_markdown()


def test_without_detail_the_small_tables_remain_and_the_rest_is_refused(tmp_path: Path) -> None:
    small = tk.analyze(SAMPLE, workers=1, detail=False)
    assert len(small.exposure)
    with pytest.raises(UsageError, match="detail=True"):
        small.arrow("activities")
    with pytest.raises(UsageError, match="detail=True"):
        small.write(tmp_path / "out")

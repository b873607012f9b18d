"""A package of a third party adds a format through the entry point `tracekit.parsers`; here it lies on the path."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracekit as tk
from tracekit.errors import BrokenInput, ForeignFormat
from tracekit.parsers import identify, parse

PACKAGE = Path(__file__).parent / "thirdparty"
FILE = "other format 1\ngemm, 100, 50\nncclDevKernel_AllReduce_Sum_bf16_RING_LL(x), 120, 80\n"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    path = tmp_path / "job" / "rank0.other"
    path.parent.mkdir()
    path.write_text(FILE)
    return path


def test_without_the_package_the_file_is_foreign(other: Path) -> None:
    assert not identify(other).readable
    with pytest.raises(ForeignFormat, match="plain text"):
        parse(other)


def test_its_files_are_analysed_like_others(other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PACKAGE)
    found = identify(other)
    assert (found.name, found.title, found.readable) == ("other", "other format", True)
    result = tk.analyze(other.parent, workers=1)
    rows = {r["name"]: (r["kind"], r["ts_ns"], r["dur_ns"]) for r in result.arrow("activities").to_pylist()}
    assert rows["gemm"] == ("compute", 0, 50)
    assert rows["ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"] == ("comm", 20, 80)
    (exposure,) = {s["exposed_ns"] for s in result.arrow("by_strategy").to_pylist()}
    assert exposure == 50


def test_strict_reading_is_handed_on(other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PACKAGE)
    other.write_text(FILE + "what\n")
    assert [h.reason for h in parse(other)[0].health] == ["line that is no kernel"]
    with pytest.raises(BrokenInput, match="line 4"):
        parse(other, strict=True)


def test_files_of_tracekits_own_formats_stay_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PACKAGE)
    (tmp_path / "x").write_text("hello\nworld\n")
    with pytest.raises(ForeignFormat):
        parse(tmp_path / "x")

"""Every public file of the corpus: Kineto files equal the oracle to the ns, all others are refused by name."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING

import oracle
import pytest
from shared_folder import shared_dir

import tracekit as tk
from tracekit.errors import ForeignFormat, UnusableInput
from tracekit.model import CPU_DEVICE
from tracekit.parsers import identify, parse

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.shared

COLUMNS = {
    "window_ns": "window", "compute_ns": "compute", "comm_ns": "comm", "hidden_ns": "hidden", "exposed_ns": "exposed",
    "copy_ns": "copy", "fused_ns": "fused", "busy_ns": "busy", "idle_ns": "idle",
}  # fmt: skip
DAMAGED = {"truncated JSON array"}
"""Formats of the manifest that stand for damage, where any refusal that says why is right."""


def _manifest() -> list[tuple[str, str]]:
    root = shared_dir()
    if root is None:
        return []
    with (root / "corpus" / "MANIFEST.tsv").open(encoding="utf-8", newline="") as file:
        return [(row["file"], row["format"]) for row in csv.DictReader(file, delimiter="\t")]


FILES = _manifest()
CHROME = [file for file, form in FILES if form.startswith("chrome-")]
OTHERS = [(file, form) for file, form in FILES if not form.startswith("chrome-")]


def _rows(path: Path) -> list[dict[str, int]]:
    result = tk.analyze(path, detail=False, workers=1)
    return [t for t in result.document["totals"] if t["device"] != CPU_DEVICE]


@pytest.mark.parametrize("file", CHROME or [None])
def test_chrome_file(shared: Path, file: str) -> None:
    path = shared / "corpus" / file
    document = oracle.load(path)
    if identify(path).name == "op-table":
        assert tk.analyze(path, detail=False, workers=1).document["stragglers"]  # tests/analysis/stragglers
        return
    if not oracle.is_kineto(document):
        with pytest.raises(ForeignFormat, match=re.escape(path.name)):
            tk.analyze(path, detail=False, workers=1)
        return
    expected = [{"device": device, **vars(t)} for (_, device), t in oracle.totals(document).items()]
    got = [{"device": row["device"], **{name: row[column] for column, name in COLUMNS.items()}} for row in _rows(path)]
    assert sorted(got, key=str) == sorted(expected, key=str)


def _communication_only(path: Path) -> None:
    """A source that sees communication alone is read, and gives no exposed share; one that holds no call says so."""
    refused = ""
    totals: list[dict[str, object]] = []
    try:
        totals = tk.analyze(path, detail=False, workers=1).document["totals"]
    except UnusableInput as refusal:
        refused = str(refusal)
    assert totals or path.name in refused
    assert all(t["reason"] == "compute-unknown" and t["exposed_ns"] is None for t in totals)


@pytest.mark.parametrize(("file", "form"), OTHERS or [(None, None)])
def test_other_file_is_refused(shared: Path, file: str, form: str) -> None:
    path = shared / "corpus" / file
    if identify(path).name == "op-table":
        assert tk.analyze(path, detail=False, workers=1).document["stragglers"]
        return
    if identify(path).witness:
        _communication_only(path)
        return
    with pytest.raises(UnusableInput) as refusal:
        tk.analyze(path, detail=False, workers=1)
    assert path.name in str(refusal.value)
    if form not in DAMAGED:
        with pytest.raises(ForeignFormat):  # a run may wrap what the reader says; the file alone shows its class
            parse(path)

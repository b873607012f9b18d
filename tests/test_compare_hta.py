"""docs/compare-hta.md quotes numbers that tracekit gives today, and HTA's corrected numbers are the same."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

import tracekit as tk

ROOT = Path(__file__).resolve().parent.parent
HEAD = re.compile(r"\| \*\*(?P<repo>[^*]+)\*\* `(?P<file>[^`]+)` \((?P<why>[^)]+)\) \|")


def entries() -> dict[tuple[str, str], dict[str, list[str]]]:
    """(repository, file) → tool → its cells."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    tools: dict[str, list[str]] = {}
    for line in (ROOT / "docs" / "compare-hta.md").read_text("utf-8").splitlines():
        head = HEAD.match(line)
        if head:
            tools = found.setdefault((head["repo"], head["file"]), {})
        elif found and line.startswith("| "):
            name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            tools[name] = cells
    return found


def number(cell: str) -> float | None:
    return None if cell == "–" else float(cell.replace(",", ""))


def quoted(path: Path) -> list[str]:
    """tracekit's cells of a file, as the document spells them."""
    (total,) = tk.analyze(path, workers=1).document["totals"]
    rest = total["window_ns"] - total["compute_ns"] - total["idle_ns"]
    times = [t / 1000 for t in (total["window_ns"], total["compute_ns"], rest, total["idle_ns"])]
    ratio = total["overlap_ratio"]
    values = [*times, None if ratio is None else 100 * ratio]
    return ["–" if v is None else f"{v:,.3f}".removesuffix(".000") for v in values]


def test_the_document_has_its_table() -> None:
    found = entries()
    assert len(found) >= 15
    assert all(set(t) == {"HTA", "HTA, no rounding", "HTA, no rounding, corrected", "tracekit"} for t in found.values())


def test_corrected_numbers_agree() -> None:
    for key, tools in entries().items():
        for theirs, ours in zip(tools["HTA, no rounding, corrected"], tools["tracekit"], strict=True):
            a, b = number(theirs), number(ours)
            assert (a is None) == (b is None), key
            # A float of absolute microseconds is good to a quarter of one; percent has two decimals.
            assert a is None or b is None or abs(a - b) < 0.06, (key, theirs, ours)


def test_quoted_numbers_of_the_sample() -> None:
    tools = entries()["sample_traces", "rank0.json.gz"]
    assert quoted(ROOT / "sample_traces" / "gpu-tp2-pp2-dp2" / "rank0.json.gz") == tools["tracekit"]


@pytest.mark.shared
def test_quoted_numbers_of_public_files(shared: Path) -> None:
    with (shared / "corpus" / "MANIFEST.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    paths = {(row["repo"], Path(row["file"]).name): shared / "corpus" / row["file"] for row in rows}
    wanted = {key: tools["tracekit"] for key, tools in entries().items() if key in paths}
    assert wanted
    assert {key: quoted(paths[key]) for key in wanted} == wanted

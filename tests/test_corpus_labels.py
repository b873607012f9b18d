"""Public sets: labels agree with what the manifest says of them, and hardly any communication time stays unlabelled."""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from shared_folder import shared_dir

import tracekit as tk

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.shared

SAYS = {
    r"\bDP\b": {"dp"}, r"ZeRO-1/2": {"zero1|zero2", "zero1", "zero2"}, r"FSDP|ZeRO-3": {"zero3", "hsdp"},
    r"\bTP\d*\b": {"tp", "sp"}, r"\bEP\b|EP-like": {"ep"}, r"\bPP\b": {"pp"}, r"\bCP\b": {"cp"},
}  # fmt: skip
BESIDE = {"housekeeping", "unknown"}
MORE = {"hta_sampled_2rank": {"zero1|zero2"}}
"""Labels the manifest does not name: int8 all-gathers inside `Optimizer.step#Shampoo.step` gather updated parameters."""
MAX_BYTES = 60 << 20


def _sets() -> dict[str, tuple[list[str], str]]:
    root = shared_dir()
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    if root is not None:
        with (root / "corpus" / "MANIFEST.tsv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                if row["format"].startswith("chrome-") and not row["strategies"].startswith("none"):
                    found[row["set"]].append(row)
    return {name: ([r["file"] for r in rows], rows[0]["strategies"]) for name, rows in found.items()}


SETS = _sets()


@pytest.mark.parametrize("name", list(SETS) or [None])
def test_labels_agree_with_the_manifest(shared: Path, name: str) -> None:
    files, says = SETS[name]
    paths = [p for p in (shared / "corpus" / f for f in files) if p.is_file() and p.stat().st_size < MAX_BYTES]
    try:
        result = tk.analyze(paths, detail=False, workers=1)
    except tk.errors.UnusableInput:
        pytest.skip(f"{name}: no Kineto trace in it")
    time: Counter[str] = Counter()
    for total in result.document["totals"]:
        for strategy, row in total["by_strategy"].items():
            time[strategy] += row["total_ns"] or 0
    allowed = set(BESIDE) | MORE.get(name, set())
    for pattern, labels in SAYS.items():
        allowed |= labels if re.search(pattern, says) else set()
    assert {s for s, ns in time.items() if ns} <= allowed, dict(time)
    device = [t for t in result.document["totals"] if t["device"] >= 0 and t["comm_ns"]]
    if device:
        assert time["unknown"] <= 0.1 * sum(time.values()), result.document["coverage"]["unlabelled"]

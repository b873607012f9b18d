"""The published rows: inputs as numbers, expected values, tolerance."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Row:
    id: str
    inputs: dict[str, float]
    expected: tuple[float, ...]
    rel: float
    abs: float

    def __getitem__(self, name: str) -> float:
        return self.inputs[name]

    def n(self, name: str) -> int:
        return int(self.inputs[name])

    def check(self, *values: float) -> None:
        """Every expected value, in order, within the row's tolerance."""
        assert len(values) == len(self.expected), (self.id, values, self.expected)
        for value, wanted in zip(values, self.expected, strict=True):
            assert value == pytest.approx(wanted, rel=self.rel, abs=self.abs if wanted else max(self.abs, 1e-9))


def tolerance(text: str) -> tuple[float, float]:
    """(relative, absolute) of a tolerance as written."""
    if text in {"exact", "property", "fact"}:
        return 0.0, 0.0
    value = float(NUMBER.findall(text.replace("1pt", "1"))[0])
    if text.endswith("%"):
        return value / 100, 0.0
    return (0.0, value) if text.endswith(("abs", "us")) else (value, 0.0)


def rows(shared: Path) -> dict[str, Row]:
    """All rows by id; quantities with a unit or in words are left to the tests."""
    found = {}
    for line in (shared / "reference" / "theory_checks.tsv").read_text("utf-8").splitlines()[1:]:
        ident, _, inputs, expected, _, tol, _ = line.split("\t")
        pairs = (p.strip().split("=", 1) for p in re.split(r"[;,]", inputs) if "=" in p)
        numbers = {k.strip(): float(v) for k, v in pairs if NUMBER.fullmatch(v)}
        wanted = tuple(float(x) for x in NUMBER.findall(re.sub(r"[a-z]+ |(?<=\d),(?=\d)", " ", expected)))
        try:
            rel, absolute = tolerance(tol)
        except (IndexError, ValueError):
            rel, absolute = 0.0, 0.0
        found[ident] = Row(ident, numbers, wanted, rel, absolute)
    return found


Check = Callable[[Row], None]
CHECKS: dict[str, Check] = {}
"""How to compute each row; the `published_*` modules fill it."""


def row(*ids: str) -> Callable[[Check], Check]:
    def add(function: Check) -> Check:
        for i in ids:
            assert i not in CHECKS
            CHECKS[i] = function
        return function

    return add

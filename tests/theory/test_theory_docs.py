"""docs/theory.md: its examples run, and it names every formula."""

from __future__ import annotations

import ast
import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text("utf-8")
FORMULAS = (
    "alphabeta", "bubbles", "collectives", "context", "expectation", "flops", "inference", "memory", "moe", "nccl",
    "overlap", "transformer", "volumes",
)  # fmt: skip


def test_examples_run() -> None:
    blocks = re.findall(r"```pycon\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) > 10
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "docs/theory.md", None, 0)
    lines: list[str] = []
    results = doctest.DocTestRunner(verbose=False).run(test, out=lines.append)
    assert results.attempted > 40
    assert results.failed == 0, "".join(lines)


def public(module: str) -> list[str]:
    tree = ast.parse((ROOT / "tracekit" / "theory" / f"{module}.py").read_text("utf-8"))
    return [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]


@pytest.mark.parametrize("module", FORMULAS)
def test_every_formula_is_named(module: str) -> None:
    assert [n for n in public(module) if not re.search(rf"\b{n}\b", PAGE)] == []

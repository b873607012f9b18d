"""docs/findings.md has an entry for every kind of finding that the code can make, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.analysis.crossrank.tables import _WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
SEVERITIES = {"error", "warning", "info"}
CODE = re.compile(r"[a-z]+(-[a-z0-9]+)*")


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _of_call(node: ast.Call) -> Iterator[str]:
    """make(severity, code, …), and finding(code, …) of the layout."""
    args = [_text(a) for a in node.args]
    if len(args) > 1 and args[1] is not None and (args[0] in SEVERITIES or isinstance(node.args[0], ast.IfExp)):
        yield args[1]
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name == "finding" and args and args[0] is not None and args[0] not in SEVERITIES:
        yield args[0]


def codes() -> set[str]:
    """Codes of findings in the source: values of "code" in rows, and arguments of the functions that make rows."""
    found: set[str] = set()
    for path in sorted((ROOT / "tracekit").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                rows = [v for k, v in pairs if k is not None and _text(k) == "code"]
                found |= {t for v in rows if (t := _text(v))}
                found |= {f"unmatched-{w}" for v in rows if isinstance(v, ast.JoinedStr) for w in _WORDS}
            elif isinstance(node, ast.Call):
                found |= set(_of_call(node))
    return {c for c in found if CODE.fullmatch(c)}


def test_every_finding_is_documented() -> None:
    text = (ROOT / "docs" / "findings.md").read_text("utf-8")
    documented = {c for row in re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE) for c in re.findall(r"`([^`]+)`", row)}
    assert documented == codes()

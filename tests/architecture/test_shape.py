"""The shape of the code: one direction of imports, no printing below commands, sizes, shipped data."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "errors": set(),
    "version": set(),
    "model": set(),
    "parsers": {"model", "errors"},
    "rules": set(),
    "label": {"model", "errors", "parsers", "rules"},
    "theory": {"errors"},
    "simulate": {"errors", "theory"},
    "analysis": {"model", "errors", "theory"},
    "ingest": {"model", "errors", "parsers", "label", "analysis"},
    "output": {"model", "errors", "version", "ingest", "analysis", "theory"},
    "api": {"model", "errors", "version", "analysis", "ingest", "output"},
    "commands": {
        "model",
        "errors",
        "version",
        "parsers",
        "label",
        "theory",
        "simulate",
        "analysis",
        "ingest",
        "output",
        "api",
    },
    "": {"version", "api", "errors"},
}
"""Package → what it may import at run time (docs/architecture.md). `label` uses one parser module:
`parsers.links`, the joins that need the file's ids."""


def sources() -> list[tuple[str, Path]]:
    """(package, file) of every module."""
    found = []
    for path in sorted((ROOT / "tracekit").rglob("*.py")):
        parts = path.relative_to(ROOT / "tracekit").parts
        name = parts[0].removesuffix(".py")
        found.append(("" if name == "__init__" else name, path))
    found += [("parsers", p) for p in sorted((ROOT / "parsers").rglob("*.py"))]
    found += [("rules", p) for p in sorted((ROOT / "rules").rglob("*.py"))]
    return found


def imported(path: Path) -> set[str]:
    """Packages of ours that a module imports when it runs (imports for the type checker do not count)."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
    return {n.split(".")[1] for n in names if n.startswith("tracekit.")}


def test_every_package_imports_only_what_stands_before_it() -> None:
    wrong = []
    for package, path in sources():
        extra = imported(path) - MAY_IMPORT[package] - {package}
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in sorted(extra)]
    assert not wrong


def test_no_relative_imports() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for _, path in sources()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not wrong


def test_nothing_prints_below_the_commands() -> None:
    wrong = []
    for package, path in sources():
        calls = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Call)]
        prints = [n for n in calls if isinstance(n.func, ast.Name) and n.func.id == "print"]
        wrong += [f"{path.relative_to(ROOT)}:{n.lineno}" for n in prints if package != "commands"]
    assert not wrong


def test_rules_hold_no_code() -> None:
    tree = ast.parse((ROOT / "rules" / "__init__.py").read_text("utf-8"))
    assert all(isinstance(n, ast.Expr) for n in tree.body)


@pytest.mark.parametrize("package", sorted({p for p, _ in sources()}))
def test_sizes_stay_readable(package: str) -> None:
    """No file over 600 lines, no function over 80."""
    wrong = []
    for name, path in sources():
        if name != package:
            continue
        text = path.read_text("utf-8")
        if text.count("\n") > 600:
            wrong.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
        functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
        long = [f for f in functions if (f.end_lineno or 0) - f.lineno > 80]
        wrong += [f"{path.relative_to(ROOT)}:{f.lineno} {f.name}" for f in long]
    assert not wrong


def test_no_heavy_import_at_module_level() -> None:
    heavy = {"pandas", "torch", "holoviews", "panel", "dask", "rich"}
    wrong = []
    for _, path in sources():
        for node in ast.parse(path.read_text("utf-8")).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{path.relative_to(ROOT)}: {n}" for n in names if n.split(".")[0] in heavy]
    assert not wrong


def test_every_package_is_shipped() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"])
    found = {".".join(p.parent.relative_to(ROOT).parts) for p in (ROOT / "tracekit").rglob("__init__.py")}
    assert listed - {"tracekit.parsers", "tracekit.rules", "tracekit.theory.data"} == found - {"tracekit.theory.data"}

"""The documents are true: their commands run, their tables are the code's, their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracekit.commands import cli
from tracekit.model import TABLES
from tracekit.output import schema

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands() -> list[str]:
    """Every command line of a ```console block."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            found += [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return sorted(set(found))


@pytest.mark.parametrize("line", commands())
def test_command_runs(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line)
    assert words[0] == "tracekit"
    monkeypatch.chdir(ROOT)
    args = [str(tmp_path / a) if words[i] == "-o" else a for i, a in enumerate(words[1:])]
    result = CliRunner().invoke(cli, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    block = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)[0]
    exec(block.replace('"out"', repr(str(tmp_path / "out"))), {})
    assert (tmp_path / "out" / "manifest.json").exists()


def test_schema_in_the_docs_is_the_codes() -> None:
    text = (ROOT / "docs" / "output.md").read_text("utf-8")
    assert schema.markdown(list(TABLES)).strip() in text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_option_is_in_the_usage_page() -> None:
    text = (ROOT / "docs" / "usage.md").read_text("utf-8")
    command = cli.get_command(None, "analyze")  # type: ignore[arg-type]
    assert command is not None
    names = {
        o for p in command.params for o in p.opts if o.startswith("--") and o not in {"--output", "--force", "--quiet"}
    }
    assert [n for n in sorted(names) if n not in text] == []


def test_every_format_is_in_the_page_of_inputs() -> None:
    """What is read, and what is named and refused."""
    from tracekit.parsers import _WITNESSES, sniff

    text = (ROOT / "docs" / "inputs.md").read_text("utf-8")
    formats = [found for _, found in (*sniff._MAGIC, *sniff._TEXT)]
    names = {f.name for f in formats} | {*_WITNESSES, "kineto", "nsys", "xplane", "perfetto", "chakra", "tar", "pickle"}
    assert sorted(n for n in names if f"`{n}`" not in text) == []

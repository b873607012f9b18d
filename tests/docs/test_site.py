"""The documents as a site: generated pages are up to date, every page is on the map, links into pages find their heading."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit.model import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))


@pytest.fixture(scope="module")
def reference(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("docs/make_reference.py")


def slug(heading: str) -> str:
    """How GitHub and site generators name a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower()).replace(" ", "-")


def test_commands_are_what_help_prints(reference: ModuleType) -> None:
    text = (ROOT / "docs" / "commands.md").read_text("utf-8")
    assert text == reference.commands_page(), "run: python docs/make_reference.py"


def test_the_glossary_is_the_data_dictionary(reference: ModuleType) -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    assert text == reference.glossary_page(), "run: python docs/make_reference.py"


def test_every_number_is_in_the_glossary() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    names = {c.name for t in TABLES.values() for c in t.columns if c.unit or c.formula}
    assert names == set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_every_page_is_on_the_map() -> None:
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", text)) == {p.name for p in DOCS} - {"index.md"}


@pytest.mark.parametrize("page", [ROOT / "README.md", *DOCS], ids=lambda p: p.name)
def test_links_into_pages_find_their_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text("utf-8")):
        other = (page.parent / target) if target else page
        headings = re.findall(r"^#+ (.+)$", other.read_text("utf-8"), re.MULTILINE)
        assert anchor in {slug(h) for h in headings}, f"{target}#{anchor}"


def test_the_tutorial_names_the_cause_that_was_planted() -> None:
    """What it quotes is what the tool says, and true of the sample."""
    import tomllib

    import tracekit as tk

    text = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    sample = ROOT / "sample_traces" / "gpu-tp2-pp2-dp2"
    planted = tomllib.loads(sample.with_suffix(".toml").read_text("utf-8"))["simulate"]["slow"]
    assert planted == {"5": 1.15}
    result = tk.analyze(sample, workers=1)
    quoted = re.findall(r"^> (.+)$", text, re.MULTILINE)
    assert quoted
    messages = {f["message"] for f in result.run.tables["findings"]}
    assert set(quoted) <= messages
    assert re.search(r"([\d.]+) % of a step is communication", result.to_text())[1] + " % here" in text  # type: ignore[index]
    ranks = {t["rank"]: t for t in result.run.tables["totals"]}
    assert max(ranks, key=lambda r: ranks[r]["compute_ns"]) == 5 == min(ranks, key=lambda r: ranks[r]["exposed_ns"])
    call = next(c for c in result.arrow("collectives").to_pylist() if (c["rank"], c["id"]) == (3, 100))
    assert (call["op"], call["strategy"], round(call["dur_ns"] / 1e6, 1)) == ("send", "pp", 4.1)

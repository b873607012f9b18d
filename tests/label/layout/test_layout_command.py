"""`tracekit layout`: the mesh as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from layout_builder import TABLES, group, mesh

from tracekit.commands import cli
from tracekit.errors import UsageError
from tracekit.label.layout import Layout, solve
from tracekit.label.layout.document import document, grid
from tracekit.output.layout import lines

ROOT = Path(__file__).resolve().parents[3]
GPU = ROOT / "sample_traces" / "gpu-tp2-pp2-dp2"


def run(*args: object) -> str:
    result = CliRunner().invoke(cli, ["layout", *map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def layout_of(**sizes: int) -> Layout:
    grid_ = mesh(**sizes)
    return Layout(grid_.axes, grid_.world_size, "test", 1.0, ())


def test_text_of_the_sample() -> None:
    text = run(GPU, "--workers", 1)
    assert "layout   tp=2 dp=2 pp=2 · 8 ranks · traces of 0-7" in text
    assert "pp 1 · dp 0  4-5" in text
    assert "TENSOR_MODEL_PARALLEL_GROUP" in text


def test_json_of_the_sample_with_a_map_and_a_run_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[layout]\ntp = 2\ndp = 2\npp = 2\norder = "tp-dp-pp"\n', "utf-8")
    (tmp_path / "map.toml").write_text('[[group]]\ndesc = "EMBED*"\nstrategy = "embedding"\n', "utf-8")
    doc = json.loads(run(GPU, "--workers", 1, "--json", "--run", tmp_path / "run.toml", "--map", tmp_path / "map.toml"))
    assert doc["world_size"] == 8
    assert doc["findings"] == []
    assert {g["rule"] for g in doc["groups"] if g["desc"] == "EMBEDDING_GROUP"} == {"layout.map"}
    assert [r["ranks"] for r in doc["grid"]] == ["0-1", "2-3", "4-5", "6-7"]


def test_a_contradiction_is_a_finding() -> None:
    doc = json.loads(run(GPU, "--workers", 1, "--json", "--layout", "tp=4,pp=2"))
    assert {f["code"] for f in doc["findings"]} == {"layout-contradiction"}
    assert "findings" in run(GPU, "--workers", 1, "--layout", "tp=4,pp=2")


def test_a_mistake_in_the_declaration_ends_with_its_name() -> None:
    with pytest.raises(UsageError, match="no axis 'tq'"):
        CliRunner().invoke(cli, ["layout", str(GPU), "--layout", "tq=2"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("layout", "first", "last", "count"),
    [
        (layout_of(tp=2, dp=2, pp=2), ("pp 0 · dp 0", "tp", "0-1"), ("pp 1 · dp 1", "tp", "6-7"), 4),
        (layout_of(tp=4, dp=32, pp=8), ("pp 0", "dp × tp", "0-127"), ("pp 7", "dp × tp", "896-1023"), 8),
        (layout_of(tp=8), ("", "tp", "0-7"), ("", "tp", "0-7"), 1),
        (layout_of(tp=1, dp=1), ("", "", "0"), ("", "", "0"), 1),
        (layout_of(tp=8, dp=64), ("dp 0", "tp", "0-7"), ("dp 63", "tp", "504-511"), 13),
    ],
)
def test_grid_stays_small(layout: Layout, first: tuple[str, ...], last: tuple[str, ...], count: int) -> None:
    rows = grid(layout)
    assert (len(rows), tuple(rows[0].values()), tuple(rows[-1].values())) == (count, first, last)
    assert {"at": "…", "along": "tp", "ranks": "52 more"} in rows or count != 13


def test_unknown_layouts_say_what_is_possible_and_missing() -> None:
    groups = [group("a", (0, 1, 2, 3), desc="x\x1b[31m")]
    solution = solve(
        groups, world_size=4, pg_count=None, frameworks=frozenset(), declared=None, tables=TABLES
    )  # fmt: skip
    doc: dict[str, Any] = document(solution, groups, 4, [])
    text = "\n".join(lines(doc))
    assert "layout   unknown · 4 ranks · no rank known" in text
    assert "  dp=4" in text
    assert "--layout" in text
    assert "\x1b" not in text


def test_no_group_at_all() -> None:
    doc = document(
        solve([], world_size=None, pg_count=None, frameworks=frozenset(), declared=None, tables=TABLES), [], None, []
    )
    text = "\n".join(lines(doc))
    assert "world size unknown" in text
    assert "none is known" in text

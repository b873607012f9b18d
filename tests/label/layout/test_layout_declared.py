"""Declared layouts, maps and run.toml: what they mean, and that every mistake is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from layout_builder import group

from tracekit.errors import UsageError
from tracekit.label.layout import parse_layout, read_map, read_run_toml
from tracekit.label.layout.usermap import mapped

if TYPE_CHECKING:
    from pathlib import Path


def test_the_documented_form() -> None:
    layout = parse_layout("tp=2,pp=4,dp=8,cp=1,ep=8,order=tp-cp-ep-dp-pp")
    assert layout.degrees == (("tp", 2), ("cp", 1), ("dp", 8), ("pp", 4))
    assert layout.world_size == 64
    assert layout.expert == (("etp", 2), ("ep", 8), ("edp", 1), ("pp", 4))
    assert layout.confidence == 0.95
    assert layout.complete


def test_order_decides_the_strides() -> None:
    assert parse_layout("tp=2,pp=2,dp=4,order=tp-pp-dp").mesh.group_of(0, ["pp"]) == (0, 2)
    assert parse_layout("tp=2 pp=2 dp=4").mesh.group_of(0, ["pp"]) == (0, 8)
    assert "assumed tp-dp-pp" in parse_layout("tp=2 pp=2 dp=4").evidence[1]


def test_experts_of_their_own_or_in_the_mesh() -> None:
    own = parse_layout("dp=8,ep=8,etp=1")
    assert (own.world_size, dict(own.expert)) == (8, {"etp": 1, "ep": 8, "edp": 1, "pp": 1})
    within = parse_layout("world=4,ep=2,dp=2,order=ep-dp")
    assert (within.degrees, within.expert) == ((("ep", 2), ("dp", 2)), ())
    first = parse_layout("tp=2,pp=2,dp=4,ep=2,order=tp-pp-dp")
    assert [a for a, _ in first.expert] == ["etp", "ep", "pp", "edp"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("tp", "'tp' is no axis=size"),
        ("tp=2,tp=4", "'tp' is given twice"),
        ("tq=2", "no axis 'tq'"),
        ("tp=0", "tp=0"),
        ("tp=-1", "tp='-1'"),
        ("tp=two", "tp='two'"),
        ("tp=99999999999999999999", "whole number"),
        ("tp=9999999,dp=9999999", "more than"),
        ("order=tp-dp", "no axis has a size"),
        ("tp=2,dp=2,order=tp", "no place for dp=2"),
        ("tp=2,order=tp-tp", "'tp' stands in it twice"),
        ("tp=2,order=tp-xx", "no axis 'xx'"),
        ("tp=2,dp=2,world=8", "makes 4 ranks, not the 8"),
        ("dp=8,ep=3,etp=1", "does not divide the 8 ranks"),
        ("dp=8,ep=4,etp=1,edp=4", "leave 2"),
        ("world=8", "no axis has a size"),
    ],
)
def test_mistakes_are_named(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_layout(text)


def write(folder: Path, text: str) -> Path:
    path = folder / "file.toml"
    path.write_text(text, "utf-8")
    return path


def test_map_finds_groups_by_name_description_and_ranks(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '[[group]]\nname = "3"\naxes = "tp"\n'
        '[[group]]\ndesc = "my_data_*"\naxes = "dp+cp"\nstrategy = "zero3"\npurpose = "grad_reduce"\n'
        "[[group]]\nranks = [4, 0]\nstrategy = 'pp'\n",
    )
    groups = [group("3", (0, 1)), group("5", (0, 2), desc="my_data_a"), group("6", (0, 4)), group("7", (2, 3))]
    found = mapped(read_map(path), groups)
    assert {k[0]: (c.axes, c.strategy, c.purpose) for k, c in found.items()} == {
        "3": ("tp", None, None), "5": ("dp+cp", "zero3", "grad_reduce"), "6": ("", "pp", None),
    }  # fmt: skip
    assert all(c.rule == "layout.map" and c.tier == "A" for c in found.values())


def test_names_with_glob_characters_match_themselves(tmp_path: Path) -> None:
    path = write(tmp_path, '[[group]]\ndesc = "a[1]"\naxes = "tp"\n')
    assert mapped(read_map(path), [group("0", (0, 1), desc="a[1]")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = ", "not a TOML file"),
        ("", r"no \[\[group\]\]"),
        ("[other]\n", r"\[other\]: no such table"),
        ("[group]\nname = '1'\n", r"must be written \[\[group\]\]"),
        ("[[group]]\nname = '1'\n", "#1: one of axes, strategy, purpose is required"),
        ("[[group]]\naxes = 'tp'\n", "#1: one of name, desc, ranks is required"),
        ("[[group]]\nname = '1'\naxes = 'tp'\n[[group]]\nnmae = '1'\naxes = 'tp'\n", "#2, field 'nmae'"),
        ("[[group]]\nname = 1\naxes = 'tp'\n", "field 'name': expected a string"),
        ("[[group]]\nname = '1'\naxes = 'tq'\n", "field 'axes': 'tq' is not one of"),
        ("[[group]]\nname = '1'\nstrategy = 'fast'\n", "field 'strategy': 'fast'"),
        ("[[group]]\nname = '1'\npurpose = 'fun'\n", "field 'purpose': 'fun'"),
        ("[[group]]\nranks = [0, 0]\naxes = 'tp'\n", "field 'ranks'"),
        ("[[group]]\nranks = 'all'\naxes = 'tp'\n", "field 'ranks'"),
        ("[[group]]\nranks = []\naxes = 'tp'\n", "field 'ranks'"),
    ],
)
def test_mistakes_in_a_map_name_file_entry_and_field(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=said) as caught:
        read_map(path)
    assert str(path) in str(caught.value)


def test_a_map_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no regular file"):
        read_map(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_map(tmp_path / "missing.toml")


def test_run_toml_keeps_tables_for_others(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '[layout]\ntp = 2\ndp = 2\norder = "tp-dp"\n[[group]]\nname = "1"\naxes = "tp"\n'
        "[model]\nlayers = 2\n[hardware]\nname = 'H100'\n",
    )
    config = read_run_toml(path)
    assert config.layout is not None
    assert config.layout.text() == "tp=2 dp=2"
    assert [e.axes for e in config.groups] == ["tp"]
    assert config.tables == {"model": {"layers": 2}, "hardware": {"name": "H100"}}


@pytest.mark.parametrize(
    ("text", "said"),
    [("layout = 3\n", r"\[layout\]"), ("[layout]\ntp = 'x'\n", "tp='x'"), ("[layout]\ntp = true\n", "tp=True"),
     ("[layout]\ntp = 2\norder = 5\n", "order=5"), ("[layout]\n", "no axis has a size"),
     ("[modle]\nlayers = 2\n", r"\[modle\]: no such table")],
)  # fmt: skip
def test_mistakes_in_run_toml(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=said) as caught:
        read_run_toml(path)
    assert str(path) in str(caught.value)

"""Layout rules: what ships is sound, what a user adds counts first, and mistakes are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from layout_builder import MEGATRON, TABLES, group

from tracekit.errors import RuleError
from tracekit.label import load_rules
from tracekit.label.layout import load_tables, solve

if TYPE_CHECKING:
    from pathlib import Path


def test_every_creation_names_axes_of_its_order() -> None:
    orders = {o.id: o for o in TABLES.orders}
    for creation in TABLES.creations:
        order = orders[creation.order]
        assert creation.framework == order.framework
        known = {*order.axes, *order.expert, *(order.aliases or {}), "world", "gtp", "egtp"}
        for item in creation.items:
            assert item.inside in ("", *order.axes)
            assert item.inside or set(item.axes.split("+")) <= known


def test_behaviour_speaks_of_known_axes() -> None:
    for rule in TABLES.behaviours.values():
        assert {a for axes in (*rule.only, *rule.shared) for a in axes} | rule.any <= TABLES.axes


def test_frameworks_of_orders_come_with_the_default_first() -> None:
    assert [o.id for o in TABLES.orders_of(MEGATRON)] == ["megatron", "megatron.pp-before-dp"]


def test_a_users_order_comes_first_and_replaces_one_of_the_same_id(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[order]]\nid = "megatron"\nframework = "megatron"\naxes = ["pp", "tp"]\n'
        '[[order]]\nid = "mine"\nframework = "mine"\naxes = ["dp", "tp"]\n',
        "utf-8",
    )
    tables = load_tables([path])
    assert [o.axes for o in tables.orders_of({"mine"})] == [("dp", "tp")]
    assert tables.orders_of(MEGATRON)[0].axes == ("pp", "tp")
    load_rules([path])  # the same file may hold other tables
    groups = [group("a", (0, 1), traffic="grad_reduce"), group("b", (0, 2), traffic="activation")]
    solution = solve(
        groups, world_size=4, pg_count=None, frameworks=frozenset({"mine"}), declared=None, tables=tables
    )  # fmt: skip
    assert solution.layout is not None
    assert solution.layout.degrees == (("dp", 2), ("tp", 2))
    assert solution.claims["a", (0, 1)][0].rule == "layout.template"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[order]]\nframework = 'x'\naxes = ['tp']\n", "'id': is required"),
        ("[[order]]\nid = 'a'\nframework = 'x'\naxes = ['tp', 'tp']\n", "'axes': names an axis twice"),
        ("[[order]]\nid = 'a'\nframework = 'x'\naxis = ['tp']\n", "'axis': no such field"),
        ("[[order]]\nid = 'a'\nframework = 'x'\naxes = ['tp']\naliases = { ep = 'dp' }\n", "'aliases.ep'"),
        ("[order]\nid = 'a'\n", r"must be written \[\[order\]\]"),
        ("[[creation]]\nid = 'a'\nframework = 'x'\norder = 'megatron'\n", "'item': is required"),
        ("[[creation]]\nid = 'a'\nframework = 'x'\norder = 'nope'\nitem = [{ axes = 'tp' }]\n", "no .*'nope'"),
        ("[[creation]]\nid = 'a'\nframework = 'x'\norder = 'megatron'\nitem = [{ axis = 'tp' }]\n", r"item\[1\].axis"),
        ("[[behaviour]]\nname = 'a'\n", "'only': one of only and any"),
        ("[[behaviour]]\nname = 'a'\nany = 'dp'\n[[behaviour]]\nname = 'a'\nany = 'dp'\n", "used twice"),
        ("x = ", "not a TOML file"),
    ],
)
def test_mistakes_name_file_rule_and_field(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(RuleError, match=said):
        load_tables([path])


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="cannot be read"):
        load_tables([tmp_path / "missing.toml"])

"""Rules on layouts (`rules/layouts.toml` and tables of the same names in rule files of a user)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tracekit.errors import RuleError
from tracekit.label.schema import Field, Place, check, read_rule_file, toml_of
from tracekit.label.shipped import texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TABLES = ("order", "creation", "behaviour")
NUMBERINGS = ("sorted", "transposed")

_ORDER = {
    "id": Field("str", required=True), "framework": Field("str", required=True),
    "axes": Field("strings", required=True), "expert": Field("strings"), "aliases": Field("map"),
    "inside": Field("map"), "condition": Field("str"), "note": Field("str"),
}  # fmt: skip
_CREATION = {
    "id": Field("str", required=True), "framework": Field("str", required=True), "order": Field("str", required=True),
    "numbering": Field("str", choices=NUMBERINGS), "note": Field("str"),
}  # fmt: skip
_ITEM = {
    "axes": Field("str", required=True), "grid": Field("str", choices=("dense", "expert")),
    "twin": Field("str", choices=("yes", "no", "maybe")), "optional": Field("bool"), "with": Field("strings"),
    "inside": Field("str"), "role": Field("str"),
}  # fmt: skip
_BEHAVIOUR = {
    "name": Field("str", required=True), "only": Field("strings"), "any": Field("strings"), "shared": Field("strings"),
    "note": Field("str"),
}  # fmt: skip


class Order(Struct, frozen=True):
    """How a framework lays ranks out: axes fastest to slowest, which together are the world.

    expert: the other factorisation that experts have of the same world. aliases: name → axes of a group along several.
    inside: axis → axis of the mesh that it may split.
    """

    id: str
    framework: str
    axes: tuple[str, ...]
    expert: tuple[str, ...] = ()
    aliases: Mapping[str, str] | None = None
    inside: Mapping[str, str] | None = None
    condition: str = ""
    note: str = ""


class Item(Struct, frozen=True):
    """One kind of group a framework creates: all groups along `axes` ("+" between several), in turn.

    twin: whether a CPU group follows each. extra: further groups created after each. inside: the axis it splits.
    role: the name of the group where it is not that of its axes.
    """

    axes: str
    grid: str = "dense"
    twin: str = "no"
    optional: bool = False
    extra: tuple[str, ...] = ()
    inside: str = ""
    role: str = ""


class Creation(Struct, frozen=True):
    """The order in which a framework creates its groups, after the default one."""

    id: str
    framework: str
    order: str
    items: tuple[Item, ...]
    numbering: str = "sorted"


class Behaviour(Struct, frozen=True):
    """What one kind of traffic says of the axes of its group."""

    name: str
    only: frozenset[frozenset[str]]
    any: frozenset[str]
    shared: frozenset[frozenset[str]] = frozenset()

    def allows(self, axes: Iterable[str], *, shared: bool = False) -> bool:
        """Whether a group along these axes may show it; shared: another group has the same ranks."""
        held = frozenset(axes)
        return held in self.only or bool(held & self.any) or (shared and held in self.shared)


class LayoutTables(Struct, frozen=True):
    """All layout rules in force."""

    orders: tuple[Order, ...]
    creations: tuple[Creation, ...]
    behaviours: Mapping[str, Behaviour]

    def orders_of(self, frameworks: Iterable[str]) -> tuple[Order, ...]:
        """Orders of these frameworks, in the order of the file."""
        wanted = frozenset(frameworks)
        return tuple(o for o in self.orders if o.framework in wanted)

    @property
    def axes(self) -> frozenset[str]:
        """Every axis that some order has."""
        return frozenset(a for o in self.orders for a in (*o.axes, *o.expert))


def load_tables(extra_files: Iterable[str | Path] = ()) -> LayoutTables:
    """The built-in layout rules, and those of `extra_files`, which come first and replace any of the same id.

    Raises RuleError naming file, rule and field.
    """
    entries = _read(toml_of(texts()["layouts.toml"], "layouts.toml"), "layouts.toml")
    for path in map(Path, extra_files):
        extra = _read(toml_of(read_rule_file(path), str(path)), str(path))
        entries = extra | {k: v for k, v in entries.items() if k not in extra}
    orders = tuple(o for o in entries.values() if isinstance(o, Order))
    creations = tuple(c for c in entries.values() if isinstance(c, Creation))
    known = {o.id for o in orders}
    for c in creations:
        if c.order not in known:
            raise RuleError(f"[[creation]] {c.id!r}, field 'order': there is no [[order]] {c.order!r}")
    return LayoutTables(orders, creations, {b.name: b for b in entries.values() if isinstance(b, Behaviour)})


def _read(data: Mapping[str, Any], name: str) -> dict[tuple[str, str], Order | Creation | Behaviour]:
    out: dict[tuple[str, str], Order | Creation | Behaviour] = {}
    for table in TABLES:
        found = data.get(table, [])
        if not isinstance(found, list):
            raise RuleError(f"{name}: {table} must be written [[{table}]], once for each entry")
        for number, raw in enumerate(found, 1):
            known = raw.get("id") or raw.get("name") if isinstance(raw, dict) else None
            place = Place(name, table, str(known or f"#{number}"))
            key = (table, place.rule)
            if key in out:
                raise place.error("id", "used twice; ids must be unique")
            out[key] = _entry(table, raw, place)
    return out


def _entry(table: str, raw: Any, place: Place) -> Order | Creation | Behaviour:
    if table == "order":
        return _order(check(raw, _ORDER, place), place)
    if table == "creation":
        return _creation(raw, place)
    entry = check(raw, _BEHAVIOUR, place)
    if not {"only", "any"} & set(entry):
        raise place.error("only", "one of only and any is required: what the traffic says of the axes")
    only, shared = (frozenset(frozenset(t.split("+")) for t in entry.get(name, ())) for name in ("only", "shared"))
    return Behaviour(entry["name"], only, frozenset(entry.get("any", ())), shared)


def _order(entry: dict[str, Any], place: Place) -> Order:
    for name in ("axes", "expert"):
        if len(set(entry.get(name, ()))) != len(entry.get(name, ())):
            raise place.error(name, "names an axis twice")
    for alias, text in entry.get("aliases", {}).items():
        for axis in text.split("+"):
            if axis not in entry["axes"]:
                raise place.error(f"aliases.{alias}", f"{axis!r} is not one of the axes {', '.join(entry['axes'])}")
    return Order(**entry)


def _creation(raw: Any, place: Place) -> Creation:
    entry = dict(raw) if isinstance(raw, dict) else raw
    found = entry.pop("item", None) if isinstance(entry, dict) else None
    entry = check(entry, _CREATION, place)
    if not isinstance(found, list) or not found:
        raise place.error("item", "is required: a list of tables, one for each kind of group")
    items = []
    for number, one in enumerate(found, 1):
        item = check(one, _ITEM, place, f"item[{number}].")
        item["extra"] = item.pop("with", ())
        items.append(Item(**item))
    return Creation(
        entry["id"], entry["framework"], entry["order"], tuple(items), entry.get("numbering", "sorted")
    )  # fmt: skip

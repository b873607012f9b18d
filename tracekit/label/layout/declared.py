"""The layout as the user declares it: `--layout "tp=2,pp=4,…"` or the [layout] table of a run.toml."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from tracekit.label.layout.kinds import MAX_WORLD, Layout
from tracekit.label.layout.mesh import Mesh

if TYPE_CHECKING:
    from collections.abc import Mapping

DENSE = ("tp", "sp", "cp", "dp_shard", "dp", "dp_replicate", "external_dp", "pp")
"""Axes whose product is the world, in the order assumed when none is given (fastest first)."""
EXPERT = ("etp", "ep", "edp")
"""Axes of the factorisation that experts have of their own, in its usual order."""
_SHAPE = 'expected like "tp=2,pp=4,dp=8,cp=1,ep=8,order=tp-cp-ep-dp-pp"'


def parse_layout(text: str) -> Layout:
    """Layout of the text form. Raises UsageError that names the mistake."""
    pairs: dict[str, str | int] = {}
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        name, sign, value = part.partition("=")
        if not sign or not name or not value:
            raise UsageError(f"--layout: {part!r} is no axis=size; {_SHAPE}")
        if name in pairs:
            raise UsageError(f"--layout: {name!r} is given twice")
        pairs[name] = int(value) if value.isdecimal() and len(value) < 10 else value
    if not pairs:
        raise UsageError(f"--layout: is empty; {_SHAPE}")
    return layout_of(pairs, "--layout")


def layout_of(table: Mapping[str, Any], where: str) -> Layout:
    """Layout of axis → size, with `order` (axes fastest first) and `world` (ranks) beside them; `where` for errors.

    Without `world` experts are laid out over the ranks of the other axes (etp = tp unless given, edp = what
    remains); with it, and if only then the sizes multiply to it, `ep` and `etp` are axes like the others.
    Raises UsageError.
    """
    sizes = {name: _size(name, value, where) for name, value in table.items() if name != "order"}
    world = sizes.pop("world", None)
    if not sizes:
        raise UsageError(f"{where}: no axis has a size; {_SHAPE}")
    order = _order(table.get("order"), sizes, where)
    dense = tuple((a, sizes.get(a, 1)) for a in order if a not in EXPERT)
    every = tuple((a, sizes.get(a, 1)) for a in order)
    total = Mesh(dense).world_size
    if world is not None and total != world and Mesh(every).world_size == world:
        dense, total, sizes = every, world, {a: n for a, n in sizes.items() if a not in EXPERT}
    if total > MAX_WORLD:
        raise UsageError(f"{where}: the sizes multiply to {total}, more than the {MAX_WORLD} ranks that are possible")
    if world is not None and total != world:
        named = " · ".join(f"{a}={n}" for a, n in dense)
        raise UsageError(f"{where}: {named} makes {total} ranks, not the {world} of world={world}")
    told = "order as declared" if table.get("order") else f"order not declared, assumed {'-'.join(order)}"
    return Layout(dense, total, where, 0.95, (f"declared with {where}", told), _experts(sizes, order, dense, where))


def _size(name: str, value: Any, where: str) -> int:
    if name not in (*DENSE, *EXPERT, "world"):
        known = ", ".join((*DENSE, *EXPERT, "world", "order"))
        raise UsageError(f"{where}: there is no axis {name!r}; known are {known}")
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_WORLD:
        raise UsageError(f"{where}: {name}={value!r}: expected a whole number from 1 to {MAX_WORLD}")
    return value


def _order(given: Any, sizes: Mapping[str, int], where: str) -> list[str]:
    """Axes fastest first; those of size 1 that the order leaves out come last."""
    usual = [a for a in ("tp", "etp", "sp", "cp", "ep", *DENSE[3:]) if a in sizes]
    if given is None:
        return usual
    order = given.split("-") if isinstance(given, str) else given
    if not isinstance(order, list) or not all(isinstance(a, str) and a for a in order):
        raise UsageError(f"{where}: order={given!r}: expected axes fastest first, like tp-cp-ep-dp-pp")
    for axis in order:
        if axis not in (*DENSE, *EXPERT):
            raise UsageError(f"{where}: order: there is no axis {axis!r}; known are {', '.join((*DENSE, *EXPERT))}")
        if order.count(axis) > 1:
            raise UsageError(f"{where}: order: {axis!r} stands in it twice")
    left = [a for a in usual if a not in order]
    for axis in left:
        if sizes[axis] > 1 and axis not in EXPERT:
            raise UsageError(f"{where}: order={'-'.join(order)} has no place for {axis}={sizes[axis]}")
    return order + left


def _experts(
    sizes: Mapping[str, int], order: list[str], dense: tuple[tuple[str, int], ...], where: str
) -> tuple[tuple[str, int], ...]:
    """The experts' factorisation of the same ranks: etp, ep, edp, pp, with pp where the dense order has it."""
    if not any(sizes.get(a, 1) > 1 for a in EXPERT):
        return ()
    mesh = Mesh(dense)
    stage = mesh.world_size // mesh.size("pp")
    etp, ep = sizes.get("etp", mesh.size("tp")), sizes.get("ep", 1)
    edp, rest = divmod(stage, etp * ep)
    if rest:
        raise UsageError(
            f"{where}: etp={etp} · ep={ep} does not divide the {stage} ranks of a pipeline stage; where experts have "
            "an axis of their own in the mesh, add world=N"
        )
    if sizes.get("edp", edp) != edp:
        raise UsageError(f"{where}: edp={sizes['edp']}: {stage} ranks of a stage / (etp={etp} · ep={ep}) leave {edp}")
    found = {"etp": etp, "ep": ep, "edp": edp, "pp": mesh.size("pp")}
    data = [i for i, a in enumerate(order) if a.startswith("dp") or a == "edp"]
    pp_first = "pp" in order and bool(data) and order.index("pp") < data[0]
    return tuple((a, found[a]) for a in (("etp", "ep", "pp", "edp") if pp_first else ("etp", "ep", "edp", "pp")))

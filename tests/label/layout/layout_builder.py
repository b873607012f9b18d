"""Jobs made of meshes: groups as a framework would create them, with or without names."""

from __future__ import annotations

from tracekit.label.layout import JobGroup, LayoutTables, load_tables
from tracekit.label.layout.mesh import Mesh

TABLES: LayoutTables = load_tables()
MEGATRON = frozenset({"megatron"})
DENSE = ("tp", "cp", "dp", "pp")
"""Axes of the Megatron dense grid, fastest first."""
CREATED = ("dp+cp", "dp", "cp", "tp+pp", "tp", "pp", "tp+dp+cp", "tp+dp", "tp+cp")
"""Groups that Megatron creates on it."""
TRAFFIC = {"tp": "activation", "cp": "ring", "pp": "chain", "dp+cp": "grad_reduce"}
"""What a training job shows in them."""


def mesh(**sizes: int) -> Mesh:
    """Mesh with axes in the order given."""
    return Mesh(tuple(sizes.items()))


def blank_groups(
    grid: Mesh, *, traffic: bool, kinds: tuple[str, ...] = CREATED
) -> list[tuple[JobGroup, frozenset[str]]]:
    """(group without description, axes of several ranks that it truly spans), named "dp+cp#7" for the tests to read."""
    out = []
    for kind in kinds:
        axes = kind.split("+")
        behaviour = frozenset({TRAFFIC.get(kind, "idle")}) if traffic else frozenset()
        for members in grid.groups(axes):
            group = JobGroup(f"{kind}#{len(out)}", "undefined", members, len(members), behaviour)
            out.append((group, frozenset(a for a in axes if grid.size(a) > 1)))
    return out


def group(
    name: str, members: tuple[int, ...], *, desc: str | None = None, axes: str | None = None, **more: object
) -> JobGroup:
    """One group; `traffic` = its behaviour, words separated by blanks."""
    return JobGroup(name, desc, members, len(members), frozenset(str(more.get("traffic", "")).split()), axes)

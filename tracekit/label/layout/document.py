"""A solution as plain data, for reports and JSON."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from tracekit.label.layout.mesh import Mesh, ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.label.layout.kinds import JobGroup, Layout, Solution

MAX_ROWS = 16
"""Rows of the rank grid; above it the fastest axes are put together."""

Row = dict[str, Any]


def document(solution: Solution, groups: Iterable[JobGroup], world_size: int | None, ranks: Sequence[int]) -> Row:
    """Everything `tracekit layout` says. ranks: global ranks that have a trace."""
    return {
        "world_size": world_size,
        "traces": ranges(sorted(set(ranks))),
        "layout": _layout(solution.layout) if solution.layout else None,
        "alternatives": [_layout(x) for x in solution.alternatives],
        "grid": grid(solution.layout) if solution.layout and solution.layout.complete else [],
        "groups": [_group(g, solution) for g in sorted(groups, key=_order)],
        "missing": list(solution.missing),
        "findings": list(solution.findings),
    }


def _order(group: JobGroup) -> tuple[Any, ...]:
    return (group.axes or "~", group.desc or "", group.members or (), group.name or "")


def _layout(layout: Layout) -> Row:
    stride = 1
    degrees = []
    for axis, size in layout.degrees:
        degrees.append({"axis": axis, "size": size, "stride": stride if layout.complete else None})
        stride *= size
    return {
        "text": layout.text(), "degrees": degrees, "expert": [{"axis": a, "size": n} for a, n in layout.expert],
        "order": [a for a, _ in layout.degrees], "complete": layout.complete, "source": layout.source,
        "confidence": layout.confidence, "evidence": list(layout.evidence),
    }  # fmt: skip


def _group(group: JobGroup, solution: Solution) -> Row:
    claim = next(iter(solution.claims.get(group.key, ())), None)
    told = group.axes if claim is None else claim.axes or group.axes
    how = claim.saw if claim else "its description" if group.axes else None
    return {
        "name": group.name, "desc": group.desc, "size": group.size,
        "ranks": ranges(sorted(group.members)) if group.members else None, "axes": told,
        "confidence": claim.confidence if claim else None, "tier": claim.tier if claim else None,
        "rule": claim.rule if claim else None, "alternatives": list(claim.alternatives) if claim else [], "how": how,
    }  # fmt: skip


def grid(layout: Layout) -> list[Row]:
    """Rows of the rank grid, slowest axes first: {"at": "pp 0 · dp 1", "along": "tp", "ranks": "4-7"}.

    Axes that would make more than MAX_ROWS rows are put together, fastest first; a single axis too long is cut in the
    middle, with a row of `at` "…".
    """
    axes = [(a, n) for a, n in layout.degrees if n > 1]
    if not axes:
        return [{"at": "", "along": "", "ranks": ranges(range(layout.world_size))}]
    joined = next((k for k in range(1, len(axes)) if prod(n for _, n in axes[k:]) <= MAX_ROWS), max(len(axes) - 1, 1))
    inner, outer = axes[:joined], axes[joined:]
    mesh = Mesh(tuple(axes))
    names = [a for a, _ in inner]
    along = " × ".join(reversed(names))
    count = mesh.count(names)
    shown = range(count) if count <= MAX_ROWS else [*range(MAX_ROWS // 2), None, *range(count - 4, count)]
    rows: list[Row] = []
    for index in shown:
        if index is None:
            rows.append({"at": "…", "along": along, "ranks": f"{count - MAX_ROWS // 2 - 4} more"})
            continue
        members = mesh.group_at(names, index)
        place = mesh.coordinates(members[0])
        at = " · ".join(f"{a} {place[a]}" for a, _ in reversed(outer))
        rows.append({"at": at, "along": along, "ranks": ranges(members)})
    return rows

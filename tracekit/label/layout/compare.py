"""The declared layout against what descriptions and files say: contradictions, each with both values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracekit.label.job import Claim
from tracekit.label.layout.kinds import finding
from tracekit.label.layout.mesh import Mesh, decompose, ranges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.label.layout.described import Described
    from tracekit.label.layout.kinds import JobGroup, Key, Layout

MAX_NAMED = 3
"""Contradicting groups named in one finding."""


def world_of(groups: Sequence[JobGroup], world_size: int | None) -> int | None:
    """The world size the files state, else the size of the default group."""
    if world_size is not None:
        return world_size
    sizes = {g.size or (len(g.members) if g.members else None) for g in groups if g.is_default}
    return sizes.pop() if len(sizes) == 1 else None


def compare(
    declared: Layout | None,
    found: Described,
    groups: Sequence[JobGroup],
    world: int | None,
    claims: Mapping[Key, list[Claim]],
) -> Layout | None:
    """The declared layout, of less confidence when descriptions contradict it; None when the world cannot be its.

    Adds findings to `found`, and to `claims` the lowered claim of each contradicting group: its description is kept.
    """
    if declared is None:
        return None
    if world is not None and declared.world_size != world:
        message = (
            f"the layout declared ({declared.text()}) makes {declared.world_size} ranks, but the job has {world}: "
            "it is not used"
        )
        found.findings.append(finding("layout-contradiction", message))
        return None
    wrong: dict[str, list[JobGroup]] = {}
    for group in groups:
        axes = group.axes.split("+") if group.axes and group.members else []
        mesh = _mesh_of(declared, axes)
        if len(axes) != 1 or mesh is None or group.is_default or group.members is None:
            continue
        if mesh.group_of(group.members[0], axes) != tuple(sorted(group.members)) and not _level(mesh, axes[0], group):
            wrong.setdefault(axes[0], []).append(group)
    for axis, some in wrong.items():
        mesh = _mesh_of(declared, [axis]) or declared.mesh
        found.findings.append(finding("layout-contradiction", _message(axis, some, mesh)))
        for group in some:
            expected = mesh.group_of((group.members or (0,))[0], [axis])
            saw = f"described as {axis} on ranks {ranges(group.members or ())}; declared: ranks {ranges(expected)}"
            claims[group.key].append(Claim(axis, "A", 0.6, "layout.declared", saw))
    return replace(declared, confidence=0.6) if wrong else declared


def against_ranks(declared: Layout, loose: Sequence[JobGroup]) -> dict[str, object] | None:
    """Finding on groups along no axes of the declared layout, though their ranks are evenly spaced."""
    odd = []
    for group in loose:
        parts = decompose(group.members or ())
        if parts and len(parts) == 1 and declared.world_size % (parts[0][0] * parts[0][1]) == 0:
            odd.append(group)
    if not odd:
        return None
    shown = ", ".join(f"{g.title} on ranks {ranges(g.members or ())}" for g in odd[:MAX_NAMED])
    more = f" and {len(odd) - MAX_NAMED} more" if len(odd) > MAX_NAMED else ""
    hint = "" if declared.expert else "; if they belong to experts, declare ep"
    message = f"along no axes of the declared layout ({declared.text()}) are {shown}{more}{hint}"
    return finding("layout-contradiction", message)


def against_numbers(declared: Layout, told: Sequence[Layout]) -> dict[str, object] | None:
    """Finding when the groups' numbers tell other degrees than the declared ones."""
    texts = dict.fromkeys(x.text() for x in told)
    if not told or any(_used(x) == _used(declared) for x in told):
        return None
    message = f"{declared.text()} is declared, but the numbers of the groups fit {' or '.join(list(texts)[:MAX_NAMED])}"
    return finding("layout-contradiction", message)


def _used(layout: Layout) -> tuple[tuple[str, int], ...]:
    return tuple((a, n) for a, n in layout.degrees if n > 1)


def _mesh_of(layout: Layout, axes: Sequence[str]) -> Mesh | None:
    """The grid of the layout that has all these axes: the dense one, or the experts'."""
    for mesh in (layout.mesh, Mesh(layout.expert)):
        if axes and set(axes) <= {a for a, _ in mesh.axes}:
            return mesh
    return None


def _level(mesh: Mesh, axis: str, group: JobGroup) -> bool:
    """A data group that has other axes folded in, or a level of a hierarchy, is no contradiction."""
    parts = decompose(group.members or ())
    factors = mesh.factors((axis,))
    if parts is None or len(parts) != 1 or not axis.startswith(("dp", "edp")):
        return False
    if not factors:
        return True
    (stride, size), (low, n) = factors[0], parts[0]
    return low <= stride and stride * size <= low * n


def _message(axis: str, groups: Sequence[JobGroup], mesh: Mesh) -> str:
    shown = []
    for group in groups[:MAX_NAMED]:
        members = group.members or (0,)
        expected = mesh.group_of(members[0], [axis])
        shown.append(f"{group.title} has ranks {ranges(members)}, the layout says {ranges(expected)}")
    more = f" (and {len(groups) - MAX_NAMED} more groups)" if len(groups) > MAX_NAMED else ""
    return f"{axis}={mesh.size(axis)} is declared, but " + "; ".join(shown) + more + ": the descriptions are kept"

"""What descriptions say of the mesh: axes with their ranks give degrees and order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tracekit.label.layout.declared import EXPERT
from tracekit.label.layout.kinds import Layout, finding
from tracekit.label.layout.mesh import Factor, decompose, ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.label.layout.kinds import JobGroup, Key
    from tracekit.label.layout.tables import Order
    from tracekit.label.rules import Rules

DATA = ("dp", "dp_shard", "dp_replicate", "edp")
"""Axes whose groups may fold others in: gradients are reduced over context parallelism as well."""


def axes_of(desc: str | None, rules: Rules) -> str | None:
    """Axes that a rule on the description alone concludes; None when none does."""
    if not desc:
        return None
    for rule in rules.labels:
        when = rule.when
        if when.group_desc is None or "axes" not in rule.then or when.group_desc.search(desc) is None:
            continue
        if not (when.op or when.group_name or when.framework or when.scope or when.nearest_scope):
            return rule.then["axes"]
    return None


class Described(Struct):
    """Axes told by descriptions. parts: axis → (stride, size), (0, 1) for one of a single rank."""

    parts: dict[str, Factor] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    doubtful: set[Key] = field(default_factory=set)


def described(groups: Iterable[JobGroup]) -> Described:
    """Sizes and strides of the axes that descriptions name; contradictions between groups become findings."""
    out = Described()
    by_axis: dict[str, list[JobGroup]] = {}
    for group in groups:
        if group.axes and group.members and not group.is_default and not set("|") & set(group.axes):
            by_axis.setdefault(group.axes, []).append(group)
    for axis, found in by_axis.items():
        if "+" not in axis and axis != "embedding":
            _axis(axis, found, out)
    _unfold(out)
    for axis, found in by_axis.items():
        if axis in ("dp+cp", "dp_shard+cp"):
            _folded(axis, found[0], out)
    return out


def _axis(axis: str, groups: Sequence[JobGroup], out: Described) -> None:
    shapes: dict[Factor, JobGroup] = {}
    for group in groups:
        parts = decompose(group.members or ())
        if parts is None or len(parts) > 1:
            out.doubtful.add(group.key)
            text = f"{group.title} is the {axis} axis by its description, but its ranks {ranges(group.members or ())} "
            out.findings.append(finding("layout-contradiction", text + "are not evenly spaced"))
            continue
        shapes.setdefault(parts[0] if parts else (0, 1), group)
    wide = {shape for shape in shapes if shape[1] > 1}
    if len(wide) > 1 and not _levels(shapes, groups):
        sizes = " and ".join(f"{shapes[s].title} on ranks {ranges(shapes[s].members or ())}" for s in sorted(wide))
        out.findings.append(finding("layout-contradiction", f"groups of the {axis} axis differ: {sizes}"))
        out.doubtful |= {g.key for g in groups}
        return
    if shapes:
        best = max(shapes, key=lambda s: s[0] * s[1])
        out.parts[axis] = best
        one = shapes[best]
        out.evidence[axis] = f"{axis}={best[1]}: {one.title} has ranks {ranges(one.members or ())}"


def _levels(shapes: Mapping[Factor, JobGroup], groups: Sequence[JobGroup]) -> bool:
    """Whether the differing groups are levels of one hierarchy: some rank is in groups of every shape."""
    ranks: dict[Factor, set[int]] = {}
    for group in groups:
        parts = decompose(group.members or ())
        if parts:
            ranks.setdefault(parts[0], set()).update(group.members or ())
    return bool(set.intersection(*ranks.values())) and len(ranks) == len([s for s in shapes if s[1] > 1])


def _unfold(out: Described) -> None:
    """A data axis that spans a narrower one as well has only what remains; one with nothing left is no axis."""
    for axis in DATA:
        if axis not in out.parts:
            continue
        whole = out.parts[axis]
        others = [p for a, p in out.parts.items() if a != axis and (a in EXPERT) == (axis in EXPERT) and _in(p, whole)]
        if not others:
            continue
        rest = without(whole, others)
        if rest == ():
            del out.parts[axis], out.evidence[axis]
        elif rest is not None and len(rest) == 1:
            out.parts[axis] = rest[0]
            out.evidence[axis] += "; other axes are folded into it"


def _folded(axes: str, group: JobGroup, out: Described) -> None:
    """Data and context parallelism known only together: the size of one follows from that of the other."""
    parts = decompose(group.members or ())
    names = axes.split("+")
    if parts is None or len(parts) != 1 or names[0] in out.parts:
        return
    inner = [out.parts[n] for n in names[1:] if n in out.parts and _in(out.parts[n], parts[0])]
    rest = without(parts[0], inner)
    unknown = [n for n in names if n not in out.parts]
    if rest and len(rest) == 1:
        axis = "+".join(unknown)
        out.parts[axis] = rest[0]
        out.evidence[axis] = f"{axis}={rest[0][1]}: {group.title} has ranks {ranges(group.members or ())}"


def _in(part: Factor, whole: Factor) -> bool:
    """Whether an axis of several ranks lies within a wider one."""
    low, high = part[0], part[0] * part[1]
    return part[1] > 1 and part != whole and low >= whole[0] and high <= whole[0] * whole[1]


def without(whole: Factor, parts: Sequence[Factor]) -> tuple[Factor, ...] | None:
    """(stride, size) parts of `whole` outside `parts`; None where they do not fit into each other."""
    out: list[Factor] = []
    at, end = whole[0], whole[0] * whole[1]
    for stride, size in sorted(parts):
        if size == 1:
            continue
        if stride < at or stride % at or stride * size > end:
            return None
        if stride > at:
            out.append((at, stride // at))
        at = stride * size
    if end % at:
        return None
    return (*out, (at, end // at)) if end > at else tuple(out)


def layout_from(found: Described, world_size: int | None, orders: Sequence[Order]) -> tuple[Layout | None, list[str]]:
    """Layout of the described axes, and what is missing for a complete one."""
    experts = {a for o in orders for a in o.expert if a not in o.axes}
    dense = {a: p for a, p in found.parts.items() if a not in experts}
    if not experts:
        dense = _apart(dense)
    own = {a: p for a, p in found.parts.items() if a not in dense}
    dense = {a: p for a, p in dense.items() if not _splits(a, dense, orders)}
    if not dense:
        return None, []
    if world_size is None:
        return None, ["the world size: no file states it, and no group is known to hold every rank"]
    wide = sorted((p, a) for a, p in dense.items() if p[1] > 1)
    gaps = without((1, world_size), [p for p, _ in wide])
    if gaps is None:
        text = ", ".join(f"{a}={p[1]} with stride {p[0]}" for p, a in wide)
        message = f"the described axes ({text}) do not fit into one mesh of {world_size} ranks"
        found.findings.append(finding("layout-contradiction", message))
        return None, []
    order = next((o for o in orders if set(dense) <= set(o.axes) and _agrees(wide, o)), None)
    missing = [f"a factor of {n} (stride {s}) of the {world_size} ranks: no described group spans it" for s, n in gaps]
    degrees = _ordered(wide, [a for a, p in dense.items() if p[1] == 1], order, complete=not gaps)
    evidence = tuple(found.evidence[a] for a, _ in degrees if a in found.evidence)
    expert = _expert(own, dict(degrees), found) if own else ()
    evidence += tuple(found.evidence[a] for a in own)
    confidence = 0.6 if found.findings else 0.95
    return Layout(tuple(degrees), world_size, "group descriptions", confidence, evidence, expert), missing


def _apart(parts: Mapping[str, Factor]) -> dict[str, Factor]:
    """Without a framework's word, expert axes belong to the mesh unless they overlap with its others."""
    dense = {a: p for a, p in parts.items() if a not in EXPERT}
    for axis in EXPERT:
        part = parts.get(axis)
        clash = part and any(_overlap(part, other) for other in dense.values())
        if part and not clash:
            dense[axis] = part
    return dense


def _splits(axis: str, parts: Mapping[str, Factor], orders: Sequence[Order]) -> bool:
    """Whether an axis splits another one of the mesh, as its framework lets it."""
    outer = {o.inside[axis] for o in orders if o.inside and axis in o.inside} & set(parts)
    return any(parts[axis] == parts[x] or _in(parts[axis], parts[x]) for x in outer)


def _overlap(a: Factor, b: Factor) -> bool:
    return a[1] > 1 and b[1] > 1 and a[0] < b[0] * b[1] and b[0] < a[0] * a[1]


def _agrees(wide: Sequence[tuple[Factor, str]], order: Order) -> bool:
    places = [order.axes.index(a) for _, a in wide]
    return places == sorted(places)


def _ordered(
    wide: Sequence[tuple[Factor, str]], single: Sequence[str], order: Order | None, *, complete: bool
) -> list[tuple[str, int]]:
    """Degrees fastest first; a complete mesh of a known order shows the axes it does not use, too."""
    sizes = {a: p[1] for p, a in wide}
    if order is not None:
        listed = [a for a in order.axes if a in sizes or complete or a in single]
        return [(a, sizes.get(a, 1)) for a in listed]
    return [*sizes.items(), *((a, 1) for a in sorted(single))]


def _expert(own: Mapping[str, Factor], dense: Mapping[str, int], found: Described) -> tuple[tuple[str, int], ...]:
    """Experts' axes by stride; axes of a single rank first."""
    listed = sorted((p, a) for a, p in own.items())
    out = [(a, p[1]) for p, a in listed]
    if any(_overlap(p, q) for i, (p, _) in enumerate(listed) for q, _ in listed[i + 1 :]):
        found.findings.append(finding("layout-contradiction", "the axes of the experts overlap: " + ", ".join(own)))
    if "pp" in dense:
        out.append(("pp", dense["pp"]))
    return tuple(out)

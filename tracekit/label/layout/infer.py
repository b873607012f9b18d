"""One answer from all evidence: user's map > descriptions > declared layout > group numbers > rank sets."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tracekit.label.job import Claim
from tracekit.label.layout.compare import against_numbers, against_ranks, compare, world_of
from tracekit.label.layout.described import described, layout_from
from tracekit.label.layout.kinds import JobGroup, Key, Layout, Solution
from tracekit.label.layout.mesh import Mesh, decompose, ranges
from tracekit.label.layout.ordinal import Fit, decode
from tracekit.label.layout.topology import IDLE, UNNAMED, Topology, combined, read_shapes
from tracekit.label.layout.usermap import MapEntry, mapped, unmatched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.label.layout.tables import LayoutTables, Order


class _Work(Struct):
    """What is gathered on the way: claims by group, findings, what is missing."""

    claims: dict[Key, list[Claim]]
    findings: list[dict[str, Any]]
    missing: list[str]


def solve(
    groups: Sequence[JobGroup],
    *,
    world_size: int | None,
    pg_count: int | None,
    frameworks: frozenset[str],
    declared: Layout | None,
    tables: LayoutTables,
    entries: Sequence[MapEntry] = (),
) -> Solution:
    """Layout of the job and the axes of its groups; the order of `groups` does not matter.

    pg_count: process groups of the job, as its files state. entries: the user's map. A claim's axes are "tp",
    "dp+cp", or "tp|cp" where several stay possible (confidence 0.5 and less). Descriptions are kept as they are; a
    group whose description contradicts other evidence gets a claim that repeats it with confidence 0.6.
    """
    work = _Work(defaultdict(list), [], [])
    given = mapped(entries, groups)
    work.findings += unmatched(entries, groups)
    for key, claim in given.items():
        work.claims[key].append(claim)
    told = {g.key: _told(g, given.get(g.key)) for g in _merged(groups)}
    listed = sorted(told.values(), key=lambda g: (g.members or (), g.name or "", g.desc or ""))
    world = world_of(listed, world_size)
    orders = tables.orders_of(frameworks)
    found = described(listed)
    layout, missing = layout_from(found, world, orders)
    declared = compare(declared, found, listed, world, work.claims)
    work.findings += found.findings
    for key in found.doubtful:
        _doubt(told[key], work, "its ranks do not agree with other groups of the axis")
    work.missing += missing
    candidates = [x for x in (layout if layout and layout.complete else None, declared, layout) if x]
    best = candidates[0] if candidates else None
    numbers = _from_numbers(listed, world, pg_count, frameworks, tables, work)
    whole = {key for f in numbers for key, place in f.places.items() if place.axes is None}
    axial = [g for g in listed if g.key not in whole]
    if declared is not None:
        loose = _from_mesh(axial, declared, "layout.declared", ("A", 0.95), tables, work)
        torn_by = (against_ranks(declared, loose), against_numbers(declared, [f.layout for f in numbers]))
        work.findings += [f for f in torn_by if f is not None]
    if best is None and numbers:
        best = numbers[0].layout if len({f.layout.text() for f in numbers}) == 1 else None
    if layout is not None and layout.complete and not found.findings:
        _from_mesh(axial, layout, "layout.topology", ("B", 0.8), tables, work)
    others: tuple[Layout, ...] = ()
    torn = layout is None and bool(found.parts) and bool(found.findings)  # descriptions that contradict each other
    if not torn and (best is None or not best.complete):
        solved, others = _from_shapes(listed, world, orders, tables, work)
        best = _better(best, solved, others)
        others = tuple(x for x in others if x != best)
    claims = {key: tuple(sorted(c, key=_rank)) for key, c in work.claims.items()}
    return Solution(best, others, claims, tuple(work.findings), tuple(dict.fromkeys(work.missing)))


_ORDER = ("layout.map", "layout.declared", "layout.ordinal", "layout.template", "layout.topology")


def _rank(claim: Claim) -> tuple[bool, float, int]:
    return (claim.rule != "layout.map", -claim.confidence, _ORDER.index(claim.rule))


def _merged(groups: Sequence[JobGroup]) -> list[JobGroup]:
    """One entry a group: ranks may know different halves of it."""
    out: dict[Key, JobGroup] = {}
    for group in sorted(groups, key=lambda g: (g.desc in (None, "", "undefined"), g.desc or "", g.axes or "")):
        old = out.get(group.key)
        if old is None:
            out[group.key] = group
        else:
            behaviour = old.behaviour | group.behaviour
            behaviour -= {"idle"} if behaviour != {"idle"} else set()
            out[group.key] = replace(
                old,
                behaviour=behaviour,
                axes=old.axes or group.axes,
                size=old.size or group.size,
                desc=old.desc or group.desc,
            )
    return list(out.values())


def _told(group: JobGroup, claim: Claim | None) -> JobGroup:
    return replace(group, axes=claim.axes) if claim is not None and claim.axes else group


def _doubt(group: JobGroup, work: _Work, why: str) -> None:
    if group.axes:
        work.claims[group.key].append(
            Claim(group.axes, "A", 0.6, "layout.topology", f"described as {group.axes}, but {why}")
        )


def _better(best: Layout | None, solved: Layout | None, others: tuple[Layout, ...]) -> Layout | None:
    """A complete layout before an incomplete one; of two incomplete ones, what descriptions say."""
    if best is None:
        return solved
    if solved is not None and solved.complete and not others:
        known = dict(solved.degrees)
        if all(known.get(a) == n for a, n in best.degrees):
            return solved
    return best


# ------------------------------------------------------------------ claims from a mesh that is known


def _from_mesh(
    groups: Sequence[JobGroup], layout: Layout, rule: str, sure: tuple[str, float], tables: LayoutTables, work: _Work
) -> list[JobGroup]:
    """Claims on groups without axes of their own: the axes along which the mesh has just these ranks.

    Several groups on the same ranks may be of different duties (tp, etp and tp+cp): unless its traffic says that a
    group is what the mesh calls it, the claim is then no stronger than one from rank sets. Returns the groups along
    no axes.
    """
    loose = []
    same = Counter(tuple(sorted(g.members)) for g in groups if g.members and not g.is_default)
    for group in groups:
        if group.axes or group.is_default or not group.members or len(group.members) < 2:
            continue
        possible = names_in(layout, group.members)
        if not possible:
            loose.append(group)
            continue
        fit, confirmed = _fit(possible, group, tables)
        names = fit or possible
        others_there = same[tuple(sorted(group.members))] - 1
        tier, confidence = sure if len(names) == 1 else ("C", 0.5)
        saw = f"ranks {ranges(group.members)} in the mesh {layout.text()} ({layout.source})"
        if not fit:
            tier, confidence, saw = "C", 0.5, f"{saw}, which its traffic contradicts"
        elif others_there and not confirmed:
            tier, confidence, saw = "C", min(confidence, 0.6), f"{saw}; {others_there} more on the same ranks"
        others = names if len(names) > 1 else ()
        work.claims[group.key].append(Claim("|".join(names), tier, confidence, rule, saw, alternatives=others))
    return loose


def names_in(layout: Layout, members: Sequence[int]) -> tuple[str, ...]:
    """Axes ("+" between several) along which a layout has a group of exactly these ranks; the experts' ones last."""
    ranks = tuple(sorted(members))
    shape = decompose(ranks)
    out: list[str] = []
    for mesh, only in ((layout.mesh, None), (Mesh(layout.expert), ("etp", "ep", "edp"))):
        wide = [a for a, n in mesh.axes if n > 1]
        held = [a for a in wide if _inside(mesh, a, shape)] if shape else []
        text = "+".join(held)
        own = only is None or bool(set(held) & set(only))
        if held and own and mesh.group_of(ranks[0], held) == ranks and text not in out:
            out.append(text)
    return tuple(out)


def _inside(mesh: Mesh, axis: str, shape: Sequence[tuple[int, int]]) -> bool:
    (stride, size), *_ = mesh.factors((axis,))
    return any(s <= stride and stride * size <= s * n for s, n in shape)


def _fit(names: tuple[str, ...], group: JobGroup, tables: LayoutTables) -> tuple[tuple[str, ...], bool]:
    """Names that the traffic admits, and whether there is any that tells."""
    rules = [tables.behaviours[b] for b in group.behaviour if b in tables.behaviours]
    return tuple(n for n in names if all(r.allows(n.split("+")) for r in rules)), bool(rules)


# ------------------------------------------------------------------ claims from numbers


def _from_numbers(
    groups: Sequence[JobGroup], world: int | None, pg_count: int | None, frameworks: frozenset[str],
    tables: LayoutTables, work: _Work,
) -> tuple[Fit, ...]:  # fmt: skip
    if world is None or all(g.axes for g in groups if g.size != 1 and not g.is_default):
        return ()
    fits = decode(groups, world, pg_count, frameworks, tables)
    if fits is None:
        work.missing.append("degrees: too many are possible to try all against the group numbers")
    if not fits:
        return ()
    for group in groups:
        places = {f.places[group.key] for f in fits if group.key in f.places}
        names = tuple(sorted({p.axes for p in places if p.axes}))
        alone = group.members is None or len(group.members) < 2
        if group.axes or alone or not names or any(p.axes is None for p in places):
            continue
        twin = " (its CPU twin)" if all(p.twin for p in places) else ""
        saw = f"number {group.name} of {fits[0].layout.text()}{twin}: {fits[0].layout.evidence[0]}"
        tier, confidence = ("B", fits[0].layout.confidence) if len(names) == 1 else ("C", 0.5)
        others = names if len(names) > 1 else ()
        work.claims[group.key].append(
            Claim("|".join(names), tier, confidence, "layout.ordinal", saw, alternatives=others)
        )
    return fits


# ------------------------------------------------------------------ claims from rank sets alone


def _from_shapes(
    groups: Sequence[JobGroup], world: int | None, orders: Sequence[Order], tables: LayoutTables, work: _Work
) -> tuple[Layout | None, tuple[Layout, ...]]:
    if world is None:
        work.missing.append("the world size: without it rank sets cannot be read as a mesh")
        return None, ()
    known = {g.key: frozenset(g.axes.split("+")) for g in groups if g.axes and not {"|", "embedding"} & {g.axes}}
    for key, claims in work.claims.items():
        sure = next((c for c in claims if c.rule == "layout.ordinal" and not c.alternatives), None)
        if sure is not None and key not in known:
            known[key] = frozenset(sure.axes.split("+"))
    known = {k: v for k, v in known.items() if v <= tables.axes}
    topology = read_shapes(groups, world, orders, tables, known)
    work.missing += [topology.reason] if topology.reason else []
    if not topology.readings:
        return None, ()
    _claim_shapes(groups, topology, known, work)
    return _single(_distinct(topology), topology, work)


def _claim_shapes(
    groups: Sequence[JobGroup], topology: Topology, known: Mapping[Key, frozenset[str]], work: _Work
) -> None:
    votes = combined(topology)
    free = topology.readings[0].free
    rule = "layout.topology" if free else "layout.template"
    no_context = any(dict(r.layout.degrees).get("cp", 1) == 1 for r in topology.readings)
    for group in groups:
        if group.key not in votes or group.key in known or group.axes:
            continue
        names = tuple(sorted("+".join(_sorted(a)) for a in votes[group.key] if UNNAMED not in a))
        if not names or any(UNNAMED in a for a in votes[group.key]):
            continue
        seen = topology.seen[group.key].behaviour - IDLE
        others = names if len(names) > 1 else ()
        if len(names) > 1:
            confidence = 0.5 if len(names) == 2 else 0.4
        else:
            confidence = 0.75 if seen and not free else 0.65 if seen or not free else 0.5
            held = frozenset(names[0].split("+"))
            if "dp" in held and "cp" not in held and no_context:  # what is reduced over both looks the same
                others = ("+".join(_sorted(held | {"cp"})),)
                others += ("+".join(_sorted(held - {"dp"} | {"cp"})),) if len(held) > 1 or not seen else ()
        saw = f"ranks {ranges(group.members or ())}" + (f", traffic {' '.join(sorted(seen))}" if seen else "")
        saw += (
            f"; {len(topology.readings)} consistent reading{'s' if len(topology.readings) > 1 else ''} of all rank sets"
        )
        work.claims[group.key].append(Claim("|".join(names), "C", confidence, rule, saw, alternatives=others))


_USUAL = ("tp", "etp", "sp", "ep", "dp", "dp_shard", "dp_replicate", "edp", "cp", "pp")


def _sorted(axes: frozenset[str]) -> list[str]:
    """Axes in the order labels write them ("dp+cp", "tp+pp", "etp+ep")."""
    return sorted(axes, key=lambda a: (_USUAL.index(a) if a in _USUAL else len(_USUAL), a))


def _distinct(topology: Topology) -> tuple[Layout, ...]:
    """Layouts that differ: not in the place of unused axes, nor in experts that nothing but chance suggests."""
    out: dict[tuple[tuple[str, int], ...], dict[tuple[tuple[str, int], ...], Layout]] = {}
    for layout in (r.layout for r in topology.readings):
        used = tuple((a, n) for a, n in layout.degrees if n > 1)
        expert = tuple((a, n) for a, n in layout.expert if n > 1 and a != "pp")
        out.setdefault(used, {}).setdefault(expert, layout)
    kept: list[Layout] = []
    for variants in out.values():
        kept += [variants[()]] if () in variants else variants.values()
    return tuple(kept)


def _single(layouts: tuple[Layout, ...], topology: Topology, work: _Work) -> tuple[Layout | None, tuple[Layout, ...]]:
    """The layout that is the only one left, else all of them as alternatives."""
    if len(layouts) > 1:
        sizes = "; ".join(dict.fromkeys(x.text() for x in layouts[:6]))
        more = f" and {len(layouts) - 6} more" if len(layouts) > 6 else ""
        work.missing.append(
            f"names of the axes: {len(layouts)} layouts fit ({sizes}{more}); declare one with --layout, or record with "
            "group descriptions"
        )
        return None, layouts
    best = layouts[0]
    if not best.complete:
        rest = best.world_size // best.mesh.world_size
        work.missing.append(f"a factor of {rest} of the {best.world_size} ranks: no group seen spans it")
    traffic = any(k.behaviour - IDLE for k in topology.seen.values())
    return replace(best, confidence=0.75 if traffic and not topology.readings[0].free else 0.65), ()

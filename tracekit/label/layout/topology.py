"""Groups without names: which meshes fit the rank sets of all groups, and what their axes can be.

Rank sets that are evenly spaced and nest (each stride a multiple of the extent before) are orthogonal axes, the others
products of them or groups along the experts' own factorisation. Axes get names from the framework's order, or any names
without a framework; what is seen to happen in a group removes names. All that stays possible is returned.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations, pairwise, permutations
from typing import TYPE_CHECKING

from msgspec import Struct

from tracekit.label.layout.described import without
from tracekit.label.layout.kinds import Key, Layout
from tracekit.label.layout.mesh import Factor, Mesh, decompose

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tracekit.label.layout.kinds import JobGroup
    from tracekit.label.layout.tables import Behaviour, LayoutTables, Order

Shape = tuple[Factor, ...]
Axes = frozenset[str]

FREE = ("tp", "cp", "dp", "pp", "ep")
"""Names an axis may have when no framework tells the order."""
UNNAMED = "?"
IDLE = frozenset({"idle"})
MAX_SHAPES = 16


class Seen(Struct, frozen=True):
    """Groups that look the same: rank sets of one shape with the same traffic and the same known axes.

    beside: traffic of other groups on the same ranks, one set for each (an empty one: not known).
    """

    shape: Shape
    behaviour: frozenset[str]
    known: Axes = frozenset()
    beside: frozenset[frozenset[str]] = frozenset()


class Reading(Struct, frozen=True):
    """One consistent reading: what each kind of group may be, and the layout that follows. free: no order was known."""

    layout: Layout
    options: Mapping[Seen, frozenset[Axes]]
    free: bool


class Topology(Struct, frozen=True):
    """All readings, and which group is of which kind. odd: groups on no mesh. reason: why there is no reading."""

    readings: tuple[Reading, ...]
    seen: Mapping[Key, Seen]
    odd: tuple[JobGroup, ...] = ()
    reason: str = ""


def namings(count: int, order: Order | None) -> Iterator[tuple[str, ...]]:
    """Names that `count` observed axes may have, fastest first: in the order of the framework, or any."""
    yield from combinations(order.axes, count) if order is not None else permutations(FREE, count)


def read_shapes(
    groups: Sequence[JobGroup], world_size: int, orders: Sequence[Order], tables: LayoutTables,
    known: Mapping[Key, Axes] | None = None,
) -> Topology:  # fmt: skip
    """All consistent readings of the groups' rank sets; `known`: axes already told of some groups."""
    seen, odd = _kinds(groups, world_size, known or {})
    kinds = sorted(set(seen.values()), key=_order_of)
    shapes = sorted({k.shape for k in kinds})
    if not shapes:
        return Topology((), seen, odd, "no group of more than one rank has known members")
    if len(shapes) > MAX_SHAPES:
        return Topology((), seen, odd, f"{len(shapes)} different rank sets are too many to try all meshes")
    found: dict[tuple[object, ...], Reading] = {}
    solver = _Solver(kinds, shapes, world_size, tables)
    for chain in solver.chains():
        for order in orders or (None,):
            for reading in solver.readings(chain, order):
                layout, options = reading.layout, (_plain(reading.options[k]) for k in kinds)
                found.setdefault((layout.degrees, layout.expert, tuple(options)), reading)
    reason = "" if found else "the rank sets of the groups and their traffic fit no mesh that is known"
    return Topology(tuple(found.values()), seen, odd, reason)


def _plain(options: frozenset[Axes]) -> tuple[tuple[str, ...], ...]:
    return tuple(sorted(tuple(sorted(axes)) for axes in options))


def _order_of(kind: Seen) -> tuple[object, ...]:
    return (kind.shape, sorted(kind.behaviour), sorted(kind.known), sorted(map(sorted, kind.beside)))


def _kinds(
    groups: Sequence[JobGroup], world_size: int, known: Mapping[Key, Axes]
) -> tuple[dict[Key, Seen], tuple[JobGroup, ...]]:
    """Kind of each group that can tell of the mesh: several ranks, not the default one unless it is alone."""
    several = [g for g in groups if g.members and len(g.members) > 1]
    plain = [g for g in several if not g.is_default]
    used = plain or several
    same: dict[tuple[int, ...], list[JobGroup]] = defaultdict(list)
    for group in used:
        same[tuple(sorted(group.members or ()))].append(group)
    seen: dict[Key, Seen] = {}
    odd = []
    for group in used:
        members = tuple(sorted(group.members or ()))
        shape = decompose(members)
        if shape is None or not _on_grid(members[0], shape, world_size):
            odd.append(group)
            continue
        behaviour = group.behaviour if group.behaviour == IDLE else group.behaviour - IDLE
        beside = frozenset(g.behaviour for g in same[members] if g is not group)
        seen[group.key] = Seen(shape, behaviour, known.get(group.key, frozenset()), beside)
    return seen, tuple(odd)


def _on_grid(first: int, shape: Shape, world_size: int) -> bool:
    """Whether the set is a group of the mesh law: its extents divide the world and it starts at coordinate 0."""
    return all(world_size % (s * n) == 0 and (first // s) % n == 0 for s, n in shape)


class _Solver:
    def __init__(self, kinds: Sequence[Seen], shapes: Sequence[Shape], world_size: int, tables: LayoutTables) -> None:
        self._kinds = kinds
        self._shapes = shapes
        self._world = world_size
        self._tables = tables
        self._allowed = {
            k: [tables.behaviours[b] for b in sorted(k.behaviour) if b in tables.behaviours] for k in kinds
        }

    def chains(self) -> Iterator[tuple[Factor, ...]]:
        """Sets of observed axes that nest, none of which could take another one in."""
        plain = [s[0] for s in self._shapes if len(s) == 1]
        for chain in self._grow((), plain):
            if not any(_nests((*chain, part)) for part in plain if part not in chain):
                yield chain

    def _grow(self, chain: tuple[Factor, ...], rest: Sequence[Factor]) -> Iterator[tuple[Factor, ...]]:
        if chain:
            yield chain
        for i, part in enumerate(rest):
            if _nests((*chain, part)):
                yield from self._grow((*chain, part), rest[i + 1 :])

    def readings(self, chain: tuple[Factor, ...], order: Order | None) -> Iterator[Reading]:
        """All namings of the chain under one order that every group agrees with."""
        for names in namings(len(chain), order):
            axes = dict(zip(names, chain, strict=True))
            dense = {s: _along(s, axes) for s in self._shapes}
            for expert in self._experts(axes, dense, order):
                options = self._options(axes, dense, expert, order)
                if options is not None:
                    yield Reading(self._layout(axes, expert, order), options, order is None)

    def _experts(
        self, axes: Mapping[str, Factor], dense: Mapping[Shape, Axes | None], order: Order | None
    ) -> Iterator[Mesh | None]:
        """Factorisations for experts worth a try: none, and one for each rank set that could be their group."""
        if all(a is not None for a in dense.values()):
            yield None
        if order is None or not order.expert:
            return
        stage = self._world // axes["pp"][1] if "pp" in axes else self._world
        for kind in {k.shape: k for k in self._kinds if self._may_be_ep(k, len(axes), order, dense)}.values():
            stride, size = kind.shape[0]
            if stage % (stride * size) == 0:
                sizes = {"etp": stride, "ep": size, "edp": stage // (stride * size), "pp": self._world // stage}
                yield Mesh(tuple((a, sizes[a]) for a in order.expert if a in sizes))

    def _may_be_ep(self, kind: Seen, count: int, order: Order, dense: Mapping[Shape, Axes | None]) -> bool:
        if len(kind.shape) != 1 or (kind.known and "ep" not in kind.known):
            return False
        if self._allowed[kind]:
            return all(b.allows(("ep",)) for b in self._allowed[kind])
        if kind.behaviour == IDLE or "ep" in kind.known or dense[kind.shape] is None:
            return "ep" in kind.known
        # Where groups of every axis are there, one of unknown traffic with the ranks for itself is one of theirs.
        return bool(kind.beside) or count < len(order.axes)

    def _options(
        self, axes: Mapping[str, Factor], dense: Mapping[Shape, Axes | None], expert: Mesh | None, order: Order | None
    ) -> dict[Seen, frozenset[Axes]] | None:
        """What each kind of group may be under a naming; None when some kind can be nothing."""
        out = {}
        aliases = {frozenset(v.split("+")): k for k, v in ((order.aliases or {}) if order else {}).items()}
        for kind in self._kinds:
            could = {dense[kind.shape]} - {None}
            if expert is not None:
                could |= _expert_groups(kind, expert)
            for held, alias in aliases.items():
                if dense[kind.shape] == held & set(axes) and UNNAMED not in held:
                    could.add(frozenset({alias}))
            fit = {a for a in could if a is not None and self._agrees(kind, a)}
            if not fit:
                return None
            out[kind] = frozenset(fit)
        return out

    def _agrees(self, kind: Seen, axes: Axes) -> bool:
        if kind.known and UNNAMED not in axes and not kind.known <= axes:
            return False
        rules = self._allowed[kind]
        if UNNAMED in axes or not rules:
            return True
        # Traffic of two strategies in one group: together they exclude nothing that one of them admits.
        shared = any(self._shows(traffic, axes) for traffic in kind.beside)
        allowed = [b.allows(axes, shared=shared) for b in rules]
        return all(allowed) or (any(allowed) and not self._jointly(rules))

    def _shows(self, traffic: frozenset[str], axes: Axes) -> bool:
        """Whether a group along these axes may have that traffic; True when none is known."""
        known = self._tables.behaviours
        return traffic != IDLE and all(known[b].allows(axes) for b in traffic if b in known)

    def _jointly(self, rules: Sequence[Behaviour]) -> bool:
        """Whether some single axis shows all of this traffic."""
        return any(all(b.allows((a,)) for b in rules) for a in self._tables.axes.union(FREE))

    def _layout(self, axes: Mapping[str, Factor], expert: Mesh | None, order: Order | None) -> Layout:
        sizes = {a: p[1] for a, p in axes.items()}
        complete = Mesh(tuple(sizes.items())).world_size == self._world
        names = order.axes if order is not None and complete else tuple(sizes)
        source = f"rank sets, order of {order.id}" if order is not None else "rank sets"
        told = tuple(f"{a}={p[1]}: groups with stride {p[0]}" for a, p in axes.items())
        return Layout(
            tuple((a, sizes.get(a, 1)) for a in names), self._world, source, 0.75, told, expert.axes if expert else ()
        )


def _nests(parts: Sequence[Factor]) -> bool:
    ordered = sorted(parts)
    return all(b[0] % (a[0] * a[1]) == 0 for a, b in pairwise(ordered))


def _along(shape: Shape, axes: Mapping[str, Factor]) -> Axes | None:
    """Axes that a rank set spans, UNNAMED for ranks along none of them; None when it cuts an axis in two."""
    out: set[str] = set()
    for stride, size in shape:
        inside = [p for p in axes.values() if stride <= p[0] and p[0] * p[1] <= stride * size]
        cut = [p for p in axes.values() if p not in inside and p[0] < stride * size and stride < p[0] * p[1]]
        rest = without((stride, size), inside)
        if cut or rest is None:
            return None
        out |= {a for a, p in axes.items() if p in inside}
        if rest:
            out.add(UNNAMED)
    return frozenset(out)


def _expert_groups(kind: Seen, mesh: Mesh) -> set[Axes]:
    """Groups that experts have along a rank set of this shape."""
    wide = [a for a, n in mesh.axes if n > 1]
    sets = [("etp",), ("ep",), ("edp",), ("etp", "ep"), ("etp", "ep", "pp")]
    return {frozenset(s) & set(wide) for s in sets if mesh.factors(s) == kind.shape and set(s) & set(wide)}


def combined(topology: Topology) -> dict[Key, dict[Axes, int]]:
    """Per group: what it may be over all readings, with the number of readings for each."""
    votes: dict[Seen, dict[Axes, int]] = defaultdict(lambda: defaultdict(int))
    for reading in topology.readings:
        for kind, options in reading.options.items():
            for axes in options:
                votes[kind][axes] += 1
    return {key: dict(votes[kind]) for key, kind in topology.seen.items() if kind in votes}

"""Groups told by their number: torch names an undescribed group with the ordinal of its `new_group` call.

The count goes over every call on every rank, CPU twins included, so with a framework's order of creation a number says
which group it is. Degrees are not needed beforehand: those under which every number leads to exactly the ranks it has
are kept.
"""

from __future__ import annotations

from functools import cache
from itertools import product, takewhile
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tracekit.label.layout.kinds import Key, Layout
from tracekit.label.layout.mesh import Mesh, divisors, factorisations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tracekit.label.layout.kinds import JobGroup
    from tracekit.label.layout.tables import Creation, Item, LayoutTables, Order

MAX_COST = 5_000_000
"""Tries times ranks: a try writes out the members of groups, which takes long in a very large job."""
MAX_TRIES = 50_000
"""Degrees looked at before the search is given up (worlds of many small factors)."""
MAX_DIGITS = 12


class Place(Struct, frozen=True):
    """Where a number leads: the axes of the group (None: the whole job), its ranks, and whether it is the CPU twin."""

    axes: str | None
    members: tuple[int, ...]
    twin: bool = False


class Fit(Struct, frozen=True):
    """A layout under which every number leads to the ranks it has."""

    layout: Layout
    places: Mapping[Key, Place]


class _Block(Struct, frozen=True):
    """All groups of one item: `count` times `width` calls, on the grid `mesh`."""

    item: Item
    mesh: Mesh
    axes: frozenset[str]
    count: int
    twin: bool

    @property
    def width(self) -> int:
        return 1 + self.twin + len(self.item.extra)


class Recipe:
    """The groups that a framework creates for given degrees, by number.

    A kind of groups is worked out when a number leads there: most degrees are ruled out by the first few.
    """

    def __init__(
        self, creation: Creation, order: Order, degrees: Grid, *, twins: bool, skipped: frozenset[int] = frozenset()
    ) -> None:
        self._numbering = creation.numbering
        aliases = order.aliases or {}
        items = (item for i, item in enumerate(creation.items) if i not in skipped)
        meshes = {grid: Mesh(axes) for grid, axes in (("dense", degrees.dense), ("expert", degrees.expert))}
        self._rest = (_block(item, aliases, degrees, meshes, twins) for item in items)
        self._known: list[_Block] = []

    def _blocks(self) -> Iterator[_Block]:
        yield from self._known
        for block in self._rest:
            self._known.append(block)
            yield block

    @property
    def count(self) -> int:
        """Groups in all, the default one included."""
        return 1 + sum(b.count * b.width for b in self._blocks())

    def place(self, number: int) -> Place | None:
        """The group of that number (0 = the default group, which is none of the recipe's); None beyond the last."""
        at = number - 1
        for block in self._blocks():
            if 0 <= at < block.count * block.width:
                index, part = divmod(at, block.width)
                return self._within(block, index, part)
            at -= block.count * block.width
        return None

    def _within(self, block: _Block, index: int, part: int) -> Place:
        members = block.mesh.group_at(block.axes, index, self._numbering)
        axes = None if block.item.axes == "world" else block.item.role or block.item.axes
        if part == 0 or (part == 1 and block.twin):
            return Place(axes, members, twin=part == 1)
        name = block.item.extra[part - 1 - block.twin]
        ends = (members[0],) if name == "position_embedding" or len(members) == 1 else (members[0], members[-1])
        return Place(name, ends)


class Grid(Struct, frozen=True):
    """Sizes of the dense axes, of the experts' axes, and of axes inside another one."""

    dense: tuple[tuple[str, int], ...]
    expert: tuple[tuple[str, int], ...] = ()
    inside: tuple[tuple[str, int], ...] = ()


def _block(item: Item, aliases: Mapping[str, str], grid: Grid, meshes: Mapping[str, Mesh], twins: bool) -> _Block:
    mesh = meshes["expert" if item.grid == "expert" else "dense"]
    if item.inside:
        part = dict(grid.inside)[item.axes]
        cut = [
            x
            for name, size in mesh.axes
            for x in ([(item.axes, part), (name, size // part)] if name == item.inside else [(name, size)])
        ]
        mesh = Mesh(tuple(cut))
    text = aliases.get(item.axes, item.axes)
    axes = frozenset(name for name, _ in mesh.axes) if text == "world" else _parts(text)
    return _Block(item, mesh, axes, mesh.count(axes), item.twin == "yes" or (item.twin == "maybe" and twins))


@cache
def _parts(axes: str) -> frozenset[str]:
    return frozenset(axes.split("+"))


def grids(order: Order, creation: Creation, world_size: int) -> Iterator[Grid]:
    """All degrees of a framework for so many ranks."""
    for sizes in factorisations(world_size, len(order.axes)):
        yield from _completed(tuple(zip(order.axes, sizes, strict=True)), order, creation, world_size)


def _completed(dense: tuple[tuple[str, int], ...], order: Order, creation: Creation, world_size: int) -> Iterator[Grid]:
    """Grids with these dense sizes: all sizes of the experts' axes and of those inside another one."""
    own = [a for a in order.expert if a not in order.axes]
    inner = [i for i in creation.items if i.inside]
    shared = Mesh(tuple((a, n) for a, n in dense if a in order.expert)).world_size
    expert_sizes = factorisations(world_size // shared, len(own)) if own else iter([()])
    for chosen in expert_sizes:
        mine = dict(zip(own, chosen, strict=True)) | dict(dense)
        expert = tuple((a, mine[a]) for a in order.expert)
        choices = [[(i.axes, d) for d in divisors(dict(dense)[i.inside])] for i in inner]
        for inside in product(*choices):
            yield Grid(dense, expert, tuple(inside))


def decode(
    groups: Sequence[JobGroup],
    world_size: int,
    pg_count: int | None,
    frameworks: frozenset[str],
    tables: LayoutTables,
) -> tuple[Fit, ...] | None:
    """All layouts that fit the numbers of the groups, () when there is nothing to fit or nothing fits.

    pg_count: groups of the job as the file states them, the default one included. None: the search was too large.
    """
    numbered = _numbered(groups)
    if not any(len(g.members or ()) > 1 for g in numbered.values()):
        return ()
    orders = {o.id: o for o in tables.orders}
    fits: dict[tuple[object, ...], Fit] = {}
    tries = 0
    for creation in (c for c in tables.creations if c.framework in frameworks):
        order = orders[creation.order]
        start, choices = _start(creation)
        for sizes in factorisations(world_size, len(order.axes)):
            dense = tuple(zip(order.axes, sizes, strict=True))
            tries += 1
            if tries * world_size > MAX_COST:
                return None
            twins = _possible_twins(start, order, dense, choices, numbered)
            for grid in _completed(dense, order, creation, world_size) if twins else ():
                tries += 1
                if tries > MAX_TRIES:
                    return None
                for recipe in _variants(creation, order, grid, twins):
                    places = _places(recipe, numbered) if pg_count in (None, recipe.count) else None
                    if places is not None:
                        key = (grid.dense, grid.expert, tuple(sorted((str(k), p.axes) for k, p in places.items())))
                        fits.setdefault(key, Fit(_layout(grid, creation, world_size, pg_count), places))
    return tuple(fits.values())


def _numbered(groups: Sequence[JobGroup]) -> dict[int, JobGroup]:
    """Groups by number, without the default one; empty when two of different ranks have the same."""
    out: dict[int, JobGroup] = {}
    for group in groups:
        if group.name and group.name.isascii() and group.name.isdecimal() and len(group.name) < MAX_DIGITS:
            if group.members is None or int(group.name) == 0:
                continue
            if out.setdefault(int(group.name), group).members != group.members:
                return {}
    return dict(sorted(out.items()))


def _possible_twins(
    start: Creation,
    order: Order,
    dense: tuple[tuple[str, int], ...],
    choices: Sequence[bool],
    numbered: Mapping[int, JobGroup],
) -> list[bool]:
    """With or without CPU twins: whether the numbers of the first items, which depend on nothing else, can be right."""
    grid = Grid(dense)
    out = []
    for twins in choices:
        recipe = Recipe(start, order, grid, twins=twins)
        if all((p := recipe.place(n)) is None or p.members == g.members for n, g in numbered.items()):
            out.append(twins)
    return out


def _start(creation: Creation) -> tuple[Creation, Sequence[bool]]:
    """The first items, which depend on the dense degrees alone; and whether there can be CPU twins."""
    first = takewhile(lambda i: i.grid == "dense" and not i.inside and not i.optional, creation.items)
    choices = (False, True) if any(item.twin == "maybe" for item in creation.items) else (False,)
    return replace(creation, items=tuple(first)), choices


def _variants(creation: Creation, order: Order, grid: Grid, choices: Sequence[bool]) -> Iterator[Recipe]:
    optional = [i for i, item in enumerate(creation.items) if item.optional]
    for twins in choices:
        for present in product((True, False), repeat=len(optional)):
            skipped = frozenset(i for i, there in zip(optional, present, strict=True) if not there)
            yield Recipe(creation, order, grid, twins=twins, skipped=skipped)


def _places(recipe: Recipe, numbered: Mapping[int, JobGroup]) -> dict[Key, Place] | None:
    out: dict[Key, Place] = {}
    for number, group in numbered.items():
        place = recipe.place(number)
        if place is None or place.members != group.members:
            return None
        out[group.key] = place
    return out


def _layout(grid: Grid, creation: Creation, world_size: int, pg_count: int | None) -> Layout:
    told = f"group numbers fit the order in which {creation.framework} creates groups"
    told += f", and so does their count of {pg_count}" if pg_count is not None else ""
    layout = Layout(grid.dense, world_size, "group numbers", 0.85, (told,), grid.expert)
    return layout if pg_count is not None else replace(layout, confidence=0.8)

"""The general law of rank meshes: axes with sizes, fastest first, and the groups of ranks along any of them."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import isqrt, prod
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

Factor = tuple[int, int]
"""(stride, size) of one uniformly strided part of a rank set."""


class Mesh(Struct, frozen=True):
    """Ranks 0 … W-1 as a grid; `axes` = (name, size), fastest first.

    stride(a_i) = product of the sizes before it; the group of rank r along a_i is {r - c·stride + t·stride, t < n_i}
    with c = (r // stride) mod n_i; along several axes it is the mixed-radix product of those offsets.
    """

    axes: tuple[tuple[str, int], ...]

    @property
    def world_size(self) -> int:
        """Product of all sizes."""
        return prod(size for _, size in self.axes)

    def size(self, axis: str) -> int:
        """Size of an axis; 1 for one that the mesh has not."""
        return dict(self.axes).get(axis, 1)

    def factors(self, axes: Collection[str]) -> tuple[Factor, ...]:
        """(stride, size) of the named axes of more than one rank, consecutive ones fused, fastest first."""
        out: list[Factor] = []
        stride = 1
        for name, size in self.axes:
            if name in axes and size > 1:
                if out and out[-1][0] * out[-1][1] == stride:
                    out[-1] = (out[-1][0], out[-1][1] * size)
                else:
                    out.append((stride, size))
            stride *= size
        return tuple(out)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Position of a rank on every axis."""
        out = {}
        for name, size in self.axes:
            rank, out[name] = divmod(rank, size)
        return out

    def group_of(self, rank: int, axes: Collection[str]) -> tuple[int, ...]:
        """Ascending ranks of the group of `rank` along `axes`."""
        factors = self.factors(axes)
        first = rank - sum(((rank // s) % n) * s for s, n in factors)
        return span(first, factors)

    def group_at(self, axes: Collection[str], index: int, numbering: str = "sorted") -> tuple[int, ...]:
        """The index-th group along `axes` in the order frameworks create them.

        sorted: by first rank. transposed: as of an array whose dimension of that one axis changes places with the
        fastest before it is cut into rows (older torch meshes, vLLM).
        """
        rest = self._transposed(axes) if numbering == "transposed" else [a for a in self.axes if a[0] not in axes]
        strides = self._strides()
        first = 0
        for name, size in rest:
            index, place = divmod(index, size)
            first += place * strides[name]
        return span(first, self.factors(axes))

    def groups(self, axes: Collection[str], numbering: str = "sorted") -> Iterator[tuple[int, ...]]:
        """All groups along `axes`, in the order of `group_at`."""
        for index in range(self.count(axes)):
            yield self.group_at(axes, index, numbering)

    def count(self, axes: Collection[str]) -> int:
        """How many groups there are along `axes`."""
        return prod(size for name, size in self.axes if name not in axes)

    def _transposed(self, axes: Collection[str]) -> list[tuple[str, int]]:
        """The other axes, fastest first, after the fastest one took the place of the slowest of `axes`."""
        order = list(self.axes)
        if len(axes) == 1:
            at = next((i for i, a in enumerate(order) if a[0] in axes), 0)
            order[0], order[at] = order[at], order[0]
        return [a for a in order if a[0] not in axes]

    def _strides(self) -> dict[str, int]:
        out, stride = {}, 1
        for name, size in self.axes:
            out[name] = stride
            stride *= size
        return out


def span(first: int, factors: Sequence[Factor]) -> tuple[int, ...]:
    """Ascending ranks first + every combination of multiples; `factors` fastest first."""
    ranks = [first]
    for stride, size in factors:
        ranks = [r + t * stride for t in range(size) for r in ranks]
    return tuple(sorted(ranks))


def decompose(members: Sequence[int]) -> tuple[Factor, ...] | None:
    """(stride, size) parts of a rank set, fastest first and as few as possible; None when it is no part of a mesh.

    A single rank gives (). The parts nest: each stride is a multiple of the extent of the part before.
    """
    ranks = sorted(set(members))
    if len(ranks) != len(members) or not ranks:
        return None
    out: list[Factor] = []
    offsets = [r - ranks[0] for r in ranks]
    while len(offsets) > 1:
        stride = offsets[1]
        size = next((i for i, o in enumerate(offsets) if o != i * stride), len(offsets))
        if len(offsets) % size:
            return None
        out.append((stride, size))
        offsets = offsets[::size]
    aligned = all(b[0] % (a[0] * a[1]) == 0 for a, b in pairwise(out))
    return tuple(out) if aligned and span(ranks[0], out) == tuple(ranks) else None


@lru_cache(1024)
def divisors(number: int) -> tuple[int, ...]:
    """Divisors of a positive number, ascending."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return tuple(dict.fromkeys([*small, *(number // d for d in reversed(small))]))


def factorisations(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `number` as an ordered product of `parts` factors."""
    if parts == 1:
        yield (number,)
        return
    for divisor in divisors(number):
        for rest in factorisations(number // divisor, parts - 1):
            yield (divisor, *rest)


def ranges(ranks: Sequence[int]) -> str:
    """Ranks as text: "0-3", "0,4,8", "0-60/4" (from-to/stride); ascending order assumed."""
    if len(ranks) < 2:
        return ",".join(map(str, ranks))
    step = ranks[1] - ranks[0]
    uniform = step > 0 and all(b - a == step for a, b in pairwise(ranks))
    if uniform and step == 1:
        return f"{ranks[0]}-{ranks[-1]}"
    if uniform and len(ranks) > 4:
        return f"{ranks[0]}-{ranks[-1]}/{step}"
    if len(ranks) <= 16:
        return ",".join(map(str, ranks))
    return _runs(ranks)


def _runs(ranks: Sequence[int]) -> str:
    """Runs of consecutive ranks; at most eight are written out."""
    runs: list[list[int]] = []
    for r in ranks:
        if runs and runs[-1][1] == r - 1:
            runs[-1][1] = r
        else:
            runs.append([r, r])
    text = [f"{a}-{b}" if b > a else str(a) for a, b in runs]
    return ",".join(text[:8]) + (f",… ({len(ranks)} ranks)" if len(text) > 8 else "")

"""The mesh law against published rank sets of Megatron, and against numpy."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_builder import mesh

from tracekit.label.layout.mesh import Mesh, decompose, factorisations, ranges, span

steady = settings(derandomize=True, deadline=None)
SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def _of(first: int, stride: int, size: int) -> tuple[int, ...]:
    return tuple(range(first, first + stride * size, stride))


# Megatron's own formula, executed: (dense, expert), groups of rank 0.
VECTORS = [
    (
        mesh(tp=2, cp=2, dp=2, pp=2), mesh(etp=1, ep=4, edp=2, pp=2),
        {"tp": (0, 1), "cp": (0, 2), "dp": (0, 4), "dp+cp": (0, 2, 4, 6), "tp+cp": (0, 1, 2, 3), "pp": (0, 8),
         "tp+pp": (0, 1, 8, 9), "tp+dp": (0, 1, 4, 5)},
        {"ep": (0, 1, 2, 3), "etp+ep": (0, 1, 2, 3), "edp": (0, 4)},
    ),
    (
        mesh(tp=8, cp=1, dp=2, pp=4), mesh(etp=8, ep=1, edp=2, pp=4),
        {"tp": _of(0, 1, 8), "tp+cp": _of(0, 1, 8), "dp": (0, 8), "dp+cp": (0, 8), "pp": (0, 16, 32, 48),
         "tp+dp": _of(0, 1, 16)},
        {"etp": _of(0, 1, 8), "etp+ep": _of(0, 1, 8), "edp": (0, 8)},
    ),
    (
        mesh(tp=4, cp=2, dp=4, pp=4), mesh(etp=1, ep=8, edp=4, pp=4),
        {"tp": (0, 1, 2, 3), "cp": (0, 4), "dp": (0, 8, 16, 24), "dp+cp": _of(0, 4, 8), "tp+cp": _of(0, 1, 8),
         "pp": (0, 32, 64, 96)},
        {"ep": _of(0, 1, 8), "edp": (0, 8, 16, 24)},
    ),
    (
        mesh(tp=1, cp=1, dp=8, pp=1), mesh(etp=1, ep=8, edp=1, pp=1),
        {"dp": _of(0, 1, 8), "dp+cp": _of(0, 1, 8)},
        {"ep": _of(0, 1, 8), "etp+ep": _of(0, 1, 8), "etp+ep+pp": _of(0, 1, 8)},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("dense", "expert", "groups", "experts"), VECTORS)
def test_groups_of_rank_0_in_megatron(dense: Mesh, expert: Mesh, groups: dict, experts: dict) -> None:
    for grid, wanted in ((dense, groups), (expert, experts)):
        assert {k: grid.group_of(0, k.split("+")) for k in wanted} == wanted


@steady
@given(SIZES, st.data())
def test_groups_are_those_of_an_array(sizes: list[int], data: st.DataObject) -> None:
    """An array of the same shape, slowest axis first, cut along the axes, has the same groups."""
    names = [f"a{i}" for i in range(len(sizes))]
    grid = Mesh(tuple(zip(names, sizes, strict=True)))
    chosen = data.draw(st.sets(st.sampled_from(names), min_size=1))
    array = np.arange(prod(sizes)).reshape(sizes[::-1])
    keep = [i for i, n in enumerate(names[::-1]) if n not in chosen]
    cut = [i for i, n in enumerate(names[::-1]) if n in chosen]
    width = prod(s for n, s in zip(names, sizes, strict=True) if n in chosen)
    rows = np.transpose(array, keep + cut).reshape(-1, width)
    assert {tuple(sorted(r.tolist())) for r in rows} == set(grid.groups(chosen))
    assert all(grid.group_of(r, chosen) == g for g in grid.groups(chosen) for r in g)
    assert len(list(grid.groups(chosen))) == grid.count(chosen)


@steady
@given(SIZES, st.data())
def test_transposed_numbering_is_that_of_an_array(sizes: list[int], data: st.DataObject) -> None:
    names = [f"a{i}" for i in range(len(sizes))]
    grid = Mesh(tuple(zip(names, sizes, strict=True)))
    at = data.draw(st.integers(0, len(sizes) - 1))
    array = np.arange(prod(sizes)).reshape(sizes[::-1])
    rows = array.swapaxes(-1, len(sizes) - 1 - at).reshape(-1, sizes[at])
    assert [tuple(sorted(r.tolist())) for r in rows] == list(grid.groups((names[at],), "transposed"))


@steady
@given(SIZES, st.data())
def test_decompose_undoes_span(sizes: list[int], data: st.DataObject) -> None:
    names = [f"a{i}" for i in range(len(sizes))]
    grid = Mesh(tuple(zip(names, sizes, strict=True)))
    chosen = data.draw(st.sets(st.sampled_from(names)))
    assert decompose(grid.group_of(0, chosen)) == grid.factors(chosen)


@steady
@given(st.sets(st.integers(0, 40), min_size=1, max_size=12))
def test_decompose_never_claims_other_ranks(ranks: set[int]) -> None:
    parts = decompose(sorted(ranks))
    assert parts is None or span(min(ranks), parts) == tuple(sorted(ranks))


def test_what_is_no_part_of_a_mesh() -> None:
    assert decompose((0, 1, 3)) is None
    assert decompose((0, 1, 3, 4)) is None  # the second stride is no multiple of the first extent
    assert decompose((0, 0, 1)) is None
    assert decompose(()) is None


@settings(max_examples=30, derandomize=True, deadline=None)
@given(st.integers(1, 60), st.integers(1, 4))
def test_factorisations_are_all_of_them(number: int, parts: int) -> None:
    found = list(factorisations(number, parts))
    assert len(found) == len(set(found))
    assert all(prod(f) == number for f in found)
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    grid = np.stack(np.meshgrid(*[divisors] * parts), -1).reshape(-1, parts)
    assert len(found) == int((grid.prod(1) == number).sum())


def test_ranks_as_text() -> None:
    assert ranges((0, 1, 2, 3)) == "0-3"
    assert ranges((0, 8)) == "0,8"
    assert ranges(tuple(range(0, 64, 4))) == "0-60/4"
    assert ranges((5,)) == "5"
    assert ranges(()) == ""
    assert ranges((0, 1, 8, 9)) == "0,1,8,9"
    assert ranges((*range(16), *range(64, 80))) == "0-15,64-79"

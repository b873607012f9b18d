"""The solver of rank sets: the truth is always among the readings, and never contradicted by a single one."""

from __future__ import annotations

from itertools import product
from math import comb, prod
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_builder import CREATED, DENSE, MEGATRON, TABLES, blank_groups, group, mesh

from tracekit.label.layout import JobGroup, Solution, solve
from tracekit.label.layout.mesh import Mesh, factorisations
from tracekit.label.layout.topology import combined, namings, read_shapes

if TYPE_CHECKING:
    from tracekit.label.layout.kinds import Layout

ORDER = next(o for o in TABLES.orders if o.id == "megatron")
ORDERS = TABLES.orders_of(MEGATRON)


def solved(groups: list[JobGroup], world: int, frameworks: frozenset[str] = MEGATRON) -> Solution:
    return solve(groups, world_size=world, pg_count=None, frameworks=frameworks, declared=None, tables=TABLES)


def used(layout: Layout) -> dict[str, int]:
    return {a: n for a, n in layout.degrees if n > 1}


def grid_of(sizes: tuple[int, ...]) -> Mesh:
    return Mesh(tuple(zip(DENSE, sizes, strict=True)))


@pytest.mark.parametrize("observed", [1, 2, 3, 4])
def test_order_preserving_namings_are_4_6_4_1(observed: int) -> None:
    found = list(namings(observed, ORDER))
    assert len(found) == len(set(found)) == comb(4, observed) == [4, 6, 4, 1][observed - 1]
    assert all(list(names) == sorted(names, key=DENSE.index) for names in found)


@pytest.mark.parametrize("observed", [1, 2, 3, 4])
def test_so_many_layouts_stay_when_nothing_else_is_known(observed: int) -> None:
    """One group a rank for each axis, of sizes that no expert grid shares, under the default order only."""
    sizes = (2, 3, 5, 7)[:observed]
    grid = Mesh(tuple((f"a{i}", n) for i, n in enumerate(sizes)))
    groups = [group(f"{a}{i}", g) for a, _ in grid.axes for i, g in enumerate(grid.groups((a,)))]
    tables = type(TABLES)(tuple(o for o in TABLES.orders if o.id == "megatron"), (), TABLES.behaviours)
    solution = solve(
        groups, world_size=prod(sizes), pg_count=None, frameworks=MEGATRON, declared=None, tables=tables
    )  # fmt: skip
    layouts = {
        tuple(used(x).items()) for x in (*solution.alternatives, *filter(None, [solution.layout])) if not x.expert
    }
    assert len(layouts) == comb(4, observed)


def meshes(limit: int) -> list[tuple[int, ...]]:
    return [sizes for world in range(2, limit + 1) for sizes in factorisations(world, 4)]


@pytest.mark.parametrize("traffic", [False, True])
@pytest.mark.parametrize("sizes", [s for s in meshes(64) if prod(s) in (6, 8, 12, 16, 18, 24, 32, 36, 64)][::7])
def test_the_truth_is_always_among_the_readings(sizes: tuple[int, ...], traffic: bool) -> None:
    grid = grid_of(sizes)
    truth = blank_groups(grid, traffic=traffic)
    groups = [g for g, _ in truth]
    votes = combined(read_shapes(groups, grid.world_size, ORDERS, TABLES))
    for one, axes in truth:
        if len(axes) and one.size != 1:
            assert axes in votes[one.key], (sizes, one.members)
    solution = solved(groups, grid.world_size)
    wanted = {a: n for a, n in grid.axes if n > 1}
    assert wanted in [used(x) for x in (*solution.alternatives, *filter(None, [solution.layout]))]


@pytest.mark.parametrize("sizes", [s for s in product((2, 3, 4), repeat=4) if prod(s) <= 64])
def test_four_axes_with_their_traffic_are_decided(sizes: tuple[int, ...]) -> None:
    grid = grid_of(sizes)
    truth = blank_groups(grid, traffic=True)
    solution = solved([g for g, _ in truth], grid.world_size)
    assert solution.layout is not None
    assert dict(solution.layout.degrees) == dict(grid.axes)
    assert solution.layout.confidence == 0.75
    for one, axes in truth:
        claim = solution.claims[one.key][0]
        assert set(claim.axes.split("+")) == axes, (one, claim)
        assert claim.tier == "C"
        assert 0.5 <= claim.confidence <= 0.75


@pytest.mark.parametrize("sizes", [(2, 2, 2, 2), (4, 1, 2, 2), (2, 1, 4, 1), (1, 2, 2, 2), (2, 2, 4, 1), (1, 1, 8, 2)])
def test_ranks_taken_away_never_leave_a_wrong_answer(sizes: tuple[int, ...]) -> None:
    grid = grid_of(sizes)
    truth = blank_groups(grid, traffic=True)
    wanted = {a: n for a, n in grid.axes if n > 1}
    for kept in range(grid.world_size):
        some = [(g, a) for g, a in truth if kept in (g.members or ()) or 0 in (g.members or ())]
        _not_wrong(some, grid.world_size, wanted)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from([s for s in meshes(36) if prod(s) in (8, 12, 16, 24, 36)]), st.booleans(), st.data())
def test_groups_taken_away_never_leave_a_wrong_answer(
    sizes: tuple[int, ...], traffic: bool, data: st.DataObject
) -> None:
    """Whole kinds of groups unseen: what stays may be undecided, or named after the wider group it stands for."""
    grid = grid_of(sizes)
    kinds = data.draw(st.lists(st.sampled_from(CREATED), min_size=1, unique=True))
    truth = blank_groups(grid, traffic=traffic, kinds=tuple(kinds))
    solution = solved([g for g, _ in truth], grid.world_size)
    for one, axes in truth:
        for claim in solution.claims.get(one.key, ()):
            if axes and claim.confidence >= 0.5 and "|" not in claim.axes:
                said = [set(x.split("+")) for x in (claim.axes, *claim.alternatives)]
                assert any(axes <= s <= set((one.name or "").split("#")[0].split("+")) for s in said), (
                    kinds,
                    one,
                    claim,
                )


def _not_wrong(truth: list[tuple[JobGroup, frozenset[str]]], world: int, wanted: dict[str, int]) -> None:
    solution = solved([g for g, _ in truth], world)
    if solution.layout is not None:
        assert used(solution.layout) == wanted
    for one, axes in truth:
        for claim in solution.claims.get(one.key, ()):
            if axes and "|" not in claim.axes:
                assert axes in [set(x.split("+")) for x in (claim.axes, *claim.alternatives)], (one, claim)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.sampled_from([s for s in meshes(32) if prod(s) in (8, 16, 24)]), st.booleans(), st.randoms())
def test_the_order_of_groups_does_not_matter(sizes: tuple[int, ...], traffic: bool, random: object) -> None:
    groups = [g for g, _ in blank_groups(grid_of(sizes), traffic=traffic)]
    mixed = list(groups)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert solved(groups, prod(sizes)) == solved(mixed, prod(sizes))


@pytest.mark.parametrize(
    ("traffic", "axes"), [("chain", "pp"), ("ring", "cp"), ("grad_reduce", "dp"), ("activation", "tp")]
)  # fmt: skip
def test_traffic_names_a_lone_group(traffic: str, axes: str) -> None:
    for frameworks in (MEGATRON, frozenset()):
        solution = solved([group("a", (0, 1, 2, 3), traffic=traffic)], 4, frameworks)
        claim = solution.claims["a", (0, 1, 2, 3)][0]
        assert claim.axes == axes
        assert 0.5 <= claim.confidence <= 0.75


def test_a_lone_group_without_traffic_stays_undecided() -> None:
    claim = solved([group("a", (0, 1, 2, 3))], 4).claims["a", (0, 1, 2, 3)][0]
    assert {"tp", "cp", "dp", "pp"} <= set(claim.axes.split("|"))
    assert claim.confidence < 0.5


def test_all_to_all_is_experts_or_context() -> None:
    claim = solved([group("a", (0, 1, 2, 3), traffic="all_to_all")], 4).claims["a", (0, 1, 2, 3)][0]
    assert claim.axes == "cp|ep"
    assert claim.alternatives == ("cp", "ep")


def test_experts_of_a_grid_that_does_not_nest() -> None:
    """tp2 · dp6 with ep3: the experts' groups cut the dense axes, and are told by their traffic."""
    dense, expert = mesh(tp=2, dp=6), mesh(etp=1, ep=3, edp=4)
    groups = [group(f"t{i}", g, traffic="activation") for i, g in enumerate(dense.groups(("tp",)))]
    groups += [group(f"d{i}", g, traffic="grad_reduce") for i, g in enumerate(dense.groups(("dp",)))]
    groups += [group(f"e{i}", g, traffic="all_to_all") for i, g in enumerate(expert.groups(("ep",)))]
    groups += [group(f"x{i}", g, traffic="grad_reduce") for i, g in enumerate(expert.groups(("edp",)))]
    solution = solved(groups, 12)
    assert solution.layout is not None
    assert used(solution.layout) == {"tp": 2, "dp": 6}
    assert dict(solution.layout.expert) == {"etp": 1, "ep": 3, "edp": 4, "pp": 1}
    assert {solution.claims[g.key][0].axes for g in groups if (g.name or "").startswith("e")} == {"ep"}
    assert {solution.claims[g.key][0].axes for g in groups if (g.name or "").startswith("x")} == {"edp"}


def test_pipeline_before_data_is_told_by_traffic() -> None:
    """With --use-tp-pp-dp-mapping the chain has the smaller stride."""
    grid = mesh(tp=2, pp=2, dp=2)
    groups = [g for g, _ in blank_groups(Mesh((("tp", 2), ("cp", 1), ("pp", 2), ("dp", 2))), traffic=True)]
    solution = solved(groups, grid.world_size)
    assert solution.layout is not None
    assert [a for a, n in solution.layout.degrees if n > 1] == ["tp", "pp", "dp"]


def test_sets_on_no_mesh_are_left_alone() -> None:
    """First and last stage of four (the tied embedding) is no axis; it neither gets a claim nor spoils the others."""
    grid = mesh(tp=2, cp=1, dp=2, pp=4)
    truth = blank_groups(grid, traffic=True)
    odd = group("emb", (0, 12))
    solution = solved([*(g for g, _ in truth), odd], 16)
    assert odd.key not in solution.claims
    assert solution.layout is not None
    assert used(solution.layout) == {"tp": 2, "dp": 2, "pp": 4}


def test_contradicting_sets_give_no_answer() -> None:
    groups = [group("a", (0, 1, 2), traffic="activation"), group("b", (0, 1), traffic="activation")]
    solution = solved(groups, 6)
    assert solution.layout is None
    assert solution.missing


def test_without_world_size_rank_sets_are_not_read() -> None:
    solution = solve(
        [group("a", (0, 1), traffic="activation")], world_size=None, pg_count=None, frameworks=MEGATRON, declared=None,
        tables=TABLES,
    )  # fmt: skip
    assert solution.layout is None
    assert any("world size" in m for m in solution.missing)

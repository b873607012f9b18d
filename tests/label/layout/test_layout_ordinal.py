"""Group numbers: the order of creation of vLLM and Megatron, checked with groups made independently."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pytest
from layout_builder import MEGATRON, TABLES, group, mesh

from tracekit.label.layout import JobGroup, solve
from tracekit.label.layout.ordinal import Grid, Recipe, decode, grids

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = {o.id: o for o in TABLES.orders}
CREATIONS = {c.id: c for c in TABLES.creations}
VLLM = frozenset({"vllm"})


def vllm_groups(tp: int, pcp: int, pp: int, dp: int, dcp: int = 1, *, ep: bool = True) -> list[JobGroup]:
    """All groups of a vLLM job, made by cutting an array as its source does; names count the calls."""
    ranks = np.arange(tp * pcp * pp * dp).reshape(1, dp, pp, pcp, tp)
    kinds = [
        ranks.reshape(1, -1), ranks.reshape(-1, tp), ranks.reshape(-1, dcp), ranks.transpose(0, 1, 2, 4, 3).reshape(-1, pcp),
        ranks.transpose(0, 1, 4, 3, 2).reshape(-1, pp), ranks.transpose(0, 4, 2, 3, 1).reshape(-1, dp),
    ]  # fmt: skip
    kinds += [ranks.transpose(0, 2, 1, 3, 4).reshape(-1, dp * pcp * tp)] if ep else []
    names = count(1)
    return [
        group(str(next(names)), tuple(sorted(row.tolist())), desc="undefined")
        for kind in kinds for row in kind for _ in ("device", "cpu")
    ]  # fmt: skip


def test_tensor_parallel_8_has_71_groups_and_group_3_is_its_device_group() -> None:
    groups = vllm_groups(tp=8, pcp=1, pp=1, dp=1)
    assert 1 + len(groups) == 71
    mine = [g for g in groups if g.members and 0 in g.members]
    solution = solve(mine, world_size=8, pg_count=71, frameworks=VLLM, declared=None, tables=TABLES)
    claim = solution.claims["3", tuple(range(8))][0]
    assert (claim.axes, claim.tier, claim.rule) == ("tp", "B", "layout.ordinal")
    assert 0.8 <= claim.confidence <= 0.9
    assert "twin" in solution.claims["4", tuple(range(8))][0].saw
    assert solution.claims["69", tuple(range(8))][0].axes == "ep"
    assert ("1", tuple(range(8))) not in solution.claims  # the group of all workers is no axis
    assert solution.layout is not None
    assert solution.layout.text() == "tp=8"


@pytest.mark.parametrize(
    ("tp", "pcp", "pp", "dp", "dcp"),
    [
        (2, 1, 2, 2, 1),
        (4, 1, 2, 1, 2),
        (2, 2, 1, 2, 2),
        (1, 1, 4, 2, 1),
        (2, 2, 2, 2, 1),
        (1, 1, 1, 8, 1),
        (3, 1, 2, 1, 3),
    ],
)
@pytest.mark.parametrize("ep", [True, False])
@pytest.mark.parametrize("counted", [True, False])
def test_every_rank_of_a_vllm_job_decodes_to_the_truth(
    tp: int, pcp: int, pp: int, dp: int, dcp: int, ep: bool, counted: bool
) -> None:
    groups = vllm_groups(tp, pcp, pp, dp, dcp, ep=ep)
    world = tp * pcp * pp * dp
    for rank in range(world):
        mine = [g for g in groups if g.members and rank in g.members]
        fits = decode(mine, world, 1 + len(groups) if counted else None, VLLM, TABLES)
        assert fits
        truth = {"tp": tp, "cp": pcp, "pp": pp, "dp": dp, "external_dp": 1}
        assert any(dict(f.layout.degrees) == truth for f in fits)
        if counted:
            solution = solve(
                mine, world_size=world, pg_count=1 + len(groups), frameworks=VLLM, declared=None, tables=TABLES
            )
            kept = solution.layout or solution.alternatives
            assert kept


def test_megatron_creates_groups_in_the_order_of_its_source() -> None:
    """tp2 cp1 dp2 pp2 without experts and twins: the numbers follow from the list of the calls."""
    grid = Grid(
        (("tp", 2), ("cp", 1), ("dp", 2), ("pp", 2)), (("etp", 2), ("ep", 1), ("edp", 2), ("pp", 2))
    )  # fmt: skip
    recipe = Recipe(CREATIONS["megatron"], ORDERS["megatron"], grid, twins=False)
    dense = mesh(tp=2, cp=1, dp=2, pp=2)
    calls: list[tuple[str, tuple[int, ...]]] = [("gtp", (r,)) for r in range(8)]
    for kind in ("dp+cp", "dp", "cp", "tp+pp", "tp"):
        calls += [(kind, g) for g in dense.groups(kind.split("+"))]
    for g in dense.groups(["pp"]):
        calls += [("pp", g), ("embedding", (g[0], g[-1])), ("position_embedding", (g[0],))]
    for kind in ("tp+dp+cp", "tp+dp", "tp+cp"):
        calls += [(kind, g) for g in dense.groups(kind.split("+"))]
    calls += [("egtp", (r,)) for r in range(8)]
    calls += [("ep", (r,)) for r in range(8)]
    calls += [("etp", g) for g in ((0, 1), (2, 3), (4, 5), (6, 7))]
    calls += [("etp+ep", g) for g in ((0, 1), (2, 3), (4, 5), (6, 7))]
    calls += [("etp+ep+pp", g) for g in ((0, 1, 4, 5), (2, 3, 6, 7))]
    calls += [("edp", g) for g in ((0, 2), (1, 3), (4, 6), (5, 7))]
    calls += [("world", tuple(range(8)))]
    assert recipe.count == 1 + len(calls)
    for number, (kind, members) in enumerate(calls, 1):
        place = recipe.place(number)
        assert place is not None
        assert (place.axes or "world", place.members) == (kind, members)
    assert recipe.place(0) is None
    assert recipe.place(1 + len(calls)) is None


@pytest.mark.parametrize("twins", [True, False])
def test_megatron_numbers_decode_without_descriptions(twins: bool) -> None:
    order, creation = ORDERS["megatron"], CREATIONS["megatron"]
    grid = next(
        g for g in grids(order, creation, 16)
        if dict(g.dense) == {"tp": 2, "cp": 2, "dp": 2, "pp": 2} and dict(g.expert)["ep"] == 4 and dict(g.expert)["etp"] == 1
    )  # fmt: skip
    recipe = Recipe(creation, order, grid, twins=twins)
    places = {n: p for n in range(1, recipe.count) if (p := recipe.place(n)) and 5 in p.members}
    groups = [group(str(n), p.members, desc="undefined") for n, p in places.items()]
    solution = solve(groups, world_size=16, pg_count=recipe.count, frameworks=MEGATRON, declared=None, tables=TABLES)
    for n, place in places.items():
        if len(place.members) > 1 and place.axes:
            assert solution.claims[str(n), place.members][0].axes == place.axes
    assert solution.layout is not None
    assert dict(solution.layout.degrees) == {"tp": 2, "cp": 2, "dp": 2, "pp": 2}


def test_numbers_that_fit_nothing_say_nothing() -> None:
    groups = [group("7", (0, 1), desc="undefined"), group("8", (0, 2), desc="undefined")]
    assert decode(groups, 4, 9, VLLM, TABLES) == ()
    assert decode(groups, 4, 9, frozenset(), TABLES) == ()


def test_vllm_trace_of_the_corpus(shared: Path) -> None:
    from tracekit.parsers import parse

    meta = parse(shared / "corpus" / "AMD-AGI+TraceLens" / "tl_b200" / "eager_trace.json.gz")[0].meta
    groups = [JobGroup(g.name, g.desc, g.ranks, g.size) for g in meta.groups]
    assert meta.pg_count == 71
    solution = solve(groups, world_size=8, pg_count=71, frameworks=VLLM, declared=None, tables=TABLES)
    assert solution.layout is not None
    assert solution.layout.text() == "tp=8"
    assert {k[0]: c[0].axes for k, c in solution.claims.items()} == {"3": "tp", "4": "tp", "69": "ep", "70": "ep"}

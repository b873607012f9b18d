"""All evidence together: descriptions, declared layouts, maps, and what contradicts what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from layout_builder import MEGATRON, TABLES, group, mesh
from msgspec.structs import replace

from tracekit.label import load_rules
from tracekit.label.layout import JobGroup, Layout, MapEntry, Solution, parse_layout, solve
from tracekit.label.layout.described import axes_of

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.label.layout.mesh import Mesh

RULES = load_rules()
NONE: frozenset[str] = frozenset()


def solved(
    groups: list[JobGroup], world: int | None, *, frameworks: frozenset[str] = NONE, declared: Layout | None = None,
    entries: tuple[MapEntry, ...] = (),
) -> Solution:  # fmt: skip
    return solve(
        groups,
        world_size=world,
        pg_count=None,
        frameworks=frameworks,
        declared=declared,
        tables=TABLES,
        entries=entries,
    )


def described(grid: Mesh, **kinds: str) -> list[JobGroup]:
    """Groups of the mesh, named dp_cp="DATA_…" for the axes dp+cp; their axes as the rules conclude."""
    return [
        group(f"{desc}{members[0]}", members, desc=desc, axes=axes_of(desc, RULES))
        for kind, desc in kinds.items()
        for members in grid.groups(kind.split("_") if kind == "dp_cp" else [kind])
    ]


MEGATRON_NAMES = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP", "cp": "CONTEXT_PARALLEL_GROUP", "dp": "DATA_PARALLEL_GROUP",
    "dp_cp": "DATA_PARALLEL_GROUP_WITH_CP", "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
}  # fmt: skip


@pytest.mark.parametrize(
    ("dense", "expert"),
    [
        (mesh(tp=2, cp=2, dp=2, pp=2), mesh(etp=1, ep=4, edp=2, pp=2)),
        (mesh(tp=8, cp=1, dp=2, pp=4), mesh(etp=8, ep=1, edp=2, pp=4)),
        (mesh(tp=4, cp=2, dp=4, pp=4), mesh(etp=1, ep=8, edp=4, pp=4)),
        (mesh(tp=1, cp=1, dp=8, pp=1), mesh(etp=1, ep=8, edp=1, pp=1)),
    ],
)
def test_megatron_descriptions_give_the_whole_mesh(dense: Mesh, expert: Mesh) -> None:
    groups = described(dense, **MEGATRON_NAMES)
    groups += described(
        expert, etp="EXPERT_TENSOR_PARALLEL_GROUP", ep="EXPERT_MODEL_PARALLEL_GROUP", edp="EXPERT_DATA_PARALLEL_GROUP"
    )  # fmt: skip
    solution = solved(groups, dense.world_size, frameworks=MEGATRON)
    assert solution.layout is not None
    assert solution.layout.degrees == dense.axes
    assert dict(solution.layout.expert) == dict(expert.axes)
    assert (solution.layout.confidence, solution.findings, solution.missing) == (0.95, (), ())


@pytest.mark.parametrize("rank", [0, 5, 15])
def test_one_rank_is_enough_where_groups_are_described(rank: int) -> None:
    dense = mesh(tp=2, cp=2, dp=2, pp=2)
    mine = [g for g in described(dense, **MEGATRON_NAMES) if rank in (g.members or ())]
    solution = solved(mine, 16, frameworks=MEGATRON)
    assert solution.layout is not None
    assert solution.layout.degrees == dense.axes


def test_blank_groups_get_their_axes_from_the_described_mesh() -> None:
    """The descriptions of one rank are gone: the mesh of the others says what its groups are, with less confidence."""
    dense = mesh(tp=2, cp=1, dp=2, pp=2)
    groups = described(
        dense, tp="TENSOR_MODEL_PARALLEL_GROUP", dp="DATA_PARALLEL_GROUP", pp="PIPELINE_MODEL_PARALLEL_GROUP"
    )
    truth = {g.key: g.axes for g in groups}
    blank = [replace(g, desc="undefined", axes=None) if 7 in (g.members or ()) else g for g in groups]
    solution = solved(blank, 8, frameworks=MEGATRON)
    for g in blank:
        if g.axes is None:
            claim = solution.claims[g.key][0]
            assert claim.axes == truth[g.key]
            assert claim.tier == "B"
            assert claim.confidence <= 0.85


def test_sharding_with_context_parallelism_folded_in_is_no_contradiction() -> None:
    """torchtitan's mesh_fsdp spans dp_shard and cp."""
    grid = mesh(tp=2, cp=2, dp_shard=4)
    groups = [group(f"t{g[0]}", g, desc="mesh_tp", axes="tp") for g in grid.groups(["tp"])]
    groups += [group(f"c{g[0]}", g, desc="mesh_cp", axes="cp") for g in grid.groups(["cp"])]
    groups += [group(f"f{g[0]}", g, desc="mesh_fsdp", axes="dp_shard") for g in grid.groups(["cp", "dp_shard"])]
    solution = solved(groups, 16)
    assert solution.layout is not None
    assert solution.layout.degrees == grid.axes
    assert solution.findings == ()


def test_data_and_context_known_only_together_stay_together() -> None:
    grid = mesh(tp=2, cp=2, dp=2)
    groups = described(grid, tp="TENSOR_MODEL_PARALLEL_GROUP", dp_cp="DATA_PARALLEL_GROUP_WITH_CP")
    solution = solved(groups, 8, frameworks=MEGATRON)
    assert solution.layout is not None
    assert solution.layout.degrees == (("tp", 2), ("dp+cp", 4))


def test_experts_are_an_axis_of_the_mesh_unless_they_overlap() -> None:
    grid = mesh(ep=2, dp=2)
    groups = [group(f"e{g[0]}", g, desc="mesh_ep", axes="ep") for g in grid.groups(["ep"])]
    groups += [group(f"d{g[0]}", g, desc="mesh_dp", axes="dp") for g in grid.groups(["dp"])]
    solution = solved(groups, 4)
    assert solution.layout is not None
    assert (solution.layout.degrees, solution.layout.expert) == (grid.axes, ())


def test_decode_context_parallelism_splits_tp_in_vllm() -> None:
    groups = [
        group("3", tuple(range(8)), desc="tp:device", axes="tp"),
        group("5", (0, 1), desc="dcp:device", axes="cp"),
    ]
    solution = solved(groups, 8, frameworks=frozenset({"vllm"}))
    assert solution.layout is not None
    assert solution.layout.text() == "tp=8"
    assert solution.findings == ()


def test_what_is_missing_is_said() -> None:
    groups = [group("1", (0, 1), desc="mesh_tp", axes="tp")]
    solution = solved(groups, 8)
    assert solution.layout is not None
    assert not solution.layout.complete
    assert any("factor of 4" in m for m in solution.missing)
    assert any("world size" in m for m in solved(groups, None).missing)


# ------------------------------------------------------------------ declared


def test_a_declared_layout_names_blank_groups() -> None:
    declared = parse_layout("tp=2,dp=2,pp=2")
    groups = [group("a", (0, 1)), group("b", (0, 2)), group("c", (0, 4)), group("d", (0, 1, 4, 5)), group("e", (0, 3))]
    solution = solved(groups, 8, declared=declared)
    assert {k[0]: (c[0].axes, c[0].rule, c[0].tier) for k, c in solution.claims.items()} == {
        "a": ("tp", "layout.declared", "A"), "b": ("dp", "layout.declared", "A"), "c": ("pp", "layout.declared", "A"),
        "d": ("tp+pp", "layout.declared", "A"),
    }  # fmt: skip
    assert solution.layout == declared


def test_where_experts_have_the_same_ranks_traffic_decides() -> None:
    declared = parse_layout("tp=2,cp=2,dp=2,pp=2,ep=4,etp=1")
    plain = solved([group("a", (0, 1, 2, 3))], 16, declared=declared).claims["a", (0, 1, 2, 3)][0]
    assert plain.alternatives == ("tp+cp", "ep")
    assert plain.confidence <= 0.5
    seen = solved([group("a", (0, 1, 2, 3), traffic="all_to_all")], 16, declared=declared)
    assert seen.claims["a", (0, 1, 2, 3)][0].axes == "ep"


def test_a_declared_degree_against_a_description() -> None:
    declared = parse_layout("tp=2,dp=4")
    groups = [group("1", (0, 1, 2, 3), desc="mesh_tp", axes="tp"), group("2", (0, 4), desc="mesh_dp", axes="dp")]
    solution = solved(groups, 8, declared=declared)
    found = [f for f in solution.findings if f["code"] == "layout-contradiction"]
    assert found
    text = " ".join(f["message"] for f in found)
    assert "tp=2" in text
    assert "0-3" in text
    assert "0-1" in text
    claim = solution.claims["1", (0, 1, 2, 3)][0]
    assert (claim.axes, claim.confidence) == ("tp", 0.6)
    assert solution.layout is not None
    assert solution.layout.text() == "tp=4 dp=2"  # descriptions are kept


def test_a_declared_order_against_a_description() -> None:
    groups = [group("1", (0, 1), desc="mesh_dp", axes="dp"), group("2", (0, 2), desc="mesh_pp", axes="pp")]
    right = solved(groups, 4, declared=parse_layout("dp=2,pp=2"))
    assert right.findings == ()
    wrong = solved(groups, 4, declared=parse_layout("dp=2,pp=2,order=pp-dp"))
    assert {f["code"] for f in wrong.findings} == {"layout-contradiction"}


def test_a_declared_world_of_another_size_is_not_used() -> None:
    solution = solved([group("a", (0, 1))], 8, declared=parse_layout("tp=2,dp=2"))
    assert "makes 4 ranks, but the job has 8" in solution.findings[0]["message"]
    assert all(c.rule != "layout.declared" for cs in solution.claims.values() for c in cs)


def test_groups_of_one_axis_that_differ() -> None:
    groups = [group("1", (0, 1), desc="mesh_tp", axes="tp"), group("2", (4, 5, 6, 7), desc="mesh_tp", axes="tp")]
    solution = solved(groups, 8)
    assert "groups of the tp axis differ" in solution.findings[0]["message"]
    assert all(c[0].confidence == 0.6 for c in solution.claims.values())


def test_axes_that_do_not_fit_together() -> None:
    groups = [group("1", (0, 1, 2, 3), desc="mesh_tp", axes="tp"), group("2", (0, 2), desc="mesh_pp", axes="pp")]
    solution = solved(groups, 8)
    assert "do not fit into one mesh" in solution.findings[0]["message"]
    assert solution.layout is None


def test_uneven_ranks_of_a_described_axis() -> None:
    solution = solved([group("1", (0, 1, 3), desc="mesh_tp", axes="tp")], 6)
    assert "not evenly spaced" in solution.findings[0]["message"]


def test_rank_sets_along_no_declared_axis() -> None:
    groups = [group("a", (0, 1, 2, 3)), group("b", (0, 1)), group("c", (0, 6))]
    found = solved(groups, 8, declared=parse_layout("tp=2,dp=4")).findings
    assert len(found) == 1
    assert "(tp=2 dp=4)" in found[0]["message"]
    assert "group 'a' on ranks 0-3" in found[0]["message"]
    assert "'c'" not in found[0]["message"]  # first and last of four stages: no part of any mesh
    assert solved(groups, 8, declared=parse_layout("tp=2,dp=4,ep=4,etp=1")).findings == ()


def test_numbers_against_a_declared_layout() -> None:
    world = tuple(range(8))
    groups = [group(str(n), world, desc="undefined") for n in (1, 2, 3, 4, 69, 70)]
    groups += [group(str(n), (0,), desc="undefined") for n in (5, 6, 21, 22, 37, 38, 53, 54)]
    vllm = frozenset({"vllm"})
    right = solved(groups, 8, frameworks=vllm, declared=parse_layout("tp=8"))
    assert right.findings == ()
    assert {n: right.claims[n, world][0].axes for n in ("3", "69")} == {"3": "tp", "69": "ep"}
    assert ("1", world) not in right.claims  # all workers, whatever the axes
    wrong = solved(groups, 8, frameworks=vllm, declared=parse_layout("dp=8"))
    assert [f["message"] for f in wrong.findings] == ["dp=8 is declared, but the numbers of the groups fit tp=8"]


def test_several_groups_on_the_same_ranks_are_not_all_surely_the_dense_axis() -> None:
    groups = [group("a", (0, 1)), group("b", (0, 1), traffic="activation"), group("c", (0, 1), traffic="all_to_all")]
    claims = solved(groups, 4, declared=parse_layout("tp=2,dp=2")).claims
    assert [(claims[n, (0, 1)][0].tier, claims[n, (0, 1)][0].confidence) for n in "abc"] == [
        ("C", 0.6), ("A", 0.95), ("C", 0.5),
    ]  # fmt: skip
    assert "its traffic contradicts" in claims["c", (0, 1)][0].saw


# ------------------------------------------------------------------ maps


def test_a_map_comes_before_everything() -> None:
    entry = MapEntry("map #1", name="a", axes="cp", strategy="cp", purpose="kv_exchange")
    groups = [group("a", (0, 1)), group("b", (0, 2))]
    solution = solved(groups, 4, declared=parse_layout("tp=2,dp=2"), entries=(entry,))
    first = solution.claims["a", (0, 1)][0]
    assert (first.rule, first.axes, first.strategy, first.purpose) == ("layout.map", "cp", "cp", "kv_exchange")
    assert solution.claims["b", (0, 2)][0].axes == "dp"


def test_what_ranks_know_of_a_group_is_put_together() -> None:
    blank, named = (
        group("1", (0, 1), desc="undefined"),
        group("1", (0, 1), desc="mesh_tp", axes="tp", traffic="activation"),
    )
    groups = [blank, named, group("2", (0, 2), desc="mesh_dp", axes="dp")]
    assert solved(groups, 4) == solved(groups[::-1], 4)
    layout = solved(groups, 4).layout
    assert layout is not None
    assert layout.text() == "tp=2 dp=2"


def test_the_default_group_is_never_housekeeping_nor_an_axis_beside_others() -> None:
    groups = [group("0", tuple(range(4)), desc="default_pg"), group("1", (0, 1), desc="mesh_tp", axes="tp")]
    assert ("0", (0, 1, 2, 3)) not in solved(groups, 4).claims
    alone = solved([group("0", tuple(range(4)), desc="default_pg", traffic="grad_reduce")], 4)
    assert alone.claims["0", (0, 1, 2, 3)][0].axes == "dp"


# ------------------------------------------------------------------ recordings


@pytest.mark.parametrize(
    ("case", "degrees"),
    [
        ("fsdp_tp4", "tp=2 dp=2"), ("hsdp4", "dp_shard=2 dp_replicate=2"), ("ep_dp4", "ep=2 dp=2"),
        ("pp_ddp4", "dp=2 pp=2"), ("fake_1024", "tp=4 dp=32 pp=8"), ("tkfake_1024_3d", "tp=4 dp=32 pp=8"),
    ],
)  # fmt: skip
def test_recordings_give_the_mesh_they_were_made_with(shared: Path, case: str, degrees: str) -> None:
    from tracekit.parsers import parse

    groups, world = [], None
    for path in sorted((shared / "recordings" / case).glob("rank*.json.gz")):
        meta = parse(path)[0].meta
        world = meta.world_size
        groups += [JobGroup(g.name, g.desc, g.ranks, g.size, axes=axes_of(g.desc, RULES)) for g in meta.groups]
    solution = solved(groups, world)
    assert solution.layout is not None
    assert solution.layout.text() == degrees
    assert (solution.findings, solution.missing) == ((), ())

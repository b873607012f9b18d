"""Process groups of a job as its framework creates, numbers and describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tracekit.theory.specs import LayoutSpec

DEFAULT = "default_pg"


@dataclass(frozen=True, slots=True)
class Group:
    """One process group: the role the simulator uses it in, its name and description, its global ranks in order."""

    role: str
    name: str
    desc: str
    ranks: tuple[int, ...]


class Groups:
    """All groups of a job: `of(role, rank)`, and what each rank's file lists."""

    def __init__(self, layout: LayoutSpec, framework: str, *, fully_sharded: bool, experts: bool) -> None:
        self.world = tuple(range(layout.world_size))
        self.default = Group("world", "0", DEFAULT, self.world)
        make = (
            _megatron(layout, experts=experts)
            if framework == "megatron"
            else _torch(layout, fully_sharded=fully_sharded, experts=experts)
        )
        self._by_role: dict[tuple[str, int], Group] = {("world", r): self.default for r in self.world}
        self._lists: dict[int, list[Group]] = {r: [self.default] for r in self.world}
        self.count = 1
        for role, desc, ranks in make:
            if framework != "megatron" and len(ranks) == layout.world_size:  # a mesh of the world is the default group
                self._by_role.update({(role, r): self.default for r in ranks})
                continue
            group = Group(role, str(self.count), desc, ranks)
            self.count += 1
            for rank in ranks:
                self._by_role[role, rank] = group
                self._lists[rank].append(group)

    def of(self, role: str, rank: int) -> Group:
        """The group of `rank` in a role."""
        return self._by_role[role, rank]

    def size(self, role: str, rank: int) -> int:
        """Ranks of that group; 1 where there is none."""
        found = self._by_role.get((role, rank))
        return 1 if found is None else len(found.ranks)

    def listed(self, rank: int) -> list[Group]:
        """All groups that `rank` is in, in order of creation."""
        return self._lists[rank]


def _along(layout: LayoutSpec, *axes: str) -> Iterable[tuple[int, ...]]:
    """Groups along axes in the order of their first rank."""
    return sorted(layout.groups(*axes))


def _megatron(layout: LayoutSpec, *, experts: bool) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Groups in the order that megatron/core/parallel_state.py creates them in; those of experts if there are any."""
    dense: list[tuple[str, str, tuple[str, ...]]] = [
        ("dp+cp", "DATA_PARALLEL_GROUP_WITH_CP", ("dp", "cp")), ("dp", "DATA_PARALLEL_GROUP", ("dp",)),
        ("cp", "CONTEXT_PARALLEL_GROUP", ("cp",)), ("tp+pp", "MODEL_PARALLEL_GROUP", ("tp", "pp")),
        ("tp", "TENSOR_MODEL_PARALLEL_GROUP", ("tp",)),
    ]  # fmt: skip
    for rank in range(layout.world_size):
        yield "gtp", "GTP_WEIGHT_REMAT_GROUP", (rank,)
    for role, desc, axes in dense:
        yield from ((role, desc, g) for g in _along(layout, *axes))
    for ranks in _along(layout, "pp"):
        yield "pp", "PIPELINE_MODEL_PARALLEL_GROUP", ranks
        yield "embedding", "EMBEDDING_GROUP", tuple(dict.fromkeys((ranks[0], ranks[-1])))
        yield "position", "POSITION_EMBEDDING_GROUP", ranks[:1]
    for role, desc, axes in (
        ("tp+dp+cp", "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", ("tp", "dp", "cp")),
        ("tp+dp", "TENSOR_AND_DATA_PARALLEL_GROUP", ("tp", "dp")),
        ("tp+cp", "TENSOR_AND_CONTEXT_PARALLEL_GROUP", ("tp", "cp")),
    ):
        yield from ((role, desc, g) for g in _along(layout, *axes))
    if experts:
        yield from _experts(layout)
    yield "optimizer", "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", tuple(range(layout.world_size))


def _experts(layout: LayoutSpec) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for rank in range(layout.world_size):
        yield "egtp", "EXPERT_GTP_WEIGHT_REMAT_GROUP", (rank,)
    for role, desc, axes in (
        ("ep", "EXPERT_MODEL_PARALLEL_GROUP", ("ep",)),
        ("etp", "EXPERT_TENSOR_PARALLEL_GROUP", ("etp",)),
        ("etp+ep", "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", ("etp", "ep")),
        ("etp+ep+pp", "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", ("etp", "ep", "pp")),
        ("edp", "EXPERT_DATA_PARALLEL_GROUP", ("edp",)),
    ):
        yield from ((role, desc, g) for g in _along(layout, *axes))


def _torch(layout: LayoutSpec, *, fully_sharded: bool, experts: bool) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Dimensions of the device meshes of torchtitan 0.2.2 that have more than one rank."""
    data = list(_along(layout, "dp", "cp"))
    size = layout.shard_size if fully_sharded else 1
    shards = [g[i : i + size] for g in data for i in range(0, len(g), size)]
    copies = [g[i::size] for g in data for i in range(size)]
    hybrid = fully_sharded and size < layout.dp * layout.cp
    dims: list[tuple[str, str, Iterable[tuple[int, ...]]]] = [
        ("pp", "mesh_pp", _along(layout, "pp")),
        ("loss", "mesh_loss_mesh", data),
        ("dp_replicate", "mesh_dp_replicate", sorted(copies)),
        ("fsdp", "mesh_dp_shard" if hybrid and layout.cp == 1 else "mesh_fsdp", sorted(shards)),
        ("tp", "mesh_tp", _along(layout, "tp")),
    ]
    if experts:
        dims += [("ep", "mesh_ep", _along(layout, "ep")), ("efsdp", "mesh_efsdp", _along(layout, "edp"))]
    for role, desc, groups in dims:
        yield from ((role, desc, g) for g in groups if len(g) > 1)

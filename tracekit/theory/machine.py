"""What the machine can do: peaks, links, networks; and where a group of ranks lies on its nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.theory.checks import positive
from tracekit.theory.errors import MissingInput, OutsideDomain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Hardware:
    """One kind of GPU in its node and network. None is not known. GB/s per direction, dense TFLOP/s.

    `link_gbps`: all links of a GPU into its node; `peer_gbps`: to one peer, where the node is a mesh without a switch.
    `ring_ceiling_gbps`: what NCCL's rings reach inside a node. `nic_gbps`: the GPU's share of its node's adapters.
    `gemm_ratio`: best measured matrix product over the bf16 peak.
    """

    id: str
    architecture: str | None = None
    peak_tflops: Mapping[str, float] = field(default_factory=dict)
    hbm_tbps: float | None = None
    link_gbps: float | None = None
    usable_link_gbps: float | None = None
    peer_gbps: float | None = None
    ring_ceiling_gbps: float | None = None
    pcie_gbps: float | None = None
    nic_gbps: float | None = None
    gpus_per_node: int | None = None
    gemm_ratio: float | None = None
    processors: int | None = None
    nvls_min_ranks: int | None = None

    def peak(self, dtype: str) -> float:
        """Dense peak of an element type in TFLOP/s."""
        value = self.peak_tflops.get(dtype)
        if value is None:
            raise MissingInput(f"hardware.peak_tflops.{dtype}")
        return value

    def need(self, name: str) -> float:
        """A figure by name; MissingInput where it is not known."""
        value = getattr(self, name)
        if value is None:
            raise MissingInput(f"hardware.{name}")
        return float(value)

    def node_link_gbps(self, ranks_here: int) -> float:
        """Links that `ranks_here` ranks of one node use among themselves: all, or in a mesh those to the others."""
        if self.peer_gbps is not None:
            return min(self.peer_gbps * max(1, ranks_here - 1), self.need("link_gbps"))
        return self.need("link_gbps")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a group lies: its ranks, the nodes it spans and the most of its ranks in one node."""

    group_size: int
    nodes: int
    ranks_a_node: int

    def __post_init__(self) -> None:
        positive(group_size=self.group_size, nodes=self.nodes, ranks_a_node=self.ranks_a_node)
        if not self.nodes <= self.group_size <= self.nodes * self.ranks_a_node:
            raise OutsideDomain(
                f"{self.group_size} ranks do not fit {self.nodes} nodes with at most {self.ranks_a_node} each"
            )

    @property
    def path(self) -> str:
        """intra (one node), inter (one rank a node) or hierarchical."""
        if self.nodes == 1:
            return "intra"
        return "inter" if self.ranks_a_node == 1 else "hierarchical"


def place(members: Sequence[int], gpus_per_node: int) -> Placement:
    """Placement of global ranks when ranks fill nodes in order."""
    positive(gpus_per_node=gpus_per_node)
    if not members or len(set(members)) != len(members):
        raise OutsideDomain("a group needs members, each once")
    nodes: dict[int, int] = {}
    for rank in members:
        nodes[rank // gpus_per_node] = nodes.get(rank // gpus_per_node, 0) + 1
    return Placement(len(members), len(nodes), max(nodes.values()))

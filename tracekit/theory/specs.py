"""How a model is trained and laid out. None is not known; a formula that needs it says so."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from tracekit.theory.checks import divides, positive
from tracekit.theory.errors import MissingInput, OutsideDomain
from tracekit.theory.machine import Placement, place

if TYPE_CHECKING:
    from collections.abc import Iterator

DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of an element type."""
DATA_PARALLEL = ("ddp", "zero1", "zero2", "fsdp")
CONTEXT_METHODS = ("ring", "all_gather", "ulysses")
RECOMPUTE = ("none", "selective", "full")


def dtype_bytes(name: str) -> int:
    """Bytes of an element of a type by name."""
    if name not in DTYPE_BYTES:
        raise OutsideDomain(f"no element type {name!r}; there are {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[name]


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """One step. `micro_batch` sequences of `sequence` tokens, `micro_batches` of them a data-parallel rank and step.

    `data_parallel`: ddp, zero1 (a distributed optimizer), zero2 or fsdp (ZeRO-3). `reshard`: FSDP frees parameters
    after the forward. `reduce_once`: ZeRO-2 and FSDP reduce gradients only in the last micro-batch. `context_method`:
    ring, all_gather or ulysses. `fp8_dispatch`: experts' tokens travel as FP8 with scales. `mtp`: the model's
    multi-token prediction modules are trained.
    """

    micro_batch: int | None = None
    micro_batches: int | None = None
    sequence: int | None = None
    schedule: str | None = None
    virtual: int = 1
    dtype: str | None = None
    param_dtype: str | None = None
    grad_dtype: str | None = None
    recompute: str | None = None
    sequence_parallel: bool | None = None
    data_parallel: str | None = None
    reshard: bool = True
    reduce_once: bool = False
    context_method: str | None = None
    fp8_dispatch: bool = False
    causal: bool = True
    mtp: bool = False

    def __post_init__(self) -> None:
        for what, value, known in (
            ("recompute", self.recompute, RECOMPUTE),
            ("data_parallel", self.data_parallel, DATA_PARALLEL),
            ("context_method", self.context_method, CONTEXT_METHODS),
            ("dtype", self.dtype, tuple(DTYPE_BYTES)),
            ("param_dtype", self.param_dtype, tuple(DTYPE_BYTES)),
            ("grad_dtype", self.grad_dtype, tuple(DTYPE_BYTES)),
        ):
            if value is not None and value not in known:
                raise OutsideDomain(f"training.{what} is {', '.join(known)}, not {value!r}")
        sizes = {n: getattr(self, n) for n in ("micro_batch", "micro_batches", "sequence", "virtual")}
        positive(**{f"training.{n}": v for n, v in sizes.items() if v is not None})

    def need(self, *names: str) -> tuple[int, ...]:
        """The named sizes; MissingInput lists those that are not known."""
        missing = [f"training.{n}" for n in names if getattr(self, n) is None]
        if missing:
            raise MissingInput(*missing)
        return tuple(int(getattr(self, n)) for n in names)

    def choice(self, name: str) -> str:
        """A named choice, e.g. schedule; MissingInput where it is not known."""
        value = getattr(self, name)
        if value is None:
            raise MissingInput(f"training.{name}")
        return str(value)

    def bytes_of(self, name: str) -> int:
        """Bytes of an element of `dtype`, `param_dtype` (else dtype) or `grad_dtype`."""
        value = getattr(self, name) or (self.dtype if name == "param_dtype" else None)
        if value is None:
            raise MissingInput(f"training.{name}")
        return dtype_bytes(value)


@dataclass(frozen=True, slots=True)
class LayoutSpec:
    """Degrees of each axis and their order, fastest first; ranks = tp · cp · dp · pp.

    `ep` experts' ranks lie inside tp · cp · dp with `etp` tensor ranks each, `etp` fastest. `shard`: ranks that FSDP
    shards over (hybrid sharding when fewer than dp · cp).
    """

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int = 1
    shard: int | None = None
    order: tuple[str, ...] = ("tp", "cp", "dp", "pp")

    def __post_init__(self) -> None:
        positive(tp=self.tp, cp=self.cp, dp=self.dp, pp=self.pp, ep=self.ep, etp=self.etp)
        if sorted(self.order) != ["cp", "dp", "pp", "tp"]:
            raise OutsideDomain(f"the order names tp, cp, dp and pp once each, not {'-'.join(self.order)}")
        divides(self.ep * self.etp, self.tp * self.cp * self.dp, "ranks of a stage by expert ranks (ep · etp)")
        if self.shard is not None:
            divides(self.shard, self.dp * self.cp, "data ranks (dp · cp) by shard")

    @property
    def world_size(self) -> int:
        """All ranks."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def edp(self) -> int:
        """Data-parallel copies of an expert: tp · cp · dp / (ep · etp)."""
        return self.tp * self.cp * self.dp // (self.ep * self.etp)

    @property
    def shard_size(self) -> int:
        """Ranks that FSDP shards over."""
        return self.dp * self.cp if self.shard is None else self.shard

    @property
    def pipeline_is_slowest(self) -> bool:
        """Whether every axis of more than one rank is faster than pp: then an axis of one rank may stand anywhere."""
        slower = self.order[self.order.index("pp") + 1 :]
        return self.pp == 1 or all(getattr(self, axis) == 1 for axis in slower)

    def _mesh(self, axes: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
        if not set(axes) & {"ep", "etp", "edp"}:
            return tuple((a, getattr(self, a)) for a in self.order)
        if not self.pipeline_is_slowest:
            raise OutsideDomain("expert groups are placed only where pp is the slowest axis")
        return (("etp", self.etp), ("ep", self.ep), ("edp", self.edp), ("pp", self.pp))

    def groups(self, *axes: str) -> Iterator[tuple[int, ...]]:
        """Global ranks of every group along the axes together, e.g. ("dp", "cp")."""
        mesh = self._mesh(axes)
        strides = {name: prod(n for _, n in mesh[:i]) for i, (name, _) in enumerate(mesh)}
        inside = [range(n) for name, n in mesh if name in axes]
        outside = [range(n) for name, n in mesh if name not in axes]
        inside_strides = [strides[name] for name, _ in mesh if name in axes]
        outside_strides = [strides[name] for name, _ in mesh if name not in axes]
        offsets = sorted(sum(i * s for i, s in zip(at, inside_strides, strict=True)) for at in product(*inside))
        for at in product(*outside):
            base = sum(i * s for i, s in zip(at, outside_strides, strict=True))
            yield tuple(base + o for o in offsets)

    def placement(self, gpus_per_node: int, *axes: str) -> Placement:
        """The worst placement among the groups along the axes: most nodes, then fewest ranks in the fullest node."""
        return _worst(self, gpus_per_node, axes)

    def data_placements(self, gpus_per_node: int) -> tuple[Placement, Placement]:
        """Worst placements of FSDP's shard groups (consecutive ranks of dp · cp) and of its replica groups."""
        return _data(self, gpus_per_node)


@cache
def _worst(layout: LayoutSpec, gpus_per_node: int, axes: tuple[str, ...]) -> Placement:
    found = {place(g, gpus_per_node) for g in layout.groups(*axes)}
    return max(found, key=lambda p: (p.nodes, -p.ranks_a_node))


@cache
def _data(layout: LayoutSpec, gpus_per_node: int) -> tuple[Placement, Placement]:
    size = layout.shard_size
    shard: set[Placement] = set()
    replica: set[Placement] = set()
    for g in layout.groups("dp", "cp"):
        shard |= {place(g[i : i + size], gpus_per_node) for i in range(0, len(g), size)}
        replica |= {place(g[i::size], gpus_per_node) for i in range(size)}
    worst = [max(s, key=lambda p: (p.nodes, -p.ranks_a_node)) for s in (shard, replica)]
    return worst[0], worst[1]

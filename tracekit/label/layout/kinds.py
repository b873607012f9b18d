"""The words of a layout: groups of the job, degrees and order, and what a solution says."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tracekit.label.layout.mesh import Mesh

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.label.job import Claim

Key = tuple[str | None, tuple[int, ...] | None]
"""What tells a job's groups apart: (name, members)."""

MAX_WORLD = 1 << 24
DEFAULT_NAMES = frozenset({"default_pg", "mesh_default"})


class JobGroup(Struct, frozen=True):
    """One process group as the whole job knows it.

    members: global ranks, complete or None. behaviour: traffic seen in it: `p2p` (only send and receive), `chain` (p2p
    with direct neighbours only), `ring`, `all_to_all`, `grad_reduce`, `activation` (in forward and backward), `idle`.
    axes: what a rule on the description concluded ("tp", "dp+cp").
    """

    name: str | None
    desc: str | None
    members: tuple[int, ...] | None
    size: int | None
    behaviour: frozenset[str] = frozenset()
    axes: str | None = None

    @property
    def key(self) -> Key:
        """(name, members)."""
        return (self.name, self.members)

    @property
    def is_default(self) -> bool:
        """Whether it is the group every job starts with; its traffic may belong to anything."""
        return self.desc in DEFAULT_NAMES or (self.name == "0" and self.desc in (None, "undefined", ""))

    @property
    def title(self) -> str:
        """Name and description for people."""
        name = "unnamed" if self.name is None else repr(self.name)
        return f"group {name}" + (f" ({self.desc})" if self.desc not in (None, "", "undefined") else "")


class Layout(Struct, frozen=True):
    """Degrees and order of the job's mesh.

    degrees: (axis, size), fastest axis first. Their product is `world_size` when the layout is complete; an axis
    that is not listed is unknown, one of size 1 is known to be unused. expert: the factorisation experts have of
    their own, likewise. confidence 0-1; evidence: one sentence for each thing that told.
    """

    degrees: tuple[tuple[str, int], ...]
    world_size: int
    source: str
    confidence: float
    evidence: tuple[str, ...]
    expert: tuple[tuple[str, int], ...] = ()

    @property
    def mesh(self) -> Mesh:
        """The grid of the dense axes."""
        return Mesh(self.degrees)

    @property
    def complete(self) -> bool:
        """Whether the degrees account for every rank."""
        return self.mesh.world_size == self.world_size

    def text(self) -> str:
        """ "tp=2 dp=4 pp=2", without axes of size 1 (all of them for a single rank)."""
        used = [f"{a}={n}" for a, n in self.degrees if n > 1]
        dense = dict(self.degrees)
        used += [f"{a}={n}" for a, n in self.expert if n > 1 and dense.get(a) != n]
        return " ".join(used) or " ".join(f"{a}={n}" for a, n in self.degrees)


class Solution(Struct, frozen=True):
    """What is known of the layout.

    layout: the one that evidence singles out, or None; alternatives: all that stay possible otherwise. claims: per
    group key, strongest first. findings: rows of the published table. missing: what is needed to know more.
    """

    layout: Layout | None = None
    alternatives: tuple[Layout, ...] = ()
    claims: Mapping[Key, tuple[Claim, ...]] = field(default_factory=lambda: MappingProxyType({}))
    findings: tuple[dict[str, Any], ...] = ()
    missing: tuple[str, ...] = ()


def finding(code: str, message: str, severity: str = "warning") -> dict[str, Any]:
    """A row of the findings table that concerns the whole job."""
    return {"severity": severity, "code": code, "rank": None, "message": message}

"""From what the ranks show and the user declares to the knowledge of the whole job."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from tracekit.label.engine import CONTRADICTED, USER_MAP
from tracekit.label.job import Job
from tracekit.label.layout import solve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.label.job import Claim
    from tracekit.label.layout import JobGroup, Layout, LayoutTables, MapEntry, Solution
    from tracekit.label.layout.kinds import Key
    from tracekit.label.observe import Observed

    View = tuple[tuple[tuple[Claim, ...], str | None, bool], ...]


class Declared(Struct, frozen=True):
    """What the user declares: a layout, roles of groups, and run.toml's other tables ([model], [training], …)."""

    layout: Layout | None = None
    roles: tuple[MapEntry, ...] = ()
    tables: dict[str, Any] = field(default_factory=dict)


def learn(observed: Sequence[Observed], declared: Declared, tables: LayoutTables) -> tuple[Job, Solution]:
    """Knowledge of the job. The order of the ranks does not matter."""
    frameworks = frozenset().union(*(o.frameworks for o in observed)) if observed else frozenset()
    groups = merged(observed)
    worlds = [o.world_size for o in observed if o.world_size]
    counts = {o.pg_count for o in observed if o.pg_count}
    world = max(worlds, key=lambda w: (worlds.count(w), w), default=None)
    solution = solve(
        groups, world_size=world, pg_count=counts.pop() if len(counts) == 1 else None, frameworks=frameworks,
        declared=declared.layout, tables=tables, entries=declared.roles,
    )  # fmt: skip
    told = {g.key for g in groups if g.axes is not None}
    claims = {key: _useful(found, key in told) for key, found in solution.claims.items()}
    stages = frozenset().union(*(o.stages for o in observed)) if observed else frozenset()
    return Job(frameworks, _descriptions(groups), claims, world, stages), solution


def _useful(claims: Iterable[Claim], described: bool) -> tuple[Claim, ...]:
    """Of a group whose description tells its axes, only the user's map and doubts can say more."""
    return tuple(c for c in claims if not described or c.rule == USER_MAP or c.confidence <= CONTRADICTED)


def merged(observed: Iterable[Observed]) -> tuple[JobGroup, ...]:
    """The groups of the job: what several ranks show of one group is put together."""
    found: dict[Key, JobGroup] = {}
    for one in observed:
        for g in one.groups:
            known = found.get(g.key)
            if known is None:
                found[g.key] = g
                continue
            behaviour = (known.behaviour | g.behaviour) - {"idle"} or frozenset({"idle"})
            desc = min((d for d in (known.desc, g.desc) if d is not None), default=None)
            found[g.key] = replace(known, behaviour=behaviour, desc=desc, axes=known.axes or g.axes)
    return tuple(sorted(found.values(), key=lambda g: (g.name or "", g.members or (), g.size or 0)))


def _descriptions(groups: Iterable[JobGroup]) -> dict[str, str]:
    told: dict[str, set[str]] = defaultdict(set)
    for g in groups:
        if g.name is not None and g.desc is not None:
            told[g.name].add(g.desc)
    return {name: descs.pop() for name, descs in told.items() if len(descs) == 1}


def view(job: Job, observed: Observed) -> View:
    """What a job's knowledge says of one rank's groups; equal views give equal labels."""
    return tuple(
        (job.claims.get(g.key, ()), None if g.desc else job.descriptions.get(g.name or ""), g.key in job.stages)
        for g in observed.groups
    )

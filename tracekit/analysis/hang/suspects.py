"""Which rank a hang started at: those that others wait for and that wait for nobody themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from tracekit.analysis.hang.waits import NO_DUMP, NOT_STARTED, UNTOLD, circles, waiters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.analysis.hang.divergence import Divergence
    from tracekit.analysis.hang.state import GroupKey, GroupState, RankDump
    from tracekit.analysis.hang.waits import Edge, Waits

SURE = {"diverged": 0.85, "no-dump": 0.9, "held": 0.9, "silent": 0.9, "not-started": 0.75, "circle": 0.4}
"""Confidence by kind. diverged: it did something else than the others under one number; no-dump: others wait for it and
it left nothing (times the share of ranks with a dump: a set that is not whole tells less); held: peers completed what
it still has pending; silent: it has nothing pending and issued nothing more; not-started: its device never began what
another's began; circle: ranks wait for each other, any may have begun it.
"""


class Suspect(Struct, frozen=True):
    """A rank at which the hang may have begun.

    waiting: ranks that cannot go on before it does, with the edge each of them waits by. behind: calls that its groups'
    other members have completed or issued and it has not. also: ranks of the same circle.
    """

    rank: int
    kind: str
    confidence: float
    waiting: Mapping[int, Edge]
    behind: int = 0
    since_ns: int | None = None
    also: tuple[int, ...] = ()
    divergence: Divergence | None = None


def find_suspects(
    waits: Waits,
    dumps: Mapping[int, RankDump],
    groups: Mapping[GroupKey, GroupState],
    found: Sequence[Divergence],
    world_size: int | None = None,
) -> list[Suspect]:
    """Suspects, the most likely first: by kind of evidence, by how many ranks wait, by how far it lags."""
    kinds: dict[int, str] = {}
    differs: dict[int, Divergence] = {}
    for d in found[:1]:
        for rank in d.culprits:
            kinds[rank], differs[rank] = "diverged", d
    for rank, kind in _roots(waits, dumps):
        kinds.setdefault(rank, kind)
    stalled = {r: waiters(waits.edges, r) for r in kinds}
    known = {m for g in groups.values() for m in g.members} | set(dumps)
    share = len(dumps) / max(world_size or 0, len(known), 1)
    out = []
    for r, kind in kinds.items():
        sure = SURE[kind] * (share if kind == "no-dump" else 1.0)
        last = _last(dumps.get(r))
        out.append(Suspect(r, kind, sure, stalled[r], _behind(r, groups), last, divergence=differs.get(r)))
    if not out:
        out = _circles(waits, dumps, groups)
    return sorted(out, key=lambda s: (-s.confidence, -len(s.waiting), -s.behind, s.since_ns or 0, s.rank))


def _roots(waits: Waits, dumps: Mapping[int, RankDump]) -> Iterable[tuple[int, str]]:
    for rank in sorted(waits.passed):
        yield rank, "held"
    ons: dict[int, set[str]] = {}
    for mine in waits.edges.values():
        for edge in mine:
            ons.setdefault(edge.on, set()).add(edge.why)
    for rank, why in sorted(ons.items()):
        if NO_DUMP in why:
            yield rank, "no-dump"
        elif rank not in waits.fronts and rank in dumps and why != {UNTOLD}:
            yield rank, "silent"
        elif NOT_STARTED in why and not waits.edges.get(rank):
            yield rank, "not-started"


def _circles(waits: Waits, dumps: Mapping[int, RankDump], groups: Mapping[GroupKey, GroupState]) -> list[Suspect]:
    out = []
    for ranks in circles(waits.edges):
        for rank in ranks:
            others = tuple(r for r in ranks if r != rank)
            stalled, last = waiters(waits.edges, rank), _last(dumps.get(rank))
            out.append(Suspect(rank, "circle", SURE["circle"], stalled, _behind(rank, groups), last, others))
    return out


def _behind(rank: int, groups: Mapping[GroupKey, GroupState]) -> int:
    """Collectives that other members have issued or completed and this rank has not, summed over its groups."""
    total = 0
    for group in groups.values():
        mine = group.progress.get(rank)
        if mine is None or group.p2p:
            continue
        for name in ("enqueued", "completed"):
            own = getattr(mine, name)
            best = max((v for p in group.progress.values() if (v := getattr(p, name)) is not None), default=None)
            if own is not None and best is not None:
                total += best - own
    return total


def _last(dump: RankDump | None) -> int | None:
    """When the rank issued its last call that the dump shows."""
    times = [c.created_ns for c in dump.witness.calls if c.created_ns is not None] if dump else []
    return max(times, default=None)


def explained(waits: Waits, suspects: Iterable[Suspect]) -> float | None:
    """Share of the stuck ranks that wait for a suspect or are one; None when nothing is stuck."""
    if not waits.fronts:
        return None
    known: set[int] = set()
    for s in suspects:
        known |= {s.rank, *s.waiting}
    return len(known & set(waits.fronts)) / len(waits.fronts)

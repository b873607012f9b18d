"""Which ranks form a pipeline, and in which order the model runs through them."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.analysis.pipeline.parts import RankPipeline

Edges = dict[int, set[int]]


class Line(Struct, frozen=True):
    """One pipeline: `ranks` from the first stage on; reason: why it cannot be analysed, None when it can.

    ring: its ends exchange messages, as those of looped schedules do; None when they cannot be told apart.
    """

    ranks: tuple[int, ...]
    ring: bool | None
    reason: str | None = None


def find_lines(parts: Mapping[int, RankPipeline], groups: Iterable[Sequence[int]] = ()) -> list[Line]:
    """Pipelines among the recorded ranks, from who sends to whom.

    groups: pipeline-parallel groups of the layout, for ranks whose messages do not name their peers.
    """
    edges: Edges = defaultdict(set)
    of_layout = [tuple(g) for g in groups if len(g) > 1]
    for rank, part in parts.items():
        peers = {m.peer for m in part.messages}
        if None in peers:
            group = next((g for g in of_layout if rank in g), None)
            peers = set() if group is None else {*group}
        for peer in peers - {None, rank}:
            edges[rank].add(peer)  # type: ignore[arg-type]
            edges[peer].add(rank)  # type: ignore[index]
    alone = [Line((rank,), None, "peers-unknown") for rank in sorted(parts) if rank not in edges]
    return [_line(c, edges, parts, of_layout) for c in _components(edges)] + alone


def places(parts: Mapping[int, RankPipeline], groups: Iterable[Sequence[int]] = ()) -> dict[int, int]:
    """Rank → its place in its pipeline, of those that show any work. groups: as in `find_lines`."""
    lines = (line.ranks for line in find_lines(parts, groups))
    worked = (ranks for ranks in lines if any(parts[r].chunks for r in ranks if r in parts))
    return {rank: place for ranks in worked for place, rank in enumerate(ranks) if rank in parts}


def _components(edges: Edges) -> list[tuple[int, ...]]:
    """Connected sets of ranks, each ascending."""
    out, seen = [], set()
    for rank in sorted(edges):
        if rank in seen:
            continue
        found, todo = {rank}, [rank]
        while todo:
            fresh = edges[todo.pop()] - found
            found |= fresh
            todo += fresh
        seen |= found
        out.append(tuple(sorted(found)))
    return out


def _line(ranks: tuple[int, ...], edges: Edges, parts: Mapping[int, RankPipeline], layout: Sequence[object]) -> Line:
    missing = [r for r in ranks if r not in parts]
    known = ranks in layout or not any(m.peer is None for r in ranks if r in parts for m in parts[r].messages)
    path = _path(ranks, edges)
    stages = {r: min((s for c in parts[r].chunks for _, s, _ in c.actions if s is not None), default=None)
              for r in ranks if r in parts}  # fmt: skip
    if missing:
        return Line(ranks, None, "ranks-missing")
    if all(s is not None for s in stages.values()) and len(set(stages.values())) == len(ranks):
        order = tuple(sorted(ranks, key=lambda r: stages[r] or 0))
    elif path is not None:
        order = _directed(path, parts)
    elif ranks in layout or any(ranks in parts[r].groups for r in ranks):
        order = ranks
    else:
        return Line(ranks, None, "order-unknown")
    ring = order[-1] in edges[order[0]] if len(order) > 2 and known and ranks not in layout else None
    return Line(order, ring)


def _path(ranks: tuple[int, ...], edges: Edges) -> tuple[int, ...] | None:
    """The ranks from one end of a chain to the other; None when they form no chain."""
    ends = [r for r in ranks if len(edges[r]) == 1]
    if len(ends) != 2 or any(len(edges[r]) > 2 for r in ranks):
        return None
    walk = [ends[0]]
    while len(walk) < len(ranks):
        walk += edges[walk[-1]] - set(walk)
    return tuple(walk)


def _directed(path: tuple[int, ...], parts: Mapping[int, RankPipeline]) -> tuple[int, ...]:
    """The path from its first stage: the one whose steps begin with a send, and not with a receive."""
    votes: Counter[bool] = Counter()
    for end, forward in ((path[0], True), (path[-1], False)):
        first: dict[int, bool] = {}
        for m in parts[end].messages:
            if m.step is not None:
                first.setdefault(m.step, m.send)
        votes.update(sends == forward for sends in first.values())
    return path if votes[True] >= votes[False] else path[::-1]

"""Which rank each trace is, and which traces belong to the run. Nothing is renumbered.

Identity, surest first: the user's map or pattern; `distributedInfo.rank` in the file (distrusted in
on-demand captures, whose writer may note a peer's rank); the file's name, then its folders' names; mesh
coordinates. Left out, in this order: traces of another world size than most; traces recorded at another
time than most; all but one of the traces that claim the same rank; copies.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tracekit.ingest.names import coordinate_ranks, coordinates_in_name, rank_at_end, rank_in_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.model import TraceMeta

SLACK_NS = 30_000_000_000
"""Traces of one capture start within this time of each other."""
WITNESS_SLACK_NS = 7_200_000_000_000
"""Dumps of one hang end when their rank got stuck, which may be a time-out and more before the others."""


class Part(Struct):
    """One trace as identity sees it. `window` = absolute ns, None when the file has no time base."""

    meta: TraceMeta
    window: tuple[int, int] | None
    events: int
    digest: str
    rank: int | None = None
    identity: str = "none"
    used: bool = True
    reason: str | None = None


class Decision(Struct):
    """Findings of the resolution; the parts carry their own outcome."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    world_size: int | None = None

    def note(self, severity: str, code: str, rank: int | None, message: str) -> None:
        """Add a finding."""
        self.findings.append({"severity": severity, "code": code, "rank": rank, "message": message})


def resolve(parts: list[Part], user: Callable[[str], int | None] | None = None) -> Decision:
    """Set rank, identity, used and reason of every part. The order of the parts does not matter."""
    decision = Decision()
    coordinate_rank = _coordinate_ranks(parts)
    files = Counter(p.meta.path for p in parts if p.meta.witness is not None)
    for part in sorted(parts, key=_order):
        alone = files[part.meta.path] < 2  # the name of a log of several processes is that of none of them
        _identify(part, user if alone else None, coordinate_rank, decision, named=alone)
    _doubtful(parts, decision)
    _world_sizes(parts, decision)
    _captures(parts, decision)
    _duplicates(parts, decision)
    _apart(parts, decision)
    _missing(parts, decision)
    return decision


def _order(part: Part) -> tuple[str, int]:
    return (part.meta.path, part.meta.part)


def _coordinate_ranks(parts: list[Part]) -> Mapping[tuple[str, int], int]:
    found = {_order(p): c for p in parts if (c := p.meta.coordinates or coordinates_in_name(p.meta.path))}
    sizes = {p.meta.world_size for p in parts if _order(p) in found and p.meta.world_size}
    return coordinate_ranks(found, sizes.pop() if len(sizes) == 1 else None)


def _identify(
    part: Part,
    user: Callable[[str], int | None] | None,
    coordinate_rank: Mapping[tuple[str, int], int],
    decision: Decision,
    *,
    named: bool,
) -> None:
    meta = part.meta
    given = user(meta.path) if user else None
    spelled = _spelled(meta, coordinate_rank.get(_order(part))) if named else None
    content = None if meta.coordinates else meta.rank
    if given is not None:
        part.rank, part.identity = given, "map"
        if content is not None and content != given:
            part.reason = f"its content says rank {content}; the user's {given} counts"
            decision.note("info", "rank-given", given, f"{meta.path}: {part.reason}")
        return
    if content is not None and not (meta.on_demand and spelled is not None):
        part.rank, part.identity = content, "groups" if meta.witness is not None else "distributedInfo"
        if spelled is not None and spelled != content:
            part.reason = f"its name says rank {spelled}, its content rank {content}: the content counts"
            decision.note("warning", "rank-name-conflict", content, f"{meta.path}: {part.reason}")
        if meta.on_demand:
            part.reason = "an on-demand capture may note a peer's rank, and its name does not tell: check it"
            decision.note("warning", "rank-doubtful", content, f"{meta.path}: rank {content}: {part.reason}")
        return
    if spelled is not None:
        part.rank, part.identity = spelled, "name"
        if content is not None and content != spelled:
            part.reason = f"on-demand capture says rank {content}, its name rank {spelled}: the name counts"
            decision.note("warning", "rank-name-conflict", spelled, f"{meta.path}: {part.reason}")


def _spelled(meta: TraceMeta, coordinates: int | None) -> int | None:
    """Rank that the file's name tells. Digits at the end are a rank in names of the flight recorder only: NCCL's
    sources name their files by process.
    """
    found = rank_in_name(meta.path)
    if found is None and meta.witness == "flight-recorder":
        found = rank_at_end(meta.path)
    return coordinates if found is None else found


def _doubtful(parts: list[Part], decision: Decision) -> None:
    """An on-demand capture that shares its noted rank with another recording noted a peer's: unknown, not a copy."""
    claims: dict[int, set[str]] = defaultdict(set)
    for part in parts:
        if part.rank is not None:
            claims[part.rank].add(part.digest)
    for part in sorted(parts, key=_order):
        doubtful = part.meta.on_demand and part.identity == "distributedInfo" and part.rank is not None
        if doubtful and len(claims[part.rank or 0]) > 1:
            part.reason = f"on-demand capture; another recording says rank {part.rank} too, so neither is believed"
            decision.note("warning", "rank-doubtful", None, f"{part.meta.path}: {part.reason}")
            part.rank, part.identity = None, "none"


def _leave_out(part: Part, decision: Decision, code: str, reason: str) -> None:
    part.used = False
    part.reason = reason
    decision.note("warning", code, part.rank, f"{part.meta.path} left out: {reason}")


def _world_sizes(parts: list[Part], decision: Decision) -> None:
    sizes = Counter(p.meta.world_size for p in parts if p.meta.world_size)
    if not sizes:
        return
    top = max(sizes.values())
    best = max(s for s, n in sizes.items() if n == top)
    decision.world_size = best
    for part in sorted(parts, key=_order):
        if part.meta.world_size and part.meta.world_size != best:
            _leave_out(
                part,
                decision,
                "impostor-world-size",
                f"its world size is {part.meta.world_size}, that of {'most' if top > 1 else 'the larger job'} {best}",
            )
    for part in sorted(parts, key=_order):
        if part.used and part.rank is not None and part.rank >= best and len(parts) == 1:
            part.reason = f"rank {part.rank} does not exist in a world of {best}, so its rank is unknown"
            decision.note("warning", "rank-doubtful", None, f"{part.meta.path}: {part.reason}")
            part.rank, part.identity = None, "none"
        elif part.used and part.rank is not None and part.rank >= best:
            _leave_out(part, decision, "impostor-rank", f"rank {part.rank} does not exist in a world of {best}")


def _captures(parts: list[Part], decision: Decision) -> None:
    """Keep the capture (traces close in time) with most ranks; of equals, the latest."""
    timed = sorted((p for p in parts if p.used and p.window), key=lambda p: (p.window or (0, 0), _order(p)))
    clusters: list[list[Part]] = []
    reach = 0
    for part in timed:
        start, end = part.window or (0, 0)
        slack = SLACK_NS if part.meta.witness is None else WITNESS_SLACK_NS
        if clusters and start <= reach + slack:
            clusters[-1].append(part)
        else:
            clusters.append([part])
        reach = max(reach, end)
    if len(clusters) < 2:
        return
    best = max(clusters, key=lambda c: (_claims(c), c[0].window or (0, 0)))
    origin = min((p.window or (0, 0))[0] for p in best)
    for cluster in clusters:
        for part in cluster if cluster is not best else ():
            away = ((part.window or (0, 0))[0] - origin) / 1e9
            _leave_out(
                part,
                decision,
                "impostor-time",
                f"recorded {abs(away):,.0f} s {'after' if away > 0 else 'before'} the capture that is analysed; "
                "analyse it apart",
            )


def _claims(cluster: list[Part]) -> int:
    """Ranks in a capture; each trace without a rank is one of its own."""
    return len({p.rank for p in cluster if p.rank is not None}) + sum(p.rank is None for p in cluster)


def _overlap(a: Part, b: Part) -> bool:
    return a.window is not None and b.window is not None and a.window[0] < b.window[1] and b.window[0] < a.window[1]


def _duplicates(parts: list[Part], decision: Decision) -> None:
    """Of the traces of one rank keep the one recorded together with most others; of equals the last attempt
    (attempt number, else latest window). Copies of a trace without rank go, too.
    """
    used = [p for p in sorted(parts, key=_order) if p.used]
    by_rank: dict[int, list[Part]] = defaultdict(list)
    first: dict[str, Part] = {}
    for part in used:
        if part.rank is not None:
            by_rank[part.rank].append(part)
        elif first.setdefault(part.digest, part).meta.path != part.meta.path:
            _leave_out(part, decision, "duplicate-file", f"the same recording as {first[part.digest].meta.path}")
    for rank, same in sorted(by_rank.items()):
        if len(same) > 1:
            _keep_one(rank, same, used, decision)


def _keep_one(rank: int, same: list[Part], used: list[Part], decision: Decision) -> None:
    others = [p for p in used if p.rank != rank]

    def merit(part: Part) -> tuple[int, int, tuple[int, int], int]:
        together = len({p.rank for p in others if _overlap(part, p)})
        return (together, part.meta.attempt or 0, part.window or (0, 0), part.events)

    best = max(same, key=merit)  # of equals the first path
    for part in same:
        if part is best:
            continue
        if part.digest == best.digest:
            why = "the same recording as"
        elif part.meta.attempt != best.meta.attempt:
            why = f"attempt {part.meta.attempt}; attempt {best.meta.attempt} counts:"
        elif part.window and best.window and not _overlap(part, best):
            why = "another window of the same rank; one window counts, analyse the others apart:"
        else:
            why = "rank claimed twice; the later and fuller recording counts:"
        _leave_out(part, decision, "duplicate-rank", f"rank {rank}: {why} {best.meta.path}")


def _apart(parts: list[Part], decision: Decision) -> None:
    """Report traces that share no instant with any other although the others do share some: nothing is left out,
    since clocks of hosts may differ and a rank's own numbers hold.
    """
    timed = [p for p in sorted(parts, key=_order) if p.used and p.window and p.meta.witness is None]
    lonely = [p for p in timed if not any(_overlap(p, q) for q in timed if q is not p)]
    if len(lonely) < len(timed):
        for part in lonely:
            reason = "recorded at no time at which another rank was: another clock or another capture"
            part.reason = part.reason or reason
            decision.note("warning", "time-apart", part.rank, f"{part.meta.path}: {reason}")


def _missing(parts: list[Part], decision: Decision) -> None:
    used = [p for p in parts if p.used]
    unknown = [p for p in used if p.rank is None]
    if unknown and len(parts) > 1:
        decision.note(
            "warning",
            "rank-unknown",
            None,
            f"{len(unknown)} of {len(used)} traces do not say their rank (first: {unknown[0].meta.path}); "
            "give --rank-regex or --rank-map",
        )
    seen = {p.rank for p in used if p.rank is not None}
    if decision.world_size is None:
        gaps = gaps_in(seen, max(seen)) if len(seen) > 1 else ""
        if gaps and not unknown:
            decision.note(
                "info",
                "missing-ranks",
                None,
                f"{len(seen)} ranks present, world size unknown; missing at least: {gaps}",
            )
        return
    missing = gaps_in(seen, decision.world_size)
    if missing and decision.world_size > 1 and not unknown:
        decision.note(
            "info",
            "missing-ranks",
            None,
            f"{len(seen)} of {decision.world_size} ranks present; missing: {missing}; waiting and stragglers need them",
        )


def gaps_in(seen: set[int], world: int) -> str:
    """Ranks of range(world) that are not in `seen`, as "0-3,7"; a world may be millions."""
    out = []
    start = 0
    for rank in [*sorted(r for r in seen if 0 <= r < world), world]:
        if rank > start:
            out.append(str(start) if rank == start + 1 else f"{start}-{rank - 1}")
        start = rank + 1
    return ",".join(out)


def compress(ranks: list[int]) -> str:
    """ "0-3,7" for [0, 1, 2, 3, 7]."""
    out: list[str] = []
    start = previous = None
    for rank in [*sorted(ranks), None]:
        if previous is not None and rank == previous + 1:
            previous = rank
            continue
        if start is not None:
            out.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = rank
    return ",".join(out)

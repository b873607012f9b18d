"""Which rank each trace is, and which traces belong to the run. Nothing is renumbered.

Identity, surest first: the user's map or pattern; `distributedInfo.rank` in the file (distrusted in
on-demand captures, whose writer may note a peer's rank); the file's name, then its folders' names.
Left out, in this order: traces of another world size than most; traces recorded at another time than
most; all but one of the traces that claim the same rank.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.model import TraceMeta

_RANK = re.compile(r"(?i)(?<![a-z])(?:rank|rk)[-_. ]?\[?(\d{1,7})\]?(?!\d)")
_WORKER = re.compile(r"(?i)(?<![a-z])worker[-_]?(\d{1,5})(?=[._-]|$)")
_AXES = re.compile(r"(?i)(?:^|[-_.])(TP|DP|PP|EP|CP|DCP)[-_]?(\d{1,5})(?=[-_.]|$)")
SLACK_NS = 30_000_000_000
"""Traces of one capture start within this time of each other."""


@dataclass(slots=True)
class Part:
    """One trace as identity sees it. `window` = absolute ns, None when the file has no time base."""

    meta: TraceMeta
    window: tuple[int, int] | None
    events: int
    digest: str
    rank: int | None = None
    identity: str = "none"
    used: bool = True
    reason: str | None = None


@dataclass(slots=True)
class Decision:
    """Findings of the resolution; the parts carry their own outcome."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    world_size: int | None = None

    def note(self, severity: str, code: str, rank: int | None, message: str) -> None:
        """Add a finding."""
        self.findings.append({"severity": severity, "code": code, "rank": rank, "message": message})


def rank_in_name(path: str) -> int | None:
    """Rank spelled in the file's name, else in its folders' names from the inside out; never a pid or time."""
    parts = PurePath(path).parts
    for part in reversed(parts[-6:]):
        hits = _RANK.findall(part)
        if hits:
            return int(hits[-1])
    worker = _WORKER.findall(parts[-1]) if parts else []
    return int(worker[-1]) if worker else None


def coordinates_in_name(path: str) -> dict[str, int] | None:
    """Mesh coordinates spelled in the file's name ("…-TP-0-DP-0-PP-1…"); None without a TP or PP one."""
    found = {k.upper(): int(v) for k, v in _AXES.findall(PurePath(path).name)}
    return found if {"TP", "PP"} & found.keys() else None


def resolve(parts: list[Part], user: Callable[[str], int | None] | None = None) -> Decision:
    """Set rank, identity, used and reason of every part. The order of the parts does not matter."""
    decision = Decision()
    coordinate_rank = _coordinate_ranks(parts)
    for part in sorted(parts, key=_order):
        _identify(part, user, coordinate_rank, decision)
    _world_sizes(parts, decision)
    _captures(parts, decision)
    _duplicates(parts, decision)
    _missing(parts, decision)
    return decision


def _order(part: Part) -> tuple[str, int]:
    return (part.meta.path, part.meta.part)


def _coordinate_ranks(parts: list[Part]) -> Mapping[tuple[str, int], int]:
    """Rank = PP * TP-size + TP, the order of serving engines, when that is one to one over all parts."""
    found = {_order(p): c for p in parts if (c := p.meta.coordinates or coordinates_in_name(p.meta.path))}
    if not found:
        return {}
    size = max(c.get("TP", 0) for c in found.values()) + 1
    ranks = {k: c.get("PP", 0) * size + c.get("TP", 0) for k, c in found.items()}
    return ranks if len(set(ranks.values())) == len(ranks) else {}


def _identify(
    part: Part,
    user: Callable[[str], int | None] | None,
    coordinate_rank: Mapping[tuple[str, int], int],
    decision: Decision,
) -> None:
    meta = part.meta
    given = user(meta.path) if user else None
    named = rank_in_name(meta.path)
    if named is None:
        named = coordinate_rank.get(_order(part))
    content = None if meta.coordinates else meta.rank
    if given is not None:
        part.rank, part.identity = given, "map"
        return
    if content is not None and not (meta.on_demand and named is not None):
        part.rank, part.identity = content, "distributedInfo"
        if named is not None and named != content:
            part.reason = f"its name says rank {named}, its content rank {content}: the content counts"
            decision.note("warning", "rank-name-conflict", content, f"{meta.path}: {part.reason}")
        if meta.on_demand:
            part.reason = "an on-demand capture may note a peer's rank, and its name does not tell: check it"
            decision.note("warning", "rank-doubtful", content, f"{meta.path}: rank {content}: {part.reason}")
        return
    if named is not None:
        part.rank, part.identity = named, "name"
        if content is not None and content != named:
            part.reason = f"on-demand capture says rank {content}, its name rank {named}: the name counts"
            decision.note("warning", "rank-name-conflict", named, f"{meta.path}: {part.reason}")


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
                f"its world size is {part.meta.world_size}, that of most traces {best}",
            )
    for part in sorted(parts, key=_order):
        if part.used and part.rank is not None and part.rank >= best:
            _leave_out(part, decision, "impostor-rank", f"rank {part.rank} does not exist in a world of {best}")


def _captures(parts: list[Part], decision: Decision) -> None:
    """Keep the capture (traces close in time) with most ranks; of equals, the latest."""
    timed = sorted((p for p in parts if p.used and p.window), key=lambda p: (p.window or (0, 0), _order(p)))
    clusters: list[list[Part]] = []
    reach = 0
    for part in timed:
        start, end = part.window or (0, 0)
        if clusters and start <= reach + SLACK_NS:
            clusters[-1].append(part)
        else:
            clusters.append([part])
        reach = max(reach, end)
    if len(clusters) < 2:
        return
    best = max(clusters, key=lambda c: (len({p.rank for p in c}), c[0].window or (0, 0)))
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


def _duplicates(parts: list[Part], decision: Decision) -> None:
    """Of the traces that claim one rank, keep the last attempt (attempt number, else latest window)."""
    by_rank: dict[int, list[Part]] = defaultdict(list)
    for part in sorted(parts, key=_order):
        if part.used and part.rank is not None:
            by_rank[part.rank].append(part)
    for rank, same in sorted(by_rank.items()):
        if len(same) < 2:
            continue
        best = max(same, key=lambda p: (p.meta.attempt or 0, p.window or (0, 0), p.events))
        if len({p.digest for p in same}) == 1:
            best = same[0]
        for part in same:
            if part is best:
                continue
            copy = part.digest == best.digest
            why = "a copy of" if copy else "rank claimed twice; the later and fuller recording counts:"
            _leave_out(part, decision, "duplicate-rank", f"rank {rank}: {why} {best.meta.path}")


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
    if decision.world_size is None:
        return
    seen = {p.rank for p in used if p.rank is not None}
    missing = [r for r in range(decision.world_size) if r not in seen]
    if missing and decision.world_size > 1 and not unknown:
        decision.note(
            "info",
            "missing-ranks",
            None,
            f"{len(seen)} of {decision.world_size} ranks present; missing: {compress(missing)}; "
            "waiting and stragglers need them",
        )


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

"""Rows of a run's tables that recordings bring along, and what is only summed or sorted for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analysis.consistency import minorities

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.ingest.identity import Decision, Part
    from tracekit.ingest.reading import Reading
    from tracekit.ingest.worker import Failure, PartResult

Row = dict[str, Any]


def rank_order(rp: tuple[PartResult, Part]) -> tuple[bool, int, str, int]:
    """Sort key: by rank, recordings without one last."""
    return (rp[1].rank is None, rp[1].rank or 0, rp[0].meta.path, rp[0].meta.part)


def delta(r: PartResult, origin: int, absolute: bool) -> int:
    """ns to add to a trace's own times; traces without a common clock keep their own origin."""
    return r.origin_ns - origin if absolute else 0


def placed(row: Row, r: PartResult, p: Part, origin: int, absolute: bool) -> Row:
    """A row of a recording's table on the run's axis, with its rank."""
    out = row | {"rank": p.rank}
    if "ts_ns" in out:
        out["ts_ns"] += delta(r, origin, absolute)
    return out


def rank_row(r: PartResult, p: Part) -> Row:
    """What `ranks` says of a recording."""
    names = [str(d.get("name")) for d in r.meta.devices if d.get("name")]
    return {
        "rank": p.rank, "source": r.meta.path, "part": r.meta.part, "used": p.used, "reason": p.reason,
        "identity": p.identity, "world_size": r.meta.world_size, "host": r.meta.host_name,
        "device_name": names[0] if names else None, "era": r.meta.era, "origin_ns": r.origin_ns,
        "window_ns": r.window[1] - r.window[0], "events": sum(r.event_counts.values()),
    }  # fmt: skip


def group_rows(used: list[tuple[PartResult, Part]]) -> list[Row]:
    """Rows of `groups`: each group that any recording names, once, with all of its members."""
    known: dict[tuple[tuple[int, ...], str], Row] = {}
    for r, _ in used:
        for g in r.tables.groups:
            known.setdefault((tuple(g["members"]), g["group_name"] or ""), g)
    rows = []
    for (members, _), g in sorted(known.items()):
        for position, rank in enumerate(members):
            head = {k: g[k] for k in ("group_id", "group_name", "group_desc")}
            rows.append(head | {"rank": rank, "position": position})
    return rows


def health_rows(read: Reading) -> list[Row]:
    """Rows of `health`: what was wrong in each file, files passed over and files that could not be used."""

    def row(rank: int | None, source: str, severity: str, reason: str, count: int = 1, example: str = "") -> Row:
        return {
            "rank": rank,
            "source": source,
            "severity": severity,
            "reason": reason,
            "count": count,
            "example": example or None,
        }

    rows = [
        row(p.rank, r.meta.path, h.severity, h.reason, h.count, h.example)
        for r, p in zip(read.results, read.parts, strict=True)
        for h in r.health
    ]
    rows += [
        row(None, str(f), "info", f"not a trace, passed over: {w.title}", 1, w.advice) for f, w in read.found.others
    ]
    rows += [row(None, f.path, "lost", "file could not be used", 1, f.message) for f in read.failures]
    return rows


_SEVERITY = {"error": 0, "warning": 1, "info": 2}


def finding_rows(used: list[tuple[PartResult, Part]], decision: Decision, failures: list[Failure]) -> list[Row]:
    """Findings that need no other step: of ranks' identity, of files, of each recording, of what a few do otherwise."""
    rows = list(decision.findings)
    rows += [{"severity": "warning", "code": "unusable-file", "rank": None, "message": f.message} for f in failures]
    rows += [f | {"rank": p.rank} for r, p in used for f in r.tables.findings]
    rows += minorities([(p.rank, r.tables.votes) for r, p in used])
    return in_order(rows)


def in_order(findings: Iterable[Row]) -> list[Row]:
    """Findings by severity, then by cost."""
    return sorted(
        findings,
        key=lambda f: (
            _SEVERITY[f["severity"]],
            -(f.get("cost_ns") or 0),
            f["code"],
            f["rank"] is not None,
            f["rank"] or 0,
            f["message"],
        ),
    )


_SUMS = ("comm_ns", "labelled_ns", "bytes", "labelled_bytes", "calls", "labelled_calls")


def coverage_of(used: list[tuple[PartResult, Part]]) -> Row:
    """Sums over ranks; `unlabelled`: call sites without a label, the longest first."""
    parts = [r.tables.coverage for r, _ in used]
    out: Row = {name: sum(c.get(name, 0) for c in parts) for name in _SUMS}
    for name in ("tiers", "tier_bytes"):
        sums: dict[str, int] = {}
        for c in parts:
            for tier, n in c.get(name, {}).items():
                sums[tier] = sums.get(tier, 0) + n
        out[name] = dict(sorted(sums.items()))
    return out | {"unlabelled": _unlabelled(used)}


def _unlabelled(used: list[tuple[PartResult, Part]]) -> list[Row]:
    """Call sites without a label, summed over ranks; `example` = RANK:ID (or ID) of a call there."""
    merged: dict[str, Row] = {}
    for r, p in used:
        for site in r.tables.unlabelled:
            own = {k: v for k, v in site.items() if k not in _COUNTED}
            row = merged.get(repr(own))
            if row is None:
                example = site["example"] if p.rank is None else f"{p.rank}:{site['example']}"
                merged[repr(own)] = site | {"ranks": 1, "example": str(example)}
                continue
            row["ranks"] += 1
            for name in ("count", "total_ns", "bytes"):
                row[name] += site[name]
    return sorted(merged.values(), key=lambda s: (-s["total_ns"], -s["bytes"], -s["count"], s["op"]))[:_SHOWN_SITES]


_COUNTED = frozenset({"count", "total_ns", "bytes", "example", "kernel"})
_SHOWN_SITES = 20

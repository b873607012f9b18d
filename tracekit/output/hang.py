"""The post-mortem of a hang as text: verdict, suspects with the chain that leads to each, stuck calls, groups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracekit.ingest.identity import compress
from tracekit.output.text import Grid, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.output.summary import Summary

Row = dict[str, Any]
MAX_SUSPECTS, MAX_STUCK, MAX_GROUPS, MAX_FRAMES = 6, 10, 12, 4
_DIGITS = re.compile(r"\d+")
DEFINITION = (
    "hang: a rank's first pending call, in order of issue, tells what it waits for; suspects are waited for and wait "
    "for nobody; confidence = sureness of the evidence × share of the stuck ranks that it explains"
)


def ranks_text(ranks: Iterable[int] | None) -> str:
    """ "0-3,7" for [0, 1, 2, 3, 7]; "–" for none."""
    return compress(list(ranks or ())) or "–"


def add(summary: Summary, found: Row) -> None:
    """Add the section to the report of an analysis."""
    summary.data += [f"dump of rank {r['rank']} not used for the hang: {clean(r['reason'])}" for r in found["useless"]]
    if not (found["hung"] or found["divergences"]):
        summary.data.append("no call is pending in the flight recorder dumps")
        return
    summary.verdict += f"\nHang: {clean(found['verdict'])}"
    summary.grids += grids(found)
    summary.definitions += (DEFINITION,)


def grids(found: Row) -> list[Grid]:
    """All tables that have rows."""
    return [g for g in (_suspects(found), _stuck(found), _divergences(found), _groups(found)) if g.rows]


def header(found: Row) -> str:
    """One line: what was there."""
    dumps, stuck = len(found["ranks"]), len(found["stuck_ranks"])
    parts = [f"{dumps} dump{'s' * (dumps != 1)}", f"{stuck} rank{'s' * (stuck != 1)} with pending calls"]
    if found["without_dump"]:
        parts.append(f"no dump of rank {ranks_text(found['without_dump'])}")
    elif found["without_dump"] is None:
        parts.append("world size unknown")
    return " · ".join(parts)


def _suspects(found: Row) -> Grid:
    grid = Grid("suspects", ("rank", "evidence", "confidence", "waiting", "behind", "where"))
    for s in found["suspects"][:MAX_SUSPECTS]:
        grid.rows.append(
            (
                str(s["rank"]), s["kind"], f"{s['confidence']:.2f}", str(len(s["waiting"])), f"{s['behind']:,}",
                clean(s["reason"]),
            )
        )  # fmt: skip
    if len(found["suspects"]) > MAX_SUSPECTS:
        grid.notes.append(f"… and {len(found['suspects']) - MAX_SUSPECTS} more (--json lists all)")
    for s in found["suspects"][:2]:
        if s["chain"]:
            grid.notes.append(f"chain to rank {s['rank']}: " + chain_text(s["chain"]))
        grid.notes += [f"  rank {s['rank']} at {clean(f)}" for f in (s["frames"] or ())[:MAX_FRAMES]]
    return grid


def chain_text(chain: Sequence[Row]) -> str:
    """The hops of a chain in words."""
    return " → ".join(f"rank {h['rank']} waits for {h['on']} in {clean(h['what'])}" for h in chain)


def _stuck(found: Row) -> Grid:
    """First pending calls; equal ones of different groups in one line."""
    grid = Grid("first pending calls", ("strategy", "operation", "group", "number", "waiting", "waits for", "where"))
    merged: dict[tuple[str, ...], Row] = {}
    for row in found["stuck"]:
        raw = _DIGITS.sub("#", row.get("op_raw") or "a counter only")
        why = "; ".join(sorted(row["waits_for"])) or ("completed elsewhere" if row["completed_on"] else "all are there")
        key = (row.get("strategy") or "–", raw, row["group_desc"] or row["group_name"], why)
        one = merged.setdefault(key, {"waiting": set(), "on": {}, "seqs": set(), "frames": row["frames"]})
        one["waiting"] |= set(row["waiting"])
        one["seqs"].add(row.get("seq"))
        for name, ranks in row["waits_for"].items():
            one["on"].setdefault(name, set()).update(ranks)
        if row["completed_on"]:
            one["on"].setdefault("completed on", set()).update(row["completed_on"])
    for (strategy, raw, group, _), one in list(merged.items())[:MAX_STUCK]:
        on = "; ".join(f"{why} {ranks_text(r)}" for why, r in sorted(one["on"].items())) or "all are there"
        seqs = sorted(s for s in one["seqs"] if s is not None)
        number = "–" if not seqs else f"{seqs[0]}" if len(seqs) == 1 else f"{seqs[0]}…{seqs[-1]}"
        where = (one["frames"] or ["–"])[0]
        grid.rows.append((strategy, clean(raw), clean(group), number, ranks_text(one["waiting"]), on, clean(where)))
    return grid


def _divergences(found: Row) -> Grid:
    grid = Grid("calls that ranks disagree on", ("group", "number", "differs in", "culprits", "where"))
    for d in found["divergences"][:MAX_STUCK]:
        sides: dict[str, list[int]] = {}
        for v in d["values"]:
            sides.setdefault(v["value"], []).append(v["rank"])
        what = "; ".join(f"{ranks_text(r)}: {clean(value)[:80]}" for value, r in sides.items())
        group = clean(d["group_desc"] or d["group_name"])
        grid.rows.append((group, str(d["seq"]), d["what"], ranks_text(d["culprits"]), what))
    for d in found["divergences"][:1]:
        sides_of = (
            (("culprit", d["frames"]), ("others", d["frames_of_others"]))
            if d["culprits"]
            else (("ranks", d["frames"]),)
        )
        for title, frames in sides_of:
            grid.notes += [f"  {title} at {clean(f)}" for f in (frames or ())[:MAX_FRAMES]]
    return grid


def _groups(found: Row) -> Grid:
    """Groups whose members came differently far."""
    grid = Grid("groups whose ranks are apart", ("group", "ranks", "enqueued", "completed", "fewest at"))
    for g in found["groups"]:
        if g["p2p"]:
            continue
        sent = {r["rank"]: r["enqueued"] for r in g["ranks"] if r["enqueued"] is not None}
        done = {r["rank"]: r["completed"] for r in g["ranks"] if r["completed"] is not None}
        if len(set(sent.values())) < 2 and len(set(done.values())) < 2:
            continue
        last = _fewest(sent) | _fewest(done)
        grid.rows.append(
            (
                clean(g["group_desc"] or g["group_name"]), ranks_text(g["group_ranks"]), _span(sent.values()),
                _span(done.values()), ranks_text(last),
            )
        )  # fmt: skip
    if len(grid.rows) > MAX_GROUPS:
        grid.notes.append(f"… and {len(grid.rows) - MAX_GROUPS} more (--json lists all)")
        del grid.rows[MAX_GROUPS:]
    return grid


def _fewest(values: dict[int, int]) -> set[int]:
    """Ranks with the smallest value, where values differ."""
    low = min(values.values(), default=0)
    return {r for r, v in values.items() if v == low < max(values.values())}


def _span(values: Iterable[int]) -> str:
    known = sorted(set(values))
    return "–" if not known else f"{known[0]}" if len(known) == 1 else f"{known[0]}…{known[-1]}"

"""The cross-rank part of the report: waiting by strategy and call site, late ranks, clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.output.hang import ranks_text
from tracekit.output.text import Grid, clean, ms, percent

if TYPE_CHECKING:
    from tracekit.ingest.run import RunTables

Row = dict[str, Any]
SITES = 6
DEFINITION = (
    "waiting = duration beyond the shortest of the ranks (synchronising collectives with all ranks present; a message: "
    "until its other side began); skew = last minus first arrival on the common clock"
)


def grids(run: RunTables) -> list[Grid]:
    """Waiting of strategies and of the call sites that wait most; nothing for a single rank."""
    rows = run.tables["waiting"]
    strategies = [r for r in rows if r["op"] is None and r["dur_ns"]]
    sites = [r for r in rows if r["op"] is not None and r["wait_ns"]]
    sites.sort(key=lambda r: -r["wait_ns"])
    return [_waiting(strategies), _sites(sites[:SITES], _members(run.tables["groups"]))]


def _late(row: Row) -> str:
    if row["late_rank"] is None:
        return "–"
    return f"{row['late_rank']} ({percent(row['late_ratio'], 1)})"


def _cells(row: Row) -> tuple[str, ...]:
    share = "–" if row["wait_ratio"] is None else percent(row["wait_ratio"], 1)
    verdict = row["verdict"] + (f": {row['reason']}" if row["reason"] else "")
    return (f"{row['matched']:,}/{row['calls']:,}", ms(row["dur_ns"]), ms(row["wait_ns"]), share, ms(row["skew_ns"]),
            _late(row), verdict)  # fmt: skip


_COLUMNS = ("matched", "duration", "waiting", "of split", "skew", "last rank", "verdict")


def _waiting(rows: list[Row]) -> Grid:
    grid = Grid("waiting for other ranks by strategy (ms, sums over ranks and calls)", ("strategy", *_COLUMNS))
    grid.rows = [(r["strategy"], *_cells(r)) for r in rows]
    return grid


def _sites(rows: list[Row], members: dict[str, str]) -> Grid:
    grid = Grid("call sites with most waiting (ms)", ("strategy", "operation", *_COLUMNS, "group", "where"))
    for r in rows:
        group = members.get(r["group"] or "", r["group"] or "–")
        grid.rows.append((r["strategy"], r["op"], *_cells(r), clean(group)[:34], clean(r["scope"] or "–")[:60]))
    return grid


def _members(groups: list[Row]) -> dict[str, str]:
    """Name of a group → its ranks, where only one group has that name; most names are numbers that tell nobody much."""
    found: dict[str, dict[str, list[int]]] = {}
    for g in groups:
        if g["group_name"]:
            found.setdefault(g["group_name"], {}).setdefault(g["group_id"], []).append(g["rank"])
    return {name: f"ranks {ranks_text(next(iter(one.values())))}" for name, one in found.items() if len(one) == 1}


def clock_line(run: RunTables) -> list[str]:
    """One line on how well the ranks' clocks are aligned."""
    clocks = run.tables["clocks"]
    if not clocks:
        return []
    aligned = [c for c in clocks if c["offset_ns"] is not None]
    if not aligned:
        return ["clocks: nothing ties the ranks; no arrival order"]
    error = max(c["error_ns"] or 0 for c in aligned)
    offset = max(abs(c["offset_ns"]) for c in aligned)
    text = f"clocks: {len(aligned)} of {len(clocks)} ranks aligned ±{ms(error)} ms"
    return [text + (f", offsets up to {ms(offset)} ms" if offset else ", one host")]

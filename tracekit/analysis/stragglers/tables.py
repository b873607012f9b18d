"""Rows of the table `stragglers` and the finding that sums them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tracekit.analysis.stragglers.optable import NotReplayableError, grid_of
from tracekit.model import TABLES, HealthEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.model import OpRows

Row = dict[str, Any]


class StragglerTables(Struct):
    """Rows of `stragglers`, findings without a rank, health of the reading."""

    rows: list[Row]
    findings: list[Row] = field(default_factory=list)
    health: list[HealthEntry] = field(default_factory=list)


def analyze_ops(ops: OpRows) -> StragglerTables:
    """What-if of one operation table. Never raises for a table that cannot be replayed: its row says why."""
    from tracekit.analysis.stragglers.graph import graph_of
    from tracekit.analysis.stragglers.replay import measure
    from tracekit.analysis.stragglers.whatif import what_if
    from tracekit.analysis.stragglers.writer import Writer

    health = list(ops.health)
    try:
        grid = grid_of(ops)
        graph = graph_of(grid)
        work = measure(grid, graph)
        found = what_if(grid, graph, work)
    except NotReplayableError as e:
        return not_replayed(ops.path, e, health)
    health += [HealthEntry(reason, count, "lost", example) for reason, count, example in grid.dropped]
    writer = Writer(ops.path, grid, graph, work, found)
    return StragglerTables(writer.rows(), writer.findings(), health)


def not_replayed(source: str, why: NotReplayableError, health: Iterable[HealthEntry] = ()) -> StragglerTables:
    """The one row and the finding of a job whose what-if cannot be asked."""
    row = whole({"source": source, "scope": "job", "reason": why.code})
    told = finding("info" if source == "traces" else "warning", f"{source}: no straggler analysis: {why}")
    return StragglerTables([row], [told], [*health])


def finding(severity: str, message: str) -> Row:
    """A finding on stragglers."""
    return {"severity": severity, "code": "stragglers", "rank": None, "message": message}


def whole(row: Row) -> Row:
    """The row with every column of the table."""
    return {c.name: row.get(c.name) for c in TABLES["stragglers"].columns}

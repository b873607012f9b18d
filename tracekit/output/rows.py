"""Rows of a run → the small published tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.model import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

    from tracekit.ingest.run import RunTables


def column_rows() -> list[dict[str, Any]]:
    """The data dictionary: one row a published column."""
    return [
        {
            "table": t.name, "column": c.name, "type": c.type, "unit": c.unit or None, "nullable": c.nullable,
            "meaning": c.meaning, "formula": c.formula or None,
        }
        for t in TABLES.values()
        for c in t.columns
    ]  # fmt: skip


def table_of(run: RunTables, table: str) -> pa.Table:
    """One small table as Arrow."""
    from tracekit.analysis.tables import from_rows

    if table in run.columns:
        return run.columns[table]
    rows = column_rows() if table == "columns" else run.tables.get(table, [])
    return from_rows(table, rows)

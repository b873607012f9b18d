"""The published tables: the only place where a column is defined, and their Arrow schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.model import job_tables, rank_tables, verdict_tables

if TYPE_CHECKING:
    import pyarrow as pa

    from tracekit.model.column import Table

SCHEMA_VERSION = "1.0"

TABLES: dict[str, Table] = {t.name: t for t in (*rank_tables.TABLES, *job_tables.TABLES, *verdict_tables.TABLES)}


def arrow_schema(table: str) -> pa.Schema:
    """Arrow schema of a published table; dictionary strings use int32 codes."""
    import pyarrow as pa

    types = {
        "dict": pa.dictionary(pa.int32(), pa.string()),
        "timestamp": pa.timestamp("ns", tz="UTC"),
        "bool": pa.bool_(),
        "string": pa.string(),
    }
    return pa.schema(
        pa.field(c.name, types.get(c.type) or pa.type_for_alias(c.type), nullable=c.nullable)
        for c in TABLES[table].columns
    )

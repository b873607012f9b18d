"""The big tables of a run: read back from the workers' Arrow files, with rank and run-relative times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tracekit.model import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.run import RunTables

_TIMES = {"activities": ("ts_ns",), "collectives": ("ts_ns", "call_ts_ns")}


def each(run: RunTables, table: str) -> Iterator[tuple[int | None, pa.Table]]:
    """(rank, table) one rank at a time, memory-mapped; sorted as the ranks of the run."""
    for rank, files, shift in run.details:
        with pa.memory_map(files[table]) as source:
            yield rank, _placed(pa.ipc.open_file(source).read_all(), table, rank, shift)


def merged(run: RunTables, table: str) -> pa.Table:
    """All ranks in one table."""
    parts = [t for _, t in each(run, table)]
    if not parts:
        return arrow_schema(table).empty_table()
    return pa.concat_tables(parts).unify_dictionaries().combine_chunks()


def _placed(data: pa.Table, table: str, rank: int | None, shift: int) -> pa.Table:
    for name in _TIMES[table] if shift else ():
        at = data.schema.get_field_index(name)
        moved = pc.add(data.column(name), pa.scalar(shift, pa.int64()))
        data = data.set_column(at, data.schema.field(name), moved)
    if rank is not None:
        at = data.schema.get_field_index("rank")
        ranks = pa.repeat(pa.scalar(rank, pa.int32()), data.num_rows)
        data = data.set_column(at, data.schema.field("rank"), ranks)
    return data

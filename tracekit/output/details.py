"""The big tables of a run: read back from the workers' Arrow files, with rank and run-relative times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tracekit.analysis.arrays import mapped, plain_of
from tracekit.analysis.tables import constant, from_numpy, from_words
from tracekit.errors import UsageError
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.analysis.crossrank.columns import CallColumns
    from tracekit.ingest.run import RunTables
    from tracekit.output.dataset import Dataset

_TIMES = {"activities": ("ts_ns",), "collectives": ("ts_ns", "call_ts_ns")}


def each(run: RunTables, table: str) -> Iterator[tuple[int | None, pa.Table]]:
    """(rank, table) one rank at a time, memory-mapped; sorted as the ranks of the run."""
    return (one(run, table, number) for number in range(len(run.details)))


def one(run: RunTables, table: str, number: int) -> tuple[int | None, pa.Table]:
    """(rank, table) of the recording at `number` in `run.details`, memory-mapped."""
    rank, files, shift = run.details[number]
    data = _placed(mapped(files[table]), table, rank, shift)
    return rank, _filled(data, run.added[number], run.expected[number]) if table == "collectives" else data


class RunSource:
    """What an analysed run, or the dataset it was read from, offers to outputs that go rank by rank."""

    def __init__(self, run: RunTables, dataset: Dataset | None = None) -> None:
        self.run, self.dataset = run, dataset

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of the small tables."""
        return self.run.tables

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Rows of a small table."""
        return self.run.rows(table)

    def detail(self) -> Iterator[tuple[int | None, pa.Table, pa.Table]]:
        """(rank, activities, collectives) of each recording. UsageError when analysed without detail."""
        if self.dataset is not None:
            return self.dataset.detail()
        if self.run.tables["ranks"] and not self.run.details:
            raise UsageError("activities: not kept; analyse with detail=True")
        pairs = zip(each(self.run, "activities"), each(self.run, "collectives"), strict=True)
        return ((rank, activities, calls) for (rank, activities), (_, calls) in pairs)


def merged(run: RunTables, table: str) -> pa.Table:
    """All ranks in one table. UsageError when the run was analysed without detail."""
    parts = [t for _, t in each(run, table)]
    if not parts:
        raise UsageError(f"{table}: not kept; analyse with detail=True")
    return pa.concat_tables(parts).unify_dictionaries().combine_chunks()


def _placed(data: pa.Table, table: str, rank: int | None, shift: int) -> pa.Table:
    for name in _TIMES[table] if shift else ():
        at = data.schema.get_field_index(name)
        moved = pa.chunked_array([_shifted(c, shift) for c in data.column(name).chunks], pa.int64())
        data = data.set_column(at, data.schema.field(name), moved)
    if rank is not None:
        at = data.schema.get_field_index("rank")
        data = data.set_column(at, data.schema.field("rank"), constant(rank, data.num_rows, pa.int32()))
    return data


def _filled(data: pa.Table, added: CallColumns | str, expected: CallColumns) -> pa.Table:
    """The calls with what theory and the other ranks tell of them; `added`: those columns, or why there are none."""
    columns = _columns(expected)
    columns |= {"match": from_words([added] * data.num_rows)} if isinstance(added, str) else _columns(added)
    for name, values in columns.items():
        at = data.schema.get_field_index(name)
        data = data.set_column(at, data.schema.field(name), values)
    return data


def _columns(found: CallColumns) -> dict[str, Any]:
    columns = {name: from_numpy(v, pa.int64(), v == NO_TIME) for name, v in found.numbers.items()}
    columns |= {name: from_numpy(v, pa.float64(), np.isnan(v)) for name, v in found.rates.items()}
    return columns | {name: from_words(v) for name, v in found.texts.items()}


def _shifted(column: pa.Array, shift: int) -> pa.Array:
    """The column + shift, nulls kept (pa.scalar would import pandas)."""
    values, present = plain_of(column, np.dtype(np.int64))
    return from_numpy(values + shift, pa.int64(), ~present)

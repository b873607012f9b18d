"""A dataset read back: the tables of a run, as this version wrote them or an older one of the same major schema.

Tables and columns that an older version did not know are empty and null; those of a newer one are passed over.
No path is taken from the dataset: only files below the folder are opened, by the names of our own tables.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analysis.sites import summed
from tracekit.errors import BrokenInput, UnusableInput
from tracekit.ingest.discover import DATASET_MARK
from tracekit.model import SCHEMA_VERSION, TABLES, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from tracekit.ingest.run import RunTables

Row = dict[str, Any]
MANIFEST, RUN = "manifest.json", "run.json"
RUN_FIELDS = ("coverage", "sites", "layout", "frameworks", "devices", "hang", "theory_inputs", "witnesses")
"""What `run.json` holds: fields of `RunTables` that are no table."""
MAX_JSON = 256 << 20


def is_dataset(folder: str | Path) -> bool:
    """Whether `tracekit analyze -o` wrote this folder."""
    return (Path(folder) / DATASET_MARK).is_file() and (Path(folder) / MANIFEST).is_file()


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset folder with its manifest; tables are read when they are asked for."""

    folder: Path
    manifest: Row

    def arrow(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        *,
        ranks: Collection[int | None] | None = None,
        steps: Collection[int] | None = None,
    ) -> pa.Table:
        """One published table in today's schema, or those of its columns; only these ranks and steps, if given.

        Raises BrokenInput when a file cannot be read.
        """
        import pyarrow as pa

        schema = arrow_schema(table)
        wanted = pa.schema([schema.field(c) for c in columns]) if columns is not None else schema
        where = self.folder / table
        if not where.is_dir():
            return wanted.empty_table()
        try:
            return _fitted(_read(where, wanted, {"rank": ranks, "step": steps}), wanted)
        except (OSError, UnicodeError, pa.ArrowException) as e:  # Unicode: a path that is no text
            raise BrokenInput(f"{where}: cannot be read ({_line(e)}); write the dataset again") from e

    def each(self, table: str, columns: Sequence[str], *, until_ns: int | None = None) -> Iterator[pa.Table]:
        """Columns of a big table one file at a time: one rank's or several; rows with `ts_ns` before `until_ns`."""
        import pyarrow as pa

        schema = arrow_schema(table)
        wanted = pa.schema([schema.field(c) for c in columns])
        where = self.folder / table
        for file in _files(where):
            try:
                yield _fitted(_read(where, wanted, {}, [file], until_ns), wanted)
            except (OSError, pa.ArrowException) as e:
                raise BrokenInput(f"{file}: cannot be read ({_line(e)}); write the dataset again") from e

    def rows(self, table: str) -> list[Row]:
        """One small table as rows; those of `totals` with their `by_strategy`."""
        from tracekit.analysis.tables import to_rows

        rows = to_rows(self.arrow(table))
        if table != "totals":
            return rows
        parts: dict[tuple[int | None, int], dict[str, Row]] = {}
        for r in self.rows("by_strategy"):
            numbers = {k: v for k, v in r.items() if k not in ("rank", "device", "strategy")}
            parts.setdefault((r["rank"], r["device"]), {})[r["strategy"]] = numbers
        return [t | {"by_strategy": parts.get((t["rank"], t["device"]), {})} for t in rows]

    def detail(self) -> Iterator[tuple[int | None, pa.Table, pa.Table]]:
        """(rank, activities, collectives) of each recording, one at a time. Raises BrokenInput, or when one lacks."""
        where = self.folder / "activities"
        paths = sorted(where.rglob("*.parquet"), key=lambda p: (p.parent.name, len(p.name), p.name))
        ranks = {r["rank"]: None for r in self.rows("ranks") if r["used"]}
        if None not in ranks and any(p.parent == where for p in paths):  # the rank is a column
            for rank in ranks:
                yield rank, self.arrow("activities", ranks=[rank]), self.arrow("collectives", ranks=[rank])
            return
        for path in paths:
            other = self.folder / "collectives" / path.relative_to(where)
            name = path.parent.name.removeprefix("rank=")
            rank = int(name) if name.isdecimal() and path.parent != where else None
            yield rank, _file(path, "activities"), _file(other, "collectives")

    def run(self) -> RunTables:
        """The run as its analysis left it, without the big tables (`arrow` has them); rows are read on demand."""
        from tracekit.ingest.run import RunTables

        origin = self.manifest.get("origin_unix_ns")
        out = RunTables(origin or 0, origin is not None, self.manifest.get("world_size"), tables=_OnDemand(self))
        stored = _json(self.folder / RUN) if (self.folder / RUN).is_file() else {}
        for name in RUN_FIELDS:
            if name in stored:
                setattr(out, name, stored[name])
        out.devices = tuple(out.devices)
        out.witnesses = {int(rank): path for rank, path in out.witnesses.items()}
        return out


def read(folder: str | Path) -> Dataset:
    """Open the dataset in `folder`.

    Raises UnusableInput when it is none, or of another major schema version; BrokenInput when its manifest is damaged.
    """
    path = Path(folder)
    if not is_dataset(path):
        raise UnusableInput(f"{folder}: no dataset of tracekit's; give the folder that `tracekit analyze … -o` wrote")
    manifest = _json(path / MANIFEST)
    version = str(manifest.get("schema_version"))
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise UnusableInput(
            f"{folder}: written with schema version {version[:20]}; this tracekit reads "
            f"{SCHEMA_VERSION.partition('.')[0]}.x: use the version that wrote it, or analyse the traces again"
        )
    return Dataset(path, manifest)


def run_json(run: RunTables) -> Row:
    """What `run.json` holds of a run; call sites are summed over ranks."""
    stored = {name: getattr(run, name) for name in RUN_FIELDS}
    return stored | {"sites": summed(run.sites)}


class _OnDemand(dict[str, list[Row]]):
    """Rows of the small tables of a dataset, each read when it is first asked for."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__()
        self._dataset = dataset

    def __missing__(self, table: str) -> list[Row]:
        if table not in TABLES:
            raise KeyError(table)
        self[table] = rows = self._dataset.rows(table)
        return rows

    def get(self, table: str, default: Any = None) -> Any:
        """Rows of a table; the default for what is no table."""
        return self[table] if table in TABLES else default


def _files(where: Path) -> list[str]:
    return sorted(str(p) for p in where.rglob("*.parquet"))


def _read(
    where: Path,
    wanted: pa.Schema,
    only: Mapping[str, Collection[int | None] | Collection[int] | None],
    files: Sequence[str] | None = None,
    until_ns: int | None = None,
) -> pa.Table:
    import pyarrow as pa
    import pyarrow.dataset as ds

    files = _files(where) if files is None else files
    if not files:
        return wanted.empty_table()
    parts = ds.partitioning(pa.schema([("rank", pa.int32())]), flavor="hive")
    data = ds.dataset(files, format="parquet", partitioning=parts, partition_base_dir=str(where))
    conditions = [ds.field("ts_ns") < until_ns] if until_ns is not None else []
    for name, values in only.items():
        if values is not None and name in data.schema.names:
            conditions.append(ds.field(name).isin(pa.array(list(values), data.schema.field(name).type)))
    condition = reduce(and_, conditions) if conditions else None
    return data.to_table(columns=[n for n in wanted.names if n in data.schema.names], filter=condition)


def _file(path: Path, table: str) -> pa.Table:
    """One file of a big table, in today's schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return _fitted(file.read(), arrow_schema(table))
    except (OSError, pa.ArrowException) as e:
        raise BrokenInput(f"{path}: cannot be read ({_line(e)}); write the dataset again") from e


def _fitted(data: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The table with exactly the wanted columns and types; what is not there is null."""
    import pyarrow as pa

    columns = []
    for field in wanted:
        if field.name not in data.schema.names:
            columns.append(pa.nulls(data.num_rows, field.type))
            continue
        column = data.column(field.name)
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=wanted).unify_dictionaries()


def _json(path: Path) -> Row:
    try:
        if path.stat().st_size > MAX_JSON:
            raise BrokenInput(f"{path}: larger than any that tracekit writes; write the dataset again")
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise BrokenInput(f"{path}: cannot be read ({_line(e)}); write the dataset again") from e
    if not isinstance(value, dict):
        raise BrokenInput(f"{path}: expected a JSON object; write the dataset again")
    return value


def _line(e: Exception) -> str:
    return (str(e).splitlines() or [type(e).__name__])[0][:200]

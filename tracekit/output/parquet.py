"""The dataset on disk: `OUT/manifest.json` + `OUT/<table>/…parquet`, replaced in one rename.

Per-rank tables are Hive-partitioned (`rank=00012/`; a trace without a rank goes where Hive puts nulls, and
where no rank is known at all the column stays in the files).
A reader never sees half a dataset, and a killed run leaves the previous one.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.errors import TracekitError, UsageError
from tracekit.ingest.discover import DATASET_MARK
from tracekit.model import SCHEMA_VERSION, TABLES
from tracekit.output.details import each
from tracekit.output.rows import table_of
from tracekit.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.ingest.run import RunTables

ROW_GROUP = 120_000
NO_RANK = "__HIVE_DEFAULT_PARTITION__"


def write(run: RunTables, folder: Path, *, overwrite: bool = False) -> Path:
    """Write the dataset to `folder`.

    An older dataset of tracekit's is replaced; a folder with anything else in it only with overwrite
    (else UsageError, and nothing is touched).
    """
    folder = folder.absolute()
    _may_replace(folder, overwrite)
    staging = folder.with_name(f".{folder.name}.tracekit-{os.getpid()}")
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        counts = {name: _write_table(run, name, staging / name) for name in TABLES}
        (staging / "manifest.json").write_text(json.dumps(_manifest(run, counts), indent=1) + "\n", "utf-8")
        (staging / DATASET_MARK).write_text("{}\n", "utf-8")
        _swap(staging, folder)
    except OSError as e:
        raise TracekitError(
            f"{folder}: the dataset cannot be written ({e.strerror or e}); check space and permissions"
        ) from e
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder


def _may_replace(folder: Path, overwrite: bool) -> None:
    if not folder.exists() or overwrite:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder}: a file is in the way of the dataset; name a folder")
        return
    if not folder.is_dir():
        raise UsageError(f"{folder}: a file is in the way of the dataset; name a folder")
    if any(folder.iterdir()) and not (folder / DATASET_MARK).exists():
        raise UsageError(
            f"{folder}: holds files that tracekit did not write; name another folder, or replace it with -f"
        )


def _swap(staging: Path, folder: Path) -> None:
    """Put the new dataset in place; the old one goes only after that."""
    if not folder.exists():
        staging.rename(folder)
        return
    old = folder.with_name(f".{folder.name}.tracekit-old-{os.getpid()}")
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    try:
        staging.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _metadata(run: RunTables, table: str) -> dict[bytes, bytes]:
    units = {c.name: c.unit for c in TABLES[table].columns if c.unit}
    return {
        b"tracekit.schema_version": SCHEMA_VERSION.encode(),
        b"tracekit.tool_version": __version__.encode(),
        b"tracekit.table": table.encode(),
        b"tracekit.units": json.dumps(units).encode(),
        b"tracekit.clock": b"unix" if run.absolute else b"per-rank",
        b"tracekit.origin_unix_ns": str(run.origin_ns).encode(),
    }


def _write_table(run: RunTables, table: str, folder: Path) -> int:
    if not TABLES[table].per_rank:
        data = table_of(run, table)
        _put(data, folder / "part-0.parquet", _metadata(run, table))
        return int(data.num_rows)
    rows = 0
    # Readers infer the partition's type from its values: with no rank known there is nothing to infer from.
    partitioned = any(rank is not None for rank, _, _ in run.details)
    for number, (rank, data) in enumerate(each(run, table)):
        name = f"part-{number}.parquet"
        if partitioned:
            data = data.drop_columns(["rank"])
            name = f"rank={NO_RANK if rank is None else f'{rank:05d}'}/{name}"
        _put(data, folder / name, _metadata(run, table))
        rows += data.num_rows
    if not run.details:
        folder.mkdir(parents=True, exist_ok=True)
    return rows


def _put(data: pa.Table, path: Path, metadata: dict[bytes, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = data.replace_schema_metadata(metadata)
    ints = [f.name for f in data.schema if pa.types.is_int64(f.type)]
    words = [f.name for f in data.schema if pa.types.is_dictionary(f.type) or pa.types.is_string(f.type)]
    pq.write_table(
        data, path, compression="zstd", compression_level=1, row_group_size=ROW_GROUP, use_dictionary=words,
        column_encoding=dict.fromkeys(ints, "DELTA_BINARY_PACKED") or None,
    )  # fmt: skip


def _manifest(run: RunTables, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": "tracekit",
        "tool_version": __version__,
        "origin_unix_ns": run.origin_ns if run.absolute else None,
        "clock": "unix" if run.absolute else "per-rank",
        "world_size": run.world_size,
        "sources": [r["source"] for r in run.tables["ranks"] if r["used"]],
        "tables": {
            name: {"rows": n, "partitioned_by": ["rank"] if TABLES[name].per_rank else []} for name, n in counts.items()
        },
    }

"""The dataset on disk: `OUT/manifest.json`, `OUT/run.json` + `OUT/<table>/…parquet`, replaced in one rename.

Per-rank tables are Hive-partitioned (`rank=00012/`); where a trace has no known rank they lie flat and keep the column.
A reader never sees half a dataset, and a killed run leaves the previous one.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import platform
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.errors import TracekitError, UsageError
from tracekit.ingest.discover import DATASET_MARK
from tracekit.model import SCHEMA_VERSION, TABLES
from tracekit.output.dataset import MANIFEST, RUN, run_json
from tracekit.output.details import one
from tracekit.output.rows import table_of
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tracekit.ingest.run import RunTables

ROW_GROUP = 120_000


def write(
    run: RunTables, folder: Path, *, overwrite: bool = False, rank_folders: bool = True, replace: bool = True
) -> Path:
    """Write the dataset to `folder`; big tables in a folder a rank, unless the rank is to be a column.

    An older dataset of tracekit's is replaced, unless replace is false; a folder with anything else in it only with
    overwrite (else UsageError, and nothing is touched).
    """
    if not run.details and not run.tables["stragglers"]:
        raise UsageError("the dataset needs the big tables: analyse with detail=True")
    folder = may_write(folder, [r["source"] for r in run.tables["ranks"]], overwrite=overwrite)
    partitioned = rank_folders and all(rank is not None for rank, _, _ in run.details)  # not every reader takes null
    with staged(folder, replace=replace) as staging:
        staging.mkdir(parents=True)
        counts = _write_tables(run, staging, partitioned)
        (staging / MANIFEST).write_text(json.dumps(_manifest(run, counts, partitioned), indent=1) + "\n", "utf-8")
        (staging / RUN).write_text(json.dumps(run_json(run), separators=(",", ":")) + "\n", "utf-8")
        (staging / DATASET_MARK).write_text("{}\n", "utf-8")
    return folder


@contextmanager
def staged(folder: Path, *, replace: bool = True, made_of: tuple[int, int] | None = None) -> Iterator[Path]:
    """A folder beside `folder`, not yet made, that takes its place in one rename when the block ends well.

    replace: whether another may be there by then. made_of: the `identity` of the only one that may be replaced.
    Raises TracekitError when writing fails, UsageError when another process was faster; then nothing has changed.
    """
    staging = folder.with_name(f"{_prefix(folder)}{os.getpid()}")
    _sweep(folder)
    try:
        shutil.rmtree(staging, ignore_errors=True)
        yield staging
        if replace:
            _swap(staging, folder, made_of)
        else:
            _first(staging, folder)
    except OSError as e:
        raise TracekitError(
            f"{folder}: the dataset cannot be written ({e.strerror or e}); check space and permissions"
        ) from e
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def aside(folder: Path) -> Path:
    """A name beside `folder` for what is about to be removed; leftovers under it are swept later."""
    _sweep(folder)
    return folder.with_name(f"{_prefix(folder)}old-{os.getpid()}")


def may_write(folder: Path, sources: Iterable[str] = (), *, overwrite: bool = False) -> Path:
    """The real path of a dataset folder that may be written or replaced; else UsageError.

    Never replaced, not even with overwrite: a folder that holds a source, the working directory or the home.
    """
    real = folder.expanduser().resolve()
    if not real.exists():
        return real
    if not real.is_dir():
        raise UsageError(f"{folder}: a file is in the way of the dataset; name a folder")
    if (real / DATASET_MARK).exists() or not any(real.iterdir()):
        return real
    if not overwrite:
        raise UsageError(
            f"{folder}: holds files that tracekit did not write; name another folder, or replace it with -f"
        )
    for kept in (*map(Path, sources), Path.cwd(), Path.home()):
        if kept.resolve().is_relative_to(real):
            raise UsageError(f"{folder}: holds {kept}, which replacing it would delete; name another folder")
    return real


def _prefix(folder: Path) -> str:
    return f".{folder.name}.tracekit-{platform.node()}-"


def _sweep(folder: Path) -> None:
    """Remove what killed runs on this machine left beside the dataset."""
    prefix = _prefix(folder)
    for left in folder.parent.glob(f"{glob.escape(prefix)}*"):
        pid = left.name[len(prefix) :].removeprefix("old-")
        if pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def identity(folder: Path) -> tuple[int, int] | None:
    """What tells a folder from another one of its name; None where there is none."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _first(staging: Path, folder: Path) -> None:
    """Put a new dataset where none is yet; UsageError when another process was faster."""
    try:
        staging.rename(folder)
    except OSError as e:
        if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise UsageError(f"{folder}: another process wrote it meanwhile; name another, or replace it with -f") from e


def _swap(staging: Path, folder: Path, made_of: tuple[int, int] | None) -> None:
    """Put the new dataset in place in one step; the old one goes only after that."""
    if made_of is None and not folder.exists():
        _first(staging, folder)
    elif _exchange(staging, folder):
        if made_of is not None and identity(staging) != made_of:
            _exchange(staging, folder)
            raise UsageError(f"{folder}: another process replaced it meanwhile, and its dataset stays; run this again")
        shutil.rmtree(staging, ignore_errors=True)
    else:
        old = aside(folder)
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        try:
            staging.rename(folder)
        except OSError:
            old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two folders atomically (Linux renameat2); False where system or file system cannot."""
    import ctypes

    try:
        call = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(call(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0)


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


def _write_tables(run: RunTables, folder: Path, partitioned: bool) -> dict[str, int]:
    """Write every table to a folder below `folder`; rows of each. As many parts at a time as the run had workers."""
    numbers: dict[bool, list[int | None]] = {True: [*range(len(run.details))], False: [None]}
    parts = [(t, n) for big in (True, False) for t in TABLES if TABLES[t].per_rank is big for n in numbers[big]]
    counts = dict.fromkeys(TABLES, 0)
    with ThreadPoolExecutor(run.workers) as pool:  # Arrow encodes and compresses without holding Python's lock
        written = pool.map(lambda part: _write_part(run, part[0], part[1], folder, partitioned), parts)
        for (table, _), rows in zip(parts, written, strict=True):
            counts[table] += rows
    return counts


def _write_part(run: RunTables, table: str, number: int | None, folder: Path, partitioned: bool) -> int:
    """Write a table, or a recording's part of it; its rows."""
    name = f"part-{number or 0}.parquet"
    if number is None:
        data = table_of(run, table)
    else:
        rank, data = one(run, table, number)
        if partitioned:
            data = data.drop_columns(["rank"])
            name = f"rank={rank:05d}/{name}"
    _put(data, folder / table / name, _metadata(run, table))
    return int(data.num_rows)


def _put(data: pa.Table, path: Path, metadata: dict[bytes, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = data.replace_schema_metadata(metadata)
    pq.write_table(data, path, row_group_size=ROW_GROUP, **encoding(data))


def encoding(data: pa.Table) -> dict[str, Any]:
    """How a table is compressed and encoded."""
    ints = [f.name for f in data.schema if pa.types.is_int64(f.type)]
    words = [f.name for f in data.schema if pa.types.is_dictionary(f.type) or pa.types.is_string(f.type)]
    return {
        "compression": "zstd", "compression_level": 1, "use_dictionary": words,
        "column_encoding": dict.fromkeys(ints, "DELTA_BINARY_PACKED") or None,
    }  # fmt: skip


def _manifest(run: RunTables, counts: dict[str, int], partitioned: bool) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": "tracekit",
        "tool_version": __version__,
        "origin_unix_ns": run.origin_ns if run.absolute else None,
        "clock": "unix" if run.absolute else "per-rank",
        "world_size": run.world_size,
        "sources": [r["source"] for r in run.tables["ranks"] if r["used"]]
        + [r["source"] for r in run.tables["stragglers"] if r["scope"] == "job"],
        "tables": {
            name: {"rows": n, "partitioned_by": ["rank"] if TABLES[name].per_rank and partitioned else []}
            for name, n in counts.items()
        },
    }

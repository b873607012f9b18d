"""A dataset of many runs: `RUNS/run=NAME/`, each a dataset of its own that appears, changes and goes in one rename.

`run` is a Hive column over `RUNS/run=*/<table>/*.parquet`. The rank of such runs is a column of the files and not a
folder (readers take one set of folders only), so that runs whose ranks were put together and others read as one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.errors import BrokenInput, TracekitError, UnusableInput, UsageError
from tracekit.model import TABLES
from tracekit.output import dataset, parquet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.ingest.run import RunTables

PREFIX = "run="
ROWS_A_FILE = 4_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run of a dataset: its name, folder, manifest, and what it takes on disk.

    started_ns: Unix ns of the recording's start, or when the dataset was written where the traces have no time base.
    """

    name: str
    folder: Path
    manifest: dict[str, Any]
    started_ns: int
    dated: bool
    files: int
    bytes: int


def folder_of(root: str | Path, name: str) -> Path:
    """Where a run of that name lies. UsageError for a name that is none, or a root that is itself a dataset."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"run {name!r}: a name has letters, digits, '.', '_' and '-', begins with a letter or digit, up to 100"
        )
    root = Path(root).expanduser()
    if dataset.is_dataset(root):
        raise UsageError(f"{root}: a dataset of one run; name another folder for many runs")
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root}: a file is in the way of the dataset; name a folder")
    return root / f"{PREFIX}{name}"


def name_of(run: RunTables) -> str:
    """A name from the recording itself: its start (UTC) and a digest of what identifies its files.

    The same traces give the same name, so that a job written twice is one run.
    """
    what = sorted(f"{Path(r['source']).name} {r['rank']}" for r in run.tables["ranks"])
    digest = hashlib.sha256("\n".join([str(run.origin_ns), *what]).encode()).hexdigest()[:8]
    if not run.absolute:
        return f"undated-{digest}"
    return f"{_utc(run.origin_ns):%Y%m%dT%H%M%SZ}-{digest}"


def append(run: RunTables, root: str | Path, name: str | None = None, *, overwrite: bool = False) -> Path:
    """Add a run to a dataset of runs; the real path of its folder. UsageError when the name is taken, unless overwrite.

    The rank is a column of every file.
    """
    target = folder_of(root, name or name_of(run))
    if target.exists() and not overwrite:
        raise UsageError(f"{target}: there is such a run; give another name, or replace it with -f")
    target.parent.mkdir(parents=True, exist_ok=True)
    return parquet.write(run, target, overwrite=overwrite, rank_folders=False, replace=overwrite)


def runs(root: str | Path) -> list[StoredRun]:
    """The runs of a dataset, oldest first. UnusableInput when there is none; a folder without a manifest is no run."""
    folders = sorted(Path(root).glob(f"{PREFIX}*")) if Path(root).is_dir() else []
    found = [stored(f) for f in folders if dataset.is_dataset(f)]
    if not found and dataset.is_dataset(root):
        raise UnusableInput(f"{root}: a dataset of one run; name the folder of many runs")
    if not found and Path(root).is_file():
        raise UnusableInput(f"{root}: a file; name the folder of many runs")
    if not found:
        raise UnusableInput(f"{root}: no runs; `tracekit analyze … -o {root} --as-run NAME` adds one")
    return sorted(found, key=lambda r: (r.started_ns, r.name))


def stored(folder: Path) -> StoredRun:
    """A dataset folder as a run of its own, by the folder's name."""
    opened = dataset.read(folder)
    origin, ranks = opened.manifest.get("origin_unix_ns"), opened.manifest.get("world_size")
    if not all(v is None or (isinstance(v, int) and abs(v) < 1 << 63) for v in (origin, ranks)):
        where = folder / dataset.MANIFEST
        raise BrokenInput(f"{where}: origin_unix_ns and world_size: expected 64-bit integers; write the run again")
    dated = isinstance(origin, int)
    files = [p for p in folder.rglob("*") if p.is_file()]
    written = (folder / dataset.MANIFEST).stat().st_mtime_ns
    started = origin if isinstance(origin, int) else written
    size = sum(p.stat().st_size for p in files)
    return StoredRun(folder.name.removeprefix(PREFIX), folder, opened.manifest, started, dated, len(files), size)


def compact(run: StoredRun) -> int:
    """Put the files of all ranks of each big table together; how many files that saves. Readers never see half of it.

    Left as it is: a run with a recording of unknown rank, which only its file tells from others. UsageError where the
    run was replaced meanwhile (the new one stays), BrokenInput where a file cannot be read.
    """
    made_of = parquet.identity(run.folder.resolve())
    parts = {t.name: _parts(run.folder / t.name) for t in TABLES.values() if t.per_rank}
    files = {name: _shared(paths) for name, paths in parts.items()}
    big = [name for name, paths in parts.items() if len(files[name]) < len(paths)]
    if not big or any(r["rank"] is None for r in dataset.read(run.folder).rows("ranks") if r["used"]):
        return 0
    folder = run.folder.resolve()
    try:
        return run.files - _compacted(folder, made_of, {name: files[name] for name in big})
    except TracekitError:
        if parquet.identity(folder) == made_of:
            raise
        raise UsageError(
            f"{folder}: another process replaced it meanwhile, and its dataset stays; run this again"
        ) from None


def _compacted(folder: Path, made_of: tuple[int, int] | None, big: dict[str, list[list[Path]]]) -> int:
    """Put a copy with these files together in its place; the number of files in it."""
    with parquet.staged(folder, made_of=made_of) as staging:
        shutil.copytree(folder, staging, copy_function=_link, ignore=lambda at, _: big if Path(at) == folder else [])
        for table, files in big.items():
            (staging / table).mkdir()
            for number, paths in enumerate(files):
                _together(paths, staging / table / f"part-{number}.parquet")
        return sum(p.is_file() for p in staging.rglob("*"))


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)
    return target


def _parts(where: Path) -> list[Path]:
    """Files of a big table by number of the rank's place."""
    return sorted(where.rglob("*.parquet"), key=lambda p: (p.parent.name, len(p.name), p.name))


def _shared(parts: Sequence[Path]) -> list[list[Path]]:
    """The files that go into one, in order: as many as keep it below `ROWS_A_FILE` rows."""
    out: list[list[Path]] = []
    rows = 0
    for path in parts:
        try:
            more = pq.read_metadata(path).num_rows
        except (OSError, pa.ArrowException) as e:
            raise _unreadable(path, e) from e
        if not out or rows + more > ROWS_A_FILE:
            out.append([])
            rows = 0
        out[-1].append(path)
        rows += more
    return out


def _together(parts: Sequence[Path], target: Path) -> None:
    first = _with_rank(parts[0])
    with pq.ParquetWriter(target, first.schema, **parquet.encoding(first)) as writer:
        writer.write_table(first, row_group_size=parquet.ROW_GROUP)
        for path in parts[1:]:
            writer.write_table(_with_rank(path), row_group_size=parquet.ROW_GROUP)


def _unreadable(path: Path, error: Exception) -> BrokenInput:
    what = str(error).partition("\n")[0][:160]
    return BrokenInput(f"{path}: cannot be read ({what}); replace the run with -f, or remove its folder")


def _with_rank(path: Path) -> pa.Table:
    """A file's rows with their rank as a column."""
    try:
        data = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as e:
        raise _unreadable(path, e) from e
    if "rank" in data.schema.names:
        return data
    rank = int(path.parent.name.removeprefix("rank="))
    return data.add_column(0, pa.field("rank", pa.int32()), pa.array([rank] * data.num_rows, pa.int32()))


def outdated(
    found: Sequence[StoredRun], *, keep: int | None = None, older_than_ns: int | None = None, now_ns: int = 0
) -> list[StoredRun]:
    """The runs that a rule of retention lets go, of runs in the order of `runs`: all but the newest `keep`, and those
    that started more than `older_than_ns` before `now_ns`."""
    surplus = set(range(max(len(found) - keep, 0))) if keep is not None else set()
    if older_than_ns is not None:
        surplus |= {i for i, r in enumerate(found) if r.started_ns < now_ns - older_than_ns}
    return [r for i, r in enumerate(found) if i in surplus]


def remove(run: StoredRun) -> None:
    """Take a run away: out of the readers' sight in one rename, then from the disk. TracekitError when it cannot be."""
    aside = parquet.aside(run.folder)
    try:
        run.folder.rename(aside)
    except OSError as e:
        raise TracekitError(f"{run.folder}: cannot be removed ({e.strerror}); check permissions") from e
    shutil.rmtree(aside, ignore_errors=True)


def _utc(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // 10**9, UTC)


def started(run: StoredRun) -> str:
    """Start of the recording in UTC, or when the dataset was written (with a ~)."""
    return f"{'' if run.dated else '~'}{_utc(run.started_ns):%Y-%m-%d %H:%M:%S}"

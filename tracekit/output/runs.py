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
class ListedRun:
    """One run of a dataset: its name, folder and manifest.

    started_ns: Unix ns of the recording's start, or when the dataset was written where the traces have no time base.
    """

    name: str
    folder: Path
    manifest: dict[str, Any]
    started_ns: int
    dated: bool


@dataclass(frozen=True, slots=True)
class StoredRun(ListedRun):
    """A run with what it takes on disk: files and bytes."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BrokenRun:
    """A run whose manifest or schema cannot be read; the error says where and what to do."""

    name: str
    folder: Path
    error: TracekitError


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
    """The runs of a dataset, oldest first; like `survey`, but the first that cannot be read is raised."""
    found, broken = survey(root)
    if broken:
        raise broken[0].error
    return found


def survey(root: str | Path) -> tuple[list[StoredRun], list[BrokenRun]]:
    """The runs of a dataset, oldest first, and those that cannot be read, by name. UnusableInput as `folders`."""
    found: list[StoredRun] = []
    broken: list[BrokenRun] = []
    for folder in folders(root):
        try:
            found.append(stored(folder))
        except TracekitError as e:
            if folder.exists():  # else it went meanwhile
                broken.append(BrokenRun(folder.name.removeprefix(PREFIX), folder, e))
    return sorted(found, key=lambda r: (r.started_ns, r.name)), broken


def folders(root: str | Path) -> list[Path]:
    """Where the runs of a dataset lie, by name; a folder without a manifest is no run. UnusableInput without any."""
    found = [f for f in sorted(Path(root).glob(f"{PREFIX}*")) if dataset.is_dataset(f)] if Path(root).is_dir() else []
    if not found:
        raise UnusableInput(f"{root}: {_no_runs(Path(root))}")
    return found


def _no_runs(root: Path) -> str:
    if dataset.is_dataset(root):
        return "a dataset of one run; name the folder of many runs"
    if root.is_file():
        return "a file; name the folder of many runs"
    return f"no runs; `tracekit analyze … -o {root} --as-run NAME` adds one"


def listed(folder: Path) -> ListedRun:
    """A dataset folder as a run of its own, by the folder's name. UnusableInput when it cannot be read as one."""
    opened = dataset.read(folder)
    origin, ranks = opened.manifest.get("origin_unix_ns"), opened.manifest.get("world_size")
    where = folder / dataset.MANIFEST
    if not all(v is None or (isinstance(v, int) and abs(v) < 1 << 63) for v in (origin, ranks)):
        raise BrokenInput(f"{where}: origin_unix_ns and world_size: expected 64-bit integers; write the run again")
    dated = isinstance(origin, int)
    try:
        started = origin if isinstance(origin, int) else where.stat().st_mtime_ns
    except OSError as e:
        raise _gone(folder, e) from e
    return ListedRun(folder.name.removeprefix(PREFIX), folder, opened.manifest, started, dated)


def stored(folder: Path) -> StoredRun:
    """The same with its size."""
    run = listed(folder)
    try:
        sizes = [(Path(at) / name).stat().st_size for at, _, names in os.walk(folder) for name in names]
    except OSError as e:
        raise _gone(folder, e) from e
    return StoredRun(run.name, folder, run.manifest, run.started_ns, run.dated, len(sizes), sum(sizes))


def _gone(folder: Path, error: OSError) -> BrokenInput:
    return BrokenInput(f"{folder}: cannot be read ({error.strerror or error}); write the run again, or remove it")


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


def started(run: ListedRun) -> str:
    """Start of the recording in UTC, or when the dataset was written (with a ~)."""
    return f"{'' if run.dated else '~'}{_utc(run.started_ns):%Y-%m-%d %H:%M:%S}"

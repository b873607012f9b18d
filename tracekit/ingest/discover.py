"""Paths, folders and patterns → the trace files to read, and what was passed over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tracekit.errors import ForeignFormat, UnusableInput
from tracekit.parsers import identify
from tracekit.parsers.sniff import OP_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.parsers import Format

DATASET_MARK = "tracekit-dataset.json"
MAX_FILES = 100_000


class Found(Struct):
    """`files`: readable traces, in a stable order; `witnesses`: files that tell communication only; `op_tables`:
    operation tables; `others`: (file, format); `formats`: what every file is.
    """

    files: list[Path] = field(default_factory=list)
    witnesses: list[Path] = field(default_factory=list)
    op_tables: list[Path] = field(default_factory=list)
    others: list[tuple[Path, Format]] = field(default_factory=list)
    formats: dict[Path, Format] = field(default_factory=dict)


def discover(paths: Iterable[str | Path], *, op_tables: bool = False, witnesses: bool = False) -> Found:
    """The traces below `paths` (and operation tables of whole jobs and witnesses, if wanted), and what was passed over.

    Raises UnusableInput when a path does not exist or nothing readable is found; the message names the
    format or fault of each file (the first few).
    """
    found = survey(paths, op_tables=op_tables, witnesses=witnesses)
    if not (found.files or found.op_tables or found.witnesses):
        raise _nothing(found)
    return found


def survey(paths: Iterable[str | Path], *, op_tables: bool = False, witnesses: bool = False) -> Found:
    """Expand files, folders (recursive) and glob patterns; sniff each file once. UnusableInput when a path is none."""
    found = Found()
    for path in _expand(paths):
        what = found.formats[path] = identify(path)
        if what.readable:
            found.files.append(path)
        elif witnesses and what.witness:
            found.witnesses.append(path)
        elif op_tables and what.name == OP_TABLE.name:
            found.op_tables.append(path)
        else:
            found.others.append((path, what))
    return found


def _nothing(found: Found) -> UnusableInput:
    if len(found.others) == 1:
        path, what = found.others[0]
        return ForeignFormat(f"{path}: {what.title}: {what.advice}")
    shown = "\n".join(f"  {p}: {w.title}" for p, w in found.others[:5])
    more = f"\n  … and {len(found.others) - 5} more" if len(found.others) > 5 else ""
    return UnusableInput(
        f"no trace among {len(found.others)} files; expected Kineto JSON from torch.profiler\n{shown}{more}"
    )


def _expand(paths: Iterable[str | Path]) -> list[Path]:
    """Files in the order given; one that is reached twice (another spelling, a link) counts once."""
    out: dict[Path, Path] = {}
    for given in paths:
        path = Path(given)
        try:
            inside = _inside(path)
        except OSError as e:
            raise UnusableInput(f"{str(path)[:200]}: cannot be looked at ({e.strerror}); check the path") from e
        for file in inside:
            out.setdefault(file.resolve(), file)
        if len(out) > MAX_FILES:
            raise UnusableInput(f"{path}: more than {MAX_FILES:,} files; give a folder with traces only")
    return list(out.values())


def _inside(path: Path) -> list[Path]:
    if path.is_dir():
        if found := _walk(path):
            return found
        if runs := sorted(p.parent for p in path.glob(f"*/{DATASET_MARK}")):
            raise UnusableInput(f"{path}: holds datasets, and no traces beside them; name one of them, as {runs[0]}")
        raise UnusableInput(f"{path}: the folder holds no files; give the folder with the traces")
    if path.exists():
        return [path]
    if found := _matching(path):
        return found
    raise UnusableInput(f"{path}: no such file or folder, and no file matches it as a pattern")


def _matching(pattern: Path) -> list[Path]:
    """Files that match a glob pattern (`**` descends)."""
    root = Path(pattern.anchor) if pattern.is_absolute() else Path()
    relative = str(pattern.relative_to(root)) if pattern.is_absolute() else str(pattern)
    try:
        return sorted(p for p in root.glob(relative) if p.is_file())
    except (ValueError, NotImplementedError):
        return []


def _walk(folder: Path) -> list[Path]:
    """Files below a folder, without hidden ones and without datasets that tracekit wrote."""
    files: list[Path] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and not entry.is_symlink():
            if not (entry / DATASET_MARK).exists():
                files += _walk(entry)
        elif entry.is_file():
            files.append(entry)
    return files

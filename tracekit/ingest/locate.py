"""Find one rank of a run and label it, without analysing the others."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracekit.errors import UsageError
from tracekit.ingest.discover import discover
from tracekit.ingest.identity import compress
from tracekit.ingest.run import run
from tracekit.ingest.worker import Options, labelled_parts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tracekit.ingest.reading import Progress
    from tracekit.ingest.run import RunTables
    from tracekit.model import LabelledRank


def rank_of_run(
    paths: Iterable[str | Path],
    options: Options,
    rank: int | None,
    *,
    rank_regex: str | None = None,
    rank_map: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> LabelledRank:
    """The trace of `rank`, labelled as in an analysis of the whole run; rank None = the only trace there is.

    Raises UsageError otherwise.
    """
    paths = list(paths)
    there = discover(paths, witnesses=True)
    files = there.files
    if len(files) == 1 and not there.witnesses:
        parts = labelled_parts(str(files[0]), options)
        if len(parts) == 1 and rank in (None, parts[0].meta.rank):
            return parts[0]
    with TemporaryDirectory(prefix="tracekit-") as folder:
        options = replace(options, spill=folder)
        found = run(paths, options, rank_regex=rank_regex, rank_map=rank_map, workers=workers, progress=progress)
        return _of_run(found, options, rank)


def _of_run(found: RunTables, options: Options, rank: int | None) -> LabelledRank:
    rows = [r for r in found.tables["ranks"] if r["used"]]
    hits = [r for r in rows if rank is None or r["rank"] == rank]
    if len(hits) != 1:
        present = compress([r["rank"] for r in rows if r["rank"] is not None]) or "none known"
        raise UsageError(
            f"name the rank, as RANK:ID or RANK:TEXT; ranks here: {present} (a trace without rank: give its file alone)"
        )
    parts = labelled_parts(
        hits[0]["source"], replace(options, job=found.job, witnesses=found.refs, given=_given(found))
    )
    return next(p for p in parts if p.meta.part == hits[0]["part"])


def _given(found: RunTables) -> dict[str, int]:
    """Path → rank of the recordings whose rank the user stated."""
    return {r["source"]: r["rank"] for r in found.tables["ranks"] if r["identity"] == "map" and r["rank"] is not None}

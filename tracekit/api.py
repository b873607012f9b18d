"""The public face: `open`, `analyze`, `read`, `diff`, `Run`, `Result`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from tracekit.model import TABLES

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from tracekit.ingest.run import RunTables
    from tracekit.output.dataset import Dataset
    from tracekit.output.perfetto import Written

Paths = str | Path | Iterable[str | Path]


@dataclass(frozen=True, slots=True)
class Run:
    """Traces to analyse and how to read them; nothing is read before `analyze`."""

    paths: tuple[str, ...]
    strict: bool = False
    rules: tuple[str, ...] = ()
    step_pattern: str | None = None
    rank_regex: str | None = None
    rank_map: str | None = None
    workers: int | None = None
    layout: str | None = None
    group_map: str | None = None
    config: str | None = None


def _paths(paths: Paths) -> tuple[str, ...]:
    given = (paths,) if isinstance(paths, str | Path) else tuple(paths)
    if not given:
        raise UsageError("no path given; name a trace file, a folder or a pattern")
    return tuple(str(p) for p in given)


def open(  # noqa: A001 - `tracekit.open` is the documented name
    paths: Paths,
    *,
    strict: bool = False,
    rules: Iterable[str | Path] = (),
    step_pattern: str | None = None,
    rank_regex: str | None = None,
    rank_map: str | Path | None = None,
    workers: int | None = None,
    layout: str | None = None,
    group_map: str | Path | None = None,
    config: str | Path | None = None,
) -> Run:
    """Name the traces of one job: files, folders (recursive) or glob patterns.

    layout: degrees of the job, "tp=2,dp=4,order=tp-dp"; group_map: TOML file that says what groups are for; config: the
    run.toml of the job. What `layout` says goes before what `config` says.
    """
    return Run(
        _paths(paths), strict, tuple(str(r) for r in rules), step_pattern, rank_regex, _text(rank_map), workers,
        layout, _text(group_map), _text(config),
    )  # fmt: skip


def _text(path: str | Path | None) -> str | None:
    return None if path is None else str(path)


def analyze(
    run: Run | Paths, *, detail: bool = True, progress: Callable[[int, int, str], None] | None = None, **options: Any
) -> Result:
    """Analyse a run, or paths with the options of `open`.

    detail: keep the per-activity and per-call tables (on disk until the result goes). progress: called with
    (files done, files in all, file), and with (0, 0, what) when another step begins.

    Raises UnusableInput, UsageError, RuleError (see `tracekit.errors`).
    """
    from tracekit.ingest.run import run as execute
    from tracekit.ingest.worker import Options, declared, rules_of

    if isinstance(run, Run) and options:
        raise UsageError(f"{', '.join(options)}: give the options to open(), where this run was made")
    job = run if isinstance(run, Run) else open(run, **options)
    folder = tempfile.mkdtemp(prefix="tracekit-")
    kept = False
    try:
        how = Options(
            job.strict, job.rules, job.step_pattern, folder, activities=detail,
            declared=declared(job.layout, job.group_map, job.config),
        )  # fmt: skip
        rules_of(how)  # a mistake in a rule file shows before any trace is read
        tables = execute(
            job.paths, how, workers=job.workers, rank_regex=job.rank_regex, rank_map=job.rank_map, progress=progress
        )
        kept = detail
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
    return Result(tables, _Folder(folder if kept else None))


def read(folder: str | Path) -> Result:
    """The result that `Result.write` or `tracekit analyze -o` left in `folder`; tables are read on demand.

    Reads datasets of older versions of the same major schema: what they did not know is empty or null.
    Raises UnusableInput when the folder is no dataset, or of another major version.
    """
    from tracekit.output.dataset import read as opened

    dataset = opened(folder)
    return Result(dataset.run(), _Folder(None), dataset)


def diff(before: Result, after: Result) -> dict[str, Any]:
    """What changed between two runs and what brings it about: the object that `tracekit diff --json` prints.

    Times are ns, means of a rank and step; see `tracekit.analysis.diff.compare`.
    """
    from tracekit.analysis.diff.compare import compare
    from tracekit.analysis.diff.side import side

    return compare(side(before.document, "before"), side(after.document, "after"))


class _Folder:
    """Removes a temporary folder when nobody needs it any more."""

    def __init__(self, path: str | None) -> None:
        self.path = path

    def __del__(self) -> None:
        if self.path:
            shutil.rmtree(self.path, ignore_errors=True)


@dataclass
class Result:
    """Tables of an analysed run: `res.exposure` is a pandas DataFrame, `res.arrow("exposure")` the table."""

    run: RunTables
    _folder: _Folder = field(repr=False)
    _dataset: Dataset | None = field(default=None, repr=False)

    def arrow(self, table: str) -> pa.Table:
        """One published table as Arrow. The big ones need `analyze(..., detail=True)`."""
        from tracekit.output.details import merged
        from tracekit.output.rows import table_of

        if table not in TABLES:
            raise UsageError(f"no table {table!r}; there are {', '.join(TABLES)}")
        if self._dataset is not None:
            return self._dataset.arrow(table)
        return merged(self.run, table) if TABLES[table].per_rank else table_of(self.run, table)

    def frame(self, table: str) -> pd.DataFrame:
        """One published table as pandas, with nullable dtypes."""
        nullable = _nullable_dtypes()
        frame: pd.DataFrame = self.arrow(table).to_pandas(types_mapper=nullable.get)
        return frame

    def __getattr__(self, name: str) -> pd.DataFrame:
        """Every published table is an attribute."""
        if name in TABLES:
            return self.frame(name)
        raise AttributeError(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *TABLES]

    @cached_property
    def document(self) -> dict[str, Any]:
        """The object that `tracekit analyze --json` prints."""
        from tracekit.output.document import document

        return document(self.run)

    def to_json(self) -> str:
        """`document` as JSON text."""
        from tracekit.output.document import dumps

        return dumps(self.document)

    def to_text(self, *, all_ranks: bool = False, steps: bool = False, width: int = 120) -> str:
        """The report of the terminal as plain text."""
        import io

        from rich.console import Console

        from tracekit.output.terminal import report

        sink = io.StringIO()
        report(self.run, Console(file=sink, width=width, color_system=None), all_ranks=all_ranks, steps=steps)
        return sink.getvalue()

    def to_markdown(self) -> str:
        """The report as Markdown, to paste into an issue."""
        from tracekit.output.markdown import render

        return render(self.run)

    def perfetto(
        self,
        path: str | Path,
        *,
        ranks: Iterable[int] | None = None,
        steps: Iterable[int] | None = None,
        window: tuple[int | None, int | None] = (None, None),
        overwrite: bool = False,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> Written:
        """Write the run as a trace for ui.perfetto.dev (gzip where the name ends in .gz); what is drawn.

        ranks, steps: only these. window: only what touches [from, to) ns, from the run's origin on the common clock.
        overwrite: also a file that tracekit did not write. Needs `analyze(..., detail=True)`. Raises UsageError where
        nothing is left to draw.
        """
        from tracekit.output.details import RunSource
        from tracekit.output.perfetto import Selection, write

        chosen = Selection(_frozen(ranks), _frozen(steps), window)
        return write(
            RunSource(self.run, self._dataset),
            Path(path),
            self._about(),
            chosen,
            overwrite=overwrite,
            progress=progress,
        )

    def report(
        self,
        path: str | Path,
        *,
        step: int | None = None,
        title: str | None = None,
        overwrite: bool = False,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> Path:
        """Write the run as one HTML page that opens without network; its path.

        step: the step of timeline, pipeline and critical path; default a typical one. overwrite: replace a file that is
        no page of tracekit's. The timeline needs `analyze(..., detail=True)`.
        Raises UsageError without the extra `plots`, for an unknown step, or when another file is in the way.
        """
        from tracekit.output.html import render, write

        return write(
            render(self.run, self._dataset, step=step, title=title, progress=progress), path, overwrite=overwrite
        )

    def _about(self) -> dict[str, Any]:
        from tracekit.model import SCHEMA_VERSION
        from tracekit.version import __version__

        return {
            "tool": "tracekit", "tool_version": __version__, "schema_version": SCHEMA_VERSION,
            "origin_unix_ns": str(self.run.origin_ns) if self.run.absolute else None,
        }  # fmt: skip

    def append(self, folder: str | Path, name: str | None = None, *, overwrite: bool = False) -> Path:
        """Add the run to a dataset of many, as `folder/run=NAME`; without a name, one from the recording itself.

        Returns the real path of the run's folder. Raises UsageError when the name is taken, unless overwrite.
        """
        if self._dataset is not None:
            raise UsageError(f"this result was read from {self._dataset.folder}; copy that folder")
        from tracekit.output.runs import append

        return append(self.run, folder, name, overwrite=overwrite)

    def write(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the Parquet dataset; replaces an older dataset of tracekit's, anything else only with overwrite.

        Returns the real path. Raises UsageError before anything is touched, TracekitError when writing fails.
        """
        if self._dataset is not None:
            raise UsageError(f"this result was read from {self._dataset.folder}; copy that folder")
        from tracekit.output.parquet import write

        return write(self.run, Path(folder), overwrite=overwrite)


def _frozen(numbers: Iterable[int] | None) -> frozenset[int] | None:
    return None if numbers is None else frozenset(numbers)


def _nullable_dtypes() -> dict[Any, Any]:
    import pandas as pd
    import pyarrow as pa

    return {
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.string(): pd.StringDtype(),
    }

"""The HTML report: one self-contained page, made from the result tables alone.

Each part of the page is a module with a function `section`; `page` puts them together, `charts` draws with HoloViews
and Bokeh, `markup` escapes. `render` needs the extra `plots`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError, UsageError
from tracekit.model import SCHEMA_VERSION, TABLES
from tracekit.output.html.source import Source, chosen_step
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.ingest.run import RunTables
    from tracekit.output.dataset import Dataset
    from tracekit.output.html.section import Section

EMBEDDED = (
    "ranks", "steps", "totals", "by_strategy", "breakdown", "exposure", "waiting", "blame", "clocks", "bubble",
    "critical_steps", "critical_shares", "what_if", "stragglers", "theory", "findings", "health",
)  # fmt: skip
"""Tables that the page holds as data, for scripts and for checking it."""
MOST_ROWS = 20_000
MARK = '<meta name="generator" content="tracekit'
"""By what a page of ours is told from other files."""


def render(
    run: RunTables,
    dataset: Dataset | None = None,
    *,
    step: int | None = None,
    title: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> str:
    """The page of a run as HTML text.

    dataset: where the run was read from; it has the tables `activities` and `collectives`. step: the step that pictures
    of one step show; default a typical one. progress: called with (parts done, parts in all, part).

    Raises UsageError without the extra `plots`, or when there is no such step.
    """
    from tracekit.output.html import (
        breakdown,
        charts,
        critical,
        findings,
        glossary,
        page,
        pipeline,
        quality,
        strategies,
        tables,
        theory,
        timeline,
        verdict,
        waiting,
    )  # fmt: skip
    from tracekit.output.html.section import Context
    from tracekit.output.summary import summarise

    charts.require()
    source = Source(run, dataset)
    ctx = Context(source, chosen_step(source, step))
    summary = summarise(run)
    makers: dict[str, Callable[[], Section | list[Section]]] = {
        "verdict": lambda: verdict.section(ctx, summary),
        "hang": lambda: tables.hang(ctx),
        "breakdown": lambda: breakdown.section(ctx),
        "strategies": lambda: strategies.section(ctx, summary),
        "theory": lambda: theory.section(ctx),
        "pipeline": lambda: pipeline.section(ctx),
        "stragglers": lambda: tables.stragglers(ctx),
        "waiting": lambda: waiting.section(ctx),
        "timeline": lambda: timeline.section(ctx),
        "critical path": lambda: critical.section(ctx),
        "findings": lambda: findings.section(ctx),
        "tables": lambda: tables.section(summary),
        "quality": lambda: quality.section(ctx, summary),
        "definitions": lambda: glossary.section(ctx, summary),
    }
    sections: list[Section] = []
    for done, (name, make) in enumerate(makers.items(), 1):
        made = make()
        sections += made if isinstance(made, list) else [made]
        if progress:
            progress(done, len(makers), name)
    return page.assemble(title or _title(source), sections, data(source))


def write(html: str, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write the page beside its place and rename it; see `may_write`. Raises TracekitError when writing fails."""
    target = may_write(Path(path), overwrite=overwrite)
    staging = target.with_name(f".{target.name}.tracekit-{os.getpid()}")
    try:
        staging.write_text(html, "utf-8")
        staging.replace(target)
    except OSError as e:
        raise TracekitError(
            f"{path}: the page cannot be written ({e.strerror or e}); check folder, space and permissions"
        ) from e
    finally:
        with suppress(OSError):
            staging.unlink(missing_ok=True)
    return target


def may_write(path: Path, *, overwrite: bool = False) -> Path:
    """The path, if a page may be written there: UsageError for a folder, or for a file that is no page of ours."""
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file, such as {path / 'report.html'}")
    if path.exists() and not overwrite:
        try:
            with path.open("rb") as file:
                ours = MARK.encode() in file.read(4096)
        except OSError as e:
            raise UsageError(f"{path}: is in the way of the page ({e.strerror or e}); name another file") from e
        if not ours:
            raise UsageError(f"{path}: tracekit did not write this file; name another, or replace it with -f")
    return path


def data(source: Source) -> dict[str, Any]:
    """Result tables as {table: {columns, rows}}; `left_out` names those too long for a page."""
    tables: dict[str, Any] = {}
    left_out: dict[str, int] = {}
    for name in EMBEDDED:
        rows = source.rows(name)
        if len(rows) > MOST_ROWS:
            left_out[name] = len(rows)
            continue
        columns = [c.name for c in TABLES[name].columns]
        tables[name] = {"columns": columns, "rows": [[r.get(c) for c in columns] for r in rows]}
    return {"schema_version": SCHEMA_VERSION, "tool_version": __version__, "tables": tables, "left_out": left_out}


def _title(source: Source) -> str:
    names = [str(r["source"]) for r in source.rows("ranks") if r["used"]]
    names = names or [str(r["source"]) for r in source.rows("stragglers") if r["scope"] == "job"]
    if not names:
        return "no recording"
    folder = Path(os.path.commonpath(names)) if len({Path(n).is_absolute() for n in names}) == 1 else Path(names[0])
    return folder.name or str(folder)

"""`tracekit layout`: the mesh of the job: degrees, order, which ranks form which group, and what is missing."""

from __future__ import annotations

import json
from typing import Any

import click

from tracekit.commands import options
from tracekit.commands.progress import Progress


@click.command("layout")
@options.paths
@options.reading
@options.as_json
def command(
    paths: tuple[str, ...],
    layout: str | None,
    group_map: str | None,
    config: str | None,
    rule_files: tuple[str, ...],
    strict: bool,
    step_pattern: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """The mesh of the job: degrees with their evidence, order, rank grid, groups, and what is missing.

    PATH is a trace file, a folder (searched through) or a glob pattern; all of them together are one job.
    """
    from tracekit.ingest.run import run
    from tracekit.ingest.worker import Options, declared
    from tracekit.label.layout import Solution
    from tracekit.label.layout.document import document
    from tracekit.output.layout import lines

    told = declared(layout, group_map, config)
    options_ = Options(strict=strict, rules=rule_files, step_pattern=step_pattern, declared=told)
    with Progress(quiet=False) as progress:
        tables = run(paths, options_, progress=progress.reading, **how)
    ranks = [r["rank"] for r in tables.tables["ranks"] if r["used"] and r["rank"] is not None]
    doc = document(tables.solution or Solution(), tables.job_groups, tables.world_size, ranks)
    click.echo(json.dumps(doc, indent=1) if as_json else "\n".join(lines(doc)))

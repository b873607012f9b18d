"""`tracekit ops`: traces of a pipeline job → an operation table, as StragglerAnalysis and `analyze` read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracekit.commands import options
from tracekit.commands.progress import Progress


@click.command("ops")
@options.paths
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Parquet file.")
@click.option("-f", "--force", is_flag=True, help="Replace FILE.")
@options.reading
def command(paths: tuple[str, ...], output: Path, force: bool, rule_files: tuple[str, ...], **how: Any) -> None:
    """Write what each pipeline stage of each replica did when, one row an operation.

    PATH is a trace file, a folder (searched through) or a glob pattern; all of them together are one job.
    """
    from tracekit.api import analyze, open
    from tracekit.errors import UsageError
    from tracekit.ingest.operations import table_of
    from tracekit.output.optable import write_op_table

    if output.exists() and not (force and output.is_file()):
        raise UsageError(f"{output} exists; choose another name" + ("" if output.is_dir() else ", or --force"))
    with Progress(False) as progress:
        result = analyze(open(paths, rules=rule_files, **how), detail=False, progress=progress.reading)
    table = table_of(result.run)
    write_op_table(table, output)
    workers = len({*zip(table.dp_rank.tolist(), table.stage.tolist(), strict=True)})
    click.echo(f"{len(table)} operations of {workers} workers: {output}")

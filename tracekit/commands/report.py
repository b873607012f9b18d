"""`tracekit report`: the run as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracekit.commands import options
from tracekit.commands.progress import Progress
from tracekit.commands.source import result_of


@click.command("report")
@options.paths
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True,
              metavar="FILE", help="The page.")  # fmt: skip
@click.option("-f", "--force", is_flag=True, help="Replace FILE even if it is no report of tracekit's.")
@click.option("--step", type=int, metavar="N", help="Step of the timeline, pipeline and path; default: a typical one.")
@click.option("--title", metavar="TEXT", help="Title; default: the folder of the traces.")
@options.reading
@click.option("-q", "--quiet", is_flag=True, help="Write the page and say nothing.")
def command(
    paths: tuple[str, ...], output: Path, force: bool, step: int | None, title: str | None, quiet: bool,
    rule_files: tuple[str, ...], **how: Any,
) -> None:  # fmt: skip
    """Write the run as one HTML page that opens without network.

    Verdict, exposed time, theory, pipeline, waiting, timeline, critical path, findings and data quality, every number
    with its definition. PATH: traces, or a dataset written with `tracekit analyze -o`. Needs the extra `plots`.
    """
    from tracekit.output.html import may_write
    from tracekit.output.html.charts import require

    require()  # better told before the work than after it
    may_write(output, overwrite=force)
    with Progress(quiet) as progress:
        result = result_of(paths, progress, detail=True, rules=rule_files, **how)
        result.report(output, step=step, title=title, overwrite=force, progress=progress.step("parts of the page"))
    if not quiet:
        click.echo(f"wrote   {output} ({output.stat().st_size / 1e6:.1f} MB); open it in a browser")

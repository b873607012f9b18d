"""`tracekit hang`: the post-mortem of a hang from flight recorder dumps."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from tracekit.commands import options
from tracekit.commands.progress import Progress


@click.command("hang")
@options.paths
@options.as_json
@click.option("--world-size", type=click.IntRange(min=1), metavar="N", help="Ranks of the job, if no dump says.")
@options.rules
@options.rank_regex
@options.rank_map
@options.strict
@options.no_bar
def command(
    paths: tuple[str, ...],
    as_json: bool,
    world_size: int | None,
    rule_files: tuple[str, ...],
    rank_regex: str | None,
    rank_map: str | None,
    strict: bool,
    quiet: bool,
) -> None:
    """At which rank a hang began, from flight recorder dumps: who waits for whom, who is missing, who diverged.

    PATH is a dump, a folder (searched through) or a glob pattern; all of them together are one job.
    """
    from tracekit.ingest.hanging import post_mortem

    with Progress(quiet) as progress:
        found = post_mortem(
            paths, strict=strict, rules=rule_files, world_size=world_size, rank_regex=rank_regex, rank_map=rank_map,
            progress=progress.step("dumps read"),
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(found, indent=1, allow_nan=False))
    else:
        _report(found)


def _report(found: dict[str, Any]) -> None:
    from rich.console import Console

    from tracekit.output.hang import DEFINITION, grids, header
    from tracekit.output.terminal import show
    from tracekit.output.text import clean

    console = Console(width=None if sys.stdout.isatty() else 160, soft_wrap=False)
    console.print(header(found), markup=False, highlight=False)
    console.print()
    console.print(clean(found["verdict"]), style="bold", markup=False, highlight=False)
    for grid in grids(found):
        console.print()
        show(grid, console)
    console.print()
    for note in found["notes"]:
        console.print(clean(note), style="yellow", markup=False, highlight=False)
    console.print(DEFINITION, style="dim", markup=False, highlight=False)

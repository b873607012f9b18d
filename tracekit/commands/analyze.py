"""`tracekit analyze`: traces → report, JSON and Parquet dataset."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tracekit.commands import gate, options
from tracekit.commands.progress import Progress


@click.command("analyze")
@options.paths
@click.option("-o", "--output", metavar="DIR", help="Write the Parquet dataset there.")
@click.option(
    "--as-run",
    metavar="NAME",
    help="Add the run to the dataset of many runs in DIR, as DIR/run=NAME; `auto` names it by its start.",
)
@click.option(
    "-f", "--force", is_flag=True, help="Replace DIR even if tracekit did not write it, or a run of that name."
)
@options.as_json
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "markdown"]),
    default="table",
    show_default=True,
    help="Form of the report.",
)
@click.option("--ranks", is_flag=True, help="List every rank (above 8 they are collapsed).")
@click.option("--steps", is_flag=True, help="List every step.")
@gate.option
@options.reading
@click.option("-q", "--quiet", is_flag=True, help="No report; only errors, and what was asked for with -o.")
def command(
    paths: tuple[str, ...],
    output: str | None,
    as_run: str | None,
    force: bool,
    as_json: bool,
    form: str,
    ranks: bool,
    steps: bool,
    quiet: bool,
    gates: tuple[str, ...],
    rule_files: tuple[str, ...],
    **how: Any,
) -> None:
    """Which strategy's communication nothing hid, per rank and step.

    PATH is a trace file, a folder (searched through) or a glob pattern; all of them together are one job.
    """
    from tracekit.ingest.pool import start_early

    start_early(paths, how["workers"])
    from tracekit.api import analyze, open

    wanted = gate.parsed(gates)
    _may_write(output, as_run, force)  # better told before the work than after it
    run = open(paths, rules=rule_files, **how)
    with Progress(quiet) as progress:
        result = analyze(run, detail=output is not None, progress=progress.reading)
        if output is not None:
            progress.say("writing the dataset")
            if as_run is None:
                result.write(output, overwrite=force)
            else:
                output = str(result.append(output, None if as_run == "auto" else as_run, overwrite=force))
    outcomes = gate.outcomes(wanted, result)
    if not quiet:
        _report(result, "json" if as_json else form, ranks, steps, outcomes)
        if output is not None and not as_json and form == "table":
            click.echo(f"wrote   {output} (Parquet; `tracekit schema` describes the tables)")
    gate.enforce(outcomes)


def _may_write(output: str | None, as_run: str | None, force: bool) -> None:
    from tracekit.errors import UsageError

    if output is None:
        if as_run is not None:
            raise UsageError("--as-run needs -o: the folder of the dataset of runs")
        return
    if as_run is None:
        from tracekit.output.parquet import may_write

        may_write(Path(output), overwrite=force)
        return
    from tracekit.output.runs import folder_of

    target = folder_of(output, as_run)
    if as_run != "auto" and target.exists() and not force:
        raise UsageError(f"{target}: there is such a run; give another name, or replace it with -f")


def _report(result: Any, form: str, ranks: bool, steps: bool, outcomes: list[dict[str, Any]]) -> None:
    if form == "json":
        from tracekit.output.document import dumps

        click.echo(dumps(result.document | ({"gates": outcomes} if outcomes else {})))
    elif form == "markdown":
        from tracekit.output.diff import gates
        from tracekit.output.markdown import render, table

        text = render(result.run, all_ranks=ranks, steps=steps)
        click.echo(text + ("\n" + "\n".join(table(gates(outcomes))) + "\n" if outcomes else ""), nl=False)
    else:
        _table(result, ranks, steps)
        for row in outcomes:
            click.echo(f"gate    {'passed' if row['passed'] else 'crossed'}: {row['reason']}")


def _table(result: Any, ranks: bool, steps: bool) -> None:
    from rich.console import Console

    from tracekit.output.terminal import report

    # Text for a pipe or a file must not be cut to a guessed terminal width.
    console = Console(width=None if sys.stdout.isatty() else 160, soft_wrap=False)
    report(result.run, console, all_ranks=ranks, steps=steps)

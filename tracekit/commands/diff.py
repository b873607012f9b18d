"""`tracekit diff`: what changed between two runs, and what brings it about."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from tracekit.commands import gate, options
from tracekit.commands.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@options.as_json
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "markdown"]), default="table", show_default=True,
    help="Form of the report; Markdown is GitHub's, for a comment on a change.",
)  # fmt: skip
@gate.option
@options.reading
@click.option("-q", "--quiet", is_flag=True, help="No report; only the exit code of --gate.")
def command(
    before: str, after: str, as_json: bool, form: str, gates: tuple[str, ...], quiet: bool,
    rule_files: tuple[str, ...], **how: Any,
) -> None:  # fmt: skip
    """What changed from run A to run B: by strategy, purpose, phase and call site, and its cause in one sentence.

    A and B are each a trace file, folder or pattern, a dataset (`analyze -o`), or a saved `analyze --json`.
    """
    from tracekit.analysis.diff.compare import compare
    from tracekit.analysis.diff.gates import check, parse
    from tracekit.output.diff import markdown, show
    from tracekit.output.saved import side_of

    wanted = [parse(text) for text in gates]
    with Progress(quiet) as progress:
        a, b = (
            side_of(path, _tables(path, f"ranks of {letter} read", progress, rule_files, how))
            for letter, path in (("A", before), ("B", after))
        )
    found = compare(a, b)
    if wanted:
        found["gates"] = check(wanted, b, a)
    if not quiet:
        if as_json or form == "json":
            click.echo(json.dumps(found, indent=1, allow_nan=False))
        elif form == "markdown":
            click.echo(markdown(found), nl=False)
        else:
            from rich.console import Console

            show(found, Console(width=None if sys.stdout.isatty() else 180, soft_wrap=False))
    gate.enforce(found.get("gates", []))


def _tables(
    path: str, title: str, progress: Progress, rule_files: tuple[str, ...], how: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Tables of traces or of a dataset; None for a saved JSON document."""
    from tracekit.commands.source import result_of
    from tracekit.output.document import document
    from tracekit.output.saved import is_saved

    if is_saved(path):
        return None
    result = result_of((path,), progress, detail=False, title=title, rules=rule_files, **how)
    return document(result.run)

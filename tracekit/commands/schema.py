"""`tracekit schema`: the published tables, column by column."""

from __future__ import annotations

import json

import click

from tracekit.errors import UsageError


@click.command("schema")
@click.argument("table", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "json"]),
    default="table",
    show_default=True,
    help="Form of the list.",
)
def command(table: str | None, form: str) -> None:
    """The published tables, column by column; one TABLE or all."""
    from tracekit.model import SCHEMA_VERSION, TABLES
    from tracekit.output import schema
    from tracekit.output.rows import column_rows

    if table is not None and table not in TABLES:
        raise UsageError(f"no table {table!r}; there are {', '.join(TABLES)}")
    names = [table] if table else list(TABLES)
    if form == "json":
        rows = [r for r in column_rows() if r["table"] in names]
        click.echo(json.dumps({"schema_version": SCHEMA_VERSION, "columns": rows}, indent=1))
    else:
        click.echo(schema.markdown(names) if form == "markdown" else schema.plain(names))

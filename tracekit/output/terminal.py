"""The report on a terminal (rich); plain text when the output is no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.output.summary import Summary, summarise
from tracekit.output.text import Grid, clean

if TYPE_CHECKING:
    from rich.console import Console

    from tracekit.ingest.run import RunTables

_STYLE = {"error": "bold red", "warning": "yellow", "info": "dim"}
MAX_FINDINGS = 12


def report(run: RunTables, console: Console, *, all_ranks: bool = False, steps: bool = False) -> None:
    """Print verdict, tables, findings and data quality."""
    summary = summarise(run, all_ranks=all_ranks, steps=steps)
    console.print(summary.header, markup=False, highlight=False)
    console.print()
    console.print(summary.verdict, style="bold", markup=False, highlight=False)
    for grid in summary.grids:
        console.print()
        show(grid, console)
    _findings(summary, console)
    console.print()
    for i, line in enumerate(summary.data):
        console.print(("data    " if i == 0 else "        ") + line, markup=False, highlight=False)
    for line in summary.definitions:
        console.print(line, style="dim", markup=False, highlight=False)


def show(grid: Grid, console: Console) -> None:
    """Print one table."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(grid.title, style="bold"), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    left = {
        "verdict", "rank", "evidence", "waits for", "differs in", "culprits", "strategy", "operation", "group", "where",
        "largest strategy", "complete", "purpose", "why", "part", "phase", "gate", "outcome", "change", "of",
        "ranks it is on",
    }  # fmt: skip
    for name in grid.columns:
        table.add_column(
            name, justify="left" if name in left else "right", overflow="fold" if name == "where" else "ellipsis"
        )
    for row in grid.rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    console.print(table)
    for note in grid.notes:
        console.print(note, style="dim", markup=False, highlight=False)


def _findings(summary: Summary, console: Console) -> None:
    if not summary.findings:
        return
    console.print()
    for severity, message in summary.findings[:MAX_FINDINGS]:
        console.print(f"{severity:8}{message}", style=_STYLE.get(severity, ""), markup=False, highlight=False)
    if len(summary.findings) > MAX_FINDINGS:
        console.print(
            f"        … and {len(summary.findings) - MAX_FINDINGS} more (--json lists all)",
            markup=False,
            highlight=False,
        )

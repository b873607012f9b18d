"""The report as Markdown, to paste into an issue."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.output.summary import summarise
from tracekit.output.text import Grid, clean

if TYPE_CHECKING:
    from tracekit.ingest.run import RunTables

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@])")
_LINKED = re.compile(r"(?<!\w)(?:www(?=\.)|#(?=\d)|gh(?=-\d))", re.IGNORECASE)
"""What GitHub makes a link of in plain text: addresses without a scheme, numbers of issues."""
_JOINER = "\u2060"  # invisible; a backslash does not keep GitHub from linking
_TEXT = frozenset({
    "verdict", "strategy", "operation", "group", "where", "largest strategy", "complete", "rank", "purpose", "why",
    "part", "phase", "gate", "outcome",
})  # fmt: skip


def escape(text: str) -> str:
    """Text from a trace as inert Markdown: no markup, no link, no mention of a user."""
    inert = clean(text).replace("@", f"@{_JOINER}").replace("://", f":{_JOINER}//")
    inert = _LINKED.sub(lambda m: m[0] + _JOINER, inert)
    return _SPECIAL.sub(r"\\\1", inert)


def render(run: RunTables, *, all_ranks: bool = False, steps: bool = False) -> str:
    """The whole report as one Markdown text."""
    summary = summarise(run, all_ranks=all_ranks, steps=steps)
    lines = [escape(summary.header), ""]
    for said in summary.verdict.split("\n"):  # a line of its own for each; `escape` takes one line
        lines += [f"**{escape(said)}**", ""]
    for grid in summary.grids:
        lines += [*table(grid), ""]
    if summary.findings:
        lines += ["Findings", "", *(f"- {severity}: {escape(message)}" for severity, message in summary.findings), ""]
    lines += ["Data", "", *(f"- {escape(line)}" for line in summary.data), ""]
    lines += [f"<sub>{escape(d)}</sub>" for d in summary.definitions]
    return "\n".join(lines) + "\n"


def table(grid: Grid) -> list[str]:
    """One table, every cell inert."""
    head = "| " + " | ".join(grid.columns) + " |"
    rule = "|" + "|".join(" --- " if c in _TEXT else " ---: " for c in grid.columns) + "|"
    rows = ["| " + " | ".join(escape(cell) for cell in row) + " |" for row in grid.rows]
    return [f"**{grid.title}**", "", head, rule, *rows, *(f"\n{note}" for note in grid.notes)]

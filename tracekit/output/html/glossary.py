"""The definition of every column that the page uses, as the data dictionary has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.model import TABLES
from tracekit.output.html import markup as m
from tracekit.output.html.section import Section

if TYPE_CHECKING:
    from tracekit.output.html.section import Context
    from tracekit.output.summary import Summary


def section(ctx: Context, summary: Summary) -> Section:
    """Sets and sums first, then the columns table by table."""
    ground = "".join(f"<li>{m.esc(d)}</li>" for d in summary.definitions)
    ground += (
        "<li>K = time with compute active on a device, C = time with communication active, C_s = of it that of "
        "strategy s; | | = length of a union of intervals</li>"
    )
    tables: dict[str, list[str]] = {}
    for table, name in sorted(ctx.terms.used):
        column = next((c for c in TABLES[table].columns if c.name == name), None) if table in TABLES else None
        if column is None:
            continue
        formula = f" <code>{m.esc(column.formula)}</code>" if column.formula else ""
        unit = f" [{m.esc(column.unit)}]" if column.unit else ""
        entry = f'<dt id="{m.anchor(table, name)}" tabindex="-1">{m.esc(name)}{unit}</dt>'
        entry += f"<dd>{m.esc(column.meaning)}{formula}</dd>"
        tables.setdefault(table, []).append(entry)
    parts = "".join(
        f"<h3>{m.esc(t)}</h3><p>{m.esc(TABLES[t].meaning)}</p><dl>{''.join(es)}</dl>" for t, es in tables.items()
    )
    return Section("glossary", "Definitions", f'<ul class="lines">{ground}</ul>{parts}')

"""Parts made of the terminal report's tables: a hang, what-ifs of operation tables, and all the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.output.html import markup as m
from tracekit.output.html.section import Section

if TYPE_CHECKING:
    from tracekit.output.html.section import Context
    from tracekit.output.summary import Summary


def hang(ctx: Context) -> list[Section]:
    """At which rank a hang began; nothing without flight recorder dumps, or when no call is pending in them."""
    from tracekit.output import hang as found

    run = ctx.source.run
    if run.hang is None or not (run.hang["hung"] or run.hang["divergences"]):
        return []
    body = f'<p class="verdict">{m.esc(run.hang["verdict"])}</p>'
    body += "".join(f"<h3>{m.esc(g.title)}</h3>{m.grid(g, titled=False)}" for g in found.grids(run.hang))
    return [Section("hang", "Hang", body + f'<p class="note">{m.esc(found.DEFINITION)}</p>')]


def stragglers(ctx: Context) -> list[Section]:
    """What-if by replay of operations, of tables or of traces; nothing without any."""
    rows = ctx.source.rows("stragglers")
    if not rows:
        return []
    from tracekit.output import stragglers as found

    body = f'<p class="verdict">{m.esc(found.verdict(rows))}</p>'
    body += "".join(
        f"<h3>{m.esc(g.title)}</h3>{m.grid(g, titled=False)}" for g in found.grids(rows, all_ranks=False, steps=False)
    )
    return [Section("stragglers", "Stragglers: what fixing them would recover", body)]


def section(summary: Summary) -> Section:
    """Every table of the terminal report, folded."""
    title = "Tables of the terminal report"
    if not summary.grids:
        return Section.empty("tables", title, "The terminal report has no tables.")
    return Section("tables", title, m.folds(summary.grids))

"""Pieces of HTML: escaped text, numbers that carry their exact value, tables, and links to definitions."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.output import colours
from tracekit.output.text import clean, ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.output.text import Grid


def esc(text: object) -> str:
    """Any text as HTML: control and direction characters replaced, markup and quotes escaped."""
    return html.escape(clean(text), quote=True)


@dataclass(slots=True)
class Terms:
    """The published columns that the page speaks of, so that its glossary has them all."""

    used: dict[tuple[str, str], None] = field(default_factory=dict)

    def link(self, table: str, column: str, text: str | None = None) -> str:
        """A link to the definition of a column, shown as `text`."""
        self.used[table, column] = None
        label = esc(column if text is None else text)
        return f'<a class="term" href="#{anchor(table, column)}">{label}</a>'


def anchor(table: str, column: str) -> str:
    """Id of a column's entry in the glossary."""
    return f"def-{table}-{column}"


def time(ns: float | None) -> str:
    """A time in ms that carries its ns."""
    return '<span class="none">–</span>' if ns is None else f'<data value="{exact(ns)}">{esc(ms(ns))}</data>'


def share(ratio: float | None) -> str:
    """A ratio in per cent that carries its value."""
    return '<span class="none">–</span>' if ratio is None else f'<data value="{ratio!r}">{100 * ratio:.1f} %</data>'


def number(value: float | None, digits: int = 1) -> str:
    """A plain number that carries its value."""
    if value is None:
        return '<span class="none">–</span>'
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"
    return f'<data value="{exact(value)}">{text}</data>'


def exact(value: float) -> str:
    """Digits that read back as the same number."""
    return str(int(value)) if value == int(value) else repr(float(value))


def clip(text: str, most: int = 90) -> str:
    """Text from a trace, cleaned and cut to a readable length; not yet escaped."""
    text = clean(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def swatch(colour: str, label: str, *, hatch: bool = False) -> str:
    """A coloured sign with its name."""
    kind = "swatch hatch" if hatch else "swatch"
    return f'<span class="key"><span class="{kind}" style="--c:{esc(colour)}"></span>{esc(label)}</span>'


def strategy(name: str) -> str:
    """Name of a strategy beside its colour."""
    return swatch(colours.strategy(name), clip(name, 60))


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """What the colours of a picture mean: (colour, name) each."""
    return f'<p class="legend">{" ".join(swatch(c, clip(n, 60)) for c, n in entries)}</p>'


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int | Sequence[bool] = 1,
    caption: str = "",
    id_: str = "",
    told: bool = True,
) -> str:
    """A table of ready HTML cells.

    left: how many of the first columns are text, or whether each is; the others are numbers.
    told: whether the caption is seen, or only heard.
    """
    if not rows:
        return ""
    texts = [i < left for i in range(len(heads))] if isinstance(left, int) else left
    kinds = ["" if text else ' class="n"' for text in texts]
    head = "".join(f'<th scope="col"{k}>{h}</th>' for k, h in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{k}>{c}</td>" for k, c in zip(kinds, row, strict=True)) + "</tr>\n" for row in rows
    )
    name = f' id="{esc(id_)}"' if id_ else ""
    below = f"<figcaption>{esc(caption)}</figcaption>" if caption and told else ""
    return (
        f'<figure><div class="wide" tabindex="0" role="region" aria-label="{esc(caption or "table")}"><table{name}>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{below}</figure>"
    )


def grid(found: Grid, *, titled: bool = True) -> str:
    """A table of the other reports; its cells are text. titled: with its title beneath."""
    figures = [all(x[:1].isdigit() or x[:1] in "–-" for x in c) for c in zip(*found.rows, strict=True)]
    rows = [[f'<span class="long">{esc(c)}</span>' if len(c) > LONG else esc(c) for c in row] for row in found.rows]
    notes = "".join(f'<p class="note">{esc(n)}</p>' for n in found.notes)
    heads = [esc(c) for c in found.columns]
    return table(heads, rows, left=[not f for f in figures], caption=found.title, told=titled) + notes


LONG = 48
"""Characters above which a cell breaks into lines."""


def folds(grids: Iterable[Grid], title: str = "") -> str:
    """Tables of the other reports whose title begins so, each folded."""
    return "".join(details(g.title, grid(g, titled=False)) for g in grids if g.title.startswith(title))


def details(summary: str, inside: str) -> str:
    """A fold; open in print."""
    return f"<details><summary>{esc(summary)}</summary>{inside}</details>" if inside else ""


def reason(text: str) -> str:
    """Why there is nothing to show."""
    return f'<p class="reason">{esc(text)}</p>'


def options(values: Iterable[tuple[Any, str]], chosen: Any = None) -> str:
    """Entries of a choice."""
    return "".join(
        f'<option value="{esc(v)}"{" selected" if v == chosen else ""}>{esc(label)}</option>' for v, label in values
    )


def tabs(name: str, panes: Sequence[tuple[str, str]]) -> str:
    """Panes of which one is seen at a time; arrow keys go from one tab to the next. Print shows all."""
    buttons = "".join(
        f'<button type="button" role="tab" id="tab-{name}-{i}" aria-controls="pane-{name}-{i}" '
        f'aria-selected="{"true" if i == 0 else "false"}" tabindex="{0 if i == 0 else -1}">{esc(label)}</button>'
        for i, (label, _) in enumerate(panes)
    )
    inside = "".join(
        f'<div role="tabpanel" id="pane-{name}-{i}" aria-labelledby="tab-{name}-{i}"{"" if i == 0 else " hidden"}>'
        f'<p class="pane-title">{esc(label)}</p>{body}</div>'
        for i, (label, body) in enumerate(panes)
    )
    return f'<div class="tabs"><div role="tablist" aria-label="{esc(name)}">{buttons}</div>{inside}</div>'

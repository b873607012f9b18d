"""Pictures of the dashboard, as Bokeh figures; colours of axes are set in the browser, which knows the theme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.output import colours
from tracekit.output.dashboard.panes import CLASS_NAMES
from tracekit.output.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.output.dashboard.store import Overview

Row = dict[str, Any]
HEIGHT = 240


def trend_step(names: Sequence[str], figures: Sequence[Overview]) -> Any:
    """Step time over runs, in ms."""
    values = [None if f.window_ns is None else f.window_ns / 1e6 for f in figures]
    return _line(names, values, "step, ms", "@value{0,0.000} ms", "#2f6fd6")


def trend_exposed(names: Sequence[str], figures: Sequence[Overview]) -> Any:
    """Exposed communication over the step, over runs, in per cent."""
    values = [None if f.exposed_ratio is None else 100 * f.exposed_ratio for f in figures]
    return _line(names, values, "exposed, % of a step", "@value{0.0} %", colours.CLASSES["exposed_comm_ns"])


def trend_strategies(names: Sequence[str], figures: Sequence[Overview]) -> Any:
    """Attributed exposed time of each strategy over runs, in ms a step, stacked; runs without a number have none."""
    found = sorted({s for f in figures for s, v in f.exposed.items() if v})
    series = {s: [(f.exposed.get(s) or 0.0) / 1e6 for f in figures] for s in found}
    return _stacked(names, series, {s: colours.strategy(s) for s in found}, "exposed, ms a step", "run")


def steps(rows: Mapping[int, Row]) -> Any:
    """Where the time of each step goes, in ms, mean over ranks."""
    series = {CLASS_NAMES[c]: [r[c] / 1e6 for r in rows.values()] for c in CLASS_NAMES}
    series = {name: values for name, values in series.items() if any(values)}
    colour = {CLASS_NAMES[c]: colours.CLASSES[c] for c in CLASS_NAMES}
    return _stacked([str(s) for s in rows], series, colour, "ms", "step")


def _figure(names: Sequence[str], label: str, words: str) -> tuple[Any, dict[str, Any]]:
    """A figure over a row of names, and the columns of their places and texts."""
    from bokeh import models, plotting

    bokeh: Any = models  # its types know no plain numbers for ranges

    texts = [clean(n)[:120] for n in names]
    at = list(range(len(texts)))
    fig: Any = plotting.figure(
        height=HEIGHT, sizing_mode="stretch_width", toolbar_location=None, tools="", y_axis_label=label, name=words,
        x_range=bokeh.Range1d(-0.6, len(at) - 0.4),
    )  # fmt: skip
    every = max(1, -(-len(at) // 6))
    shown = at[::-1][::every][::-1]
    fig.xaxis.ticker = bokeh.FixedTicker(ticks=shown)
    fig.xaxis.major_label_overrides = {i: texts[i] if len(texts[i]) <= 18 else f"{texts[i][:17]}…" for i in shown}
    fig.xgrid.grid_line_color = None
    fig.y_range.start = 0
    fig.min_border_right = 16
    return fig, {"at": at, "name": texts}


def _hover(fig: Any, tooltips: list[tuple[str, str]], renderers: list[Any]) -> None:
    from bokeh.models import HoverTool

    fig.add_tools(HoverTool(tooltips=tooltips, renderers=renderers))


def _line(names: Sequence[str], values: Sequence[float | None], label: str, tip: str, colour: str) -> Any:
    from bokeh.models import ColumnDataSource

    fig, columns = _figure(names, label, label)
    columns["value"] = [float("nan") if v is None else v for v in values]
    source = ColumnDataSource(columns)
    fig.line("at", "value", source=source, line_width=2, line_color=colour, line_alpha=0.6, tags=["series"])
    points = fig.scatter("at", "value", source=source, size=9, fill_color=colour, line_color=None)
    _hover(fig, [("run", "@name"), (label.partition(",")[0], tip)], [points])
    return fig


def _stacked(
    names: Sequence[str], series: Mapping[str, Sequence[float]], colour: Mapping[str, str], label: str, of: str
) -> Any:
    """One glyph draws all series: every model more is time until the page stands."""
    from bokeh.models import ColumnDataSource

    fig, columns = _figure(names, label, label)
    data: dict[str, Any] = {c: [] for c in (*columns, "bottom", "top", "value", "what", "colour")}
    below = [0.0] * len(names)
    for name, values in series.items():
        top = [b + v for b, v in zip(below, values, strict=True)]
        one = columns | {"bottom": below, "top": top, "value": values}
        one |= {"what": [clean(name)[:60]] * len(names), "colour": [colour[name]] * len(names)}
        for column, cells in one.items():
            data[column] += cells
        below = top
    drawn = fig.vbar(
        x="at", bottom="bottom", top="top", width=0.7, source=ColumnDataSource(data), line_color=None,
        fill_color="colour",
    )  # fmt: skip
    _hover(fig, [(of, "@name"), ("what", "@what"), ("time", "@value{0,0.000} ms")], [drawn])
    return fig

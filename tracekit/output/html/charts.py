"""Pictures: HoloViews elements rendered to Bokeh models, ready to be embedded.

Colours of axes and text are set in the browser, which knows whether the page is light or dark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tracekit.errors import UsageError
from tracekit.output.html.markup import esc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ZOOM = (
    ("in", "+", "zoom in"), ("out", "−", "zoom out"), ("left", "◂", "earlier"), ("right", "▸", "later"),
    ("all", "whole", "show all"),
)  # fmt: skip
BOKEH = "bokeh"
MISSING = "the HTML report needs HoloViews and Bokeh: pip install 'tracekit[plots]'"


@dataclass(frozen=True, slots=True)
class Axis:
    """Label, range and, for rows of a picture, the text at whole positions."""

    label: str
    start: float
    end: float
    ticks: Mapping[float, str] | None = None
    log: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture: its Bokeh item, height in pixels, and what it shows, in words."""

    name: str
    item: dict[str, Any]
    height: int
    words: str
    zoom: bool = False

    def html(self) -> str:
        """The place where the browser draws it, with buttons where it can be zoomed."""
        buttons = ""
        if self.zoom:
            of = f'type="button" data-of="{esc(self.name)}"'
            buttons = "".join(
                f'<button {of} data-zoom="{verb}" aria-label="{label}">{sign}</button>' for verb, sign, label in ZOOM
            )
            buttons = f'<div class="zoom" role="group" aria-label="zoom">{buttons}</div>'
        return (
            f'{buttons}<div class="chart" id="chart-{esc(self.name)}" data-chart="{esc(self.name)}" role="img" '
            f'aria-label="{esc(self.words)}" style="height:{self.height}px"></div>'
        )


@dataclass(frozen=True, slots=True)
class Layer:
    """Boxes (columns `left, right, bottom, top, colour`), points (`x, y, colour`) or a line (`x, y`).

    hover: (label, column) of the text that a pointer brings up.
    """

    columns: Mapping[str, Sequence[Any]]
    hover: Sequence[tuple[str, str]] = ()
    alpha: float = 1.0
    hatch: bool = False
    name: str = ""
    kind: Literal["boxes", "points", "line"] = "boxes"
    size: int = 9
    colour: str = "#8b929c"
    marker: str = "circle"


@dataclass(slots=True)
class Picture:
    """What a chart is made of."""

    name: str
    words: str
    x: Axis
    y: Axis
    height: int
    layers: list[Layer] = field(default_factory=list)
    zoom: bool = False


def require() -> None:
    """Raise UsageError with what to install where HoloViews or Bokeh is missing."""
    from importlib.util import find_spec

    if missing := [name for name in ("holoviews", "bokeh") if find_spec(name) is None]:
        raise UsageError(f"{MISSING} ({' and '.join(missing)} not found)")


def draw(picture: Picture) -> Chart:
    """Render boxes with HoloViews and make them embeddable."""
    import holoviews as hv
    import holoviews.plotting.bokeh  # registers the renderer; the caller's current backend stays as it is

    elements = [_element(layer) for layer in picture.layers]
    plot = hv.Overlay(elements) if len(elements) > 1 else elements[0]
    plot = plot.opts(responsive=True, height=picture.height, show_legend=False, backend=BOKEH, **_scales(picture))
    figure = hv.render(plot, backend=BOKEH)
    renderers = [r for r in figure.renderers if hasattr(r, "data_source")]
    for layer, renderer in zip(picture.layers, renderers, strict=True):
        renderer.data_source.data = dict(layer.columns)
        renderer.data_source.name = f"{picture.name}:{layer.name}"
        _plain(renderer, layer)
    return finish(figure, picture)


def _element(layer: Layer) -> Any:
    """The HoloViews element of a layer; it needs data to choose its glyph, also where the browser brings it later."""
    import holoviews as hv

    common: dict[str, Any] = {"tools": [], "default_tools": [], "toolbar": None, "backend": BOKEH}
    if layer.kind == "boxes":
        sides = ["left", "bottom", "right", "top"]
        data = {**{k: _floats(layer.columns[k]) for k in sides}, "colour": list(layer.columns["colour"]) or ["#000000"]}
        boxes = hv.Rectangles(data, kdims=sides, vdims=["colour"])
        return boxes.opts(color="colour", line_color=None, alpha=layer.alpha, **common)
    x, y = _floats(layer.columns["x"], 1.0), _floats(layer.columns["y"], 1.0)
    if layer.kind == "line":
        return hv.Curve((x, y), "x", "y").opts(color=layer.colour, line_width=2, line_dash="dashed", **common)
    data = {"x": x, "y": y, "colour": list(layer.columns["colour"]) or ["#000000"]}
    points = hv.Scatter(data, "x", ["y", "colour"])
    return points.opts(
        color="colour", size=layer.size, marker=layer.marker, alpha=layer.alpha, line_color=None, **common
    )


def _floats(values: Sequence[Any], instead: float = 0.0) -> list[float]:
    return [float(v) for v in values] or [instead]


def _plain(renderer: Any, layer: Layer) -> None:
    """Name the fields as the columns are, hatch what is to be hatched, and drop glyphs of selections."""
    glyph = renderer.glyph
    if layer.kind == "boxes":
        glyph.left, glyph.right, glyph.bottom, glyph.top = "left", "right", "bottom", "top"
    else:
        glyph.x, glyph.y = "x", "y"
    if layer.kind != "line":
        glyph.fill_color = glyph.hatch_color = "colour"
    if layer.hatch:
        glyph.hatch_pattern, glyph.hatch_color, glyph.hatch_scale = "right_diagonal_line", "colour", 7
        glyph.fill_alpha = 0.12
    renderer.selection_glyph = renderer.nonselection_glyph = renderer.hover_glyph = renderer.muted_glyph = None


def _scales(picture: Picture) -> dict[str, Any]:
    x, y = picture.x, picture.y
    return {"xlim": (x.start, x.end), "ylim": (y.start, y.end), "xlabel": x.label, "ylabel": y.label,
            "logx": x.log, "logy": y.log}  # fmt: skip


def finish(figure: Any, picture: Picture) -> Chart:
    """Fixed ranges, ticks with their text, hover text, and the item for the browser."""
    from bokeh.embed import json_item
    from bokeh.models import BoxZoomTool, FixedTicker, HoverTool, NoOverlap, Range1d

    figure.x_range = Range1d(start=picture.x.start, end=picture.x.end, name=f"{picture.name}:x")
    figure.y_range = Range1d(start=picture.y.start, end=picture.y.end, name=f"{picture.name}:y")
    figure.output_backend, figure.toolbar_location = "canvas", None
    figure.min_border_top = figure.min_border_right = 6
    figure.min_border_left = figure.min_border_bottom = 4
    figure.xaxis[0].major_label_policy = NoOverlap()
    for axis, said in ((figure.xaxis[0], picture.x), (figure.yaxis[0], picture.y)):
        axis.axis_label = said.label
        if said.ticks is not None:
            axis.ticker = FixedTicker(ticks=list(said.ticks), minor_ticks=[])
            axis.major_label_overrides = dict(said.ticks)
    tools: list[Any] = []
    for renderer, layer in zip(
        [r for r in figure.renderers if hasattr(r, "data_source")], picture.layers, strict=False
    ):
        if layer.hover:
            tools.append(HoverTool(renderers=[renderer], tooltips=[(n, f"@{{{c}}}") for n, c in layer.hover]))
    if picture.zoom:
        tools.append(BoxZoomTool(dimensions="width"))
        figure.x_range.bounds = (picture.x.start, picture.x.end)
    figure.tools = tools
    item: Any = json_item(figure)
    item["doc"]["defs"] = []  # models of other packages in the process, none of them used here
    return Chart(picture.name, item, picture.height, picture.words, picture.zoom)

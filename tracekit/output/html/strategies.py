"""Exposed time of each strategy and phase, and beside it what compute hid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.output import colours
from tracekit.output.html import markup as m
from tracekit.output.html.charts import Axis, Layer, Picture, draw
from tracekit.output.html.section import Section
from tracekit.output.text import ms

if TYPE_CHECKING:
    from tracekit.output.html.charts import Chart
    from tracekit.output.html.section import Context
    from tracekit.output.summary import Summary

Row = dict[str, Any]
TITLE = "Exposed time by strategy and phase"
SUMS = (
    "count", "total_ns", "hidden_ns", "attributed_ns", "attributed_wait_ns", "attributed_transfer_ns",
    "attributed_unsplit_ns", "avoidable_ns", "structural_ns", "unknown_ns",
)  # fmt: skip
MOST = 24


def by_phase(ctx: Context) -> list[tuple[tuple[str, str], Row]]:
    """((strategy, phase), means of a rank and complete step), most exposed first; null where no row knows."""
    rows = ctx.counted(ctx.source.rows("exposure"))
    sums: dict[tuple[str, str], Row] = {}
    for r in rows:
        into = sums.setdefault((r["strategy"], r["phase"] or "–"), dict.fromkeys(SUMS))
        for name in SUMS:
            if r[name] is not None:
                into[name] = (into[name] or 0) + r[name]
    places = len(ctx.places)
    means = {k: {n: None if v is None else v / places for n, v in r.items()} for k, r in sums.items()}
    return sorted(means.items(), key=lambda kv: (-(kv[1]["attributed_ns"] or 0), -(kv[1]["total_ns"] or 0), kv[0]))


def section(ctx: Context, summary: Summary) -> Section:
    """A picture with hidden time to the left and exposed time to the right, and the numbers."""
    found = by_phase(ctx)
    timed = [(k, r) for k, r in found if r["attributed_ns"] is not None]
    if not timed:
        why = "No communication with a time in a complete step." if not found else (
            "Compute is unknown in these files, so nothing can be called exposed or hidden.")  # fmt: skip
        return Section.empty("strategies", TITLE, why)
    chart = _chart(timed[:MOST])
    lead = (
        '<p class="lead">Mean of a rank and step. To the right what no compute hid, each instant divided equally among '
        "the strategies active in it, so the bars add up to the exposed time; hatched: of it waiting for other ranks. "
        "To the left what compute hid.</p>"
    )
    names = list(dict.fromkeys(s for (s, _), _ in timed))
    legend = m.legend((colours.strategy(n), n) for n in names)
    body = lead + legend + chart.html() + _table(ctx, found)
    body += m.folds(summary.grids, "call sites with most exposed")
    return Section("strategies", TITLE, body, [chart])


def _chart(rows: list[tuple[tuple[str, str], Row]]) -> Chart:
    keys = ("left", "right", "bottom", "top", "colour", "who", "part", "ms")
    solid: dict[str, list[Any]] = {k: [] for k in keys}
    waits: dict[str, list[Any]] = {k: [] for k in keys}
    hidden: dict[str, list[Any]] = {k: [] for k in keys}
    for i, ((strategy, phase), r) in enumerate(rows):
        low, colour, who = len(rows) - 1 - i, colours.strategy(strategy), f"{strategy} {phase}"
        wait = (r["attributed_wait_ns"] or 0) / 1e6
        whole = r["attributed_ns"] / 1e6
        spans: tuple[tuple[dict[str, list[Any]], float, float, str], ...] = (
            (waits, 0.0, wait, "exposed, waiting"),
            (solid, wait, whole, "exposed, transfer or not split"),
            (hidden, -(r["hidden_ns"] or 0) / 1e6, 0.0, "hidden under compute"),
        )
        for into, left, right, part in spans:
            if right > left:
                cells = (left, right, low + 0.14, low + 0.86, colour, who, part, ms((right - left) * 1e6))
                for key, value in zip(keys, cells, strict=True):
                    into[key].append(value)
    most = max([r["attributed_ns"] / 1e6 for _, r in rows] + [0.001])
    least = max([(r["hidden_ns"] or 0) / 1e6 for _, r in rows])
    ticks = {len(rows) - 0.5 - i: f"{s} {p}" if p != "–" else s for i, ((s, p), _) in enumerate(rows)}
    hover = (("", "who"), ("", "part"), ("ms", "ms"))
    layers = [Layer(hidden, hover, 0.45, name="hidden"), Layer(solid, hover, name="exposed"),
              Layer(waits, hover, hatch=True, name="waiting")]  # fmt: skip
    x = Axis("← hidden · exposed → (ms)", -least * 1.05, most * 1.05)
    words = "exposed time of each strategy and phase to the right, hidden time to the left; the table has the numbers"
    return draw(Picture("strategies", words, x, Axis("", 0, len(rows), ticks), 60 + 26 * len(rows), layers))


_HEADS = {
    "count": "calls", "total_ns": "total", "hidden_ns": "hidden", "attributed_ns": "exposed",
    "attributed_wait_ns": "waiting", "attributed_transfer_ns": "transfer", "attributed_unsplit_ns": "not split",
    "avoidable_ns": "avoidable", "structural_ns": "structural", "unknown_ns": "unknown",
}  # fmt: skip


def _table(ctx: Context, rows: list[tuple[tuple[str, str], Row]]) -> str:
    heads = [ctx.terms.link("exposure", "strategy"), ctx.terms.link("exposure", "phase")]
    heads += [ctx.terms.link("exposure", n, text) for n, text in _HEADS.items()]
    cells = [
        [m.strategy(s), m.esc(p), m.number(r["count"]), *(m.time(r[n]) for n in _HEADS if n != "count")]
        for (s, p), r in rows
    ]
    caption = "communication by strategy and phase, ms, mean of a rank and step"
    return m.table(heads, cells, left=2, caption=caption, id_="exposure-table")

"""Where the time of a step goes: classes of time by rank and by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.output import colours
from tracekit.output.html import markup as m
from tracekit.output.html.charts import Axis, Layer, Picture, draw
from tracekit.output.html.section import Section, mean, thinned
from tracekit.output.text import ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.output.html.charts import Chart
    from tracekit.output.html.section import Context

NAMES = {
    "compute_only_ns": "compute only",
    "overlapped_ns": "overlapped",
    "fused_ns": "fused",
    "exposed_comm_ns": "exposed communication",
    "exposed_copy_ns": "exposed copy",
    "idle_ns": "idle",
}
TITLE = "Where a step's time goes"
MOST_BARS = 2000

Bars = list[tuple[str, dict[str, float]]]


def section(ctx: Context) -> Section:
    """Stacked times of every rank and of every step, with their numbers."""
    rows = ctx.source.rows("breakdown")
    counted = ctx.counted(rows)
    if not counted:
        return Section.empty("breakdown", TITLE, "No accounting: these files show no device activity or no compute.")
    ranks: Bars = []
    for rank, device in ctx.lanes:
        own = [b for b in counted if (b["rank"], b["device"]) == (rank, device)]
        if own:
            ranks.append((ctx.lane_name(rank, device), {n: mean(b[n] for b in own) or 0.0 for n in NAMES}))
    steps: Bars = []
    for step in sorted({b["step"] for b in rows}):
        own = [b for b in rows if b["step"] == step]
        steps.append((str(step), {n: mean(b[n] for b in own) or 0.0 for n in NAMES}))
    of = "the recording" if ctx.whole_recording else "a complete step"
    by_rank = _chart("breakdown-rank", "rank", ranks, f"time of {of} of each rank, in ms, by class")
    by_step = _chart("breakdown-step", "step", steps, "mean time over ranks of each step, in ms, by class")
    used = [n for n in NAMES if any(b[n] for _, b in (*ranks, *steps))]
    body = m.legend((colours.CLASSES[n], NAMES[n]) for n in used)
    body += m.tabs("breakdown", (("by rank", by_rank.html() + _table(ctx, "rank", ranks)),
                                 ("by step", by_step.html() + _table(ctx, "step", steps))))  # fmt: skip
    over = "devices" if ctx.whole_recording else "complete steps"
    note = f"Every ns of {of} is in exactly one class; bars are means over {over}."
    return Section("breakdown", TITLE, f'<p class="lead">{m.esc(note)}</p>{body}', [by_rank, by_step])


def _chart(name: str, what: str, bars: Bars, words: str) -> Chart:
    columns: dict[str, list[object]] = {
        k: [] for k in ("left", "right", "bottom", "top", "colour", "who", "part", "ms")
    }
    highest = 0.0
    for i, (who, parts) in enumerate(bars[:MOST_BARS]):
        at = 0.0
        for part, ns in parts.items():
            if ns <= 0:
                continue
            cells = (i + 0.06, i + 0.94, at, at + ns / 1e6, colours.CLASSES[part], who, NAMES[part], ms(ns))
            for key, value in zip(columns, cells, strict=True):
                columns[key].append(value)
            at += ns / 1e6
        highest = max(highest, at)
    names = [who for who, _ in bars[:MOST_BARS]]
    x = Axis(what, 0, len(names), thinned(names, 16))
    hover = ((what, "who"), ("class", "part"), ("ms", "ms"))
    return draw(Picture(name, words, x, Axis("ms", 0, highest * 1.04 or 1), 300, [Layer(columns, hover, name="bars")]))


def _table(ctx: Context, what: str, bars: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    heads = [m.esc(what), *(ctx.terms.link("breakdown", n, NAMES[n]) for n in NAMES)]
    heads.append(ctx.terms.link("breakdown", "window_ns", "sum"))
    rows = [[m.esc(who), *(m.time(parts[n]) for n in NAMES), m.time(sum(parts.values()))] for who, parts in bars]
    return m.details("the numbers (ms)", m.table(heads, rows, caption=f"time by class and {what}, ms"))

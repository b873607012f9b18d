"""The critical path of a step: where it runs, what its length consists of, and the longest segments on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.output import colours
from tracekit.output.html import markup as m
from tracekit.output.html.charts import Axis, Layer, Picture, draw
from tracekit.output.html.section import Section, thinned
from tracekit.output.text import ms

if TYPE_CHECKING:
    from tracekit.output.html.charts import Chart
    from tracekit.output.html.section import Context

Row = dict[str, Any]
TITLE = "Critical path"
KINDS = {
    "compute": colours.COMPUTE, "comm": colours.TRANSFER, "unsplit": colours.UNSPLIT,
    "copy": colours.CLASSES["exposed_copy_ns"],
    "launch": "#7a6fc0", "host": "#94700f", "sync": "#3f9a8f", "wait": colours.WAITING,
}  # fmt: skip
MOST_SEGMENTS = 8000
LONGEST = 12


def section(ctx: Context) -> Section:
    """The path of the chosen step over ranks and time, and its sums."""
    steps = ctx.source.rows("critical_steps")
    if not steps:
        why = "No critical path: an older dataset, or nothing ties the device work of these files to a step."
        return Section.empty("critical", TITLE, why)
    known = sorted(s["step"] for s in steps)
    step = ctx.step if ctx.step in known else known[len(known) // 2]
    about = next(s for s in steps if s["step"] == step)
    segments = [s for s in ctx.source.rows("critical_path") if s["step"] == step]
    over = f"over {about['ranks_on_path']} of {about['ranks']} ranks"
    lead = (
        f'<p class="lead">Step {m.esc(step)}: {m.time(about["dur_ns"])} ms, {m.esc(over)}. Only what lies on this path '
        "makes the step longer.</p>"
    )
    if about["reason"]:
        lead += m.reason(f"limited: {about['reason']}")
    if not segments:
        return Section("critical", TITLE, lead + _sums(ctx, steps))
    joined = _joined(segments)
    chart = _chart(about, joined[:MOST_SEGMENTS])
    seen = {(s["kind"], s["strategy"]): _colour(s) for s in joined}
    names = {f"{k} {s}" if s else k: c for (k, s), c in seen.items()}
    legend = m.legend((c, n) for n, c in names.items())
    body = lead + legend + chart.html() + _sums(ctx, steps) + _longest(ctx, segments)
    return Section("critical", TITLE, body, [chart])


def _colour(s: Row) -> str:
    return colours.strategy(s["strategy"]) if s["strategy"] else KINDS.get(s["kind"], colours.UNSPLIT)


def _joined(segments: list[Row]) -> list[Row]:
    """Neighbours of one rank, kind and strategy put together; longest first where there are too many to draw."""
    out: list[Row] = []
    for s in sorted(segments, key=lambda s: s["segment"]):
        last = out[-1] if out else None
        if last and all(last[k] == s[k] for k in ("rank", "kind", "strategy")):
            last["dur_ns"] += s["dur_ns"]
            last["count"] += s["count"]
            last["parts"] += 1
        else:
            out.append(
                {k: s[k] for k in ("rank", "kind", "strategy", "name", "ts_ns", "dur_ns", "count")} | {"parts": 1}
            )
    return out if len(out) <= MOST_SEGMENTS else sorted(out, key=lambda s: -s["dur_ns"])


def _chart(about: Row, segments: list[Row]) -> Chart:
    ranks = sorted({s["rank"] for s in segments}, key=lambda r: (r is None, r or 0))
    row = {r: len(ranks) - 1 - i for i, r in enumerate(ranks)}
    columns: dict[str, list[Any]] = {k: [] for k in ("left", "right", "bottom", "top", "colour", "what", "name", "ms")}
    for s in segments:
        left = (s["ts_ns"] - about["ts_ns"]) / 1e6
        what = f"{s['kind']} {s['strategy'] or ''} on rank {'?' if s['rank'] is None else s['rank']}"
        low = row[s["rank"]]
        cells = (
            left,
            left + s["dur_ns"] / 1e6,
            low + 0.1,
            low + 0.9,
            _colour(s),
            what,
            m.clip(s["name"] or "–"),
            ms(s["dur_ns"]),
        )
        for key, value in zip(columns, cells, strict=True):
            columns[key].append(value)
    names = ["?" if r is None else f"rank {r}" for r in reversed(ranks)]
    layer = Layer(columns, (("", "what"), ("longest", "name"), ("ms", "ms")), name="path")
    x, y = Axis("ms", 0, about["dur_ns"] / 1e6), Axis("", 0, len(ranks), thinned(names, 20))
    words = "the critical path over ranks and time; the tables have its sums and longest segments"
    return draw(Picture("critical", words, x, y, max(150, min(480, 80 + 26 * len(ranks))), [layer], zoom=True))


def _sums(ctx: Context, steps: list[Row]) -> str:
    names = ("dur_ns", *(f"{k}_ns" for k in KINDS), "replay_error_ratio")
    heads = [
        ctx.terms.link("critical_steps", n, n.removesuffix("_ns").replace("_ratio", "").replace("_", " "))
        for n in ("step", *names)
    ]
    rows = [
        [m.esc(s["step"]), *(m.share(s[n]) if n.endswith("ratio") else m.time(s[n]) for n in names)]
        for s in sorted(steps, key=lambda s: s["step"])[:100]
    ]
    return m.table(
        heads,
        rows,
        caption="length of each step's critical path by kind, ms; the kinds add up to it",
        id_="critical-table",
    )


def _longest(ctx: Context, segments: list[Row]) -> str:
    names = ("rank", "kind", "strategy", "name", "dur_ns")
    heads = [ctx.terms.link("critical_path", n, n.removesuffix("_ns").replace("dur", "ms")) for n in names]
    rows = [
        [
            m.esc("?" if s["rank"] is None else s["rank"]), m.esc(s["kind"]),
            m.strategy(s["strategy"]) if s["strategy"] else "–", m.esc(m.clip(s["name"] or "–")), m.time(s["dur_ns"]),
        ]
        for s in sorted(segments, key=lambda s: (-s["dur_ns"], s["segment"]))[:LONGEST]
    ]  # fmt: skip
    return m.details("longest segments", m.table(heads, rows, left=4, caption="longest segments on the path, ms"))

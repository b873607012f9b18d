"""Measured against theory: bus bandwidth of each kind of call over message size, with limit and expected band."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.output import colours
from tracekit.output.html import markup as m
from tracekit.output.html.charts import Axis, Layer, Picture, draw
from tracekit.output.html.section import Section

if TYPE_CHECKING:
    from tracekit.output.html.charts import Chart
    from tracekit.output.html.section import Context

Row = dict[str, Any]
TITLE = "Measured against theory"
KINDS = 12
SIZES = 400


def section(ctx: Context) -> Section:
    """A picture for the chosen kind of call, and the table of all."""
    rows = [r for r in ctx.source.rows("theory") if r["calls_per_step"] is not None]
    if not rows:
        return Section.empty("theory", TITLE, "No call in a step, so nothing to hold against theory.")
    kinds = _kinds(ctx, rows)
    lead = (
        '<p class="lead">Bus bandwidth of calls over their message size: small points, matched calls (median of those '
        "of one size); diamonds, groups; bars, the expected band; dashed, the limit of the links.</p>"
    )
    missing = "".join(f"<li>{m.esc(x)}</li>" for x in ctx.source.run.theory_inputs.get("missing") or [])
    notes = m.details("what no expectation could be given for", f"<ul>{missing}</ul>" if missing else "")
    if not kinds:
        why = m.reason("No call of these files has both a size and a time, so no bandwidth is known.")
        return Section("theory", TITLE, why + notes + _table(ctx, rows))
    chart = _chart(kinds[0])
    choice = m.options((i, k["name"]) for i, k in enumerate(kinds))
    pick = f'<p class="pick"><label>calls <select data-pick="theory">{choice}</select></label></p>'
    text = '<p class="note" data-note="theory" aria-live="polite"></p>'
    body = lead + pick + chart.html() + text + notes + _table(ctx, rows)
    return Section("theory", TITLE, body, [chart], {"theory": kinds})


def _kinds(ctx: Context, rows: list[Row]) -> list[Row]:
    """What the picture of each strategy and operation shows; those with most measured time first."""
    sizes = _matched(ctx)
    grouped: dict[tuple[str, str], list[Row]] = {}
    for r in rows:
        grouped.setdefault((r["strategy"], r["op"]), []).append(r)
    out = []
    for (strategy, op), own in sorted(grouped.items(), key=lambda kv: _first(kv[1])):
        points = [r for r in own if r["payload_bytes"] and r["busbw_gbps"]]
        calls = sizes.get((strategy, "send_recv" if op in ("send", "recv") else op), [])
        if points or calls:
            out.append(_kind(strategy, op, points, calls))
    return out[:KINDS]


def _first(rows: list[Row]) -> tuple[bool, int]:
    """Order of kinds: those with an expectation first, then by measured time."""
    return all(r["expected_ns"] is None for r in rows), -max(r["measured_ns"] or 0 for r in rows)


def _kind(strategy: str, op: str, groups: list[Row], calls: list[tuple[int, float, int]]) -> Row:
    colour = colours.strategy(strategy)
    xs = [g["payload_bytes"] for g in groups] + [size for size, _, _ in calls]
    ys = [g["busbw_gbps"] for g in groups] + [bw for _, bw, _ in calls]
    bands = list(dict.fromkeys(b for g in groups if (b := _band(g))))
    ceilings = sorted({v for g in groups if (v := g["ceiling_gbps"] or g["limit_gbps"])})
    low, high = min(xs) / 8, max(xs) * 8
    tops = [*ys, *ceilings, *(b[1] for b in bands)]
    reasons = list(dict.fromkeys(g["reason"] for g in groups if g["reason"]))
    return {
        "name": f"{strategy} {op}", "note": "; ".join(map(str, reasons)),
        "x": [low, high], "y": [max(min([*ys, *(b[0] for b in bands)]) / 3, 1e-6), max(tops) * 3],
        "calls": {"x": [c[0] for c in calls], "y": [c[1] for c in calls], "colour": [colour] * len(calls),
                  "what": [f"{n:,} matched calls, median" for _, _, n in calls]},
        "groups": {"x": [g["payload_bytes"] for g in groups], "y": [g["busbw_gbps"] for g in groups],
                   "colour": [colour] * len(groups), "what": [_said(g) for g in groups]},
        "band": {"left": [b[2] / 1.25 for b in bands], "right": [b[2] * 1.25 for b in bands],
                 "bottom": [b[0] for b in bands], "top": [b[1] for b in bands], "colour": ["#8b929c"] * len(bands),
                 "what": [f"expected {b[0]:,.1f} – {b[1]:,.1f} GB/s" for b in bands]},
        "limit": {"x": [low, high] if ceilings else [], "y": [ceilings[-1]] * 2 if ceilings else []},
    }  # fmt: skip


def _band(g: Row) -> tuple[float, float, int] | None:
    """(least, largest, at bytes): bus bandwidths of the expected band; limit × least time / time."""
    if not (g["limit_gbps"] and g["least_ns"] and g["low_ns"] and g["high_ns"]):
        return None
    return (
        g["limit_gbps"] * g["least_ns"] / g["high_ns"],
        g["limit_gbps"] * g["least_ns"] / g["low_ns"],
        g["payload_bytes"],
    )


def _said(g: Row) -> str:
    least = ", at least (may contain waiting)" if g["basis"] == "duration" else ""
    return f"group {g['group_id'] or '?'}, {g['purpose'] or '–'} {g['phase'] or ''}: median{least}"


def _matched(ctx: Context) -> dict[tuple[str, str], list[tuple[int, float, int]]]:
    """(strategy, op) → (bytes, median bus bandwidth, calls) of matched calls, by size."""
    import pyarrow.compute as pc

    data = ctx.source.arrow("matches", ("strategy", "op", "payload_bytes", "busbw_gbps"))
    data = data.filter(pc.and_(pc.greater(data["busbw_gbps"], 0.0), pc.greater(data["payload_bytes"], 0)))
    if not data.num_rows:
        return {}
    found = data.group_by(["strategy", "op", "payload_bytes"]).aggregate(
        [("busbw_gbps", "approximate_median"), ("busbw_gbps", "count")]
    )
    out: dict[tuple[str, str], list[tuple[int, float, int]]] = {}
    for r in sorted(found.to_pylist(), key=lambda r: -r["busbw_gbps_count"]):
        sizes = out.setdefault((r["strategy"], r["op"]), [])
        if len(sizes) < SIZES:
            sizes.append((r["payload_bytes"], r["busbw_gbps_approximate_median"], r["busbw_gbps_count"]))
    return out


def _chart(kind: Row) -> Chart:
    hover = (("", "what"), ("bytes", "x"), ("GB/s", "y"))
    layers = [
        Layer(kind["band"], (("", "what"),), 0.35, name="band"),
        Layer(kind["limit"], kind="line", name="limit"),
        Layer(kind["calls"], hover, 0.6, name="calls", kind="points", size=6),
        Layer(kind["groups"], hover, name="groups", kind="points", size=12, marker="diamond"),
    ]
    x = Axis("message size", kind["x"][0], kind["x"][1], _sizes(), log=True)
    words = "bus bandwidth over message size, both logarithmic, with the limit of the links; the table has the numbers"
    return draw(Picture("theory", words, x, Axis("GB/s", kind["y"][0], kind["y"][1], log=True), 320, layers))


def _sizes() -> dict[float, str]:
    """Ticks for 1 B to 1 TiB, at every fourth power of two."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    return {float(1 << n): f"{1 << n % 10} {units[n // 10]}" for n in range(41) if n % 10 in (0, 3, 6)}


_HEADS = {
    "strategy": "strategy", "purpose": "purpose", "op": "operation", "group_id": "group", "calls_per_step": "calls",
    "payload_bytes": "bytes", "measured_ns": "measured", "expected_ns": "expected", "ratio": "ratio",
    "busbw_gbps": "busbw GB/s", "ceiling_gbps": "limit GB/s", "hide_gbps": "to hide GB/s", "verdict": "verdict",
}  # fmt: skip


def _table(ctx: Context, rows: list[Row]) -> str:
    heads = [ctx.terms.link("theory", n, text) for n, text in _HEADS.items()]
    cells = []
    for r in sorted(rows, key=lambda r: -(r["measured_ns"] or 0))[:60]:
        star = "*" if r["basis"] == "duration" else ""
        verdict = (r["verdict"] or "–") + (
            f": {r['reason']}" if r["reason"] and r["verdict"] in (None, "unknown") else ""
        )
        cells.append([
            m.strategy(r["strategy"]), m.esc(" ".join(x for x in (r["purpose"], r["phase"]) if x) or "–"),
            m.esc(r["op"]), m.esc(_short(r["group_id"])), m.number(r["calls_per_step"]), m.number(r["payload_bytes"]),
            m.time(r["measured_ns"]) + star, m.time(r["expected_ns"]), m.number(r["ratio"], 2),
            m.number(r["busbw_gbps"]), m.number(r["ceiling_gbps"] or r["limit_gbps"]), m.number(r["hide_gbps"]),
            m.esc(verdict),
        ])  # fmt: skip
    more = f"; {len(rows) - 60} more in the table `theory`" if len(rows) > 60 else ""
    caption = f"calls against theory, ms of a rank and step; * may contain waiting{more}"
    return m.details("the numbers", m.table(heads, cells, left=4, caption=caption))


def _short(group: str | None) -> str:
    if group is None:
        return "–"
    return group if len(group) <= 24 else f"{group[:20]}… ({group.count(',') + 1} ranks)"

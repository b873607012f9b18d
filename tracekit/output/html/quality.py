"""What the numbers rest on: recordings, labels, clocks, and everything dropped, repaired or guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.output.html import markup as m
from tracekit.output.html.section import Section

if TYPE_CHECKING:
    from tracekit.output.html.section import Context
    from tracekit.output.summary import Summary

Row = dict[str, Any]
TITLE = "Data quality"
MOST = 300
TIERS = {"A": "decisive", "B": "strong", "C": "fair", "D": "weak"}


def section(ctx: Context, summary: Summary) -> Section:
    """The lines of the other reports, and the tables behind them."""
    lines = "".join(f"<li>{m.esc(line)}</li>" for line in summary.data)
    inside = f'<ul class="lines">{lines}</ul>{_coverage(ctx)}{_health(ctx)}{_ranks(ctx)}{_clocks(ctx)}'
    inside += m.folds(summary.grids, "call sites without")
    return Section("quality", TITLE, inside)


def _coverage(ctx: Context) -> str:
    cover = ctx.source.run.coverage
    whole = cover.get("comm_ns")
    if not whole:
        return m.reason("No communication with a time, so no share of it has a label.")
    rows = [[m.esc(f"{t} {TIERS.get(t, '')}"), m.time(ns), m.share(ns / whole)] for t, ns in cover["tiers"].items()]
    rows.append([m.esc("no label"), m.time(whole - cover["labelled_ns"]), m.share(1 - cover["labelled_ns"] / whole)])
    heads = [ctx.terms.link("collectives", "tier"), "time (ms)", "share"]
    return m.table(heads, rows, caption="communication time by tier of the label's evidence, summed over ranks")


def _health(ctx: Context) -> str:
    rows = ctx.source.rows("health")
    order = {"lost": 0, "repaired": 1, "info": 2}
    rows = sorted(rows, key=lambda h: (order.get(h["severity"], 3), -h["count"]))
    heads = [ctx.terms.link("health", n) for n in ("severity", "reason", "source", "example", "count")]
    cells = [
        [
            m.esc(h["severity"]),
            m.esc(h["reason"]),
            m.esc(h["source"]),
            m.esc((h["example"] or "–")[:160]),
            m.number(h["count"]),
        ]
        for h in rows[:MOST]
    ]
    if not cells:
        return m.reason("Nothing was dropped, repaired or guessed.")
    more = f"; {len(rows) - MOST} more in the table `health`" if len(rows) > MOST else ""
    return m.details(
        f"dropped, repaired or guessed ({len(rows)})", m.table(heads, cells, left=4, caption=f"health{more}")
    )


def _ranks(ctx: Context) -> str:
    rows = ctx.source.rows("ranks")
    heads = [
        ctx.terms.link("ranks", n)
        for n in ("rank", "source", "identity", "host", "device_name", "reason", "window_ns", "events")
    ]
    cells = [
        [
            m.esc("?" if r["rank"] is None else r["rank"]), m.esc(r["source"]), m.esc(r["identity"]),
            m.esc(r["host"] or "–"), m.esc(r["device_name"] or "–"),
            m.esc(r["reason"] or ("" if r["used"] else "left out")), m.time(r["window_ns"]), m.number(r["events"]),
        ]
        for r in rows[:MOST]
    ]  # fmt: skip
    more = f"; {len(rows) - MOST} more in the table `ranks`" if len(rows) > MOST else ""
    return m.details(
        f"recordings ({len(rows)})", m.table(heads, cells, left=6, caption=f"recordings, window in ms{more}")
    )


def _clocks(ctx: Context) -> str:
    rows = ctx.source.rows("clocks")
    heads = [
        ctx.terms.link("clocks", n) for n in ("rank", "host", "method", "offset_ns", "error_ns", "drift_ppm", "calls")
    ]
    cells = [
        [m.esc(r["rank"]), m.esc(r["host"] or "–"), m.esc(r["method"]), m.time(r["offset_ns"]), m.time(r["error_ns"]),
         m.number(r["drift_ppm"], 3), m.number(r["calls"])]
        for r in rows[:MOST]
    ]  # fmt: skip
    return m.details(f"clocks ({len(rows)})", m.table(heads, cells, left=3, caption="clocks, offset and error in ms"))

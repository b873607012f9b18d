"""Who waits: heat maps of rank and step, and the matrix of who waited for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.output.html import markup as m
from tracekit.output.html.charts import Axis, Layer, Picture, draw
from tracekit.output.html.section import Section, thinned, total
from tracekit.output.text import ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.output.html.charts import Chart
    from tracekit.output.html.section import Context

Row = dict[str, Any]
TITLE = "Waiting and load by rank"
_LAST = (
    '<p class="lead">All waiting in calls, messages too, at the rank that came last to each, whatever had made it '
    "late: a rank that only passed lateness on is here as well.</p>"
)
_BEGAN = (
    "<h3>Where lateness began</h3>"
    '<p class="lead">Waiting in collectives, not at the rank that came last but followed back to where it became late: '
    "<em>direct</em> is what it brought about in calls where it came last itself, the rest was passed on by others. "
    "<em>not told</em> is what could not be followed to a rank; it is listed last.</p>"
)
MOST_CELLS = 20_000
MOST_RANKS = 64
MOST_ORIGINS = 12
RAMP = ("#233e6c", "#4b546c", "#6c6e72", "#8d8878", "#b0a473", "#d5c164", "#fee838")
"""Cividis (Nuñez et al. 2018), even in lightness for every kind of colour vision, without its darkest end, which a dark
ground would hide."""


def section(ctx: Context) -> Section:
    """Tabs: waiting, compute, blame; and the table of strategies."""
    panes: list[tuple[str, str]] = []
    charts: list[Chart] = []
    cells = {(r["rank"], r["device"], r["step"]): None for r in ctx.source.rows("breakdown")}
    waits = _sums(ctx.source.rows("exposure"), lambda r: r["attributed_wait_ns"])
    compute = {
        (r["rank"], r["device"], r["step"]): r["compute_only_ns"] + r["overlapped_ns"]
        for r in ctx.source.rows("breakdown")
    }
    alone = (
        "Waiting needs the recordings of several ranks, matched call by call; here there is none that could be matched."
    )
    for name, label, values, why in (
        ("waiting", "exposed waiting", waits, alone),
        ("compute", "compute", compute, "No device activity, so no compute."),
    ):
        if not any(v is not None for v in values.values()):
            panes.append((label, m.reason(why)))
            continue
        chart, scale = _heat(ctx, f"heat-{name}", label, {**cells, **values})
        charts.append(chart)
        panes.append((label, scale + chart.html()))
    blame = _blame(ctx)
    if blame is None:
        why = "No call's last rank is known: that needs several ranks on a common clock."
        panes.append(("who waits for whom", m.reason(why)))
    else:
        chart, scale, table = blame
        charts.append(chart)
        panes.append(("who waits for whom", _LAST + scale + chart.html() + table))
    return Section("waiting", TITLE, m.tabs("waiting", panes) + _table(ctx) + _origins(ctx), charts)


def _sums(rows: Sequence[Row], pick: Callable[[Row], int | None]) -> dict[tuple[Any, ...], int | None]:
    out: dict[tuple[Any, ...], list[int | None]] = {}
    for r in rows:
        out.setdefault((r["rank"], r["device"], r["step"]), []).append(pick(r))
    return {k: total(v) for k, v in out.items()}


def _heat(ctx: Context, name: str, label: str, values: dict[tuple[Any, ...], int | None]) -> tuple[Chart, str]:
    """Rank across, step upwards; many steps are put together in equal runs (mean)."""
    lanes = ctx.lanes
    steps = sorted({s for _, _, s in values if s is not None})
    run = max(1, -(-len(steps) * len(lanes) // MOST_CELLS))
    groups = [steps[i : i + run] for i in range(0, len(steps), run)]
    cells: list[tuple[int, int, str, str, float | None]] = []
    for x, (rank, device) in enumerate(lanes):
        for y, group in enumerate(groups):
            known = [v for s in group if (v := values.get((rank, device, s))) is not None]
            value = sum(known) / len(known) if known else None
            cells.append((x, y, f"rank {ctx.lane_name(rank, device)}", f"step {_run(group)}", value))
    names = [ctx.lane_name(*p) for p in lanes]
    ticks = thinned([_run(g) for g in groups], 10)
    words = f"heat map of {label} by rank and step, in ms"
    height = max(150, min(420, 70 + 26 * len(groups)))
    return _cells(
        name,
        words,
        cells,
        (Axis("rank", 0, len(names), thinned(names, 16)), Axis("step", 0, len(groups), ticks)),
        height,
    )


def _run(steps: Sequence[int]) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]}–{steps[-1]}"


def _cells(
    name: str,
    words: str,
    cells: Sequence[tuple[int, int, str, str, float | None]],
    axes: tuple[Axis, Axis],
    height: int,
) -> tuple[Chart, str]:
    known = [v for *_, v in cells if v is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    low = 0.0 if low < high / 2 else low
    drawn = [c for c in cells if c[4] is not None]
    gap = 0.03 if len(cells) < 4000 else 0.0
    columns: dict[str, list[Any]] = {
        "left": [x + gap for x, *_ in drawn], "right": [x + 1 - gap for x, *_ in drawn],
        "bottom": [c[1] + gap for c in drawn], "top": [c[1] + 1 - gap for c in drawn],
        "colour": [_ramp(c[4], low, high) for c in drawn], "a": [c[2] for c in drawn], "b": [c[3] for c in drawn],
        "ms": [ms(c[4]) for c in drawn],
    }  # fmt: skip
    picture = Picture(name, words, *axes, height, [Layer(columns, (("", "a"), ("", "b"), ("ms", "ms")), name="cells")])
    scale = (
        f'<p class="scale"><span>{ms(low)} ms</span><span class="ramp" style="--ramp:{",".join(RAMP)}"></span>'
        f"<span>{ms(high)} ms</span></p>"
    )
    return draw(picture), scale


def _ramp(value: float | None, low: float, high: float) -> str:
    at = 0.0 if high <= low or value is None else (value - low) / (high - low) * (len(RAMP) - 1)
    i = min(int(at), len(RAMP) - 2)
    pair = [[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in RAMP[i : i + 2]]
    return "#" + "".join(f"{round(a + (b - a) * (at - i)):02x}" for a, b in zip(*pair, strict=True))


def _blame(ctx: Context) -> tuple[Chart, str, str] | None:
    """Waiting of each rank in calls that another was last to join: rank that waits across, last rank upwards."""
    found = _pairs(ctx)
    if not found:
        return None
    blamed: dict[int, int] = {}
    for (last, _), ns in found.items():
        blamed[last] = blamed.get(last, 0) + ns
    lasts = sorted(sorted(blamed, key=lambda r: -blamed[r])[:MOST_RANKS])
    waiting = sorted({w for _, w in found})
    shown = (
        waiting
        if len(waiting) <= 256
        else sorted(sorted(waiting, key=lambda w: -sum(v for (_, b), v in found.items() if b == w))[:256])
    )
    cells = [
        (x, y, f"rank {w} waited", f"for rank {b}", float(found[b, w]) if (b, w) in found else None)
        for y, b in enumerate(lasts)
        for x, w in enumerate(shown)
    ]
    axes = (Axis("rank that waits", 0, len(shown), thinned([str(w) for w in shown], 16)),
            Axis("last to come", 0, len(lasts), thinned([str(b) for b in lasts], 16)))  # fmt: skip
    words = "matrix of waiting: which rank waited how long for which, in ms over the whole recording"
    chart, scale = _cells("blame", words, cells, axes, max(180, min(480, 70 + 14 * len(lasts))))
    top = sorted(blamed.items(), key=lambda kv: (-kv[1], kv[0]))[:10]
    heads = [
        ctx.terms.link("matches", "last_rank", "last to come"),
        ctx.terms.link("collectives", "wait_ns", "others waited (ms, summed)"),
    ]
    table = m.table(
        heads, [[str(r), m.time(ns)] for r, ns in top], caption="ranks that others waited for", id_="blame-table"
    )
    return chart, scale, table


def _pairs(ctx: Context) -> dict[tuple[int, int], int]:
    """(last rank, rank that waits) → ns, over all calls that tell both."""
    import numpy as np
    import pyarrow.compute as pc

    matches = ctx.source.arrow("matches", ("match_id", "last_rank"))
    matches = matches.filter(pc.is_valid(matches["last_rank"]))
    if not matches.num_rows or not ctx.source.has_detail:
        return {}
    ids = matches["match_id"].to_numpy()
    order = np.argsort(ids, kind="stable")
    ids, last = ids[order], matches["last_rank"].to_numpy()[order]
    out: dict[tuple[int, int], int] = {}
    for calls in ctx.source.each("collectives", ("rank", "match_id", "wait_ns")):
        calls = calls.filter(pc.and_(pc.greater(calls["wait_ns"], 0), pc.is_valid(calls["match_id"])))
        calls = calls.filter(pc.is_valid(calls["rank"]))
        if not calls.num_rows:
            continue
        wanted = calls["match_id"].to_numpy()
        at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        hit = ids[at] == wanted
        rank, wait = calls["rank"].to_numpy()[hit], calls["wait_ns"].to_numpy()[hit]
        for key, ns in zip(zip(last[at[hit]].tolist(), rank.tolist(), strict=True), wait.tolist(), strict=True):
            out[key] = out.get(key, 0) + ns
    return {k: v for k, v in out.items() if k[0] != k[1]}


def _origins(ctx: Context) -> str:
    """Where lateness began, followed back through ranks that were late only because others were; summed over steps."""
    sums: dict[tuple[int | None, str], dict[str, int]] = {}
    for r in ctx.source.rows("blame"):
        into = sums.setdefault((r["rank"], r["cause"]), {"wait_ns": 0, "direct_ns": 0, "calls": 0})
        for name in into:
            into[name] += r[name]
    if not sums:
        return ""
    said = {"rank": "began on rank", "cause": "cause", "wait_ns": "waiting (ms)", "direct_ns": "of it direct",
            "calls": "collectives"}  # fmt: skip
    heads = [ctx.terms.link("blame", n, text) for n, text in said.items()]
    order = sorted(sums.items(), key=lambda kv: (kv[0][0] is None, -kv[1]["wait_ns"]))
    known = [kv for kv in order if kv[0][0] is not None]
    less = known[MOST_ORIGINS:]
    cells = [
        [m.esc("not told" if rank is None else rank), m.esc(cause), m.time(s["wait_ns"]), m.time(s["direct_ns"]),
         m.number(s["calls"])]
        for (rank, cause), s in known[:MOST_ORIGINS] + order[len(known) :]
    ]  # fmt: skip
    caption = "where lateness in collectives began, and why; waiting summed over ranks and steps"
    if less:
        left = sum(s["wait_ns"] for _, s in less)
        caption += f"; {len(less)} smaller rows, together {ms(left)} ms, are in the table `blame`"
    return _BEGAN + m.table(heads, cells, left=2, caption=caption, id_="origins-table")


def _table(ctx: Context) -> str:
    rows = [r for r in ctx.source.rows("waiting") if r["op"] is None]
    said = {
        "strategy": "strategy", "verdict": "verdict", "calls": "calls", "matched": "matched", "dur_ns": "duration",
        "wait_ns": "waiting", "wait_ratio": "of split", "skew_ns": "skew", "late_rank": "late rank",
        "late_ratio": "last in",
    }  # fmt: skip
    heads = [ctx.terms.link("waiting", n, text) for n, text in said.items()]
    cells = []
    for r in rows:
        verdict = r["verdict"] + (f": {r['reason']}" if r["reason"] else "")
        cells.append([
            m.strategy(r["strategy"]), m.esc(verdict), m.number(r["calls"]), m.number(r["matched"]),
            m.time(r["dur_ns"] or None), m.time(r["wait_ns"]), m.share(r["wait_ratio"]), m.time(r["skew_ns"]),
            m.number(r["late_rank"]), m.share(r["late_ratio"]),
        ])  # fmt: skip
    return m.table(heads, cells, left=2, caption="waiting of each strategy, ms, summed over ranks and calls")

"""The pipeline of a step: what ran on each stage, its bubbles, and beneath it the same schedule as theory has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.output import colours
from tracekit.output.html import markup as m
from tracekit.output.html.charts import Axis, Layer, Picture, draw
from tracekit.output.html.section import Section, mean
from tracekit.output.text import ms

if TYPE_CHECKING:
    from tracekit.output.html.charts import Chart
    from tracekit.output.html.section import Context
    from tracekit.theory.schedules import Timeline

Row = dict[str, Any]
Boxes = dict[str, list[Any]]
TITLE = "Pipeline"
ACTIONS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
BUBBLE = "#d1492e"
CAUSES = ("schedule", "order", "imbalance", "straggler", "p2p", "comm", "launch", "unexplained")
KEYS = ("left", "right", "bottom", "top", "colour", "what", "ms")
MOST_ACTIONS = 60_000


def section(ctx: Context) -> Section:
    """The Gantt picture of the chosen pipeline, and what every rank's bubble consists of."""
    bubbles = ctx.source.rows("bubble")
    actions = [
        r
        for r in ctx.source.rows("pipeline")
        if r["op"] in ACTIONS and _start(r) is not None and r["dur_ns"] is not None
    ]
    if not bubbles:
        return Section.empty("pipeline", TITLE, "No pipeline parallelism was found.")
    steps = sorted({b["step"] for b in bubbles})
    step: int = ctx.step if ctx.step is not None and ctx.step in steps else steps[len(steps) // 2]
    views = _views(actions, bubbles, step)
    if not views:
        reasons = sorted({str(b["reason"]) for b in bubbles if b["reason"]})
        why = "The work of the stages could not be told apart" + (f" ({', '.join(reasons)})." if reasons else ".")
        return Section("pipeline", TITLE, m.reason(why) + _table(ctx, bubbles))
    chart = _chart(views[0])
    choice = m.options((i, v["name"]) for i, v in enumerate(views))
    pick = f'<p class="pick"><label>pipeline <select data-pick="pipeline">{choice}</select></label></p>'
    text = f'<p class="note" data-note="pipeline" aria-live="polite">{m.esc(views[0]["note"])}</p>'
    used = [k for k in ACTIONS if any(r["op"] == k for r in actions)]
    legend = m.legend([(colours.ACTIONS[k], ACTIONS[k]) for k in used])
    legend = legend.replace("</p>", f" {m.swatch(BUBBLE, 'bubble', hatch=True)}</p>")
    said = f"Step {step}: measured above, the same schedule with equal stages and no delays beneath."
    lead = f'<p class="lead">{m.esc(said)}</p>'
    body = lead + pick + legend + chart.html() + text + _table(ctx, bubbles)
    return Section("pipeline", TITLE, body, [chart], {"pipeline": views})


def _start(r: Row) -> int | None:
    at: int | None = r["ts_ns"] if r["aligned_ns"] is None else r["aligned_ns"]
    return at


def _views(actions: list[Row], bubbles: list[Row], step: int) -> list[Row]:
    """One view a pipeline: boxes of the measured step and of the ideal one."""
    out: list[Row] = []
    budget = MOST_ACTIONS
    by_pipeline: dict[str, list[Row]] = {}
    for r in actions:
        if r["step"] == step:
            by_pipeline.setdefault(r["pipeline"], []).append(r)
    for name, own in by_pipeline.items():
        budget -= len(own)
        if budget < 0:
            break
        about = sorted((b for b in bubbles if b["pipeline"] == name and b["step"] == step), key=lambda b: b["position"])
        if about:
            out.append(_view(name, own, about))
    return out


def _view(name: str, actions: list[Row], about: list[Row]) -> Row:
    begin = min(_start(r) or 0 for r in actions)
    end = max((_start(r) or 0) + r["dur_ns"] for r in actions)
    position = {b["rank"]: i for i, b in enumerate(about)}
    ideal = _ideal(actions, about)
    ranks = len(about)
    rows = ranks * 2 + 1 if ideal else ranks
    work: Boxes = {k: [] for k in KEYS}
    idle: Boxes = {k: [] for k in KEYS}
    for b in about:
        low = rows - 1 - position[b["rank"]]
        own = sorted((r for r in actions if r["rank"] == b["rank"]), key=lambda r: (_start(r), r["op"]))
        for r in own:
            _add(work, _start(r) or 0, r["dur_ns"], begin, low, r["op"], _said(r), bool(r["paired"]))
        for a, z in _gaps([((_start(r) or 0), (_start(r) or 0) + r["dur_ns"]) for r in own], begin, end):
            _add(idle, a, z - a, begin, low, "bubble", f"bubble on rank {b['rank']}", False)
    if ideal:
        _draw_ideal(ideal, work, idle, ranks)
        end = max(end, begin + ideal.makespan_ns)
    ticks = {rows - 0.5 - i: f"rank {b['rank']}" for i, b in enumerate(about)}
    ticks |= {ranks - 0.5 - i: f"ideal {i}" for i in range(ranks)} if ideal else {}
    return {"name": f"ranks {name}", "note": _note(about, ideal), "x": [0, (end - begin) / 1e6], "y": [0, rows],
            "ticks": [[k, v] for k, v in ticks.items()], "work": work, "idle": idle}  # fmt: skip


def _said(r: Row) -> str:
    what = ACTIONS[r["op"]]
    where = "" if r["stage"] is None else f" of stage {r['stage']}"
    return f"{what}{where}" + ("" if r["micro_batch"] is None else f", micro-batch {r['micro_batch']}")


def _add(into: Boxes, ts: int, dur: int, begin: int, low: float, op: str, what: str, paired: bool) -> None:
    left = (ts - begin) / 1e6
    bottom, top = low + 0.12, low + 0.88
    if paired:  # a forward and a backward that ran as one share the height
        bottom, top = (low + 0.5, top) if op == "F" else (bottom, low + 0.5)
    cells = (left, left + dur / 1e6, bottom, top, colours.ACTIONS.get(op, BUBBLE), what, ms(dur))
    for key, value in zip(KEYS, cells, strict=True):
        into[key].append(value)


def _gaps(spans: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """Stretches of [begin, end) that no span covers."""
    out, at = [], begin
    for a, b in sorted(spans):
        if a > at:
            out.append((at, a))
        at = max(at, b)
    return [*out, (at, end)] if at < end else out


def _ideal(actions: list[Row], about: list[Row]) -> Timeline | None:
    """The recognised schedule with the mean time of each kind of action; None where there is none."""
    from tracekit.theory.schedules import ScheduleError, Times, build, simulate

    first = about[0]
    if not (first["schedule"] and first["stages"] and first["micro_batches"]):
        return None
    times = {k: round(mean(r["dur_ns"] for r in actions if r["op"] == k and not r["paired"]) or 0) for k in ACTIONS}
    if not times["F"] or (times["B"] and times["I"]):
        return None
    inputs, weights = (times["I"], times["W"]) if times["I"] else (times["B"], 0)
    try:
        order = build(
            first["schedule"].split("|")[0], len(about), first["micro_batches"], first["stages"] // len(about) or 1
        )
        return simulate(order, Times(times["F"], inputs, weights))
    except ScheduleError:
        return None


def _draw_ideal(ideal: Timeline, work: Boxes, idle: Boxes, ranks: int) -> None:
    from tracekit.theory.schedules import parts

    begin = ideal.window[0]
    for place, order in enumerate(ideal.schedule.orders):
        low = ranks - 1 - place
        for entry, a, z in zip(order, ideal.start_ns[place], ideal.end_ns[place], strict=True):
            pair = parts(entry)
            for action in pair:
                kind = action.kind.value
                what = f"ideal {ACTIONS[kind]} of stage {action.stage}, micro-batch {action.micro_batch}"
                _add(work, a, z - a, begin, low, kind, what, len(pair) > 1)
        for a, z in ideal.gaps(place):
            _add(idle, a, z - a, begin, low, "bubble", f"bubble of the ideal schedule, place {place}", False)


def _note(about: list[Row], ideal: Timeline | None) -> str:
    first = about[0]
    parts = [first["schedule"] or "no schedule recognised"]
    parts += [f"{first['stages']} stages"] if first["stages"] else []
    parts += [f"{first['micro_batches']} micro-batches"] if first["micro_batches"] else []
    known = [b["bubble_over_step_ratio"] for b in about if b["bubble_over_step_ratio"] is not None]
    if known:
        parts.append(f"bubble {100 * sum(known) / len(known):.1f} % of the window")
    off = sum(b["deviations"] or 0 for b in about)
    parts += [f"{off} actions out of its order"] if off else []
    if ideal is None:
        parts.append("no ideal beneath: schedule or times are not known well enough")
    return ", ".join(parts)


def _chart(view: Row) -> Chart:
    hover = (("", "what"), ("ms", "ms"))
    layers = [Layer(view["idle"], hover, hatch=True, name="idle"), Layer(view["work"], hover, name="work")]
    x = Axis("ms", *view["x"])
    y = Axis("", 0, view["y"][1], dict(view["ticks"]))
    words = "Gantt picture of a pipeline step: work of each stage and bubbles, measured above, ideal beneath"
    return draw(Picture("pipeline", words, x, y, max(180, min(640, 60 + 24 * int(view["y"][1]))), layers, zoom=True))


def _table(ctx: Context, bubbles: list[Row]) -> str:
    """Bubble and its causes, mean over steps and replicas of each place in the pipeline."""
    places = sorted({b["position"] for b in bubbles})
    names = ("window_ns", "busy_ns", "bubble_ns", "bubble_over_step_ratio", *(f"{c}_ns" for c in CAUSES))
    said = {"bubble_over_step_ratio": "of window"} | {n: n.removesuffix("_ns") for n in names if n.endswith("_ns")}
    heads = [ctx.terms.link("bubble", "position", "place"), *(ctx.terms.link("bubble", n, said[n]) for n in names)]
    rows = []
    for p in places[:64]:
        own = [b for b in bubbles if b["position"] == p]
        means = {n: mean(b[n] for b in own) for n in names}
        rows.append([str(p), *(m.share(v) if n.endswith("ratio") else m.time(v) for n, v in means.items())])
    return m.table(heads, rows, caption="bubble and its causes, ms, mean of a step, by place in the pipeline")

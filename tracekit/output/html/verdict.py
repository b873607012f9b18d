"""The top of the page: verdict, key figures, and the three largest avoidable costs."""

from __future__ import annotations

import statistics
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from tracekit.output import colours, expected
from tracekit.output.html import markup as m
from tracekit.output.html.findings import what_ifs
from tracekit.output.html.section import Section, mean
from tracekit.output.text import ms

if TYPE_CHECKING:
    from tracekit.output.html.section import Context
    from tracekit.output.summary import Summary

Row = dict[str, Any]
COSTS = 3
WORTH = 0.005
"""Share of a step below which a replay's saving is not worth a card."""


def section(ctx: Context, summary: Summary) -> Section:
    """What the job is, what it loses, and what of that could be saved."""
    tiles = [t for t in (*_times(ctx), _overlap(ctx), _bubble(ctx), _utilisation(ctx), _late(ctx)) if t]
    said = "\n".join(map(m.esc, summary.verdict.split("\n")))
    body = f'<p class="job">{m.esc(summary.header)}</p><p class="verdict">{said}</p>'
    body += f'<dl class="tiles">{"".join(tiles)}</dl>'
    body += f"<h3>Largest avoidable costs</h3>{_costs(ctx)}"
    return Section("verdict", "Verdict", body)


def _tile(label: str, value: str, note: str = "") -> str:
    said = f'<dd class="note">{note}</dd>' if note else ""
    return f"<div><dt>{label}</dt><dd>{value}</dd>{said}</div>"


def _times(ctx: Context) -> list[str]:
    """Step and its exposed part: means over ranks and complete steps, as in the verdict."""
    rows = ctx.counted(ctx.source.rows("breakdown"))
    window, exposed = mean(b["window_ns"] for b in rows), mean(b["exposed_comm_ns"] for b in rows)
    if not window:
        return []
    what = "recording" if ctx.whole_recording else "step"
    spread = f"{m.esc(ms(min(b['window_ns'] for b in rows)))} – {m.esc(ms(max(b['window_ns'] for b in rows)))} ms"
    out = [_tile(ctx.terms.link("breakdown", "window_ns", what), f"{m.time(window)} ms", spread)]
    if any(t["comm_ns"] for t in ctx.source.rows("totals")) and exposed is not None:
        link = ctx.terms.link("breakdown", "exposed_comm_ns", "exposed communication")
        out.append(_tile(link, f"{m.time(exposed)} ms", f"{100 * exposed / window:.1f} % of a {what}"))
    return out


def _overlap(ctx: Context) -> str:
    known = [t["overlap_ratio"] for t in ctx.source.rows("totals") if t["overlap_ratio"] is not None]
    if not known:
        return ""
    link = ctx.terms.link("totals", "overlap_ratio", "communication hidden")
    return _tile(link, m.share(statistics.median(known)), "median of ranks" if len(known) > 1 else "of the recording")


def _bubble(ctx: Context) -> str:
    known = [b["bubble_over_step_ratio"] for b in ctx.source.rows("bubble") if b["bubble_over_step_ratio"] is not None]
    if not known:
        return ""
    link = ctx.terms.link("bubble", "bubble_over_step_ratio", "pipeline bubble")
    return _tile(link, m.share(statistics.fmean(known)), "of the pipeline's window, mean")


def _utilisation(ctx: Context) -> str:
    u = ctx.source.run.theory_inputs.get("utilisation") or {}
    return (
        "" if u.get("mfu_ratio") is None else _tile("MFU", m.share(u["mfu_ratio"]), f"dense {m.esc(u['dtype'])} peak")
    )


def _late(ctx: Context) -> str:
    """The rank that came last most often, where one strategy has such a rank."""
    late = [w for w in ctx.source.rows("waiting") if w["op"] is None and w["late_rank"] is not None]
    if not late:
        return ""
    worst = max(late, key=lambda w: w["wait_ns"] or 0)
    link = ctx.terms.link("waiting", "late_rank", "late rank")
    note = f"last in {100 * worst['late_ratio']:.0f} % of decided {m.esc(worst['strategy'])} calls"
    return _tile(link, m.number(worst["late_rank"]), note)


def _costs(ctx: Context) -> str:
    """The largest of: what findings could save, and what replays without stragglers or with balanced stages save.

    Without any of them, what of the exposed time theory calls avoidable.
    """
    saving = _saving(ctx)
    named = {"no-stragglers"} if any(f["code"] == "straggler-on-path" for f in saving) else set()
    found = [(f["avoidable_ns"], _finding(f)) for f in saving] + _replays(ctx, named)
    found = found or _stragglers(ctx)
    if not found:
        parts = [(p["avoidable_ns"], _part(ctx, k, p)) for k, p in expected.parts(ctx.source.run) if p["avoidable_ns"]]
        found = [*parts]
    if not found:
        why = (
            "No exposed time that the compute of a step could hide was found; see findings and missing inputs below."
            if ctx.source.rows("breakdown")
            else "These files show no compute, so nothing tells what a step could do without."
        )
        return m.reason(why)
    found.sort(key=lambda pair: -pair[0])
    return f'<ol class="costs">{"".join(card for _, card in found[:COSTS])}</ol>'


_REPLAYS = {
    "no-stragglers": "Every rank as fast as is typical of its place",
    "balanced-stages": "Pipeline stages of equal length",
}
_BASES = {"critical-path": "the step", "pipeline": "the pipeline's window"}


def _replays(ctx: Context, named: set[str]) -> list[tuple[float, str]]:
    """Cards of changes whose saving a replay measured: of the whole step, else of the pipeline's window.

    named: changes whose cost a finding has named already; twice on the page, one cost would look like two.
    """
    out: list[tuple[float, str]] = []
    for what, said in _REPLAYS.items():
        if what in named:
            continue
        known = [w for w in what_ifs(ctx) if w["what"] == what and not w["subject"] and w["saved_ns"] is not None]
        if not known:
            continue
        w = min(known, key=lambda w: w["basis"] != "critical-path")
        if (w["saved_ratio"] or 0) < WORTH:
            continue
        link = ctx.terms.link("what_if", "saved_ns", "saved in a replay")
        share = f"{100 * w['saved_ratio']:.1f} % of {_BASES.get(w['basis'], w['basis'])}"
        error = f"error of the replay {100 * (w['error'] or 0):.1f} %"
        card = (
            f'<li style="--c:{colours.WAITING}"><p class="amount">{m.time(w["saved_ns"])} ms '
            f"<span>of a step, {link}</span></p><p>{m.esc(f'{said} ({what}): {share}; {error}')}</p></li>"
        )
        out.append((w["saved_ns"], card))
    return out


def _stragglers(ctx: Context) -> list[tuple[float, str]]:
    """Cards of jobs that only operation tables show: what a step loses to stragglers."""
    out: list[tuple[float, str]] = []
    for job in ctx.source.rows("stragglers"):
        if job["scope"] != "job" or job["slowdown"] is None or job["slowdown"] < 1 + WORTH:
            continue
        link = ctx.terms.link("stragglers", "waste_ratio", "lost to stragglers")
        lost = job["replayed_ns"] - job["ideal_ns"]
        said = (
            f"{PurePath(job['source']).name}: every operation as long as its kind is typically; "
            f"{100 * job['waste_ratio']:.1f} % of the step; error of the replay {100 * job['replay_error_ratio']:.1f} %"
        )
        card = (
            f'<li style="--c:{colours.WAITING}"><p class="amount">{m.time(lost)} ms '
            f"<span>of a step, {link}</span></p><p>{m.esc(said)}</p></li>"
        )
        out.append((lost, card))
    return out


def _saving(ctx: Context) -> list[Row]:
    found = [f for f in ctx.source.rows("findings") if f.get("avoidable_ns")]
    return sorted(found, key=lambda f: -f["avoidable_ns"])


def _finding(f: Row) -> str:
    what = f["message"].partition(":")[0]
    colour = (
        colours.strategy(what.split(" ")[0])
        if what.split(" ")[0].partition("|")[0] in colours.STRATEGIES
        else colours.WAITING
    )
    advice = f'<p class="advice">{m.esc(f["advice"])}</p>' if f.get("advice") else ""
    where = f' <span class="where">{m.esc(f["where"])}</span>' if f.get("where") else ""
    return (
        f'<li style="--c:{colour}"><p class="amount">{m.time(f["avoidable_ns"])} ms <span>of a step, at most</span></p>'
        f"<p>{m.esc(f['message'])}{where}</p>{advice}</li>"
    )


def _part(ctx: Context, key: tuple[Any, ...], part: Row) -> str:
    strategy, purpose, phase, why = key
    said = " ".join(x for x in (strategy, purpose, phase) if x)
    link = ctx.terms.link("exposure", "avoidable_ns", "avoidable at most")
    return (
        f'<li style="--c:{colours.strategy(strategy)}"><p class="amount">{m.time(part["avoidable_ns"])} ms '
        f"<span>of a step, {link}</span></p><p>{m.esc(said)}: could run under {m.esc(why or 'other work')}</p></li>"
    )

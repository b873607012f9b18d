"""Findings with what they rest on, and what-ifs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.output.html import markup as m
from tracekit.output.html.section import Section, mean

if TYPE_CHECKING:
    from tracekit.output.html.section import Context

Row = dict[str, Any]
TITLE = "Findings"
MOST = 300
SEVERITIES = ("error", "warning", "info")
_BASES = {"critical-path": "whole step", "pipeline": "pipeline's window"}


def section(ctx: Context) -> Section:
    """One card a finding; the same message of several ranks is one."""
    merged: dict[tuple[str, str], list[Row]] = {}
    for f in ctx.source.rows("findings"):
        merged.setdefault((f["severity"], f["message"]), []).append(f)
    if not merged:
        return Section(
            "findings", TITLE, m.reason("No finding: nothing stands out in these recordings.") + _what_if(ctx)
        )
    seen = [s for s in SEVERITIES if any(k[0] == s for k in merged)]
    boxes = "".join(
        f'<label><input type="checkbox" data-severity="{s}" checked> {s} ({sum(k[0] == s for k in merged)})</label> '
        for s in seen
    )
    search = '<label>find <input type="search" data-find="findings" autocomplete="off"></label>'
    cards = "".join(_card(ctx, fs) for fs in list(merged.values())[:MOST])
    more = m.reason(f"{len(merged) - MOST} more in the table `findings`.") if len(merged) > MOST else ""
    body = f'<p class="pick" role="group" aria-label="filter findings">{boxes}{search}</p>'
    body += f'<ul class="findings">{cards}</ul>{more}'
    return Section(
        "findings", TITLE, body + '<p class="reason" data-none="findings" hidden>None matches.</p>' + _what_if(ctx)
    )


def _card(ctx: Context, rows: list[Row]) -> str:
    f = rows[0]
    ranks = sorted(r["rank"] for r in rows if r["rank"] is not None)
    facts = []
    if ranks:
        shown = ", ".join(map(str, ranks[:12])) + (" …" if len(ranks) > 12 else "")
        facts.append(("rank" if len(ranks) == 1 else f"{len(ranks)} ranks", m.esc(shown)))
    if f.get("cost_ns") is not None:
        facts.append((ctx.terms.link("findings", "cost_ns", "costs"), f"{m.time(f['cost_ns'])} ms of a rank and step"))
    if f.get("avoidable_ns") is not None:
        facts.append(
            (ctx.terms.link("findings", "avoidable_ns", "avoidable"), f"{m.time(f['avoidable_ns'])} ms at most")
        )
    if f.get("measured") is not None:
        facts.append(("measured", _measured(f)))
    facts += [(name, m.esc(f[name])) for name in ("where", "evidence", "advice") if f.get(name)]
    if f.get("confidence") is not None:
        facts.append((ctx.terms.link("findings", "confidence"), m.number(f["confidence"], 2)))
    severity = m.esc(f["severity"])
    listed = "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in facts)
    return (
        f'<li class="{severity}" data-severity="{severity}"><p><span class="badge">{severity}</span> '
        f'{m.esc(f["message"])}</p><dl>{listed}</dl><p class="code">{m.esc(f["code"])}</p></li>'
    )


def _measured(f: Row) -> str:
    """Measured and expected value with their unit; times in ms, as everywhere on the page."""
    times = f.get("unit") == "ns"
    said = [m.time(v) if times else m.number(v, 3) for v in (f["measured"], f.get("expected")) if v is not None]
    return f"{', expected '.join(said)} {'ms' if times else m.esc(f.get('unit') or '')}"


def what_ifs(ctx: Context) -> list[Row]:
    """Each change with what it saves: mean over pipelines and steps, largest first; `reason` where nothing is known."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for r in ctx.source.rows("what_if"):
        groups.setdefault((r["basis"] or "pipeline", r["what"], r["subject"] or ""), []).append(r)
    out = []
    for (basis, what, subject), own in groups.items():
        known = [r for r in own if r["saved_ns"] is not None]
        saved, window = mean(r["saved_ns"] for r in known), mean(r["replayed_ns"] for r in known)
        out.append({
            "basis": basis, "what": what, "subject": subject, "saved_ns": saved,
            "saved_ratio": saved / window if saved is not None and window else None,
            "error": max((r["replay_error_ratio"] or 0.0 for r in known), default=None),
            "reason": next((r["reason"] for r in own if r["reason"]), None),
        })  # fmt: skip
    return sorted(out, key=lambda w: -(w["saved_ns"] or 0))


def _what_if(ctx: Context) -> str:
    found = what_ifs(ctx)
    cells = [
        [m.esc(f"{w['what']} {w['subject']}".strip()), m.esc(_BASES.get(w["basis"], w["basis"])), m.time(w["saved_ns"]),
         m.share(w["saved_ratio"]), m.share(w["error"])]
        for w in found if w["saved_ns"] is not None
    ]  # fmt: skip
    untold = [f"{w['what']} {w['subject']} ({w['reason'] or 'no reason'})" for w in found if w["saved_ns"] is None]
    note = f'<p class="note">{m.esc("not told: " + "; ".join(untold))}</p>' if untold else ""
    if not found:
        return ""
    said = {
        "what": "changed", "basis": "replay of", "saved_ns": "saved (ms)", "saved_ratio": "of it",
        "replay_error_ratio": "error of the replay",
    }  # fmt: skip
    heads = [ctx.terms.link("what_if", n, t) for n, t in said.items()]
    caption = "a step replayed with one thing changed, mean over steps; savings do not add up"
    return "<h3>What if</h3>" + m.table(heads, cells, left=2, caption=caption) + note

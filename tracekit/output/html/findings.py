"""Findings with what they rest on, and what-ifs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.output.html import markup as m
from tracekit.output.html.section import Section, total

if TYPE_CHECKING:
    from tracekit.output.html.section import Context

Row = dict[str, Any]
TITLE = "Findings"
MOST = 300
SEVERITIES = ("error", "warning", "info")


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
        against = "" if f.get("expected") is None else f", expected {m.number(f['expected'], 3)}"
        facts.append(("measured", f"{m.number(f['measured'], 3)}{against} {m.esc(f.get('unit') or '')}"))
    facts += [(name, m.esc(f[name])) for name in ("where", "evidence", "advice") if f.get(name)]
    if f.get("confidence") is not None:
        facts.append((ctx.terms.link("findings", "confidence"), m.number(f["confidence"], 2)))
    severity = m.esc(f["severity"])
    listed = "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in facts)
    return (
        f'<li class="{severity}" data-severity="{severity}"><p><span class="badge">{severity}</span> '
        f'{m.esc(f["message"])}</p><dl>{listed}</dl><p class="code">{m.esc(f["code"])}</p></li>'
    )


def _what_if(ctx: Context) -> str:
    """What a step would take with one thing changed: mean over pipelines and steps."""
    rows = ctx.source.rows("what_if")
    by_what: dict[str, list[Row]] = {}
    for r in rows:
        of = f" {r['subject']}" if r["subject"] else ""
        by_what.setdefault(f"{r['what']}{of} ({r['basis'] or 'pipeline'})", []).append(r)
    cells = []
    for what, own in by_what.items():
        known = [r for r in own if r["saved_ns"] is not None]
        if known:
            saved = (total(r["saved_ns"] for r in known) or 0) / len(known)
            window = (total(r["replayed_ns"] for r in known) or 0) / len(known)
            error = max(r["replay_error_ratio"] or 0 for r in known)
            cells.append([m.esc(what), m.time(saved), m.share(saved / window if window else None), m.share(error)])
        else:
            why = next((r["reason"] for r in own if r["reason"]), None) or "–"
            cells.append([m.esc(f"{what}: {why}"), m.time(None), m.share(None), m.share(None)])
    if not cells:
        return ""
    said = {
        "what": "changed", "saved_ns": "saved (ms)", "saved_ratio": "of the step",
        "replay_error_ratio": "error of the replay",
    }  # fmt: skip
    heads = [ctx.terms.link("what_if", n, t) for n, t in said.items()]
    return "<h3>What if</h3>" + m.table(heads, cells, caption="a step replayed with one thing changed, mean")

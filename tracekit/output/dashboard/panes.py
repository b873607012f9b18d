"""Parts of the dashboard as HTML: paths, tables of runs, steps, ranks and calls. All foreign text is escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.model import TABLES
from tracekit.output import colours
from tracekit.output.dashboard.where import Where, rank_text
from tracekit.output.html import markup as m
from tracekit.output.runs import started
from tracekit.output.text import ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.output.dashboard.store import Overview
    from tracekit.output.runs import ListedRun

Row = dict[str, Any]
PAGE = 50
"""Rows of a table at once."""
CLASS_NAMES = {
    "compute_only_ns": "compute only", "overlapped_ns": "compute over communication", "fused_ns": "fused",
    "exposed_comm_ns": "exposed communication", "exposed_copy_ns": "exposed copy", "idle_ns": "idle",
}  # fmt: skip
CALL_COLUMNS = (
    "id", "step", "op", "strategy", "purpose", "phase", "group_name", "group_size", "payload_bytes", "dur_ns",
    "wait_ns", "transfer_ns", "busbw_gbps", "verdict", "scope",
)  # fmt: skip


def link(where: Where, text: str) -> str:
    """A link to another place; `text` is ready HTML."""
    return f'<a href="{m.esc(where.query or "?")}">{text}</a>'


def path(where: Where) -> str:
    """Where the reader is, each part a link back."""
    parts = [link(Where(), "all runs")]
    if where.run is not None:
        parts.append(link(Where(run=where.run, strategy=where.strategy), m.esc(m.clip(where.run, 40))))
    if where.step is not None:
        parts.append(link(where.to(rank=None, call=None), f"step {where.step}"))
    if where.rank is not None:
        parts.append(link(where.to(call=None), f"rank {m.esc(where.rank)}"))
    if where.call is not None:
        parts.append(f"call {where.call}")
    inside = ' <span aria-hidden="true">›</span> '.join(parts)
    return f'<nav class="path" aria-label="place">{inside}</nav>'


def title(text: str, lead: str = "") -> str:
    """A heading and what it is about; both ready HTML."""
    return f"<h2>{text}</h2>" + (f'<p class="lead">{lead}</p>' if lead else "")


def reason(text: str) -> str:
    """Why there is nothing to show."""
    return f'<p class="reason">{m.esc(text)}</p>'


def unread(reasons: Sequence[str], most: int = 20) -> str:
    """Runs that are not in the list, each with why."""
    items = "".join(f"<li>{m.esc(m.clip(r, 300))}</li>" for r in reasons[:most])
    left = f"<li>and {len(reasons) - most:,} more</li>" if len(reasons) > most else ""
    return f'{title("Not shown")}<ul class="reason unread">{items}{left}</ul>'


def tile(label: str, value: str, note: str = "") -> str:
    """A key figure."""
    said = f'<dd class="note">{note}</dd>' if note else ""
    return f"<div><dt>{label}</dt><dd>{value}</dd>{said}</div>"


def run_table(found: Mapping[str, ListedRun], figures: Mapping[str, Overview | str]) -> str:
    """The runs, newest first; instead of the figures of a run that cannot be read stands why."""
    rows = []
    for name, run in reversed(list(found.items())):
        f = figures[name]
        head = [link(Where(run=name), m.esc(m.clip(name, 48))), m.esc(started(run))]
        if isinstance(f, str):
            rows.append([*head, f'<span class="bad">{m.esc(f)}</span>'])
            continue
        most = max(f.exposed, key=lambda s: f.exposed[s] or 0, default=None)
        largest = m.strategy(most) if most and f.exposed[most] else "–"
        serious = f.findings["error"] + f.findings["warning"]
        rows.append([
            *head, m.number(f.ranks), m.number(f.steps), m.time(f.window_ns), m.share(f.exposed_ratio),
            largest, m.number(serious), bar(f.parts, f.window_ns),
        ])  # fmt: skip
    heads = ["run", "started (UTC)", "ranks", "steps", "step, ms", "exposed", "most of it", "findings",
             "where a step's time goes"]  # fmt: skip
    caption = "Means of a rank and complete step; findings: errors and warnings; ~ = when the dataset was written"
    return table(heads, rows, text=(0, 1, 6, 8), caption=caption)


def bar(parts: Mapping[str, float], whole: float | None) -> str:
    """Classes of time as one bar; its words have the numbers."""
    if not whole:
        return "–"
    words = ", ".join(f"{CLASS_NAMES[c]} {100 * v / whole:.1f} %" for c, v in parts.items() if v)
    cells = "".join(
        f'<i style="width:{100 * v / whole:.3f}%;background:{colours.CLASSES[c]}"></i>' for c, v in parts.items() if v
    )
    return f'<span class="bar" role="img" title="{m.esc(words)}" aria-label="{m.esc(words)}">{cells}</span>'


def class_legend() -> str:
    """Colours of the classes of time."""
    return m.legend((colour, CLASS_NAMES[c]) for c, colour in colours.CLASSES.items())


def time_table(
    first: str, rows: Sequence[tuple[Where, str, Row]], *, longest: float, caption: str, where: Where | None = None
) -> str:
    """Steps or ranks: name with its link, window, exposed part, and a bar as long as the window."""
    body = []
    for to, name, r in page_of(rows, where):
        width = 100 * r["window_ns"] / longest if longest else 0
        drawn = bar({c: r[c] for c in CLASS_NAMES}, r["window_ns"])
        share = r["exposed_comm_ns"] / r["window_ns"] if r["window_ns"] else None
        body.append([
            link(to, m.esc(m.clip(name, 40))), m.time(r["window_ns"]), m.time(r["exposed_comm_ns"]), m.share(share),
            f'<span class="scale-to" style="width:{width:.2f}%">{drawn}</span>',
        ])  # fmt: skip
    heads = [m.esc(first), "step, ms", "exposed, ms", "of the step", "where its time goes"]
    return table(heads, body, text=(0, 4), caption=caption) + pager(len(rows), where)


def strategy_table(where: Where, found: Mapping[str, Row], window: float | None) -> str:
    """Communication of each strategy; its name chooses it."""
    rows = []
    for name, r in found.items():
        mine = where.strategy == name
        to = where.to(strategy=None if mine else name)
        share = r["attributed_ns"] / window if window and r["attributed_ns"] is not None else None
        rows.append([
            link(to, m.strategy(name)) + (" ✓" if mine else ""), m.number(r["count"]), m.time(r["total_ns"]),
            m.time(r["hidden_ns"]), m.time(r["attributed_ns"]), m.time(r["attributed_wait_ns"]), m.share(share),
        ])  # fmt: skip
    heads = ["strategy", "calls", "total, ms", "hidden, ms", "exposed, ms", "of it waiting", "of the step"]
    caption = (
        "Means of a rank and step. Exposed: each instant divided equally among the strategies active in it, so that "
        "the column adds up; – where it was not measured"
    )
    return table(heads, rows, text=(0,), caption=caption)


def call_table(where: Where, rows: Sequence[Row], in_all: int) -> str:
    """Calls of a rank, longest first: one page of them."""
    shown = []
    for r in rows:
        cells = [link(where.to(call=r["id"]), m.number(r["id"]))]
        cells += [_cell(c, r[c]) for c in CALL_COLUMNS[1:]]
        shown.append(cells)
    heads = ["call", "step", "operation", "strategy", "purpose", "phase", "group", "ranks", "payload, MB",
             "duration, ms", "waiting, ms", "transfer, ms", "busbw, GB/s", "against theory", "called from"]  # fmt: skip
    text = tuple(i for i, c in enumerate(CALL_COLUMNS) if c in _TEXT)
    return table(heads, shown, text=text, caption="Longest first; – where it is not known") + pager(in_all, where)


_TEXT = frozenset({"op", "strategy", "purpose", "phase", "group_name", "verdict", "scope"})


def _cell(column: str, value: Any) -> str:
    if value is None:
        return '<span class="none">–</span>'
    if column == "strategy":
        return m.strategy(str(value))
    if column.endswith("_ns"):
        return m.time(value)
    if column == "payload_bytes":
        return f'<data value="{value}">{value / 1e6:,.3f}</data>'
    return m.number(value) if isinstance(value, int | float) else m.esc(m.clip(str(value), 60))


def call_fields(call: Row) -> str:
    """Everything that is known of one call, each with its meaning."""
    rows = []
    for c in TABLES["collectives"].columns:
        if (value := call[c.name]) is not None:
            unit = f" {m.esc(c.unit)}" if c.unit and c.unit not in ("calls",) else ""
            said = f"{m.esc(ms(value))} ms" if c.unit == "ns" else f"{m.esc(m.clip(str(value), 300))}{unit}"
            rows.append([f"<code>{m.esc(c.name)}</code>", said, m.esc(c.meaning)])
    return table(["column", "value", "meaning"], rows, text=(0, 1, 2), caption="Columns without a value are left out")


def match_fields(found: Row) -> str:
    """What all ranks show of a call."""
    facts = [
        ("ranks", f"{found['ranks_present']} of {found['ranks_expected'] or '?'}"),
        ("last to come", "–" if found["last_rank"] is None else f"rank {found['last_rank']}"),
        ("first to last", f"{ms(found['skew_ns'])} ms"), ("waiting, all ranks", f"{ms(found['wait_ns'])} ms"),
        ("transfer", f"{ms(found['transfer_ns'])} ms"), ("verdict", str(found["verdict"])),
    ]  # fmt: skip
    return f'<dl class="tiles">{"".join(tile(m.esc(k), m.esc(v)) for k, v in facts)}</dl>'


def finding_list(rows: Sequence[Row], most: int = 6) -> str:
    """The most important findings."""
    named = [(m.esc(r["severity"]), m.esc(m.clip(r["message"], 600))) for r in rows[:most]]
    items = "".join(f'<li class="{s}"><span class="badge">{s}</span>{message}</li>' for s, message in named)
    left = f'<p class="note">and {len(rows) - most} more in the report</p>' if len(rows) > most else ""
    return f'<ul class="findings">{items}</ul>{left}' if items else ""


def page_of(rows: Sequence[Any], where: Where | None) -> Sequence[Any]:
    """The rows of the chosen page."""
    return rows if where is None else rows[where.page * PAGE : (where.page + 1) * PAGE]


def pager(count: int, where: Where | None) -> str:
    """Links to the pages before and after."""
    if where is None or count <= PAGE:
        return ""
    first, last = where.page * PAGE, min((where.page + 1) * PAGE, count)
    back = link(where.to(page=where.page - 1), "← before") if where.page else ""
    more = link(where.to(page=where.page + 1), "after →") if last < count else ""
    span = f"{first + 1:,}–{last:,} of {count:,}" if first < count else f"nothing here; there are {count:,}"
    return f'<nav class="pager" aria-label="pages">{back}<span>{span}</span>{more}</nav>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, text: Sequence[int], caption: str = "") -> str:
    """A table of ready HTML cells; the columns `text` are text, the others numbers. A short row's last cell is wide."""
    kind = ["" if i in text else ' class="n"' for i in range(len(heads))]
    head = "".join(f'<th scope="col"{k}>{h}</th>' for k, h in zip(kind, heads, strict=True))
    body = "".join(f"<tr>{_cells(kind, row)}</tr>" for row in rows)
    below = f"<figcaption>{m.esc(caption)}</figcaption>" if caption else ""
    return (
        f'<figure><div class="wide" tabindex="0" role="region" aria-label="{m.esc(caption or "table")}"><table><thead>'
        f"<tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{below}</figure>"
    )


def _cells(kind: Sequence[str], row: Sequence[str]) -> str:
    wide = len(kind) - len(row) + 1
    kinds = [*kind[: len(row) - 1], f' colspan="{wide}"' if wide > 1 else kind[len(row) - 1]]
    return "".join(f"<td{k}>{c}</td>" for k, c in zip(kinds, row, strict=True))


def to_rank(where: Where, rank: int | None) -> Where:
    """The place of a rank."""
    return where.to(rank=rank_text(rank))

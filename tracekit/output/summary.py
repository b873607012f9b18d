"""What the terminal and Markdown reports say, as plain data: verdict, tables, data quality.

Only arranges published numbers: sums and medians over ranks and steps, no metric of its own.
"""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.model import CPU_DEVICE
from tracekit.output import critical, crossrank, expected, pipeline
from tracekit.output.text import Grid, clean, ms, percent, plain_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tracekit.ingest.run import RunTables

Row = dict[str, Any]
COLLAPSE_ABOVE = 8

DEFINITIONS = (
    "exposed = communication that no compute hides, |C \\ K|; hidden = |C ∩ K|; totals are lengths of unions",
    "attributed = exposed time, each instant divided equally among the strategies active in it; adds up exactly",
    "copy = only copies or sets; fused = kernels that communicate and compute at once; idle = nothing on the device",
)


@dataclass(slots=True)
class Summary:
    """The whole report, in reading order."""

    header: str
    verdict: str
    grids: list[Grid]
    findings: list[tuple[str, str]]
    data: list[str]
    definitions: tuple[str, ...] = DEFINITIONS


def summarise(run: RunTables, *, all_ranks: bool = False, steps: bool = False) -> Summary:
    """Arrange a run's tables for reading."""
    windows = _steps_to_use(run)
    grids = [
        _breakdown(run, all_ranks),
        _strategies(run),
        _worst(run),
        _sites(run),
        *crossrank.grids(run),
        *critical.grids(run),
        *pipeline.grids(run),
        expected.hiding(run),
        expected.grid(run),
        _unlabelled(run),
    ]
    if steps:
        grids.insert(1, _steps(run))
    summary = Summary(
        header=_header(run),
        verdict=_verdict(run, windows),
        grids=[g for g in grids if g.rows],
        findings=_findings(run.tables["findings"]),
        data=_data(run),
        definitions=(
            *DEFINITIONS,
            *((crossrank.DEFINITION,) if run.tables["waiting"] else ()),
            *((critical.DEFINITION,) if run.tables.get("critical_steps") else ()),
            *((pipeline.DEFINITION,) if run.tables["bubble"] else ()),
            *((expected.DEFINITION,) if run.tables.get("theory") else ()),
        ),
    )
    if run.hang is not None:
        from tracekit.output import hang

        hang.add(summary, run.hang)
    if rows := run.tables.get("stragglers"):
        from tracekit.output import stragglers

        stragglers.add(summary, rows, alone=not run.tables["ranks"], all_ranks=all_ranks, steps=steps)
    return summary


def _findings(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Findings in order; the same message on several ranks is one line."""
    ranks: dict[tuple[str, str], list[Any]] = {}
    for f in rows:
        ranks.setdefault((f["severity"], clean(f["message"])), []).append(f["rank"])
    return [(s, m + (f" (on {len(r)} ranks)" if len(r) > 1 else "")) for (s, m), r in ranks.items()]


def _header(run: RunTables) -> str:
    used = [r for r in run.tables["ranks"] if r["used"]]
    parts = [f"{len(used)} rank{'s' if len(used) != 1 else ''}" + (f" of {run.world_size}" if run.world_size else "")]
    numbers = sorted({(s["step"], s["name"]) for s in run.tables["steps"] if s["found_by"] != "whole-window"})
    if numbers:
        first, last = clean(numbers[0][1])[:40], clean(numbers[-1][1])[:40]
        count = len({n for n, _ in numbers})
        parts.append(f"{count} step{'s' if count != 1 else ''} ({first}{' … ' + last if count > 1 else ''})")
    else:
        parts.append("no step markers (whole recording)")
    if run.devices:
        parts.append(clean(", ".join(run.devices[:2])))
    elif any(t["device"] == CPU_DEVICE and t["reason"] != "compute-unknown" for t in run.tables["totals"]):
        parts.append("CPU")
    if run.frameworks:
        parts.append(clean(", ".join(run.frameworks.values())))
    layout = run.layout["inferred"]
    if layout is not None and layout["text"]:
        parts.append(f"{clean(layout['text'])} (from {clean(layout['source'])})")
    return " · ".join(parts)


def _steps_to_use(run: RunTables) -> list[Row]:
    """Breakdown rows of complete steps; of all steps when none is complete."""
    complete = {(s["rank"], s["device"], s["step"]) for s in run.tables["steps"] if s["complete"]}
    rows = [b for b in run.tables["breakdown"] if (b["rank"], b["device"], b["step"]) in complete]
    return rows or run.tables["breakdown"]


def _verdict(run: RunTables, windows: Sequence[Row]) -> str:
    totals = run.tables["totals"]
    if not totals:
        return "No device activity: nothing to account for. See the findings below."
    if all(t["reason"] == "compute-unknown" for t in totals):
        return "These files show communication only; compute is unknown, so no exposed share is given."
    if all(t["comm_ns"] is None for t in totals):
        return "No communication call has a time in this file, so no exposed share is given. See the findings below."
    if not any(t["comm_ns"] for t in totals):
        return "No communication was recognised, so no exposed share is given. See the findings below."
    shares = [100 * w["exposed_comm_ns"] / w["window_ns"] for w in windows if w["window_ns"]]
    if not shares:
        return "The steps have no account (table `breakdown`), so no exposed share is given. Write the dataset again."
    exposed = statistics.fmean(w["exposed_comm_ns"] for w in windows)
    length = statistics.fmean(w["window_ns"] for w in windows)
    unit = "the recording" if all(s["found_by"] == "whole-window" for s in run.tables["steps"]) else "a step"
    spread = f", {min(shares):.1f}–{max(shares):.1f} % over ranks and steps" if len(shares) > 1 else ""
    share = 100 * exposed / length
    text = f"{share:.1f} % of {unit} is communication that nothing hid: {ms(exposed)} of {ms(length)} ms{spread}."
    top = _by_strategy(run)
    if top and exposed:
        name, row = max(top.items(), key=lambda kv: kv[1]["attributed_ns"] or 0)
        whole = sum(r["attributed_ns"] or 0 for r in top.values())
        amount = percent(row["attributed_ns"], whole)
        text += f" {amount} of it has no label." if name == "unknown" else f" Most of it is {name} ({amount})."
    return f"{text} {expected.sentence(run)}".rstrip()


def _by_strategy(run: RunTables) -> dict[str, Row]:
    """Sums over ranks and devices of the whole-file numbers, by strategy; None where no rank knows one."""
    out: dict[str, Row] = {}
    for total in run.tables["totals"]:
        for name, row in total["by_strategy"].items():
            sums = out.setdefault(name, dict.fromkeys(row))
            for key, value in row.items():
                if value is not None:
                    sums[key] = (sums[key] or 0) + value
    return out


def _rank_name(row: Row, many_devices: bool) -> str:
    rank = "?" if row["rank"] is None else str(row["rank"])
    return f"{rank}/{row['device']}" if many_devices and row["device"] != CPU_DEVICE else rank


_PARTS: tuple[tuple[str, Callable[[Row], int | None]], ...] = (
    ("compute only", lambda t: t["compute_ns"] - (t["hidden_ns"] or 0)),
    ("overlapped", lambda t: t["hidden_ns"]),
    ("exposed comm", lambda t: t["exposed_ns"]),
    ("fused", lambda t: t["fused_ns"]),
    ("copy", lambda t: t["copy_ns"]),
    ("idle", lambda t: t["idle_ns"]),
)


def _breakdown(run: RunTables, all_ranks: bool) -> Grid:
    totals = [t for t in run.tables["totals"] if t["compute_ns"] is not None]
    grid = Grid("time of each rank (ms, whole recording)", ("rank", "window", *(n for n, _ in _PARTS), "overlap"))
    many = len({t["device"] for t in totals}) > 1
    if len(totals) > COLLAPSE_ABOVE and not all_ranks:
        for name, pick in (("min", min), ("median", statistics.median), ("max", max)):
            known = [[v for v in map(f, totals) if v is not None] for _, f in _PARTS]
            cells = [ms(pick(values) if values else None) for values in known]
            ratios = [t["overlap_ratio"] for t in totals if t["overlap_ratio"] is not None]
            grid.rows.append(
                (
                    name,
                    ms(pick([t["window_ns"] for t in totals])),
                    *cells,
                    f"{100 * pick(ratios):.1f} %" if ratios else "–",
                )
            )
        grid.notes.append(f"{len(totals)} ranks collapsed; --ranks lists them")
        return grid
    for t in totals:
        ratio = "–" if t["overlap_ratio"] is None else f"{100 * t['overlap_ratio']:.1f} %"
        grid.rows.append((_rank_name(t, many), ms(t["window_ns"]), *(ms(f(t)) for _, f in _PARTS), ratio))
    return grid


def _strategies(run: RunTables) -> Grid:
    found = _by_strategy(run)
    ranks = max(len(run.tables["totals"]), 1)
    grid = Grid(
        f"communication by strategy (ms, {'mean of a rank' if ranks > 1 else 'this rank'}, whole recording)",
        ("strategy", "calls", "total", "hidden", "exposed", "alone", "attributed", "share"),
    )
    whole = sum(r["attributed_ns"] or 0 for r in found.values())
    waits = any(r["attributed_wait_ns"] is not None for r in found.values())
    if waits:
        grid.columns += ("of it waiting",)
    for name, row in sorted(
        found.items(), key=lambda kv: (-(kv[1]["attributed_ns"] or 0), -(kv[1]["total_ns"] or 0), kv[0])
    ):
        cells = (row["total_ns"], row["hidden_ns"], row["exposed_ns"], row["exposed_alone_ns"], row["attributed_ns"])
        grid.rows.append(
            (
                name,
                f"{row['count']:,}",
                *(ms(None if c is None else c / ranks) for c in cells),
                percent(row["attributed_ns"] or 0, whole),
                *((ms(None if (w := row["attributed_wait_ns"]) is None else w / ranks),) if waits else ()),
            )
        )
    if ranks > 1 and grid.rows:
        grid.notes.append("calls are summed over ranks")
    return grid


def _worst(run: RunTables) -> Grid:
    totals = [t for t in run.tables["totals"] if t["comm_ns"]]
    grid = Grid("ranks with most exposed communication", ("rank", "exposed", "of window", "largest strategy"))
    if len(totals) < 3:
        return grid
    many = len({t["device"] for t in totals}) > 1
    for t in sorted(totals, key=lambda t: (-t["exposed_ns"], t["rank"] or 0))[:3]:
        top = max(t["by_strategy"].items(), key=lambda kv: kv[1]["attributed_ns"], default=("–", None))[0]
        grid.rows.append((_rank_name(t, many), ms(t["exposed_ns"]), percent(t["exposed_ns"], t["window_ns"]), top))
    return grid


def _sites(run: RunTables) -> Grid:
    merged: dict[tuple[Any, ...], Row] = {}
    for s in run.sites:
        key = (s["strategy"], s["op"], s["group"], s["group_size"], s["site"])
        row = merged.setdefault(key, {"count": 0, "exposed_ns": 0, "total_ns": 0})
        for k in row:
            row[k] += s[k]
    ranks = max(len(run.tables["totals"]), 1)
    grid = Grid(
        f"call sites with most exposed time (ms, {'mean of a rank' if ranks > 1 else 'this rank'})",
        ("strategy", "operation", "group", "calls", "total", "exposed", "where"),
    )
    for key, row in sorted(merged.items(), key=lambda kv: (-kv[1]["exposed_ns"], str(kv[0])))[:8]:
        strategy, op, group, size, site = key
        who = clean(group or "–")[:34] + (f" ×{size}" if size else "")
        grid.rows.append(
            (
                strategy,
                op,
                who,
                f"{row['count']:,}",
                ms(row["total_ns"] / ranks),
                ms(row["exposed_ns"] / ranks),
                clean(plain_name(site or "–"))[:60],
            )
        )
    return grid


def _unlabelled(run: RunTables) -> Grid:
    """Call sites without a label: what was seen there."""
    grid = Grid(
        "call sites without a label (ms, summed over ranks)",
        ("operation", "group", "type", "payload", "calls", "total", "possible", "where", "example"),
    )
    for s in run.coverage.get("unlabelled", [])[:5]:
        size = f" ×{s['group_size']}" if s["group_size"] else ""
        payload = "–" if s["payload_bytes"] is None else f"{s['payload_bytes']:,} B"
        possible = (s["alternatives"] or "–").replace(" ", ", ")
        grid.rows.append(
            (
                s["op"], clean(s["group"] or "–")[:34] + size, clean(s["dtype"] or "–"), payload, f"{s['count']:,}",
                ms(s["total_ns"] if run.coverage["comm_ns"] else None), possible,
                clean(plain_name(s["site"] or "–"))[:50], s["example"],
            )
        )  # fmt: skip
    if grid.rows:
        grid.notes.append("`tracekit explain PATH --collective EXAMPLE` shows what each rule saw; docs/recording.md "
                          "says what to switch on so that labels are certain")  # fmt: skip
    return grid


def _steps(run: RunTables) -> Grid:
    grid = Grid(
        "steps (ms)", ("rank", "step", "window", "compute only", "overlapped", "exposed comm", "idle", "complete")
    )
    complete = {(s["rank"], s["device"], s["step"]): s["complete"] for s in run.tables["steps"]}
    many = len({t["device"] for t in run.tables["totals"]}) > 1
    for b in run.tables["breakdown"]:
        done = complete[b["rank"], b["device"], b["step"]]
        cells = (b["window_ns"], b["compute_only_ns"], b["overlapped_ns"], b["exposed_comm_ns"], b["idle_ns"])
        grid.rows.append(
            (_rank_name(b, many), str(b["step"]), *(ms(c) for c in cells), "yes" if done else "may be cut")
        )
    return grid


def _plural(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


def _data(run: RunTables) -> list[str]:
    ranks = run.tables["ranks"]
    used = sum(r["used"] for r in ranks)
    lines = [
        f"{used} of {_plural(len(ranks), 'trace')} used" + (f", world size {run.world_size}" if run.world_size else "")
    ]
    lines[0] += f", {sum(r['events'] for r in ranks if r['used']):,} events"
    cover = run.coverage
    if cover.get("comm_ns"):
        tiers = ", ".join(f"{t} {percent(ns, cover['comm_ns'])}" for t, ns in cover["tiers"].items())
        lines.append(
            f"{percent(cover['labelled_ns'], cover['comm_ns'])} of communication time labelled"
            + (f" ({tiers})" if tiers else "")
            + (f", {percent(cover['labelled_bytes'], cover['bytes'])} of its bytes" if cover["bytes"] else "")
        )
    elif cover.get("calls"):
        lines.append(f"{percent(cover['labelled_calls'], cover['calls'])} of communication calls labelled")
    lines += crossrank.clock_line(run)
    lines += _files(run.tables["files"])
    lines += [_health_line(h) for h in _worst_health(run.tables["health"])]
    if not run.absolute and used > 1:
        lines.append("not all files have a time base: times count from each rank's own start")
    return lines


def _files(rows: Iterable[Row]) -> list[str]:
    """What the files were taken for, where they are not all the same thing."""
    kinds = Counter((r["title"], r["use"]) for r in rows)
    if len(kinds) < 2:
        return []
    return ["files: " + " · ".join(f"{n} × {clean(title)}: {use}" for (title, use), n in sorted(kinds.items()))]


def _worst_health(rows: Iterable[Row]) -> list[Row]:
    merged: dict[tuple[str, str], Row] = {}
    for h in rows:
        row = merged.setdefault((h["severity"], h["reason"]), h | {"count": 0, "files": set()})
        row["count"] += h["count"]
        row["files"].add(h["source"])
    order = {"lost": 0, "repaired": 1, "info": 2}
    return sorted(merged.values(), key=lambda h: (order.get(h["severity"], 3), -h["count"], h["reason"]))[:8]


def _health_line(h: Row) -> str:
    return f"{h['severity']}: {clean(h['reason'])} — {h['count']:,} in {_plural(len(h['files']), 'file')}"

"""Measured against theory: the grid of the reports, and the line on what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.output.text import Grid, clean, ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.ingest.run import RunTables

Row = dict[str, Any]
SHOWN = 10
MOSTLY = 0.5
DEFINITION = (
    "expected = docs/theory.md: bytes over links, NCCL's latencies; ratio = measured / expected (median call); limit = "
    "bus bandwidth of the links, to hide = the one at which all compute of a step would just hide it; * times that may "
    "contain waiting: busbw is a least value, nothing is called slow"
)


def grid(run: RunTables) -> Grid:
    """One line a role (strategy, purpose, phase, operation); groups of equal role are put together."""
    out = Grid(
        "measured against theory (ms of a rank and step)",
        ("strategy", "purpose", "operation", "ranks of group", "calls", "payload", "measured", "expected", "ratio",
         "busbw", "limit GB/s", "to hide", "verdict"),
    )  # fmt: skip
    roles: dict[tuple[Any, ...], list[Row]] = {}
    for r in run.tables.get("theory", []):
        if r["calls_per_step"] is None:
            continue
        key = tuple(r[n] for n in ("strategy", "purpose", "phase", "op", "group_size", "path"))
        roles.setdefault(key, []).append(r)
    for rows in list(roles.values())[:SHOWN]:
        out.rows.append(_cells(rows))
    if len(roles) > SHOWN:
        out.notes.append(f"{len(roles) - SHOWN} more in the table `theory`")
    out.notes += _utilisation(run.theory_inputs["utilisation"]) if out.rows else []
    out.notes += _slowdown(run.tables["totals"]) if out.rows else []
    missing = run.theory_inputs["missing"]
    if out.rows and missing:
        out.notes.append("missing: " + "; ".join(clean(m) for m in missing[:3]))
    return out


def hiding(run: RunTables) -> Grid:
    """Exposed time of complete steps: what could be hidden, what not, what is waiting."""
    out = Grid(
        "exposed time (ms of a rank and step)",
        ("strategy", "purpose", "exposed", "waiting", "avoidable", "structural", "unknown", "why"),
    )
    for key, row in parts(run)[:SHOWN]:
        if row["attributed_ns"]:
            cells = (ms(row[name]) for name in _PARTS)
            out.rows.append((key[0], " ".join(x for x in key[1:3] if x) or "–", *cells, key[3] or "–"))
    return out


def parts(run: RunTables) -> list[tuple[tuple[Any, ...], dict[str, float]]]:
    """((strategy, purpose, phase, overlap), parts of exposed time), mean of a rank and complete step, longest first."""
    complete = {(s["rank"], s["device"], s["step"]) for s in run.tables["steps"] if s["complete"]}
    complete = complete or {(s["rank"], s["device"], s["step"]) for s in run.tables["steps"]}
    sums: dict[tuple[Any, ...], dict[str, float]] = {}
    for r in run.tables["exposure"]:
        if (r["rank"], r["device"], r["step"]) in complete and r.get("avoidable_ns") is not None:
            into = sums.setdefault((r["strategy"], r["purpose"], r["phase"], r["overlap"]), dict.fromkeys(_PARTS, 0.0))
            for name in _PARTS:
                into[name] += (r[name] or 0) / len(complete)
    return sorted(sums.items(), key=lambda kv: -kv[1]["attributed_ns"])


def sentence(run: RunTables) -> str:
    """What of the exposed time could be saved, in one sentence; empty where nothing was exposed."""
    found = parts(run)
    if not sum(p["attributed_ns"] for _, p in found):
        return ""
    words = []
    for name, text in zip(_PARTS[1:], ("waiting", "at most avoidable", "structural", "unknown"), strict=True):
        amount = sum(p[name] for _, p in found)
        if amount:
            key, top = max(found, key=lambda kv: kv[1][name])
            mostly = f" (mostly {' '.join(x for x in key[:3] if x)})" if top[name] > MOSTLY * amount else ""
            words.append(f"{ms(amount)} ms {text}{mostly}")
    return f"Of it {', '.join(words)}."


_PARTS = ("attributed_ns", "attributed_wait_ns", "avoidable_ns", "structural_ns", "unknown_ns")


def _cells(rows: Sequence[Row]) -> tuple[str, ...]:
    """The slowest group of a role speaks for it."""
    r = max(rows, key=lambda x: x["ratio"] or 0)
    star = "*" if r["basis"] == "duration" else ""
    size = "–" if r["group_size"] is None else str(r["group_size"]) + (f" {r['path']}" if r["path"] else "")
    verdict = r["verdict"] or "–"
    if verdict == "unknown" and r["reason"]:
        verdict += f": {r['reason']}"
    return (
        r["strategy"], " ".join(x for x in (r["purpose"], r["phase"]) if x) or "–", r["op"],
        size + (f" ({len(rows)} groups)" if len(rows) > 1 else ""),
        _number(r["calls_per_step"]), _bytes(r["payload_bytes"]), ms(r["measured_ns"]) + star, ms(r["expected_ns"]),
        "–" if r["ratio"] is None else f"{r['ratio']:.2f}",
        _number(r["busbw_gbps"]) + (star if r["busbw_gbps"] else ""), _number(r["ceiling_gbps"] or r["limit_gbps"]),
        _number(r["hide_gbps"]),
        verdict,
    )  # fmt: skip


def _utilisation(u: Row) -> list[str]:
    if not u or u["mfu_ratio"] is None:
        return []
    hfu = "" if u["hfu_ratio"] is None else f", HFU {100 * u['hfu_ratio']:.1f} %"
    bound = "" if u["mfu_upper_ratio"] is None else f"; the layout allows {100 * u['mfu_upper_ratio']:.1f} %"
    text = (
        f"MFU {100 * u['mfu_ratio']:.1f} %{hfu} of the dense {u['dtype']} peak ({u['model_flops'] / 1e12:,.1f} TFLOP a "
        f"step of {ms(u['step_ns'])} ms, attention {u['attention']}){bound}"
    )
    return [text]


def _slowdown(totals: Sequence[Row]) -> list[str]:
    known = [t for t in totals if t.get("slowdown_ratio") is not None]
    if not known:
        return []
    ratios = sorted(t["slowdown_ratio"] for t in known)
    runs = sum(t["slowdown_runs"] for t in known)
    text = (
        f"compute under communication takes {ratios[len(ratios) // 2]:.2f} × its time alone ({len(known)} of "
        f"{len(totals)} ranks, {runs:,} runs of kernels that run both ways)"
    )
    return [text]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _bytes(value: int | None) -> str:
    if value is None:
        return "–"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value} B"

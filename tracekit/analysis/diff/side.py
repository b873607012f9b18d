"""One of the two runs of a comparison: means of a rank and step, with their values step by step."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Row = dict[str, Any]
Key = tuple[str, str, str]
"""(strategy, purpose, phase); "" stands for none."""
Unit = tuple[Any, Any]
"""(rank, device)."""
PARTS = ("compute", "exposed_comm", "fused", "exposed_copy", "idle")
"""What a step consists of; compute also has what runs beside communication, so the parts add up to the window."""
_TIMES = ("total_ns", "hidden_ns", "attributed_ns", "attributed_wait_ns", "attributed_transfer_ns",
          "attributed_unsplit_ns", "wait_ns", "transfer_ns")  # fmt: skip


class Mean(Struct):
    """Mean over ranks and steps, ns (or another unit); `steps` = mean over ranks of each step. None = not known."""

    value: float | None = None
    steps: tuple[float, ...] = ()


class Comm(Struct):
    """Communication of one key, means of a rank and step; times by the columns of `exposure`.

    payload_bytes: of a call (mean), over the whole recording; None where calls do not tell.
    """

    calls: Mean
    times: dict[str, Mean]
    payload_bytes: float | None = None


class Side(Struct):
    """A run as the comparison sees it. complete: false where steps had to be used that the file may cut.

    compute_of: rank → compute of a step. position: rank → place in its pipeline. sites: call sites as in the JSON
    document, with `exposed_ns` and `total_ns` of a rank and step.
    """

    name: str
    ranks: int = 0
    steps: int = 0
    complete: bool = True
    markers: bool = True
    window: Mean = field(default_factory=Mean)
    parts: dict[str, Mean] = field(default_factory=dict)
    compute_of: dict[Any, Mean] = field(default_factory=dict)
    comm: dict[Key, Comm] = field(default_factory=dict)
    sites: list[Row] = field(default_factory=list)
    position: dict[Any, int] = field(default_factory=dict)
    hosts: dict[Any, str | None] = field(default_factory=dict)
    overlapped: Mean = field(default_factory=Mean)
    bubble: Mean = field(default_factory=Mean)
    bubble_ratio: Mean = field(default_factory=Mean)
    setup: dict[str, str] = field(default_factory=dict)
    unlabelled_ratio: float | None = None
    findings: dict[str, int] = field(default_factory=dict)


def side(tables: Mapping[str, Any], name: str) -> Side:
    """The run that a JSON document (or the tables of that shape) describes.

    Steps that no file cuts are used where there are two of them, else all.
    """
    out = Side(name)
    rows, out.complete = chosen(tables)
    out.markers = any(s["found_by"] != "whole-window" for s in tables["steps"])
    units = {(b["rank"], b["device"]) for b in rows}
    cells = [((b["rank"], b["device"]), b["step"]) for b in rows]
    out.ranks = len(units) or len({r["rank"] for r in tables["ranks"] if r["used"]})
    out.steps = len({step for _, step in cells})
    out.window = mean(cells, [b["window_ns"] for b in rows])
    for part in PARTS:
        out.parts[part] = mean(cells, [_part(b, part) for b in rows])
    out.overlapped = mean(cells, [b["overlapped_ns"] for b in rows])
    for rank in {b["rank"] for b in rows}:
        mine = [i for i, b in enumerate(rows) if b["rank"] == rank]
        out.compute_of[rank] = mean([cells[i] for i in mine], [_part(rows[i], "compute") for i in mine])
    out.comm = _comm(tables, cells)
    _payloads(out, tables.get("sites") or [])
    out.sites = _sites(tables, max(out.ranks, 1))
    out.hosts = {r["rank"]: r["host"] for r in tables["ranks"] if r["used"]}
    out.setup = _setup(tables)
    _pipeline(out, tables.get("bubble") or [])
    cover = tables.get("coverage") or {}
    if cover.get("comm_ns"):
        out.unlabelled_ratio = 1 - cover["labelled_ns"] / cover["comm_ns"]
    for finding in tables["findings"]:
        out.findings[finding["severity"]] = out.findings.get(finding["severity"], 0) + 1
    return out


def chosen(tables: Mapping[str, Any]) -> tuple[list[Row], bool]:
    """Rows of `breakdown` to use, and whether all of them are complete steps."""
    complete = {(s["rank"], s["device"], s["step"]) for s in tables["steps"] if s["complete"]}
    rows = [b for b in tables["breakdown"] if (b["rank"], b["device"], b["step"]) in complete]
    whole = len({b["step"] for b in rows}) >= min(2, len({b["step"] for b in tables["breakdown"]}))
    return (rows, True) if whole and rows else (list(tables["breakdown"]), False)


def _part(row: Row, part: str) -> int:
    if part == "compute":
        return int(row["compute_only_ns"] + row["overlapped_ns"])
    return int(row[f"{part}_ns"])


def mean(cells: Sequence[tuple[Unit, Any]], values: Sequence[float | None]) -> Mean:
    """Mean of one value a rank and step; cells = ((rank, device), step)."""
    if not cells or any(v is None for v in values):
        return Mean()
    known = [float(v) for v in values if v is not None]
    by_step: dict[Any, list[float]] = defaultdict(list)
    for (_, step), value in zip(cells, known, strict=True):
        by_step[step].append(value)
    return Mean(math.fsum(known) / len(known), tuple(math.fsum(v) / len(v) for _, v in sorted(by_step.items())))


def _comm(tables: Mapping[str, Any], cells: Sequence[tuple[Unit, Any]]) -> dict[Key, Comm]:
    """By key; where a rank and step has none of it, that counts as zero."""
    place = {cell: i for i, cell in enumerate(cells)}
    rows: dict[Key, list[tuple[int, Row]]] = defaultdict(list)
    for e in tables["exposure"]:
        at = place.get(((e["rank"], e["device"]), e["step"]))
        if at is not None:
            rows[e["strategy"], e["purpose"] or "", e["phase"] or ""].append((at, e))
    out = {}
    for key, found in rows.items():
        columns: dict[str, Mean] = {}
        for name in ("count", *_TIMES):
            values: list[float | None] = [0] * len(cells)
            for at, e in found:
                values[at] = e[name]
            columns[name] = mean(cells, values)
        out[key] = Comm(columns.pop("count"), columns)
    return out


def _payloads(out: Side, sites: Iterable[Row]) -> None:
    sums: dict[Key, list[float | None]] = {}
    for s in sites:
        row = sums.setdefault((s["strategy"], s.get("purpose") or "", s.get("phase") or ""), [0, 0])
        bytes_ = s.get("payload_bytes")
        row[0] = None if row[0] is None or bytes_ is None else row[0] + bytes_
        row[1] = (row[1] or 0) + s["count"]
    for key, (bytes_, calls) in sums.items():
        if key in out.comm and bytes_ and calls:
            out.comm[key].payload_bytes = bytes_ / calls


def _sites(tables: Mapping[str, Any], ranks: int) -> list[Row]:
    """Call sites without the names of their groups, which another run may number otherwise; ns of a rank and step."""
    steps = len({s["step"] for s in tables["steps"]}) or 1
    out: dict[tuple[Any, ...], Row] = {}
    for s in tables.get("sites") or []:
        key = {k: s.get(k) for k in ("strategy", "purpose", "phase", "op", "site")}
        row = out.setdefault(tuple(key.values()), key | {"calls": 0.0, "exposed_ns": 0.0, "total_ns": 0.0})
        row["calls"] += s["count"] / ranks / steps
        row["exposed_ns"] += (s["exposed_ns"] or 0) / ranks / steps
        row["total_ns"] += (s["total_ns"] or 0) / ranks / steps
    return list(out.values())


def _pipeline(out: Side, bubble: Sequence[Row]) -> None:
    known = [b for b in bubble if b["bubble_ns"] is not None]
    out.position = {b["rank"]: b["position"] for b in bubble}
    cells = [((b["rank"], 0), b["step"]) for b in known]
    out.bubble = mean(cells, [b["bubble_ns"] for b in known])
    out.bubble_ratio = mean(cells, [b["bubble_over_step_ratio"] for b in known])
    for name, column in (("schedule", "schedule"), ("stages", "stages"), ("micro-batches", "micro_batches")):
        values = {b[column] for b in bubble if b[column] is not None}
        if len(values) == 1:
            out.setup[name] = str(values.pop())


def _setup(tables: Mapping[str, Any]) -> dict[str, str]:
    """How the job is set up, as far as its files say."""
    out: dict[str, str] = {}
    layout = (tables.get("layout") or {}).get("inferred")
    if layout and layout.get("text"):
        out["layout"] = layout["text"]
    devices = sorted({r["device_name"] for r in tables["ranks"] if r["used"] and r["device_name"]})
    if devices:
        out["hardware"] = ", ".join(devices)
    if tables.get("frameworks"):
        out["framework"] = ", ".join(tables["frameworks"])
    return out


def band(a: Mean, b: Mean) -> float | None:
    """Half-width of the 99 % interval of the difference of two means over steps: Student's t with pooled variance.

    Runs of one job are alike in their noise, and profiles have few steps. None where a side has one step.
    """
    n, m = len(a.steps), len(b.steps)
    if n < 2 or m < 2:
        return None
    pooled = ((n - 1) * statistics.variance(a.steps) + (m - 1) * statistics.variance(b.steps)) / (n + m - 2)
    return student(n + m - 2) * math.sqrt(pooled * (1 / n + 1 / m))


_T99 = (63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947, 2.921,
        2.898, 2.878, 2.861, 2.845)  # fmt: skip
"""Quantiles 0.995 of Student's t for 1 … 20 degrees of freedom."""


def student(freedom: int) -> float:
    """Quantile 0.995 of Student's t; beyond 20 degrees of freedom the series of Cornish and Fisher."""
    return _T99[freedom - 1] if freedom <= len(_T99) else 2.5758 + 4.917 / freedom + 8.83 / freedom**2

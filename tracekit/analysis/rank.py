"""Everything that one rank contributes to the published tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tracekit.analysis.accounting import Account, RowKey, account, row_key
from tracekit.analysis.detail import activity_table, call_table, group_key
from tracekit.analysis.findings import rank_findings
from tracekit.analysis.sites import call_sites
from tracekit.analysis.steps import Window, membership, windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.model import LabelledRank

Row = dict[str, Any]


@dataclass(slots=True)
class RankTables:
    """Rows of the small tables, and the two big tables as Arrow.

    Times in `activities`, `collectives` and `steps` count from `origin_ns` of the call; `totals` rows
    also hold `by_strategy` {strategy: {count, total_ns, …}} (kept out of the Parquet table).
    """

    activities: pa.Table
    collectives: pa.Table
    steps: list[Row] = field(default_factory=list)
    exposure: list[Row] = field(default_factory=list)
    breakdown: list[Row] = field(default_factory=list)
    totals: list[Row] = field(default_factory=list)
    groups: list[Row] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    coverage: Row = field(default_factory=dict)
    sites: list[Row] = field(default_factory=list)


def analyze_rank(labelled: LabelledRank, *, origin_ns: int) -> RankTables:
    """All tables of one rank; pure, exact in int ns, independent of the order of its events."""
    acts, calls = labelled.activities, labelled.calls
    keys = [row_key(c.label) for c in calls]
    member = membership(acts, labelled.markers)
    step_of_row = np.full(len(acts), -1, np.int64)
    out = RankTables(pa.table({}), pa.table({}))
    for device in np.unique(acts.device).tolist():
        rows = np.flatnonzero(acts.device == device)
        found, at = windows(acts, rows, labelled.markers, member)
        numbers = np.array([*(w.step for w in found), -1], np.int64)
        step_of_row[rows] = numbers[at]
        edges = np.array([found[0].start, *(w.end for w in found)], np.int64)
        accounts = account(acts, rows, keys, edges)
        counts = _counts(labelled, rows, at, keys, len(found))
        for window, one, count in zip(found, accounts, counts, strict=True):
            _step_rows(out, labelled.rank, device, window, one, count, origin_ns)
        out.totals.append(_total(labelled, rows, device, keys))
    out.activities = activity_table(labelled, step_of_row, origin_ns)
    out.collectives = call_table(labelled, _steps_of_calls(labelled, step_of_row), origin_ns)
    out.groups = _groups(labelled)
    out.coverage = _coverage(labelled)
    out.sites = call_sites(labelled)
    out.findings = rank_findings(labelled, out.totals, out.steps)
    return out


def _counts(
    labelled: LabelledRank, rows: NDArray[np.intp], at: NDArray[np.int64], keys: list[RowKey], n: int
) -> list[dict[RowKey, int]]:
    """Calls by key in each window; a call counts where its first activity belongs, coalesced ones with their owner."""
    window_of: dict[int, int] = {}
    calls = labelled.activities.call[rows]
    for call, window in zip(calls.tolist(), at.tolist(), strict=True):
        if call >= 0:
            window_of.setdefault(call, window)
    out: list[dict[RowKey, int]] = [{} for _ in range(n)]
    for position, call in enumerate(labelled.calls):
        window = window_of.get(position if call.coalesced_into is None else call.coalesced_into, -1)
        if window >= 0:
            out[window][keys[position]] = out[window].get(keys[position], 0) + 1
    return out


def _step_rows(
    out: RankTables, rank: int | None, device: int, window: Window, a: Account, count: dict[RowKey, int], origin: int
) -> None:
    head = {"rank": rank, "device": device, "step": window.step}
    out.steps.append(
        head | {
            "name": window.name, "ts_ns": window.start - origin, "dur_ns": window.end - window.start,
            "found_by": window.found_by, "complete": window.complete,
        }
    )  # fmt: skip
    out.breakdown.append(head | _split(a))
    for key in sorted(set(a.rows) | set(count)):
        e = a.rows[key]
        strategy, purpose, phase = key
        out.exposure.append(
            head | {
                "strategy": strategy, "purpose": purpose or None, "phase": phase or None,
                "count": count.get(key, 0), "total_ns": e.total, "hidden_ns": e.hidden,
                "exposed_ns": e.exposed, "exposed_alone_ns": e.alone, "attributed_ns": e.attributed,
            }
        )  # fmt: skip


def _split(a: Account) -> Row:
    return {
        "window_ns": a.window, "compute_only_ns": a.compute_only, "overlapped_ns": a.overlapped,
        "fused_ns": a.fused, "exposed_comm_ns": a.exposed_comm, "exposed_copy_ns": a.copy, "idle_ns": a.idle,
    }  # fmt: skip


def _total(labelled: LabelledRank, rows: NDArray[np.intp], device: int, keys: list[RowKey]) -> Row:
    acts = labelled.activities
    start, end = int(acts.ts[rows].min()), int((acts.ts[rows] + acts.dur[rows]).max())
    a = account(acts, rows, keys, np.array([start, end], np.int64))[0]
    comm = a.overlapped + a.exposed_comm
    reason = None if comm else "no-comm"
    on_device = [i for i, c in enumerate(labelled.calls) if c.device == device]
    by_strategy: dict[str, Row] = {}
    for strategy in sorted(set(a.strategies) | {keys[i][0] for i in on_device}):
        e = a.strategies[strategy]
        by_strategy[strategy] = {
            "count": sum(keys[i][0] == strategy for i in on_device),
            "total_ns": e.total, "exposed_ns": e.exposed, "exposed_alone_ns": e.alone,
            "attributed_ns": e.attributed, "hidden_ns": e.hidden, "wait_ns": None, "transfer_ns": None,
        }  # fmt: skip
    return {
        "rank": labelled.rank, "device": device, "window_ns": a.window, "busy_ns": a.busy,
        "compute_ns": a.compute_only + a.overlapped, "comm_ns": comm, "hidden_ns": a.overlapped,
        "exposed_ns": a.exposed_comm, "overlap_ratio": a.overlapped / comm if comm else None,
        "copy_ns": a.copy, "fused_ns": a.fused, "idle_ns": a.idle, "collectives": len(on_device),
        "reason": reason, "by_strategy": by_strategy,
    }  # fmt: skip


def _steps_of_calls(labelled: LabelledRank, step_of_row: NDArray[np.int64]) -> list[int | None]:
    """Step of each call: that of its activities, else the marker that holds its host call."""
    first: dict[int, int] = {}
    for call, step in zip(labelled.activities.call.tolist(), step_of_row.tolist(), strict=True):
        if call >= 0 and step >= 0:
            first.setdefault(call, step)
    out: list[int | None] = []
    for position, call in enumerate(labelled.calls):
        step = first.get(position if call.coalesced_into is None else call.coalesced_into)
        if step is None and call.call_ts is not None:
            at = call.call_ts
            step = next((m.step for m in labelled.markers if m.start <= at < m.end), None)
        out.append(step)
    return out


def _groups(labelled: LabelledRank) -> list[Row]:
    """Members of the groups the metadata declares or the calls name."""
    known: dict[tuple[int, ...], tuple[str | None, str | None]] = {}
    for g in labelled.meta.groups:
        if g.ranks:
            known.setdefault(g.ranks, (g.name, g.desc))
    for c in labelled.calls:
        if c.members:
            known.setdefault(c.members, (c.group_name, c.group_desc))
    return [
        {"members": members, "group_id": group_key(members, None, None), "group_name": name, "group_desc": desc}
        for members, (name, desc) in known.items()
    ]


def _coverage(labelled: LabelledRank) -> Row:
    """Communication time with a strategy, by tier (sums of durations of activities; for the report)."""
    acts = labelled.activities
    own = acts.call >= 0
    per_call = np.bincount(acts.call[own], weights=acts.dur[own], minlength=len(labelled.calls))
    tiers: dict[str, int] = {}
    total = labelled_ns = 0
    for call, ns in zip(labelled.calls, per_call.tolist(), strict=True):
        total += int(ns)
        if call.label.strategy not in {"unknown", "conflict"}:
            labelled_ns += int(ns)
            tiers[call.label.tier or "?"] = tiers.get(call.label.tier or "?", 0) + int(ns)
    return {"comm_ns": total, "labelled_ns": labelled_ns, "tiers": tiers}

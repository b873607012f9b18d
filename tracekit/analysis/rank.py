"""Everything that one rank contributes to the published tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from tracekit.analysis.accounting import Account, Exposed, RowKey, account
from tracekit.analysis.alike import call_kinds
from tracekit.analysis.consistency import Votes, votes
from tracekit.analysis.coverage import conflicts, coverage, unlabelled_sites
from tracekit.analysis.critical.compress import rank_graph
from tracekit.analysis.detail import activity_table, call_table, group_key
from tracekit.analysis.findings import rank_findings
from tracekit.analysis.membership import Membership
from tracekit.analysis.pipeline.extract import rank_pipeline
from tracekit.analysis.sites import call_sites
from tracekit.analysis.slowdown import Slowdown, slowdown
from tracekit.analysis.steps import Window, distinct_markers, launched_in, windows
from tracekit.model import CPU_DEVICE

if TYPE_CHECKING:
    from tracekit.analysis.alike import CallKinds
    from tracekit.analysis.critical.parts import RankGraph
    from tracekit.analysis.pipeline.parts import RankPipeline
    from tracekit.model import LabelledRank

Row = dict[str, Any]


class RankTables(Struct):
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
    unlabelled: list[Row] = field(default_factory=list)
    votes: Votes = field(default_factory=dict)
    pipeline: RankPipeline | None = None
    critical: RankGraph | None = None


def analyze_rank(labelled: LabelledRank, *, origin_ns: int) -> RankTables:
    """All tables of one rank; pure, exact in int ns, independent of the order of its events."""
    acts = labelled.activities
    markers, renumbered = distinct_markers(labelled.markers)
    member = launched_in(acts.launch_ts, markers)
    kinds = call_kinds(labelled.calls)
    calls = Membership(labelled, markers, kinds)
    step_of_row = np.full(len(acts), -1, np.int64)
    out = RankTables(pa.table({}), pa.table({}))
    for device in np.unique(acts.device).tolist():
        rows = np.flatnonzero(acts.device == device)
        found, at = windows(acts, rows, markers, member)
        numbers = np.array([*(w.step for w in found), -1], np.int64)
        step_of_row[rows] = numbers[at]
        low, high = int(acts.ts[rows].min()), int((acts.ts[rows] + acts.dur[rows]).max())
        edges = np.array([low, found[0].start, *(w.end for w in found), high], np.int64)
        accounts = account(acts, rows, calls.keys, edges)
        counts, on_device = calls.count(device, rows, at, found)
        for window, one, count in zip(found, accounts[1:-1], counts, strict=True):
            _step_rows(out, labelled.rank, device, window, one, count, origin_ns, calls.untimed_on(device))
        total = _total(labelled.rank, device, accounts, on_device, calls.untimed_on(device))
        out.totals.append(total | _slowdown(slowdown(acts, rows)))
    if labelled.meta.witness is not None:
        out.totals.append(_compute_unknown(labelled))
    out.critical = rank_graph(labelled, out.steps, origin_ns, kinds)  # takes most memory: before there are big tables
    out.activities = activity_table(labelled, step_of_row, origin_ns)
    out.collectives = call_table(labelled, calls.step, origin_ns, kinds)
    out.groups = _groups(labelled, kinds)
    out.coverage = coverage(labelled, kinds)
    out.sites = call_sites(labelled, kinds)
    out.unlabelled = unlabelled_sites(labelled, kinds)
    out.votes = votes(labelled, calls.step, {s["step"] for s in out.steps if s["complete"]}, kinds)
    out.pipeline = rank_pipeline(labelled, markers, calls.step, origin_ns)
    out.findings += conflicts(labelled)
    out.findings += rank_findings(labelled, out.totals, out.steps, step_of_row, renumbered)
    return out


def _step_rows(
    out: RankTables,
    rank: int | None,
    device: int,
    window: Window,
    a: Account,
    count: dict[RowKey, int],
    origin: int,
    untimed: bool,
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
        strategy, purpose, phase = key
        names = {"strategy": strategy, "purpose": purpose or None, "phase": phase or None}
        out.exposure.append(head | names | _exposed(count.get(key, 0), a.rows[key], untimed))


def _exposed(count: int, e: Exposed, untimed: bool) -> Row:
    """Columns of `exposure` and `by_strategy`; times are null when no call of the rank has any."""
    return {
        "count": count,
        "total_ns": None if untimed else e.total, "hidden_ns": None if untimed else e.hidden,
        "exposed_ns": None if untimed else e.exposed, "exposed_alone_ns": None if untimed else e.alone,
        "attributed_ns": None if untimed else e.attributed, **_UNSPLIT,
    }  # fmt: skip


_UNSPLIT = dict.fromkeys(
    ("wait_ns", "transfer_ns", "attributed_wait_ns", "attributed_transfer_ns", "attributed_unsplit_ns")
)
"""Columns that need other ranks."""


def _split(a: Account) -> Row:
    return {
        "window_ns": a.window, "compute_only_ns": a.compute_only, "overlapped_ns": a.overlapped,
        "fused_ns": a.fused, "exposed_comm_ns": a.exposed_comm, "exposed_copy_ns": a.copy, "idle_ns": a.idle,
    }  # fmt: skip


def _total(rank: int | None, device: int, accounts: list[Account], on_device: dict[str, int], untimed: bool) -> Row:
    """The whole file: the windows of all steps, and what lies before and after them."""
    a = Account()
    for one in accounts:
        a.add(one)
    comm = a.overlapped + a.exposed_comm
    by_strategy: dict[str, Row] = {
        strategy: _exposed(on_device.get(strategy, 0), a.strategies[strategy], untimed)
        for strategy in sorted(set(a.strategies) | set(on_device))
    }
    return {
        "rank": rank, "device": device, "window_ns": a.window, "busy_ns": a.busy,
        "compute_ns": a.compute_only + a.overlapped, "comm_ns": None if untimed else comm,
        "hidden_ns": None if untimed else a.overlapped, "exposed_ns": None if untimed else a.exposed_comm,
        "overlap_ratio": a.overlapped / comm if comm else None,
        "copy_ns": a.copy, "fused_ns": a.fused, "idle_ns": a.idle, "collectives": sum(on_device.values()),
        "reason": "comm-not-timed" if untimed else None if comm else "no-comm", "by_strategy": by_strategy,
    }  # fmt: skip


def _compute_unknown(labelled: LabelledRank) -> Row:
    """Row of a source that saw no compute: how much of its communication was hidden cannot be known."""
    counts = Counter(c.label.strategy for c in labelled.calls)
    nothing = dict.fromkeys(_NEEDS_COMPUTE)
    by_strategy = {name: {"count": n, **dict.fromkeys(_TIMES), **_UNSPLIT} for name, n in sorted(counts.items())}
    return {
        "rank": labelled.rank, "device": CPU_DEVICE, "window_ns": labelled.window_ns[1] - labelled.window_ns[0],
        **nothing, "collectives": len(labelled.calls), "reason": "compute-unknown", "by_strategy": by_strategy,
    } | _slowdown(Slowdown(None, 0, 0, None))  # fmt: skip


_TIMES = ("total_ns", "hidden_ns", "exposed_ns", "exposed_alone_ns", "attributed_ns")
_NEEDS_COMPUTE = (
    "busy_ns", "compute_ns", "comm_ns", "hidden_ns", "exposed_ns", "overlap_ratio", "copy_ns", "fused_ns", "idle_ns",
)  # fmt: skip


def _slowdown(s: Slowdown) -> Row:
    return {
        "slowdown_ratio": s.ratio, "slowdown_kernels": s.kernels, "slowdown_runs": s.runs, "slowdown_ns": s.extra_ns,
    }  # fmt: skip


def _groups(labelled: LabelledRank, kinds: CallKinds) -> list[Row]:
    """Members of the groups the metadata declares or the calls name; several groups may have the same ranks."""
    known: dict[tuple[tuple[int, ...], str | None], str | None] = {}
    for g in labelled.meta.groups:
        if g.ranks:
            known.setdefault((g.ranks, g.name), g.desc)
    seen = {members for members, _ in known}
    for c in kinds.examples:
        if c.members and (c.group_name is not None or c.members not in seen):
            known.setdefault((c.members, c.group_name), c.group_desc)
            seen.add(c.members)
    return [
        {"members": members, "group_id": group_key(members, None, None), "group_name": name, "group_desc": desc}
        for (members, name), desc in known.items()
    ]

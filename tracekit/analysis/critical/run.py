"""Rows of the tables of the critical path, and of what-if over whole steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tracekit.analysis.critical.joint import join, on_one_clock
from tracekit.analysis.critical.path import Walk
from tracekit.analysis.critical.pieces import KINDS
from tracekit.analysis.critical.segments import Shares, path_table
from tracekit.analysis.critical.whatif import MOST_ERROR, replayed
from tracekit.analysis.tables import from_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from tracekit.analysis.critical.joint import Joint, RankInput
    from tracekit.analysis.critical.whatif import Replayed

Row = dict[str, Any]
COSTLY = 0.03
"""Share of a step from which on a straggler is a finding."""


class CriticalTables(Struct):
    """The table `critical_path`; rows of `critical_steps`, `critical_shares`, its `what_if`, and findings."""

    path: pa.Table = field(default_factory=lambda: from_rows("critical_path", []))
    steps: list[Row] = field(default_factory=list)
    shares: list[Row] = field(default_factory=list)
    what_if: list[Row] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)


def critical(
    inputs: Sequence[RankInput], matches: pa.Table, *, world: int | None = None, stages: Mapping[int, int] = {}
) -> CriticalTables:
    """The critical path of every step, and its length with one thing changed.

    inputs: one recording a rank; matches: that table; world: ranks of the job, where known; stages: rank →
    place in its pipeline.
    """
    out = CriticalTables()
    kept = on_one_clock(inputs)
    if len(kept) < len(inputs):
        out.findings.append(_without_clock(inputs, kept))
    if not kept:
        return out
    joint = join(kept, matches)
    walk = Walk(joint)
    again = replayed(joint, stages)
    reason = _limit(inputs, kept, world)
    windows = {s: joint.window(s) for s in range(len(joint.steps))}
    windows = {s: (begin, last) for s, (begin, last) in windows.items() if joint.time[last] > begin}
    segments = walk.paths(list(windows.values()))
    out.path = path_table(walk, segments, [joint.steps[s] for s in windows])
    shares = Shares(joint, segments)
    for place, (s, (begin, last)) in enumerate(windows.items()):
        number, length = joint.steps[s], int(joint.time[last]) - begin
        own = shares.rows(place, number, length)
        out.shares += own
        base = again.base[s]
        error = None if base is None else again.missed[s] / length
        out.steps.append(_step(joint, s, shares.recordings(place), own, begin, length) | {
            "last_rank": joint.inputs[joint.part[last]].rank, "replayed_ns": base, "replay_error_ratio": error,
            "reason": reason,
        })  # fmt: skip
        if base is not None and error is not None:
            out.what_if += _what_if(again, s, number, length, base, error)
    out.findings += _stragglers(out)
    return out


def _stragglers(out: CriticalTables) -> list[Row]:
    """A finding for the rank whose extra compute costs more than COSTLY of a mean step."""
    whole = {r["step"] for r in out.steps if r["complete"]} or {r["step"] for r in out.steps}
    rows = [w for w in out.what_if if w["what"] == "no-straggler" and w["saved_ns"] is not None and w["step"] in whole]
    if not rows:
        return []
    saved, length = (sum(w[k] for w in rows) / len(rows) for k in ("saved_ns", "replayed_ns"))
    if saved < COSTLY * length:
        return []
    rank = int(rows[0]["subject"].split()[1])
    message = (
        f"rank {rank} computes longer than its peers: as fast as they, a step would take {100 * saved / length:.1f} % "
        f"less ({saved / 1e6:,.1f} of {length / 1e6:,.1f} ms)"
    )
    error = max(w["replay_error_ratio"] for w in rows)
    steps = "1 step" if len(rows) == 1 else f"{len(rows)} steps"
    return [{
        "severity": "warning", "code": "straggler-on-path", "rank": rank, "message": message, "cost_ns": round(saved),
        "avoidable_ns": round(saved), "where": f"rank {rank}", "measured": length, "expected": length - saved,
        "unit": "ns", "evidence": f"replay of {steps}, error up to {100 * error:.1f} %",
        "advice": "compare its clock rate, temperature, neighbours and share of the data with its peers'",
    }]  # fmt: skip


def _without_clock(inputs: Sequence[RankInput], kept: Sequence[RankInput]) -> Row:
    lost = sorted(one.rank for one in inputs if one.rank is not None and all(one is not k for k in kept))
    named = ", ".join(map(str, lost[:8])) + (", …" if len(lost) > 8 else "")
    rest = f"the critical path leaves rank {named} out" if kept else "there is no critical path over ranks"
    message = f"no common clock ties {'all' if kept else 'the'} recordings: {rest}"
    return {"severity": "info", "code": "critical-path-clock", "rank": None, "message": message}


def _limit(inputs: Sequence[RankInput], kept: Sequence[RankInput], world: int | None) -> str | None:
    if len(kept) < len(inputs):
        return "clock"
    if world is not None and world > len(kept):
        return "one-rank" if len(kept) == 1 else "ranks-missing"
    return "one-rank" if len(kept) == 1 and world != 1 else None


def _step(joint: Joint, s: int, visited: int, shares: Sequence[Row], begin: int, length: int) -> Row:
    present = joint.starts[s]
    clocks = [joint.inputs[p].clock for p in present]
    kinds = {f"{kind}_ns": sum(r["dur_ns"] for r in shares if r["kind"] == kind) for kind in KINDS}
    return {
        "step": joint.steps[s], "ts_ns": begin, "dur_ns": length, "complete": joint.whole[s], "ranks": len(present),
        "ranks_on_path": visited, **kinds,
        "clock_error_ns": max((c.error_ns or 0 for c in clocks if c is not None), default=None),
    }  # fmt: skip


def _what_if(again: Replayed, s: int, number: int, length: int, base: int, error: float) -> list[Row]:
    rows = []
    for case, lengths in zip(again.cases, again.lengths, strict=True):
        reason = "replay-error" if error > MOST_ERROR else case.reason
        ns = lengths[s] if reason is None else None
        rows.append({
            "basis": "critical-path", "pipeline": None, "step": number, "what": case.what, "subject": case.subject,
            "window_ns": length, "replayed_ns": base, "replay_error_ratio": error, "what_if_ns": ns,
            "saved_ns": None if ns is None else base - ns,
            "saved_ratio": None if ns is None or not base else (base - ns) / base, "reason": reason,
        })  # fmt: skip
    return rows

"""What a reader of one rank should know before believing its numbers."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.steps import WHOLE
from tracekit.model import CPU_DEVICE, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.model import LabelledRank

_COMM_WORD = re.compile(
    r"(?i)all_?reduc|all_?gather|reduce_?scatter|all_?to_?all|a2a|send_?recv|broadcast|barrier|nccl|rccl|shmem|"
    r"dispatch|combine|collective|peer|p2p|cross_device|one_?shot|two_?shot|\bcomm"
)
_OUTLIER_SHARE = 0.5
_OUTLIER_NS = 10_000_000_000
_FEW = 0.1
"""A step with fewer activities than this share of the usual number is suspect."""
_ENOUGH_STEPS = 3
_UNUSUAL = 5
"""A step this many times as long as the usual one, most of it in one activity, is suspect."""
_SHOWN = 5

Row = dict[str, Any]


def _row(severity: str, code: str, rank: int | None, message: str) -> Row:
    return {"severity": severity, "code": code, "rank": rank, "message": message}


def rank_findings(
    labelled: LabelledRank,
    totals: list[Row],
    steps: list[Row],
    step_of_row: NDArray[np.int64],
    renumbered: int = 0,
) -> list[Row]:
    """Findings of one rank; `step_of_row`: step number of each activity, -1 = none."""
    if labelled.meta.witness is not None:
        message = (
            f"{labelled.meta.witness}: calls, groups and order are known, compute is not, so no exposed share can be "
            "given; add the profiler's trace of the same run"
        )
        return [_row("info", "compute-unknown", labelled.rank, message)]
    if not len(labelled.activities):
        message = "no device activity and no communication in this file: nothing to account for"
        return [_row("warning", "no-device-activity", labelled.rank, message)]
    return [
        *_comm_findings(labelled, totals),
        *_outlier(labelled),
        *_step_findings(labelled, totals, steps, step_of_row),
        *_step_health(labelled, steps, step_of_row),
        *_renumbered(labelled, renumbered),
    ]


def _comm_findings(labelled: LabelledRank, totals: list[Row]) -> list[Row]:
    acts, rank, out = labelled.activities, labelled.rank, []
    if (acts.device == CPU_DEVICE).all():
        message = (
            "no device activity in this file (CPU-only): compute is the main thread's operators, "
            "communication the workers' spans"
        )
        out.append(_row("info", "host-trace", rank, message))
    if any(t["reason"] == "comm-not-timed" for t in totals):
        message = f"{len(labelled.calls)} communication calls were issued, but the file holds no time of any"
        out.append(_row("warning", "comm-not-timed", rank, message))
    elif not any(t["comm_ns"] or t["fused_ns"] for t in totals):
        out.append(_row("warning", "no-comm", rank, _no_comm(labelled)))
    unlinked = [c for c in labelled.calls if c.ts is None and c.group_size != 1]
    if unlinked and len(unlinked) < len(labelled.calls):
        message = f"{len(unlinked)} of {len(labelled.calls)} communication calls left no device work in this file"
        out.append(_row("info", "calls-without-device-work", rank, message))
    return out


def _no_comm(labelled: LabelledRank) -> str:
    acts = labelled.activities
    names = {acts.names[c] for c in np.unique(acts.name).tolist()}
    near = sorted(n for n in names if _COMM_WORD.search(n))[:_SHOWN]
    if labelled.calls:
        return f"{len(labelled.calls)} communication calls were issued, but no device work of theirs is in the file"
    if near:
        return "no communication found; the nearest misses by name were: " + ", ".join(n[:80] for n in near)
    return "no communication found, and no activity whose name hints at any"


def _outlier(labelled: LabelledRank) -> list[Row]:
    """One activity that is most of all device time: a defect of the writer, or a hang."""
    acts = labelled.activities
    rows = np.flatnonzero(acts.kind != Kind.COPY)
    if len(rows) < 2:
        return []
    longest = int(rows[np.argmax(acts.dur[rows])])
    ns = int(acts.dur[longest])
    if ns <= _OUTLIER_NS or ns <= _OUTLIER_SHARE * int(acts.dur[rows].sum()):
        return []
    name = acts.names[acts.name[longest]][:80]
    message = f"one activity is {ns / 1e9:.1f} s long, more than half of all device time: {name}"
    return [_row("warning", "duration-outlier", labelled.rank, message)]


def _step_findings(
    labelled: LabelledRank, totals: list[Row], steps: list[Row], step_of_row: NDArray[np.int64]
) -> list[Row]:
    if not steps:
        return []
    rank = labelled.rank
    if all(s["found_by"] == WHOLE for s in steps):
        message = "no step markers found: the whole recording is one window"
        if labelled.markers:
            found = f"{len(labelled.markers)} step markers, but none launched an activity"
            message = f"{found}: the whole recording is one window"
        return [_row("info", "no-step-markers", rank, message)]
    out = []
    window = sum(t["window_ns"] for t in totals)
    outside = window - sum(s["dur_ns"] for s in steps)
    between = int((step_of_row < 0).sum())
    if outside or between:
        message = (
            f"{outside / 1e6:.1f} ms ({100 * outside / max(window, 1):.1f} %) of the recording lie before or after "
            f"the steps; {between} of {len(step_of_row)} activities were launched by no step"
        )
        out.append(_row("info", "outside-steps", rank, message))
    return out


def _step_health(labelled: LabelledRank, steps: list[Row], step_of_row: NDArray[np.int64]) -> list[Row]:
    """Steps with hardly any activity, or blown up by a single one."""
    marked = [s for s in steps if s["found_by"] != WHOLE]
    if len(marked) < _ENOUGH_STEPS:
        return []
    acts, out = labelled.activities, []
    usual = statistics.median(s["dur_ns"] for s in marked)
    counts = []
    for step in marked:
        rows = np.flatnonzero((step_of_row == step["step"]) & (acts.device == step["device"]))
        counts.append(len(rows))
        longest = int(acts.dur[rows].max()) if len(rows) else 0
        if usual and step["dur_ns"] > _UNUSUAL * usual and longest > _OUTLIER_SHARE * step["dur_ns"]:
            name = acts.names[acts.name[int(rows[np.argmax(acts.dur[rows])])]][:80]
            message = (
                f"step {step['step']} is {step['dur_ns'] / usual:.0f} times as long as usual, and one activity is "
                f"{100 * longest / step['dur_ns']:.0f} % of it: {name}"
            )
            out.append(_row("warning", "step-outlier", labelled.rank, message))
    few = statistics.median(counts) * _FEW
    thin = [f"{s['step']} ({n})" for s, n in zip(marked, counts, strict=True) if n < few]
    if thin:
        message = (
            f"{len(thin)} of {len(marked)} steps have less than a tenth of the usual {statistics.median(counts):.0f} "
            f"activities: {', '.join(thin[:_SHOWN])}"
        )
        out.append(_row("warning", "step-thin", labelled.rank, message))
    return out


def _renumbered(labelled: LabelledRank, count: int) -> list[Row]:
    if not count:
        return []
    message = f"{count} step numbers came more than once or are no step numbers; those steps were given new numbers"
    return [_row("warning", "step-renumbered", labelled.rank, message)]

"""What a reader of one rank should know before believing its numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.model import CPU_DEVICE, Kind

if TYPE_CHECKING:
    from tracekit.model import LabelledRank

_COMM_WORD = re.compile(
    r"(?i)all_?reduc|all_?gather|reduce_?scatter|all_?to_?all|a2a|send_?recv|broadcast|barrier|nccl|rccl|shmem|"
    r"dispatch|combine|collective|peer|p2p|cross_device|one_?shot|two_?shot|\bcomm"
)
_OUTLIER_SHARE = 0.5
_OUTLIER_NS = 10_000_000_000


def _row(severity: str, code: str, rank: int | None, message: str) -> dict[str, Any]:
    return {"severity": severity, "code": code, "rank": rank, "message": message}


def rank_findings(
    labelled: LabelledRank, totals: list[dict[str, Any]], steps: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Findings of one rank, most severe first."""
    acts, rank = labelled.activities, labelled.rank
    out = []
    if not len(acts):
        out.append(
            _row(
                "warning",
                "no-device-activity",
                rank,
                "no device activity and no communication in this file: nothing to account for",
            )
        )
        return out
    if (acts.device == CPU_DEVICE).all():
        out.append(
            _row(
                "info",
                "host-trace",
                rank,
                "no device activity in this file (CPU-only): compute is the main thread's operators, "
                "communication the workers' spans",
            )
        )
    if not any(t["comm_ns"] for t in totals):
        out.append(_row("warning", "no-comm", rank, _no_comm(labelled)))
    kernels = acts.dur[acts.kind != Kind.COPY]
    if (
        len(kernels) > 1
        and int(kernels.max()) > _OUTLIER_NS
        and int(kernels.max()) > _OUTLIER_SHARE * int(kernels.sum())
    ):
        name = acts.names[acts.name[int(np.argmax(acts.dur))]]
        out.append(
            _row(
                "warning",
                "duration-outlier",
                rank,
                f"one activity is {int(kernels.max()) / 1e9:.1f} s long, more than half of all device time: "
                f"{name[:80]}",
            )
        )
    if steps and all(s["found_by"] == "whole-window" for s in steps):
        out.append(_row("info", "no-step-markers", rank, "no step markers found: the whole recording is one window"))
    unlinked = [c for c in labelled.calls if c.ts is None and c.group_size != 1]
    if unlinked and len(unlinked) < len(labelled.calls):
        out.append(
            _row(
                "info",
                "calls-without-device-work",
                rank,
                f"{len(unlinked)} of {len(labelled.calls)} communication calls left no device work in this file",
            )
        )
    return out


def _no_comm(labelled: LabelledRank) -> str:
    acts = labelled.activities
    names = {acts.names[c] for c in np.unique(acts.name).tolist()}
    near = sorted(n for n in names if _COMM_WORD.search(n))[:5]
    if labelled.calls:
        return f"{len(labelled.calls)} communication calls were issued, but no device work of theirs is in the file"
    if near:
        return "no communication found; the nearest misses by name were: " + ", ".join(n[:80] for n in near)
    return "no communication found, and no activity whose name hints at any"

"""Call sites: calls of one operation, group and scope, with the time that nothing hid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.alike import call_kinds
from tracekit.analysis.intervals import covered, union
from tracekit.model import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.analysis.alike import CallKinds
    from tracekit.model import Call, LabelledRank

KEEP = 20


def place(call: Call, markers: set[str]) -> str:
    """Where a call was issued: its innermost scope; a step marker is no place, it would split one site by step."""
    return next((s for s in reversed(call.scopes) if s not in markers), call.kernel or "")


def _site(call: Call, markers: set[str]) -> tuple[str, str, str, str, str]:
    group = call.group_desc or call.group_name or ""
    return (call.label.strategy, call.op, group, str(call.group_size or ""), place(call, markers))


def call_sites(labelled: LabelledRank, kinds: CallKinds | None = None) -> list[dict[str, Any]]:
    """The call sites with most exposed time, largest first; sums over devices of unions. None without timed calls."""
    acts = labelled.activities
    if not (acts.call >= 0).any():
        return []
    markers = {m.name for m in labelled.markers}
    kinds = kinds or call_kinds(labelled.calls)
    sites = [_site(c, markers) for c in kinds.examples]
    names = sorted(set(sites))
    number = {s: i for i, s in enumerate(names)}
    site_of_call = np.array([number[s] for s in sites], np.int64)[kinds.which]
    counts = np.bincount(site_of_call, minlength=len(names)).tolist()
    times = np.zeros((len(names), 2), np.int64)
    for device in np.unique(acts.device).tolist():
        _add_times(times, labelled, np.flatnonzero(acts.device == device), site_of_call)
    out = [
        {
            "strategy": s[0], "op": s[1], "group": s[2] or None, "group_size": int(s[3]) if s[3] else None,
            "site": s[4] or None, "count": counts[i], "exposed_ns": int(times[i, 0]), "total_ns": int(times[i, 1]),
        }
        for i, s in enumerate(names)
    ]  # fmt: skip
    return sorted(out, key=lambda r: (-r["exposed_ns"], -r["total_ns"], r["strategy"], r["op"], r["site"] or ""))[:KEEP]


def _add_times(
    times: NDArray[np.int64], labelled: LabelledRank, rows: NDArray[np.intp], site_of_call: NDArray[np.int64]
) -> None:
    """Add (exposed, total) of each site on one device: the length of its union, less what compute covers of it."""
    acts = labelled.activities
    compute = rows[acts.kind[rows] == Kind.COMPUTE]
    over = union(acts.ts[compute], acts.ts[compute] + acts.dur[compute])
    comm = rows[(acts.kind[rows] == Kind.COMM) & (acts.call[rows] >= 0)]
    code = site_of_call[acts.call[comm]]
    order = np.argsort(code, kind="stable")
    found, first = np.unique(code[order], return_index=True)
    for site, mine in zip(found.tolist(), np.split(comm[order], first[1:]) if len(found) else [], strict=True):
        start, end = union(acts.ts[mine], acts.ts[mine] + acts.dur[mine])
        total = int((end - start).sum())
        hidden = int((covered(over, end) - covered(over, start)).sum())
        times[site] += (total - hidden, total)

"""Call sites: calls of one operation, group and scope, with the time that nothing hid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.accounting import account

if TYPE_CHECKING:
    from tracekit.model import Call, LabelledRank

KEEP = 20


def _site(call: Call, markers: set[str]) -> tuple[str, str, str, str, str]:
    """A step marker is no place: it would split one call site by step."""
    where = next((s for s in reversed(call.scopes) if s not in markers), call.kernel or "")
    return (call.label.strategy, call.op, call.group_desc or call.group_name or "", str(call.group_size or ""), where)


def call_sites(labelled: LabelledRank) -> list[dict[str, Any]]:
    """The call sites with most exposed time, largest first; exposed and total are unions over all devices."""
    acts, calls = labelled.activities, labelled.calls
    if not len(acts) or not calls:
        return []
    markers = {m.name for m in labelled.markers}
    sites = [_site(c, markers) for c in calls]
    number = {s: i for i, s in enumerate(sorted(set(sites)))}
    keys = [(f"{number[s]:09d}", "", "") for s in sites]
    exposed: dict[int, list[int]] = {}
    for device in np.unique(acts.device).tolist():
        rows = np.flatnonzero(acts.device == device)
        edges = np.array([acts.ts[rows].min(), (acts.ts[rows] + acts.dur[rows]).max()], np.int64)
        for key, e in account(acts, rows, keys, edges)[0].strategies.items():
            if key.isdigit():
                sums = exposed.setdefault(int(key), [0, 0])
                sums[0] += e.exposed
                sums[1] += e.total
    names = sorted(number, key=number.__getitem__)
    counts = np.bincount([number[s] for s in sites], minlength=len(names)).tolist()
    out = [
        {
            "strategy": s[0], "op": s[1], "group": s[2] or None, "group_size": int(s[3]) if s[3] else None,
            "site": s[4] or None, "count": counts[i], "exposed_ns": exposed.get(i, [0, 0])[0],
            "total_ns": exposed.get(i, [0, 0])[1],
        }
        for i, s in enumerate(names)
    ]  # fmt: skip
    return sorted(out, key=lambda r: (-r["exposed_ns"], -r["total_ns"], r["strategy"], r["op"], r["site"] or ""))[:KEEP]

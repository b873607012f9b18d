"""Call sites: calls of one operation, group and scope, with the time that nothing hid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.alike import call_kinds
from tracekit.analysis.intervals import covered, union
from tracekit.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.alike import CallKinds
    from tracekit.model import Call, LabelledRank

KEEP = 500
"""Sites of a rank that are kept; a job with more has generated names in its scopes."""
SITE = ("strategy", "purpose", "phase", "op", "group", "group_size", "site")
"""What makes a call site."""
_SUMS = ("count", "payload_bytes", "exposed_ns", "total_ns")


def place(call: Call, markers: set[str]) -> str:
    """Where a call was issued: its innermost scope; a step marker is no place, it would split one site by step."""
    return next((s for s in reversed(call.scopes) if s not in markers), call.kernel or "")


def _site(call: Call, markers: set[str]) -> tuple[str, ...]:
    group, label = call.group_desc or call.group_name or "", call.label
    names = (label.strategy, label.purpose or "", label.phase or "", call.op)
    return (*names, group, str(call.group_size or ""), place(call, markers))


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
    payload = _payload(kinds, [number[s] for s in sites], len(names))
    out = [
        {
            "strategy": s[0], "purpose": s[1] or None, "phase": s[2] or None, "op": s[3], "group": s[4] or None,
            "group_size": int(s[5]) if s[5] else None, "site": s[6] or None, "count": counts[i],
            "payload_bytes": payload[i], "exposed_ns": int(times[i, 0]), "total_ns": int(times[i, 1]),
        }
        for i, s in enumerate(names)
    ]  # fmt: skip
    return sorted(out, key=lambda r: (-r["exposed_ns"], -r["total_ns"], r["strategy"], r["op"], r["site"] or ""))[:KEEP]


def _payload(kinds: CallKinds, site_of_kind: Sequence[int], sites: int) -> list[int | None]:
    """Bytes of each site; None where one of its calls does not tell. Calls of a kind have the same."""
    sums: list[int | None] = [0] * sites
    often = np.bincount(kinds.which, minlength=len(kinds.examples)).tolist()
    for site, call, n in zip(site_of_kind, kinds.examples, often, strict=True):
        known, more = sums[site], call.payload_bytes
        sums[site] = None if known is None or more is None else known + n * more
    return sums


def summed(sites: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Call sites of all ranks as one list: counts, bytes and times are sums over the `ranks` that have the site."""
    out: dict[tuple[Any, ...], dict[str, Any]] = {}
    for s in sites:
        key = {k: s.get(k) for k in SITE}
        row = out.setdefault(tuple(key.values()), key | {"ranks": 0} | dict.fromkeys(_SUMS, 0))
        row["ranks"] += s.get("ranks", 1)
        for k in _SUMS:
            more = s.get(k)
            row[k] = None if row[k] is None or more is None else row[k] + more
    return sorted(out.values(), key=lambda r: (-r["exposed_ns"], -r["total_ns"], *(str(r[k]) for k in SITE)))


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

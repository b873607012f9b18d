"""How much of the communication bears a label, and what the rest looks like."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.alike import call_kinds
from tracekit.analysis.sites import place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.analysis.alike import CallKinds
    from tracekit.model import Call, LabelledRank

KEEP = 20
NO_LABEL = frozenset({"unknown", "conflict"})

Row = dict[str, Any]


def _ns(labelled: LabelledRank) -> NDArray[np.int64]:
    """Device time of each call: the sum of its activities' durations."""
    acts = labelled.activities
    own = acts.call >= 0
    weights = np.bincount(acts.call[own], weights=acts.dur[own], minlength=len(labelled.calls))
    return weights.astype(np.int64)


def coverage(labelled: LabelledRank, kinds: CallKinds | None = None) -> Row:
    """Communication time, bytes and calls, and the part of each that has a strategy, by tier.

    Times are sums of durations of activities; bytes count calls whose size is known.
    """
    kinds = kinds or call_kinds(labelled.calls)
    out: Row = {"comm_ns": 0, "labelled_ns": 0, "bytes": 0, "labelled_bytes": 0, "calls": 0, "labelled_calls": 0}
    tiers: Counter[str] = Counter()
    tier_bytes: Counter[str] = Counter()
    times = np.zeros(len(kinds.examples), np.int64)
    np.add.at(times, kinds.which, _ns(labelled))
    counts = np.bincount(kinds.which, minlength=len(times))
    for call, ns, n in zip(kinds.examples, times.tolist(), counts.tolist(), strict=True):
        size = n * (call.payload_bytes or 0)
        out["comm_ns"] += ns
        out["bytes"] += size
        out["calls"] += n
        if call.label.strategy not in NO_LABEL:
            out["labelled_ns"] += ns
            out["labelled_bytes"] += size
            out["labelled_calls"] += n
            tiers[call.label.tier or "?"] += ns
            tier_bytes[call.label.tier or "?"] += size
    return out | {"tiers": dict(tiers), "tier_bytes": dict(tier_bytes)}


def unlabelled_sites(labelled: LabelledRank, kinds: CallKinds | None = None) -> list[Row]:
    """Call sites without a label, the longest first: what was seen there, and which labels remain possible."""
    kinds = kinds or call_kinds(labelled.calls)
    unlabelled = np.array([c.label.strategy in NO_LABEL for c in kinds.examples], np.bool_)
    if not unlabelled.any():
        return []
    markers = {m.name for m in labelled.markers}
    rows: dict[tuple[Any, ...], Row] = {}
    sizes: dict[tuple[Any, ...], Counter[int | None]] = defaultdict(Counter)
    times = np.zeros(len(kinds.examples), np.int64)
    np.add.at(times, kinds.which, _ns(labelled))
    counts = np.bincount(kinds.which, minlength=len(times)).tolist()
    first = np.unique(kinds.which, return_index=True)[1].tolist()
    for kind in np.flatnonzero(unlabelled).tolist():
        call = kinds.examples[kind]
        head = {
            "op": call.op, "group": call.group_desc or call.group_name, "group_size": call.group_size,
            "dtype": call.dtype, "site": place(call, markers) or None, "kernel": call.kernel,
            "strategy": call.label.strategy, "axes": call.label.axes, "purpose": call.label.purpose,
            "alternatives": " ".join(s for s, _ in call.label.alternatives) or None,
        }  # fmt: skip
        key = tuple(head.values())
        row = rows.setdefault(key, head | {"count": 0, "total_ns": 0, "bytes": 0, "example": first[kind]})
        row["count"] += counts[kind]
        row["total_ns"] += int(times[kind])
        row["bytes"] += counts[kind] * (call.payload_bytes or 0)
        sizes[key][call.payload_bytes] += counts[kind]
    for key, row in rows.items():
        row["payload_bytes"] = sizes[key].most_common(1)[0][0]
    return sorted(rows.values(), key=lambda r: (-r["total_ns"], -r["bytes"], -r["count"], r["example"]))[:KEEP]


def conflicts(labelled: LabelledRank) -> list[Row]:
    """Findings `label-conflict`: decisive rules disagree; one row for each pair of answers."""
    found: dict[str, list[int]] = defaultdict(list)
    for number, call in enumerate(labelled.calls):
        if call.label.strategy == "conflict":
            found[_sides(call)].append(number)
    prefix = "" if labelled.rank is None else f"{labelled.rank}:"
    return [
        {
            "severity": "warning", "code": "label-conflict", "rank": labelled.rank,
            "message": f"{len(numbers)} calls have contradicting evidence for {sides}; "
            f"`tracekit explain --collective {prefix}{numbers[0]}` shows it",
        }
        for sides, numbers in sorted(found.items())
    ]  # fmt: skip


def _sides(call: Call) -> str:
    return " and ".join(sorted({s for s, _ in call.label.alternatives}))

"""Rows of `blame`, and the findings that name a rank."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.analysis.crossrank.blame import Traced

Row = dict[str, Any]
SHARE, OFTEN, COST = 0.3, 0.5, 0.005
"""A rank is named for a cause that brings about this share of all waiting, is the first in this share of the steps, and
costs the ranks this share of their time."""
_WORDS = {
    "compute": "it computes longer than its peers",
    "transfer": "its transfers take longer",
    "input": "its device has nothing to do before the step's first work: look at its input and host",
    "launch": "its device is idle within the step: look at its host and launches",
}


def blame_rows(traced: Iterable[Traced]) -> list[Row]:
    """Table `blame`: one row a step, rank and cause."""
    return [
        {
            "step": t.step, "rank": t.rank, "cause": t.cause, "wait_ns": t.wait_ns, "direct_ns": t.direct_ns,
            "calls": t.calls,
        }
        for t in traced
    ]  # fmt: skip


def late_findings(rows: Sequence[Row], windows: Sequence[tuple[int, int]]) -> list[Row]:
    """Ranks that persist in being waited for, the costliest first."""
    total = sum(r["wait_ns"] for r in rows)
    spent = sum(high - low for low, high in windows)
    cost: Counter[tuple[int, str]] = Counter()
    direct: Counter[tuple[int, str]] = Counter()
    by_step: dict[Any, Counter[tuple[int, str]]] = defaultdict(Counter)
    for r in rows:
        if r["rank"] is not None:
            key = (r["rank"], r["cause"])
            cost[key] += r["wait_ns"]
            direct[key] += r["direct_ns"]
            by_step[r["step"]][key] += r["wait_ns"]
    first = Counter(c.most_common(1)[0][0] for step, c in by_step.items() if step is not None)
    steps = sum(step is not None for step in by_step)
    out = []
    for (rank, cause), ns in cost.most_common():
        persists = steps == 0 or first[rank, cause] >= OFTEN * steps
        if ns < SHARE * total or ns < COST * spent or not persists:
            continue
        through = "" if direct[rank, cause] >= OFTEN * ns else ", most of it passed on by ranks that waited for it"
        text = f"rank {rank} is what others wait for: {_WORDS[cause]}; {100 * ns / total:.0f} % of all waiting in "
        text += f"collectives ({ns / 1e6:.1f} ms over ranks{through}), first in {first[rank, cause]} of {steps} steps"
        out.append({"severity": "warning", "code": "late-rank", "rank": rank, "message": text, "cost_ns": None})
    return out

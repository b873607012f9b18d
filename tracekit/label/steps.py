"""Step markers on the host, by the grammars of `rules/steps.toml`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from tracekit.model import HostCat, Marker

if TYPE_CHECKING:
    from tracekit.label.rules import Rules, StepRule
    from tracekit.model import RankTrace

_LOOKS_LIKE_STEP = re.compile(r"(?i)(?:step|iter(?:ation)?|batch)\D{0,3}\d+")


def markers(trace: RankTrace, rules: Rules) -> list[Marker]:
    """Markers of the best grammar that occurs, in time order; nested ones of it are dropped.

    Numbers come from the marker's text when it has one; else, and when numbers repeat, markers are
    numbered in order from 0.
    """
    host = trace.host
    annotations = np.flatnonzero(host.cat == HostCat.ANNOTATION)
    codes = np.unique(host.name[annotations]).tolist()
    found: dict[int, tuple[StepRule, re.Match[str]]] = {}
    for code in codes:
        hits = [(r, m) for r in rules.steps if (m := r.pattern.fullmatch(trace.names[code]))]
        if hits:
            found[code] = min(hits, key=lambda h: (h[0].priority, h[0].id))
    if not found:
        return []
    best = min((r.priority, r.id) for r, _ in found.values())
    chosen = {c: hit for c, hit in found.items() if (hit[0].priority, hit[0].id) == best}
    rows = annotations[np.isin(host.name[annotations], np.array(list(chosen), np.int32))]
    out: list[Marker] = []
    for row in rows.tolist():
        start = int(host.ts[row])
        if out and start < out[-1].end:
            continue
        rule, hit = chosen[int(host.name[row])]
        number = hit.groupdict().get("step")
        phase = hit.groupdict().get("phase")
        out.append(
            Marker(
                step=int(number) if number and number.isdigit() else -1,
                name=trace.names[host.name[row]],
                start=start,
                end=start + int(host.dur[row]),
                found_by=rule.id,
                phase=rules.step_phases.get(phase or ""),
            )
        )
    _number(out)
    return out


def _number(found: list[Marker]) -> None:
    numbers = [m.step for m in found]
    rising = all(a < b for a, b in zip(numbers, numbers[1:], strict=False))
    if not rising or -1 in numbers or max(numbers, default=0) >= 1 << 31:
        for i, marker in enumerate(found):
            marker.step = i


def unmatched(trace: RankTrace, rules: Rules, limit: int = 5) -> list[str]:
    """Annotation names that look like steps but no grammar takes (for the report)."""
    host = trace.host
    codes = np.unique(host.name[host.cat == HostCat.ANNOTATION]).tolist()
    names = [trace.names[c] for c in codes]
    return [
        n for n in names
        if _LOOKS_LIKE_STEP.search(n) and not any(r.pattern.fullmatch(n) for r in rules.steps)
    ][:limit]  # fmt: skip

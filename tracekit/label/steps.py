"""Step markers: host annotations that a step grammar matches."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.model import HostCat, Marker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.model import RankTrace

_CANDIDATE = re.compile(r"(?i)step|iter|execute|batch|decode|prefill|generat")
USER_RANK = -1
UNRANKED = 50


class StepRule(Struct, frozen=True):
    """One grammar of steps.toml; of those that match in a trace, those of the lowest `rank` are used."""

    id: str
    pattern: re.Pattern[str]
    source: str
    phase: str | None = None
    rank: int = UNRANKED
    note: str = ""


class Steps(Struct):
    """Markers in order of time; names that belong to a step grammar, with the phase each tells; look-alikes."""

    markers: list[Marker]
    names: dict[str, str | None]
    unmatched: list[tuple[str, int]]


def find_steps(trace: RankTrace, rules: Iterable[StepRule]) -> Steps:
    """Match the distinct annotation names of a trace, then take the rows of the preferred grammar."""
    rows = np.flatnonzero(trace.host.cat == HostCat.ANNOTATION)
    often = np.bincount(trace.host.name[rows], minlength=1)
    codes = np.flatnonzero(often)
    rules = sorted(rules, key=lambda r: r.rank)
    matched: dict[int, tuple[StepRule, re.Match[str]]] = {}
    unmatched: Counter[str] = Counter()
    for code, count in zip(codes.tolist(), often[codes].tolist(), strict=True):
        name = trace.names[code]
        for rule in rules:
            found = rule.pattern.fullmatch(name)
            if found:
                matched[code] = (rule, found)
                break
        else:
            if _CANDIDATE.search(name):
                unmatched[re.sub(r"\d+", "#", name)] += count
    names = {trace.names[c]: rule.phase for c, (rule, _) in matched.items()}
    if not matched:
        return Steps([], names, unmatched.most_common(10))
    best = min(rule.rank for rule, _ in matched.values())
    chosen = {c: m for c, m in matched.items() if m[0].rank == best}
    return Steps(_markers(trace, rows, chosen), names, unmatched.most_common(10))


def _markers(trace: RankTrace, rows: np.ndarray, chosen: dict[int, tuple[StepRule, re.Match[str]]]) -> list[Marker]:
    host = trace.host
    keep = rows[np.isin(host.name[rows], np.fromiter(chosen, np.int32, len(chosen)))]
    keep = keep[np.argsort(host.ts[keep], kind="stable")]
    out: list[Marker] = []
    taken_until = np.iinfo(np.int64).min
    for row in keep.tolist():
        rule, found = chosen[int(host.name[row])]
        start = int(host.ts[row])
        end = start + int(host.dur[row])
        if end <= taken_until:
            continue  # a marker inside a marker (a nested scope, or a second thread) marks no step of its own
        number = found.groupdict().get("step")
        step = int(number) if number is not None and number.isdecimal() else len(out)
        out.append(Marker(step, found.string, start, end, rule.id, rule.phase))
        taken_until = max(taken_until, end)
    return out

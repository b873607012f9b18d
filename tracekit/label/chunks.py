"""Pipeline work on the host: annotations that enclose one micro-batch on one stage, and where backward ran."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.label.steps import UNRANKED
from tracekit.model import ChunkSpan, HostCat, PipelineSpans

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tracekit.model import RankTrace

_ENGINE = "autograd::engine::evaluate_function"
_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)#")
_ACTION = re.compile(r"(?P<stage>\d+)(?P<kind>[FBIW])(?P<mb>\d+)")


class ChunkRule(Struct, frozen=True):
    """One grammar of pipeline.toml; of those that match in a trace, those of the lowest `rank` are used."""

    id: str
    pattern: re.Pattern[str]
    source: str
    kind: str | None = None
    rank: int = UNRANKED
    note: str = ""


def find_chunks(trace: RankTrace, rules: Iterable[ChunkRule]) -> PipelineSpans:
    """Annotated pipeline work, and the host intervals of backward and of the optimizer."""
    host = trace.host
    notes = np.flatnonzero(host.cat == HostCat.ANNOTATION)
    names = np.unique(host.name[notes]).tolist()
    matched: dict[int, tuple[ChunkRule, re.Match[str]]] = {}
    ordered = sorted(rules, key=lambda r: r.rank)
    for code in names:
        for rule in ordered:
            if found := rule.pattern.fullmatch(trace.names[code]):
                matched[code] = (rule, found)
                break
    engine = [i for i, n in enumerate(trace.names) if n.startswith(_ENGINE)]
    optimizer = [c for c in names if _OPTIMIZER.match(trace.names[c])]
    out = PipelineSpans([], _union(trace, np.isin(host.name, engine)), _union(trace, np.isin(host.name, optimizer)))
    if matched:
        best = min(rule.rank for rule, _ in matched.values())
        chosen = {c: m for c, m in matched.items() if m[0].rank == best}
        for row in notes[np.isin(host.name[notes], list(chosen))].tolist():
            rule, found = chosen[int(host.name[row])]
            actions = _actions(rule, found)
            if actions:
                start = int(host.ts[row])
                out.chunks.append(ChunkSpan(start, start + int(host.dur[row]), actions, rule.id))
        out.chunks.sort(key=lambda c: (c.start, c.end, c.actions))
    return out


def _actions(rule: ChunkRule, found: re.Match[str]) -> tuple[tuple[str, int | None, int | None], ...]:
    """(kind, stage, micro-batch) of each action the annotation names; none where it contradicts its grammar."""
    told = found.groupdict()
    if told.get("pair") is not None:
        both = [_ACTION.fullmatch(part.strip()) for part in told["pair"].split(";")]
        return tuple((m["kind"], _number(m["stage"]), _number(m["mb"])) for m in both if m is not None)
    kinds = told.get("kind") or rule.kind or ""
    return tuple((kind, _number(told.get("stage")), _number(told.get("mb"))) for kind in kinds)


def _number(text: str | None) -> int | None:
    """A stage or micro-batch number; None for nothing, or for what no number of either can be."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else None


def _union(trace: RankTrace, rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(n, 2) disjoint ascending [start, end) ns covered by these host rows."""
    start = trace.host.ts[rows]
    end = start + trace.host.dur[rows]
    if not len(start):
        return np.empty((0, 2), np.int64)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.append(True, start[1:] > reach[:-1])
    last = np.append(first[1:], True)
    return np.stack([start[first], reach[last]], axis=1)

"""Do equal calls bear equal labels on all ranks and in all steps? A minority is a reason to look again."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tracekit.analysis.alike import call_kinds
from tracekit.analysis.detail import group_id
from tracekit.analysis.distinct import distinct_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.analysis.alike import CallKinds
    from tracekit.model import LabelledRank

SHOWN = 5
_NO_LABEL = frozenset({"unknown", "conflict"})


class Kind(Struct, frozen=True):
    """Calls that should bear the same labels: one group, operation, element type and size."""

    group: str
    name: str | None
    op: str
    dtype: str | None
    nelems: int | None


Votes = dict[Kind, dict[int, frozenset[str]]]
"""Per kind of call: step → strategies seen in it."""


def votes(
    labelled: LabelledRank, steps: Sequence[int | None], complete: Iterable[int], kinds: CallKinds | None = None
) -> Votes:
    """Strategies of each kind of call in each complete step of one rank."""
    kinds = kinds or call_kinds(labelled.calls)
    at = np.fromiter((-1 if s is None else s for s in steps), np.int64, len(steps))
    counted = np.isin(at, np.fromiter(complete, np.int64))
    seen: dict[Kind, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    pairs, _ = distinct_rows([kinds.which[counted], at[counted]])
    for number, step in pairs.tolist():
        call = kinds.examples[number]
        group = group_id(call)
        if group is not None:
            kind = Kind(group, call.group_name, call.op, call.dtype, call.in_nelems)
            seen[kind][step].add(call.label.strategy)
    return {kind: {s: frozenset(v) for s, v in by_step.items()} for kind, by_step in seen.items()}


def minorities(ranks: Sequence[tuple[int | None, Votes]]) -> list[dict[str, Any]]:
    """Findings `label-minority`: ranks or steps whose labels for a kind of call differ from those of the most.

    A rank that has no label where others have one is no contradiction, and is left out.
    """
    ballots: dict[Kind, list[tuple[int | None, int, frozenset[str]]]] = defaultdict(list)
    for rank, mine in ranks:
        for kind, by_step in mine.items():
            ballots[kind] += [(rank, step, said - _NO_LABEL) for step, said in by_step.items() if said - _NO_LABEL]
    out = []
    for kind, cast in sorted(ballots.items(), key=lambda kv: repr(kv[0])):
        counts = Counter(said for _, _, said in cast)
        if len(counts) < 2:
            continue
        most = min(counts, key=lambda s: (-counts[s], sorted(s)))
        for said in sorted(set(counts) - {most}, key=sorted):
            places = [(rank, step) for rank, step, s in cast if s == said]
            out.append(_finding(kind, most, counts[most], said, places))
    return out


def _finding(
    kind: Kind, most: frozenset[str], n: int, said: frozenset[str], places: list[tuple[int | None, int]]
) -> dict[str, Any]:
    ranks = sorted({r for r, _ in places if r is not None})
    where = f"rank {', '.join(map(str, ranks[:SHOWN]))}{' …' if len(ranks) > SHOWN else ''}" if ranks else "one rank"
    size = "?" if kind.nelems is None else f"{kind.nelems:,}"
    theirs, usual = " and ".join(sorted(said)), " and ".join(sorted(most))
    message = (
        f"{kind.op} of {size} {kind.dtype or 'elements'} in group {kind.name or kind.group} is labelled "
        f"{theirs} on {where} in {len(places)} steps, but {usual} in {n} others"
    )
    return {
        "severity": "warning", "code": "label-minority", "rank": ranks[0] if len(ranks) == 1 else None,
        "message": message,
    }  # fmt: skip

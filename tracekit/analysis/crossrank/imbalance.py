"""Uneven load: compute of the ranks of a step or of a group, and uneven payloads of one call."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.crossrank.columns import shared
from tracekit.analysis.crossrank.streams import members_of
from tracekit.analysis.distinct import distinct_rows
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.matches import Matches
    from tracekit.analysis.crossrank.waiting import Waits

Row = dict[str, Any]
UNEVEN = frozenset({"all_to_all", "dispatch", "combine", "all_gather", "reduce_scatter"})
"""Operations whose ranks may move different amounts in one call."""


def imbalance_rows(
    parts: Sequence[RankCalls],
    matches: Matches,
    flat: Flat,
    waits: Waits,
    breakdown: Sequence[Row],
    complete: set[tuple[Any, Any, Any]],
) -> list[Row]:
    """Table `imbalance`.

    breakdown: rows of that table; complete: (rank, device, step) of whole steps. Compute = compute_only + overlapped
    of a rank's step, its devices added.
    """
    compute: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    cut: set[tuple[int, int]] = set()
    for b in breakdown:
        if b["rank"] is None or b["step"] is None:
            continue
        compute[b["step"]][b["rank"]] += b["compute_only_ns"] + b["overlapped_ns"]
        if (b["rank"], b["device"], b["step"]) not in complete:
            cut.add((b["rank"], b["step"]))
    groups = _groups(parts)
    rows = []
    for step in sorted(compute):
        whole = all((r, step) not in cut for r in compute[step])
        rows += _of_loads("compute", step, None, None, compute[step], compute[step], whole)
        for (strategy, group), members in sorted(groups.items()):
            if members <= set(compute[step]) and len(members) < len(compute[step]):
                rows += _of_loads("compute", step, strategy, group, compute[step], members, whole)
    return rows + _payloads(parts, matches, flat, waits)


def _groups(parts: Sequence[RankCalls]) -> dict[tuple[str, str], frozenset[int]]:
    """Rank sets of the groups in use, by the strategy of their calls."""
    out: dict[tuple[str, str], frozenset[int]] = {}
    for part in parts:
        (by, strategies), (of, groups) = part.text["strategy"], part.text["group_id"]
        values, _ = distinct_rows([by.astype(np.int64), of.astype(np.int64)])
        for s, g in values.tolist():
            strategy, group = (strategies[s] if s >= 0 else None), (groups[g] if g >= 0 else None)
            members = members_of(group)
            if strategy is not None and group is not None and members and len(members) > 1:
                out[strategy, group] = members
    return out


def _of_loads(
    kind: str, step: int | None, strategy: str | None, group: str | None, loads: dict[int, int], ranks: Iterable[int],
    whole: bool,
) -> list[Row]:  # fmt: skip
    ranks = sorted(ranks)
    if len(ranks) < 2:
        return []
    values = [loads[r] for r in ranks]
    mean, most = sum(values) / len(values), max(values)
    if not mean:
        return []
    return [
        {
            "kind": kind, "step": step, "strategy": strategy, "group_id": group, "op": None, "unit": "ns",
            "ranks": len(ranks), "mean": mean, "max": most, "max_rank": ranks[values.index(most)],
            "min_rank": ranks[values.index(min(values))], "ratio": most / mean, "cost_ns": int(most - mean),
            "calls": None, "whole": whole,
        }
    ]  # fmt: skip


def _payloads(parts: Sequence[RankCalls], matches: Matches, flat: Flat, waits: Waits) -> list[Row]:
    """Bytes each rank moved in the calls of one group, and what the most loaded rank costs.

    cost_ns: sum over calls of transfer · (1 - mean/max): the transfer lasts as long as its largest part.
    """
    (op_codes, ops), (codes, strategies) = shared(parts, "op"), shared(parts, "strategy")
    step, op, strategy = (flat.heads(column) for column in ([p.number["step"] for p in parts], op_codes, codes))
    uneven, most = np.array([name in UNEVEN for name in ops], np.bool_), flat.most(flat.payload)
    at = np.flatnonzero(uneven[op] & ~matches.p2p & flat.all(flat.payload != NO_TIME) & (most > 0))
    if not len(at):
        return []
    values, which = distinct_rows([step[at], strategy[at], matches.stream[at], op[at]])
    number: dict[tuple[Any, ...], int] = {}
    groups = [s.group_id for s in matches.streams]
    names = [(None if n == NO_TIME else n, strategies[s], groups[g], ops[o]) for n, s, g, o in values.tolist()]
    key = np.array([number.setdefault(name, len(number)) for name in names], np.int64)[which]
    loads = _loads(parts, flat, at, key)
    transfer = waits.transfer[flat.first[at]]
    split = transfer != NO_TIME
    extra = np.where(split, transfer, 0) * (1 - flat.sums(flat.payload)[at] / flat.size[at] / most[at])
    calls, known, cost = (np.bincount(key, weights).tolist() for weights in (None, split, extra))
    rows = []
    for k in sorted(number, key=lambda k: tuple(map(str, k))):
        step_, by, group, name = k
        i = number[k]
        for row in _of_loads("payload", step_, by, group, loads[i], loads[i], True):
            if row["ratio"] > 1:
                all_split = int(cost[i]) if known[i] == calls[i] else None
                rows.append(row | {"op": name, "unit": "bytes", "calls": calls[i], "cost_ns": all_split})
    return rows


def _loads(
    parts: Sequence[RankCalls], flat: Flat, matches: NDArray[np.intp], key: NDArray[np.int64]
) -> dict[int, dict[int, int]]:
    """Key → rank → bytes in some matches; key: of each of them."""
    of = np.full(len(flat.first), -1, np.int64)
    of[matches] = key
    rows = np.flatnonzero(of[flat.match] >= 0)
    ranks = np.array([p.rank for p in parts], np.int64)[flat.part[rows]]
    values, which = distinct_rows([of[flat.match[rows]], ranks])
    nbytes = np.zeros(len(values), np.int64)
    np.add.at(nbytes, which, flat.payload[rows])
    out: dict[int, dict[int, int]] = defaultdict(dict)
    for (k, rank), n in zip(values.tolist(), nbytes.tolist(), strict=True):
        out[k][rank] = n
    return out

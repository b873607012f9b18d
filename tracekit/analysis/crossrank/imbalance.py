"""Uneven load: compute of the ranks of a step or of a group, and uneven payloads of one call."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tracekit.analysis.crossrank.streams import members_of
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.matching import Match
    from tracekit.analysis.crossrank.waiting import Waits

Row = dict[str, Any]
UNEVEN = frozenset({"all_to_all", "dispatch", "combine", "all_gather", "reduce_scatter"})
"""Operations whose ranks may move different amounts in one call."""


def imbalance_rows(
    parts: Sequence[RankCalls],
    matches: Sequence[Match],
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
        for strategy, group in set(zip(part.texts("strategy"), part.texts("group_id"), strict=True)):
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


def _payloads(parts: Sequence[RankCalls], matches: Sequence[Match], flat: Flat, waits: Waits) -> list[Row]:
    """Bytes each rank moved in the calls of one group, and what the most loaded rank costs.

    cost_ns: sum over calls of transfer · (1 - mean/max): the transfer lasts as long as its largest part.
    """
    ops = [p.texts("op") for p in parts]
    strategies = [p.texts("strategy") for p in parts]
    loads: dict[tuple[Any, ...], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    cost: dict[tuple[Any, ...], list[float]] = defaultdict(lambda: [0.0, 0, 0])
    for i, m in enumerate(matches):
        p, r = m.parts[0], m.rows[0]
        begin = int(flat.first[i])
        payload = flat.payload[begin : begin + len(m.rows)].tolist()
        if ops[p][r] not in UNEVEN or m.stream.kind == "p2p" or NO_TIME in payload or not max(payload):
            continue
        step = int(parts[p].number["step"][r])
        key: tuple[Any, ...] = (None if step == NO_TIME else step, strategies[p][r], m.stream.group_id, ops[p][r])
        for q, nbytes in zip(m.parts, payload, strict=True):
            loads[key][parts[q].rank] += nbytes
        c = cost[key]
        c[1] += 1
        if waits.transfer[begin] != NO_TIME:
            c[0] += int(waits.transfer[begin]) * (1 - sum(payload) / len(payload) / max(payload))
            c[2] += 1
    rows = []
    for key in sorted(loads, key=lambda k: tuple(map(str, k))):
        number, strategy, group, op = key
        for row in _of_loads("payload", number, strategy, group, loads[key], loads[key], True):
            if row["ratio"] > 1:
                known = cost[key][2] == cost[key][1]
                rows.append(
                    row | {"op": op, "unit": "bytes", "calls": int(cost[key][1]),
                           "cost_ns": int(cost[key][0]) if known else None}
                )  # fmt: skip
    return rows

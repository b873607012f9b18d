"""The cross-rank step: recordings of a run → rows of the cross-rank tables, and columns for each recording's calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.arrays import floats_of
from tracekit.analysis.crossrank.blame import Blame
from tracekit.analysis.crossrank.columns import CallColumns, load
from tracekit.analysis.crossrank.flat import flatten, gathered
from tracekit.analysis.crossrank.imbalance import imbalance_rows
from tracekit.analysis.crossrank.lapse import Lapse
from tracekit.analysis.crossrank.late import blame_rows, late_findings
from tracekit.analysis.crossrank.matches import HOW
from tracekit.analysis.crossrank.matching import match
from tracekit.analysis.crossrank.sites import waiting_rows
from tracekit.analysis.crossrank.split import RankSplit, split_rank
from tracekit.analysis.crossrank.tables import (
    clock_rows,
    data_parallel_calls,
    match_table,
    unmatched_findings,
)
from tracekit.analysis.crossrank.verify import settle
from tracekit.analysis.crossrank.waiting import REASONS, waits
from tracekit.analysis.distinct import distinct_rows
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from tracekit.analysis.accounting import RowKey
    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import RankCalls, RankInput
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.matches import Matches
    from tracekit.analysis.crossrank.matching import Matched
    from tracekit.analysis.crossrank.waiting import Waits

Row = dict[str, Any]


class CrossRank(Struct):
    """The table `matches`; rows of `waiting`, `clocks`, `imbalance`, `blame` and findings; per recording call columns,
    split and clock.

    data_parallel: see `tables.data_parallel_calls`.
    """

    matches: pa.Table
    tables: dict[str, list[Row]]
    findings: list[Row] = field(default_factory=list)
    columns: list[CallColumns] = field(default_factory=list)
    splits: list[RankSplit] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    data_parallel: list[Row] = field(default_factory=list)


def cross_rank(
    inputs: Sequence[RankInput], world: int | None, breakdown: Sequence[Row], steps: Sequence[Row], *, ids: bool = True
) -> CrossRank:
    """Everything that several recordings say together.

    inputs: in order of rank, every rank known. world: ranks of the job, where known. breakdown, steps: rows of those
    tables of the run. ids: see `matching.match`.
    """
    parts = [load(one) for one in inputs]
    matched = match(parts, ids=ids)
    matched.matches = _in_order(parts, matched.matches)
    clocks = settle(parts, matched)
    flat = flatten(parts, matched.matches, clocks)
    split = waits(parts, matched.matches, flat, world)
    table = match_table(parts, matched.matches, flat, split, world)
    complete = {(s["rank"], s["device"], s["step"]) for s in steps if s["complete"]}
    out = CrossRank(
        table,
        {
            "waiting": waiting_rows(parts, matched.unmatched, flat, split, {str(s["name"]) for s in steps}),
            "clocks": clock_rows(parts, clocks),
            "imbalance": imbalance_rows(parts, matched.matches, flat, split, breakdown, complete),
        },
    )
    out.findings = [*unmatched_findings(matched.unmatched, parts), *_clock_findings(out.tables["clocks"])]
    out.clocks = clocks
    out.data_parallel = data_parallel_calls(parts, clocks)
    rates = {name: floats_of(table.column(name)) for name in ("algbw_gbps", "busbw_gbps")}
    out.columns = [_columns(p, n, matched, flat, split, rates, clocks[n]) for n, p in enumerate(parts)]
    lapses = [Lapse(o, p, c.numbers["wait_ns"]) for o, p, c in zip(inputs, parts, out.columns, strict=True)]
    out.tables["blame"] = blame_rows(Blame(parts, matched.matches, flat, split, lapses).traced())
    out.findings += late_findings(out.tables["blame"], [p.window for p in parts])
    for one, part, columns in zip(inputs, parts, out.columns, strict=True):
        start = np.where(part.start == NO_TIME, NO_TIME, part.start - one.shift)
        out.splits.append(split_rank(one, *_keys(part), start, columns.numbers["wait_ns"]))
    return out


def _in_order(parts: Sequence[RankCalls], matches: Matches) -> Matches:
    """Matches by when their first call was made; independent of the order of groups."""
    if not len(matches):
        return matches
    part, row, first = matches.part, matches.row, matches.first
    when = gathered(part, row, [p.number["call_ts_ns"] for p in parts])
    when = np.where(when == NO_TIME, gathered(part, row, [p.start for p in parts]), when)
    latest = np.iinfo(np.int64).max
    when = np.minimum.reduceat(np.where(when == NO_TIME, latest, when), first)
    when[when == latest] = 0
    return matches.chosen(np.lexsort((row[first], part[first], when)))


def _keys(part: RankCalls) -> tuple[list[RowKey], NDArray[np.int64]]:
    """(labels as rows of the accounting, which of them each call has)."""
    columns = [part.text[name] for name in ("strategy", "purpose", "phase")]
    values, which = distinct_rows([codes.astype(np.int64) for codes, _ in columns])
    keys: dict[RowKey, int] = {}
    number = []
    for row in values.tolist():
        s, p, f = (names[c] if c >= 0 else None for c, (_, names) in zip(row, columns, strict=True))
        number.append(keys.setdefault((s or "unknown", p or "", f or ""), len(keys)))
    return [*keys], np.array(number, np.int64)[which]


def _columns(
    part: RankCalls,
    number: int,
    matched: Matched,
    flat: Flat,
    split: Waits,
    by_match: dict[str, NDArray[np.float64]],
    clock: Clock,
) -> CallColumns:
    n = len(part)
    mine = flat.of[number]
    at, which = flat.row[mine], flat.match[mine]
    numbers = {name: np.full(n, NO_TIME, np.int64) for name in ("match_id", "arrival_ns", "wait_ns", "transfer_ns")}
    numbers["match_id"][at] = which
    numbers["arrival_ns"] = clock.place(part.begin)
    numbers["wait_ns"][at], numbers["transfer_ns"][at] = split.wait[mine], split.transfer[mine]
    rates = {name: np.full(n, np.nan) for name in ("algbw_gbps", "busbw_gbps")}
    moved = split.transfer[mine] != NO_TIME
    for name, column in rates.items():
        column[at[moved]] = by_match[name][which[moved]]
    how, why = np.full(n, None, np.object_), np.full(n, None, np.object_)
    left = matched.unmatched.get(number, {})
    how[[*left]], why[[*left]] = [*left.values()], "unmatched"
    how[at], why[at] = _HOW[matched.matches.how[which]], _WHY[split.why[mine]]
    return CallColumns(numbers, rates, {"match": how.tolist(), "wait_reason": why.tolist()})


_HOW, _WHY = np.array(HOW, np.object_), np.array(REASONS, np.object_)
"""Ways of matching, and why a call is not split, as the columns have them."""


def _clock_findings(clocks: Sequence[Row]) -> list[Row]:
    bad = [str(c["rank"]) for c in clocks if c["method"] == "infeasible"]
    if not bad:
        return []
    message = f"no offset of the clocks makes the calls of rank {', '.join(bad[:8])} consistent: no arrival order there"
    return [{"severity": "warning", "code": "clocks-infeasible", "rank": None, "message": message}]

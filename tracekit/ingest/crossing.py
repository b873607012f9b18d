"""The cross-rank step of a run: hand the ranks' files over, put what comes back into the run's tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analysis.tables import from_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import CallColumns
    from tracekit.analysis.crossrank.run import CrossRank
    from tracekit.analysis.crossrank.split import RankSplit
    from tracekit.ingest.identity import Part
    from tracekit.ingest.run import RunTables
    from tracekit.ingest.worker import PartResult
    from tracekit.model import TraceMeta

Row = dict[str, Any]
TABLES = ("waiting", "clocks", "imbalance", "blame")
UNKNOWN_RANK, ONE_RANK = "rank-unknown", "one-rank"
"""Why no call of a recording could be matched at all."""


def add_cross_rank(
    out: RunTables, used: Sequence[tuple[PartResult, Part]]
) -> tuple[list[CallColumns | str], list[Clock | None]]:
    """Fill the cross-rank tables of a run and the columns that need other ranks; without two known ranks, the reason.

    used: recordings in the run's order, each with its rank; their files must still be there. Returns what is added to
    the calls of each, or why nothing, and the clock of each.
    """
    out.columns["matches"] = from_rows("matches", [])
    for name in TABLES:
        out.tables[name] = []
    known = [i for i, (r, p) in enumerate(used) if p.rank is not None and "busy" in r.detail]
    several = len({used[i][1].rank for i in known}) > 1
    added: list[CallColumns | str] = [UNKNOWN_RANK if p.rank is None else ONE_RANK for _, p in used]
    clocks: list[Clock | None] = [None] * len(used)
    if several:
        result = _run(out, [used[i] for i in known])
        out.columns["matches"] = result.matches
        out.tables |= result.tables
        out.tables["findings"] += result.findings
        out.data_parallel = result.data_parallel
        for i, columns, split, clock in zip(known, result.columns, result.splits, result.clocks, strict=True):
            added[i], clocks[i] = columns, clock
            _put_split(out, used[i][1].rank, split)
    out.added = [a for a, (r, _) in zip(added, used, strict=True) if "activities" in r.detail]
    return added, clocks


_WORKER_NAME = re.compile(r"^(?:rank[-_.]?\d+[-_.])?(?P<host>.+)_\d+\.\d{13,19}\.pt\.trace\.json")
"""File names of torch.profiler.tensorboard_trace_handler: host_pid.time.pt.trace.json."""


def host_of(meta: TraceMeta) -> str | None:
    """Host of a recording: from the file, else from the name the profiler gave it."""
    found = None if meta.host_name else _WORKER_NAME.match(Path(meta.path).name)
    return found["host"] if found else meta.host_name


def _run(out: RunTables, used: Sequence[tuple[PartResult, Part]]) -> CrossRank:
    from tracekit.analysis.crossrank.columns import RankInput
    from tracekit.analysis.crossrank.run import cross_rank
    from tracekit.parsers.memory import without_gc

    inputs = [
        RankInput(
            p.rank, r.detail, r.origin_ns - out.origin_ns if out.absolute else 0, host_of(r.meta), out.absolute,
            r.tables.steps, r.tables.totals,
        )
        for r, p in used if p.rank is not None
    ]  # fmt: skip
    with without_gc():  # many rows and no cycles, as in a worker
        return cross_rank(inputs, out.world_size, out.tables["breakdown"], out.tables["steps"])


def _put_split(out: RunTables, rank: int | None, split: RankSplit) -> None:
    """Waiting and transfer into `exposure`, `by_strategy` and the totals' own copy of the latter."""
    for row in out.tables["exposure"]:
        if row["rank"] == rank and (found := split.rows.get((row["device"], row["step"]))):
            key = (row["strategy"], row["purpose"] or "", row["phase"] or "")
            if key in found:
                row |= found[key].columns()
    for total in out.tables["totals"]:
        if total["rank"] == rank:
            for strategy, found_total in split.strategies.get(total["device"], {}).items():
                total["by_strategy"][strategy] |= found_total.columns()

"""The critical path of a run: hand over what the workers found, put the rows into the run's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analysis.tables import from_rows
from tracekit.ingest.pipeline import places_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import CallColumns
    from tracekit.ingest.identity import Part
    from tracekit.ingest.run import RunTables
    from tracekit.ingest.worker import PartResult
    from tracekit.label.layout import Solution


def add_critical(
    out: RunTables,
    used: Sequence[tuple[PartResult, Part]],
    added: Sequence[CallColumns | str],
    clocks: Sequence[Clock | None],
    expected: Sequence[Any],
    solution: Solution,
) -> None:
    """Fill the tables of the critical path, and `what_if`; reads no other table than `matches`.

    used: recordings in the run's order, with what the cross-rank step and theory add to each (None = nothing), and its
    clock. Of several recordings of one rank the first counts.
    """
    out.columns["critical_path"] = from_rows("critical_path", [])
    out.tables |= {"critical_steps": [], "critical_shares": [], "what_if": []}
    if not any(r.tables.critical for r, _ in used):
        return
    from tracekit.analysis.critical.joint import RankInput
    from tracekit.analysis.critical.run import critical
    from tracekit.parsers.memory import without_gc

    inputs: dict[object, RankInput] = {}
    for i, ((r, p), more, clock, theory) in enumerate(zip(used, added, clocks, expected, strict=True)):
        if r.tables.critical is None:
            continue
        columns = None if isinstance(more, str) else more
        inputs.setdefault(
            p.rank if p.rank is not None else f"recording {i}",
            RankInput(
                p.rank, r.tables.critical, r.origin_ns - out.origin_ns if out.absolute else 0, clock,
                columns.numbers["match_id"] if columns else None, columns.texts["wait_reason"] if columns else None,
                theory.numbers["expected_ns"] if theory is not None else None,
            ),
        )  # fmt: skip
    with without_gc():
        found = critical(
            list(inputs.values()), out.columns["matches"], world=out.world_size, stages=places_of(used, solution)
        )
    out.columns["critical_path"] = found.path
    out.tables |= {"critical_steps": found.steps, "critical_shares": found.shares, "what_if": found.what_if}
    out.tables["findings"] += found.findings

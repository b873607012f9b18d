"""The pipeline step of a run: hand over what the workers found, put the rows into the run's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tracekit.analysis.tables import from_rows
from tracekit.ingest.operations import SOURCE, stragglers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.pipeline.parts import RankPipeline
    from tracekit.analysis.pipeline.run import PipelineTables
    from tracekit.analysis.stragglers import StragglerTables
    from tracekit.ingest.identity import Part
    from tracekit.ingest.optables import OpTableResults
    from tracekit.ingest.run import RunTables
    from tracekit.ingest.worker import PartResult
    from tracekit.label.layout import Solution

Row = dict[str, Any]


class Pipelines(Struct):
    """The pipelines of a run, and the what-if of their operations where they show any."""

    tables: PipelineTables
    stragglers: StragglerTables | None


def shows_pipelines(used: Sequence[tuple[PartResult, Part]]) -> bool:
    """Whether any recording shows pipeline work."""
    return any(r.tables.pipeline and p.rank is not None for r, p in used)


def pipelines_of(
    used: Sequence[tuple[PartResult, Part]],
    shifts: Sequence[int],
    clocks: Sequence[Clock | None],
    data_parallel: Sequence[Row],
    solution: Solution,
) -> Pipelines:
    """The pipelines of a run that shows any.

    used: recordings in the run's order, and of each the ns to add to its own times and its clock. Of several recordings
    of one rank the first counts. data_parallel: see `tracekit.analysis.crossrank.tables.data_parallel_calls`.
    """
    from tracekit.analysis.pipeline.run import RankInput, pipelines
    from tracekit.parsers.memory import without_gc

    inputs: dict[int, RankInput] = {}
    for (r, p), shift, clock in zip(used, shifts, clocks, strict=True):
        if p.rank is not None and r.tables.pipeline:
            inputs.setdefault(p.rank, RankInput(p.rank, r.tables.pipeline, shift, clock))
    with without_gc():
        found = pipelines([inputs[rank] for rank in sorted(inputs)], _groups(solution))
        stragglers = stragglers_of(found.pipeline, found.bubble, data_parallel, solution) if found.bubble else None
    return Pipelines(found, stragglers)


def add_pipelines(out: RunTables, found: Pipelines | None, operations: OpTableResults) -> None:
    """Fill the tables of pipelines; their `what_if` goes before that of other steps.

    operations: takes the what-if of the pipelines' operations.
    """
    tables = found.tables if found else None
    out.columns["pipeline"] = tables.pipeline if tables else from_rows("pipeline", [])
    out.tables["bubble"] = tables.bubble if tables else []
    if tables:
        out.tables["what_if"] = [*tables.what_if, *out.tables["what_if"]]
        out.tables["findings"] += tables.findings
    if found and found.stragglers:
        operations.add(found.stragglers, SOURCE)


def places_of(used: Sequence[tuple[PartResult, Part]], solution: Solution) -> dict[int, int]:
    """Rank → its place in its pipeline; empty without pipelines. Needs nothing of what `add_pipelines` finds."""
    parts: dict[int, RankPipeline] = {}
    for r, p in used:
        if p.rank is not None and r.tables.pipeline:
            parts.setdefault(p.rank, r.tables.pipeline)
    if not parts:
        return {}
    from tracekit.analysis.pipeline.lines import places

    return places({rank: parts[rank] for rank in sorted(parts)}, _groups(solution))


def _groups(solution: Solution) -> list[tuple[int, ...]]:
    """Pipeline-parallel groups of the layout, where it is known."""
    layout = solution.layout
    return [*layout.mesh.groups(("pp",))] if layout is not None and layout.mesh.size("pp") > 1 else []

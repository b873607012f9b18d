"""The pipeline step of a run: hand over what the workers found, put the rows into the run's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis.tables import from_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.pipeline.parts import RankPipeline
    from tracekit.analysis.pipeline.run import PipelineTables
    from tracekit.ingest.identity import Part
    from tracekit.ingest.run import RunTables
    from tracekit.ingest.worker import PartResult
    from tracekit.label.layout import Solution


def pipelines_of(
    used: Sequence[tuple[PartResult, Part]],
    clocks: Sequence[Clock | None],
    solution: Solution,
    shifts: Sequence[int],
) -> PipelineTables | None:
    """The pipelines of a run; None where no rank shows pipeline work.

    used: recordings in the run's order, and of each the clock and the ns to add to its own times. Of several recordings
    of one rank the first counts.
    """
    found = [x for x in zip(used, clocks, shifts, strict=True) if x[0][0].tables.pipeline and x[0][1].rank is not None]
    if not found:
        return None
    from tracekit.analysis.pipeline.run import RankInput, pipelines
    from tracekit.parsers.memory import without_gc

    inputs: dict[int, RankInput] = {}
    for (r, p), clock, shift in found:
        if p.rank is not None and r.tables.pipeline is not None:
            inputs.setdefault(p.rank, RankInput(p.rank, r.tables.pipeline, shift, clock))
    with without_gc():
        return pipelines([inputs[rank] for rank in sorted(inputs)], _groups(solution))


def add_pipelines(out: RunTables, found: PipelineTables | None) -> None:
    """Fill the tables of pipelines; their `what_if` goes before that of other steps."""
    out.columns["pipeline"] = found.pipeline if found else from_rows("pipeline", [])
    out.tables["bubble"] = found.bubble if found else []
    if found:
        out.tables["what_if"] = [*found.what_if, *out.tables["what_if"]]
        out.tables["findings"] += found.findings


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

"""The pipeline step of a run: hand over what the workers found, put the rows into the run's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis.tables import from_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.pipeline.parts import RankPipeline
    from tracekit.ingest.identity import Part
    from tracekit.ingest.run import RunTables
    from tracekit.ingest.worker import PartResult
    from tracekit.label.layout import Solution

TABLES = ("bubble", "what_if")


def add_pipelines(
    out: RunTables, used: Sequence[tuple[PartResult, Part]], clocks: Sequence[Clock | None], solution: Solution
) -> None:
    """Fill the tables of pipelines. used: recordings in the run's order, and the clock of each.

    Of several recordings of one rank the first counts.
    """
    out.columns["pipeline"] = from_rows("pipeline", [])
    for name in TABLES:
        out.tables[name] = []
    found = [(r, p, c) for (r, p), c in zip(used, clocks, strict=True) if r.tables.pipeline and p.rank is not None]
    if not found:
        return
    from tracekit.analysis.pipeline.run import RankInput, pipelines
    from tracekit.parsers.memory import without_gc

    inputs: dict[int, RankInput] = {}
    for r, p, clock in found:
        if p.rank is not None and r.tables.pipeline is not None:
            shift = r.origin_ns - out.origin_ns if out.absolute else 0
            inputs.setdefault(p.rank, RankInput(p.rank, r.tables.pipeline, shift, clock))
    with without_gc():
        result = pipelines([inputs[rank] for rank in sorted(inputs)], _groups(solution))
    out.columns["pipeline"] = result.pipeline
    out.tables |= {"bubble": result.bubble, "what_if": result.what_if}
    out.tables["findings"] += result.findings


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

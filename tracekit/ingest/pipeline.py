"""The pipeline step of a run: hand over what the workers found, put the rows into the run's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.pipeline.run import PipelineTables
    from tracekit.ingest.identity import Part
    from tracekit.ingest.run import RunTables
    from tracekit.ingest.worker import PartResult
    from tracekit.label.layout import Solution

TABLES = ("pipeline", "bubble", "what_if")


def pipelines_of(
    used: Sequence[tuple[PartResult, Part]],
    clocks: Sequence[Clock | None],
    solution: Solution,
    shifts: Sequence[int],
) -> PipelineTables | None:
    """The pipelines of a run, None where no rank shows pipeline work.

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
    layout = solution.layout
    groups = [*layout.mesh.groups(("pp",))] if layout is not None and layout.mesh.size("pp") > 1 else []
    with without_gc():
        return pipelines([inputs[rank] for rank in sorted(inputs)], groups)


def add_pipelines(out: RunTables, found: PipelineTables | None) -> None:
    """Fill the tables of pipelines."""
    out.tables |= {name: getattr(found, name) if found else [] for name in TABLES}
    out.tables["findings"] += found.findings if found else []

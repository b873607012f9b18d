"""The theory step of a run: what it needs of files and layout, and where its results go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.ingest.crossing import host_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.ingest.identity import Part
    from tracekit.ingest.run import RunTables
    from tracekit.ingest.worker import Options, PartResult
    from tracekit.label.layout import Layout, Solution

Row = dict[str, Any]


def add_expected(
    out: RunTables,
    used: Sequence[tuple[PartResult, Part]],
    added: Sequence[Any],
    options: Options,
    solution: Solution,
) -> None:
    """Fill the table `theory` and the calls' columns of it; their files must still be there.

    used: recordings in the run's order; added: what the cross-rank step adds to each.
    """
    out.tables["theory"] = []
    kept = [(r, p, a) for (r, p), a in zip(used, added, strict=True) if "collectives" in r.detail]
    if not kept:
        return
    from tracekit.analysis.expected.calls import Recording
    from tracekit.analysis.expected.run import expected

    recordings = [
        Recording(
            p.rank, r.detail, a, host_of(r.meta), str(r.meta.devices[0].get("name")) if r.meta.devices else None,
            len(r.meta.devices), r.tables.steps,
        )
        for r, p, a in kept
    ]  # fmt: skip
    found = expected(
        recordings, options.declared.tables, world=out.world_size, groups=out.tables["groups"],
        degrees=_degrees(options.declared.layout or solution.layout),
    )  # fmt: skip
    out.tables["theory"] = found.rows
    out.tables["findings"] += found.findings
    out.expected = [c for c, (r, _, _) in zip(found.columns, kept, strict=True) if "activities" in r.detail]
    out.theory_inputs = {"inputs": found.inputs, "missing": found.missing}


def _degrees(layout: Layout | None) -> dict[str, int]:
    return dict((*layout.expert, *layout.degrees)) if layout is not None else {}

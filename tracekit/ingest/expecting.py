"""The theory step of a run: what it needs of files and layout, and where its results go."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from tracekit.ingest.crossing import host_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.crossrank.columns import CallColumns
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
) -> list[CallColumns | None]:
    """Fill the table `theory` and the calls' columns of it; their files must still be there.

    used: recordings in the run's order; added: what the cross-rank step adds to each. Returns the columns of each.
    """
    out.tables["theory"] = []
    exposure, breakdown = (_by_recording(out.tables[n], [getattr(r.tables, n) for r, _ in used]) for n in _SPLIT)
    kept = [x for x in zip(used, added, exposure, breakdown, strict=True) if "collectives" in x[0][0].detail]
    if not kept:
        return [None] * len(used)
    from tracekit.analysis.expected.calls import Recording
    from tracekit.analysis.expected.run import expected
    from tracekit.parsers.memory import without_gc

    recordings = [
        Recording(
            p.rank, r.detail, a, host_of(r.meta), str(r.meta.devices[0].get("name")) if r.meta.devices else None,
            len(r.meta.devices), r.tables.steps, exposed, windows,
        )
        for (r, p), a, exposed, windows in kept
    ]  # fmt: skip
    with without_gc():
        found = expected(
            recordings, options.declared.tables, world=out.world_size, groups=out.tables["groups"],
            layout=_layout(options.declared.layout or solution.layout),
        )  # fmt: skip
    out.tables["theory"] = found.rows
    out.tables["findings"] += found.findings
    out.expected = [c for c, ((r, _), *_) in zip(found.columns, kept, strict=True) if "activities" in r.detail]
    out.theory_inputs = {"inputs": found.inputs, "missing": found.missing, "utilisation": found.utilisation}
    columns = iter(found.columns)
    return [next(columns) if "collectives" in r.detail else None for r, _ in used]


_SPLIT = ("exposure", "breakdown")


def _by_recording(rows: list[Row], own: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """The run's rows of a table (in the order of the recordings) by recording."""
    ends = list(accumulate(map(len, own), initial=0))
    return [rows[a:b] for a, b in pairwise(ends)]


def _layout(layout: Layout | None) -> Row | None:
    if layout is None:
        return None
    return {
        "degrees": dict(layout.degrees), "expert": dict(layout.expert), "order": [a for a, _ in layout.degrees],
        "complete": layout.complete,
    }  # fmt: skip

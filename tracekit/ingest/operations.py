"""A traced pipeline job as an operation table, and its what-if."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from tracekit.analysis.stragglers import StragglerTables
    from tracekit.ingest.run import RunTables
    from tracekit.label.layout import Layout, Solution
    from tracekit.model import OpRows

Row = dict[str, Any]
SOURCE = "traces"
"""What stands in `source` for the job of the traces."""
LANES = frozenset({"tp", "cp", "gtp", "etp"})
"""Axes along which ranks work on one micro-batch together."""


def operations(pipeline: pa.Table, bubble: Sequence[Row], data_parallel: Sequence[Row], solution: Solution) -> OpRows:
    """Operations of the job's pipelines, from what is known of them; NotReplayableError where they cannot be told.

    data_parallel: see `tracekit.analysis.crossrank.tables.data_parallel_calls`.
    """
    from tracekit.analysis.stragglers import rows_of
    from tracekit.analysis.stragglers.from_pipeline import spans_of

    return rows_of(spans_of(pipeline, bubble, data_parallel, _replicas(bubble, solution)), SOURCE)


def _replicas(bubble: Sequence[Row], solution: Solution) -> dict[str, int]:
    """Pipeline → data-parallel rank."""
    from tracekit.analysis.stragglers import NotReplayableError

    first = {b["pipeline"]: b["rank"] for b in bubble if b["position"] == 0}
    if len(first) < 2:
        return dict.fromkeys(first, 0)
    layout = solution.layout
    if layout is None:
        raise NotReplayableError("replicas-unknown", "several pipelines, and the layout is not known; give --layout")
    found: dict[str, tuple[int, ...]] = {}
    for name, rank in first.items():
        at = layout.mesh.coordinates(rank)
        found[name] = tuple(at[axis] for axis, _ in reversed(layout.mesh.axes) if axis not in LANES and axis != "pp")
    lanes = Counter(found.values())
    if set(lanes.values()) != {_product(layout, LANES)}:
        raise NotReplayableError("replicas-unknown", "the pipelines are not those of the layout")
    number = {place: n for n, place in enumerate(sorted(lanes))}
    return {name: number[place] for name, place in found.items()}


def _product(layout: Layout, axes: frozenset[str]) -> int:
    return prod(layout.mesh.size(axis) for axis in axes)


def table_of(out: RunTables) -> OpRows:
    """The operation table of a run's pipelines. Raises TracekitError where there is none, with the reason."""
    from tracekit.analysis.stragglers import NotReplayableError
    from tracekit.label.layout import Solution

    try:
        return operations(out.columns["pipeline"], out.tables["bubble"], out.data_parallel, out.solution or Solution())
    except NotReplayableError as e:
        raise TracekitError(f"no operation table of these traces ({e.code}): {e}") from None


def stragglers_of(
    pipeline: pa.Table, bubble: Sequence[Row], data_parallel: Sequence[Row], solution: Solution
) -> StragglerTables:
    """The what-if of the traced pipelines; a row with a reason where it cannot be asked. Of what: see `operations`."""
    from tracekit.analysis.stragglers import NotReplayableError, analyze_ops, not_replayed

    try:
        return analyze_ops(operations(pipeline, bubble, data_parallel, solution))
    except NotReplayableError as e:
        return not_replayed(SOURCE, e)

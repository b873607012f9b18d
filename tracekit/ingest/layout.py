"""The layout of the job as plain rows, for JSON and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.label.layout import Layout, Solution

Row = dict[str, Any]


def layout_row(declared: Layout | None, solution: Solution) -> Row:
    """{declared, inferred, alternatives, missing}; a layout is {degrees, order, expert, world_size, source, …}."""
    return {
        "declared": _row(declared),
        "inferred": _row(solution.layout),
        "alternatives": [_row(x) for x in solution.alternatives],
        "missing": list(solution.missing),
    }


def _row(layout: Layout | None) -> Row | None:
    """degrees: axis → size; order: axes, fastest first."""
    if layout is None:
        return None
    return {
        "text": layout.text(), "degrees": dict(layout.degrees), "order": [a for a, _ in layout.degrees],
        "expert": dict(layout.expert), "world_size": layout.world_size, "complete": layout.complete,
        "source": layout.source, "confidence": layout.confidence, "evidence": list(layout.evidence),
    }  # fmt: skip

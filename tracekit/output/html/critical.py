"""The critical path of a step: what its length consists of, and the longest segments on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.output.html.section import Section

if TYPE_CHECKING:
    from tracekit.output.html.section import Context

TITLE = "Critical path"


def section(ctx: Context) -> Section:
    """Says so where the dataset has no such table."""
    rows = ctx.source.rows("critical_path")
    if not rows:
        return Section.empty(
            "critical", TITLE, "No critical path: this dataset has no table `critical_path`, or it is empty."
        )
    return Section.empty("critical", TITLE, f"{len(rows)} segments.")

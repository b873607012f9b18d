"""Stragglers of a job by what-if replay: how much faster with ideal durations, and who is to blame.

Method and names: "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI'25, arXiv 2505.05713.
"""

from __future__ import annotations

from tracekit.analysis.stragglers.optable import NotReplayableError, OpGrid, grid_of, rows_of
from tracekit.analysis.stragglers.tables import StragglerTables, analyze_ops, not_replayed

__all__ = [
    "NotReplayableError",
    "OpGrid",
    "StragglerTables",
    "analyze_ops",
    "grid_of",
    "not_replayed",
    "rows_of",
]

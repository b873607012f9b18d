"""Pure functions: one labelled rank → its published tables."""

from __future__ import annotations

from tracekit.analysis.rank import RankTables, analyze_rank

__all__ = ["RankTables", "analyze_rank"]

"""Pure functions: one labelled rank → its published tables."""
# NOTE TO ENGINEER C (to be removed): the lead has delivered this package while the line was down, and it is
# wired through ingest/output/commands. DO NOT rewrite it. Keep RankTables as it is in rank.py. Please write
# tests/analysis/**, tests/oracle.py and tests/test_corpus_truth.py against it, and fix bugs you find in place.

from __future__ import annotations

from tracekit.analysis.rank import RankTables, analyze_rank

__all__ = ["RankTables", "analyze_rank"]

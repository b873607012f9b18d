"""Rules + `RankTrace` → `LabelledRank`: activity classes, communication calls, steps and labels."""

from __future__ import annotations

from tracekit.label.rank import explain_call, label_rank
from tracekit.label.rules import Rules, load_rules

__all__ = ["Rules", "explain_call", "label_rank", "load_rules"]

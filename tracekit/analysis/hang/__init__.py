"""Post-mortem of a hang: from what every rank's flight recorder left behind to the rank at which it began."""

from __future__ import annotations

from tracekit.analysis.hang.report import post_mortem
from tracekit.analysis.hang.state import RankDump

__all__ = ["RankDump", "post_mortem"]

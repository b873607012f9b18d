"""What a layout implies: expected collectives, bubble, FLOPs and bounds of MFU."""

from __future__ import annotations

from tracekit.theory.planning.job import Plan, plan
from tracekit.theory.planning.rows import ExpectedCollective, Job

__all__ = ["ExpectedCollective", "Job", "Plan", "plan"]

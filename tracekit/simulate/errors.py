"""Why a job is not simulated."""

from __future__ import annotations

from tracekit.errors import TracekitError, UsageError


class NotSimulated(UsageError):
    """The job is fine, but the simulator has no model of it; the text says what to use instead."""


class Stuck(TracekitError):
    """Ranks wait for each other: a defect of the simulator, not of the job."""

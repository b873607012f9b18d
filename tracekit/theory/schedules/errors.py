"""What can be wrong with a schedule, or with the durations it is simulated with."""

from __future__ import annotations

from tracekit.theory.errors import OutsideDomain


class ScheduleError(OutsideDomain):
    """A schedule cannot be built, read or simulated as asked; the message says what was expected."""


class Deadlock(ScheduleError):
    """Every rank that is not done waits. `waiting` holds (rank, its next action, the action it waits for)."""

    def __init__(self, waiting: tuple[tuple[int, str, str], ...]) -> None:
        self.waiting = waiting
        shown = "; ".join(f"rank {rank}: {action} waits for {awaited}" for rank, action, awaited in waiting[:8])
        more = f"; and {len(waiting) - 8} more ranks" if len(waiting) > 8 else ""
        super().__init__(f"the order can never finish: {shown}{more}. Correct the order of these ranks")

"""What a simulated step cost: windows, busy time, idle time, bubbles."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from tracekit.theory.schedules.actions import Kind, parts

if TYPE_CHECKING:
    from tracekit.theory.schedules.schedule import Schedule


@dataclass(frozen=True)
class IdleSplit:
    """Idle ns of one rank in the common window; the three add up to all of it.

    warmup: until the rank's first backward starts; drain: after that and its last forward; steady: between the two.
    """

    warmup_ns: int
    steady_ns: int
    drain_ns: int


@dataclass(frozen=True)
class Bubble:
    """Idle of all ranks in windows of one length; the two ratios are r/(1+r) and r of each other.

    `idle_ns`: per rank, window - busy.
    """

    window_ns: int
    idle_ns: tuple[int, ...]
    over_step_ratio: float
    """Idle over window, both summed over ranks: a fraction of the step. (p-1)/(m+p-1) for 1F1B."""
    over_ideal_ratio: float
    """Idle over busy, both summed over ranks; may exceed 1. (p-1)/m for 1F1B."""
    imbalance_ns: float
    """Part of the mean idle that ranks with less work than the busiest have in any order: max busy - mean busy."""


@dataclass(frozen=True)
class Timeline:
    """A schedule with its times: `start_ns[rank][i]` and `end_ns[rank][i]` of entry i of that rank's order, ns."""

    schedule: Schedule
    start_ns: tuple[tuple[int, ...], ...] = field(repr=False)
    end_ns: tuple[tuple[int, ...], ...] = field(repr=False)

    @cached_property
    def window(self) -> tuple[int, int]:
        """ns, (first start, last end) over all ranks."""
        return min(row[0] for row in self.start_ns if row), max(row[-1] for row in self.end_ns if row)

    @property
    def makespan_ns(self) -> int:
        """Length of the window common to all ranks."""
        return self.window[1] - self.window[0]

    @cached_property
    def busy_ns(self) -> tuple[int, ...]:
        """Per rank, the time its actions take."""
        return tuple(sum(ends) - sum(starts) for starts, ends in zip(self.start_ns, self.end_ns, strict=True))

    @cached_property
    def span_ns(self) -> tuple[int, ...]:
        """Per rank, from the start of its first action to the end of its last."""
        return tuple(e[-1] - s[0] if s else 0 for s, e in zip(self.start_ns, self.end_ns, strict=True))

    @cached_property
    def idle_in_span_ns(self) -> tuple[int, ...]:
        """Per rank, idle between its first action and its last."""
        return tuple(span - busy for span, busy in zip(self.span_ns, self.busy_ns, strict=True))

    def bubble(self, window: Literal["step", "span"] = "step") -> Bubble:
        """Idle in the window common to all ranks ("step"), or in one as long as the longest span of a rank ("span").

        "span" is the cost of the Zero Bubble paper (arXiv 2401.10241): ranks are to start the next step early.
        """
        length = self.makespan_ns if window == "step" else max(self.span_ns)
        busy, ranks = sum(self.busy_ns), self.schedule.ranks
        idle = tuple(length - b for b in self.busy_ns)
        return Bubble(
            window_ns=length,
            idle_ns=idle,
            over_step_ratio=sum(idle) / (ranks * length) if length else 0.0,
            over_ideal_ratio=sum(idle) / busy if busy else 0.0,
            imbalance_ns=max(self.busy_ns) - busy / ranks,
        )

    def idle_split(self, rank: int) -> IdleSplit:
        """Where in the step the rank idles; a rank without backwards has its warm-up before the first action."""
        forward_end, backward_start = [], []
        order = zip(self.schedule.orders[rank], self.start_ns[rank], self.end_ns[rank], strict=True)
        for step, start, end in order:
            kinds = {a.kind for a in parts(step)}
            if Kind.FORWARD in kinds:
                forward_end.append(end)
            if kinds - {Kind.FORWARD}:
                backward_start.append(start)
        begin, finish = self.window
        first = min(backward_start or self.start_ns[rank], default=finish)
        last = max(first, max(forward_end, default=first))
        return IdleSplit(self._idle(rank, begin, first), self._idle(rank, first, last), self._idle(rank, last, finish))

    def _idle(self, rank: int, begin: int, end: int) -> int:
        """ns of [begin, end] in which the rank computes nothing; neither may lie inside one of its actions."""
        pairs = zip(self.start_ns[rank], self.end_ns[rank], strict=True)
        return end - begin - sum(e - s for s, e in pairs if s >= begin and e <= end)

    def gaps(self, rank: int) -> list[tuple[int, int]]:
        """(start, end) in ns of each idle stretch of the rank inside the common window, in order."""
        begin, finish = self.window
        edges = zip((begin, *self.end_ns[rank]), (*self.start_ns[rank], finish), strict=True)
        return [(a, b) for a, b in edges if b > a]

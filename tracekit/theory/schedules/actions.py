"""What a rank of a pipeline does: forward, backward (whole or in halves) of one micro-batch through one stage."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from tracekit.theory.schedules.errors import ScheduleError


class Kind(StrEnum):
    """What one action computes; the letters are those of `torch.distributed.pipelining`."""

    FORWARD = "F"
    BACKWARD = "B"
    """Whole backward: gradients of inputs and of weights in one; the next stage gets its gradient at the end."""
    BACKWARD_INPUT = "I"
    """Gradients of the stage's inputs only (Bin)."""
    BACKWARD_WEIGHT = "W"
    """Gradients of the stage's weights, any time after BACKWARD_INPUT."""


class Action(NamedTuple):
    """One computation: `kind` of micro-batch `micro_batch` through stage `stage` (both counted from 0)."""

    kind: Kind
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.value}{self.micro_batch}"


class Overlap(NamedTuple):
    """A forward and a whole backward that run together: both start when both can, and end together."""

    forward: Action
    backward: Action

    def __str__(self) -> str:
        return f"({self.forward};{self.backward})OVERLAP_F_B"


Step: TypeAlias = Action | Overlap
"""One entry of a rank's order."""

_ACTION = re.compile(r"(\d+)([FBIW])(\d+)")
_OVERLAP = re.compile(r"\(([^;()]+);([^;()]+)\)OVERLAP_F_B")


def parts(step: Step) -> tuple[Action, ...]:
    """The actions of one entry: itself, or the two of an overlapped pair."""
    return (step.forward, step.backward) if isinstance(step, Overlap) else (step,)


def parse_step(text: str) -> Step:
    """Read `3F0`, `3B0`, `3I0`, `3W0` (stage, kind, micro-batch) or `(0F4;7B1)OVERLAP_F_B`, as torch prints them.

    Raises ScheduleError for anything else.
    """
    if match := _OVERLAP.fullmatch(text.strip()):
        first, second = (parse_step(part) for part in match.groups())
        if isinstance(first, Action) and isinstance(second, Action):
            return overlap(first, second)
    elif match := _ACTION.fullmatch(text.strip()):
        return Action(Kind(match[2]), int(match[1]), int(match[3]))
    raise ScheduleError(f"{text!r} is no action: expected e.g. 3F0, 3B0, 3I0, 3W0 or (0F4;7B1)OVERLAP_F_B")


def overlap(forward: Action, backward: Action) -> Overlap:
    """The two as one overlapped pair; ScheduleError unless they are a forward and a whole backward."""
    if forward.kind is not Kind.FORWARD or backward.kind is not Kind.BACKWARD:
        raise ScheduleError(f"({forward};{backward}) cannot overlap: expected a forward F and a whole backward B")
    return Overlap(forward, backward)

"""Orders of DualPipe (DeepSeek-V3, arXiv 2412.19437, 3.2.1) and DualPipeV: forwards overlap with backwards.

One rule gives both. A rank holds two stages: `near`, whose forward it begins with, and `far`. In DualPipe they belong
to two pipelines that run in opposite directions over all ranks; in DualPipeV to the two arms of one V.
"""

from __future__ import annotations

from collections import deque
from itertools import count

from tracekit.theory.schedules.actions import Action, Kind, Overlap, Step

F, B, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT  # noqa: E741


class _Order:
    """An order in the making: counts micro-batches of each stage and keeps weight gradients for later."""

    def __init__(self, first: dict[int, int]) -> None:
        self.steps: list[Step] = []
        self._forward = {stage: count(start) for stage, start in first.items()}
        self._backward = {stage: count(start) for stage, start in first.items()}
        self._weights: deque[Action] = deque()

    def forward(self, stage: int) -> None:
        self.steps.append(Action(F, stage, next(self._forward[stage])))

    def backward(self, stage: int, split: bool = False) -> None:
        k = next(self._backward[stage])
        self.steps.append(Action(I if split else B, stage, k))
        if split:
            self._weights.append(Action(W, stage, k))

    def weight(self) -> None:
        """The oldest weight gradient put off, if any."""
        if self._weights:
            self.steps.append(self._weights.popleft())

    def both(self, forward: int, backward: int) -> None:
        """Forward of one stage overlapped with the whole backward of the other."""
        ahead = Action(F, forward, next(self._forward[forward]))
        self.steps.append(Overlap(ahead, Action(B, backward, next(self._backward[backward]))))


def dual(position: int, half: int, m: int, near: int, far: int, first: dict[int, int]) -> list[Step]:
    """The order of the rank `position` places (of `half`) from where its `near` micro-batches enter.

    `m` micro-batches pass each of its two stages, numbered from `first[stage]`.
    """
    order, inside = _Order(first), half - 1 - position
    for _ in range(2 * inside):
        order.forward(near)
    for _ in range(position + 1):
        order.forward(near)
        order.forward(far)
    for _ in range(inside):
        order.backward(far, split=True)
        order.weight()
        order.forward(far)
    for i in range(m - 2 * half + position + 1):
        if i == 0 and inside == 0:  # at the turn nothing is ready to overlap with: apart, the gradient leaves earlier
            order.forward(near)
            order.backward(far)
        else:
            order.both(near, far)
        order.both(far, near)
    for _ in range(inside):
        order.backward(far)
        order.both(far, near)
    for i in range(2 * (position + 1)):  # the second half splits its backwards, so that weights fill the drain
        order.backward(near if i % 2 else far, split=i > position)
    for _ in range(inside):
        order.weight()
        order.backward(near, split=True)
    for _ in range(position + 1):
        order.weight()
    return order.steps

"""Which results each action of an order waits for, and which it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tracekit.theory.schedules.actions import Action, Kind, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

Keys: TypeAlias = list[list[tuple[int, ...]]]


class Wiring(NamedTuple):
    """For each entry of each rank's order, the numbers of results: those it waits for, and those it gives.

    With m micro-batches the activations of a stage are (2·stage)·m + micro-batch, its input gradients
    (2·stage + 1)·m + micro-batch. What an earlier entry of the same order gave to the same stage needs no waiting; if
    it comes later it is listed, and never arrives.
    """

    needs: Keys
    gives: Keys

    def makers(self) -> dict[int, tuple[int, int]]:
        """(rank, entry of its order) that gives each result."""
        return {key: (rank, i) for rank, row in enumerate(self.gives) for i, keys in enumerate(row) for key in keys}


def wire(orders: Sequence[Sequence[Step]], neighbours: Sequence[tuple[int, int]], m: int) -> Wiring:
    """The wiring of these orders; `neighbours[stage]` are the stages before and after it on its lane, or -1."""
    seen = bytearray(2 * len(neighbours) * m)

    def single(action: Action) -> tuple[tuple[int, ...], tuple[int, ...]]:
        kind, stage, k = action
        forward = 2 * stage * m + k
        if kind is Kind.FORWARD:
            before = neighbours[stage][0]
            seen[forward] = 1
            return (2 * before * m + k,) if before >= 0 else (), (forward,)
        gradient = forward + m
        if kind is Kind.BACKWARD_WEIGHT:
            return () if seen[gradient] else (gradient,), ()
        after = neighbours[stage][1]
        needs = ((2 * after + 1) * m + k,) if after >= 0 else ()
        if not seen[forward]:
            needs = (forward, *needs)
        seen[gradient] = 1
        return needs, (gradient,)

    def entry(step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if isinstance(step, Action):
            return single(step)
        backward, forward = single(step.backward), single(step.forward)  # in this order: B of its own F cannot overlap
        return (*forward[0], *backward[0]), (*forward[1], *backward[1])

    wiring = Wiring([], [])
    for order in orders:
        wires = [entry(step) for step in order]
        wiring.needs.append([needs for needs, _ in wires])
        wiring.gives.append([gives for _, gives in wires])
    return wiring

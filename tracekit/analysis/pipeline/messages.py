"""What each message of a pipeline carries: activations or gradients of which micro-batch."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.analysis.pipeline.parts import Mark, Message
    from tracekit.analysis.pipeline.plans import Plan

Place = tuple[int, int]
"""(rank's place in the pipeline, position of the message among the rank's)."""


def carried(ranks: Sequence[int], messages: Sequence[Sequence[Message]], plan: Plan | None) -> dict[Place, Mark]:
    """The mark of every message for which it can be told; its stage is that of the rank that has the call.

    Annotations tell; otherwise sends to a peer come in the order of the work that makes them, and receives in the order
    of the sends. messages: of one step, per place; plan: of the order that ran.
    """
    out = {(p, i): m.mark for p, row in enumerate(messages) for i, m in enumerate(row) if m.mark is not None}
    if plan is None:
        return out
    made, used = plan.results
    for (p, q, send), found in _by_peer(ranks, messages, made).items():
        marks = made.get((p, q)) if send else used.get((q, p))
        if marks is not None and len(marks) == len(found):
            for i, mark in zip(found, marks, strict=True):
                out.setdefault((p, i), mark)
    return out


def _by_peer(
    ranks: Sequence[int], messages: Sequence[Sequence[Message]], pairs: Iterable[tuple[int, int]]
) -> dict[tuple[int, int, bool], list[int]]:
    """(place, that of the peer, whether it sends) → messages; one that names no peer has one where there is but one.

    pairs: (from, to) of the order.
    """
    place = {rank: p for p, rank in enumerate(ranks)}
    targets: dict[tuple[int, bool], set[int]] = defaultdict(set)
    for p, q in pairs:
        targets[p, True].add(q)
        targets[q, False].add(p)
    only = {key: next(iter(peers)) for key, peers in targets.items() if len(peers) == 1}
    out: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
    for p, row in enumerate(messages):
        for i, m in enumerate(row):
            peer = only.get((p, m.send)) if m.peer is None else place.get(m.peer)
            if peer is not None:
                out[p, peer, m.send].append(i)
    return out

"""What each message of a pipeline carries: activations or gradients of which micro-batch."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tracekit.theory.schedules import Kind, parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.analysis.pipeline.parts import Mark, Message
    from tracekit.theory.schedules import Schedule

Place = tuple[int, int]
"""(rank's place in the pipeline, position of the message among the rank's)."""


def carried(ranks: Sequence[int], messages: Sequence[Sequence[Message]], ran: Schedule | None) -> dict[Place, Mark]:
    """The mark of every message for which it can be told; its stage is that of the rank that has the call.

    Annotations tell; otherwise sends to a peer come in the order of the work that makes them, and receives in the order
    of the sends. messages: of one step, per place; ran: the order that ran.
    """
    out = {(p, i): m.mark for p, row in enumerate(messages) for i, m in enumerate(row) if m.mark is not None}
    if ran is None:
        return out
    place = {rank: p for p, rank in enumerate(ranks)}
    made, used = _results(ran)
    pairs = {(p, q) for p, q in made}
    for p, q in sorted(pairs):
        sent = [(p, i) for i, m in enumerate(messages[p]) if m.send and _to(m, q, p, place, made, send=True)]
        got = [(q, i) for i, m in enumerate(messages[q]) if not m.send and _to(m, p, q, place, made, send=False)]
        if len(sent) == len(made[p, q]):
            for at, mark in zip(sent, made[p, q], strict=True):
                out.setdefault(at, mark)
        if len(got) == len(used[p, q]):
            for at, mark in zip(got, used[p, q], strict=True):
                out.setdefault(at, mark)
    return out


def _to(m: Message, peer: int, own: int, place: Mapping[int, int], pairs: Iterable[Place], *, send: bool) -> bool:
    """Whether a message of `own` goes to (comes from) `peer`; one that names no peer does where there is but one."""
    if m.peer is not None:
        return place.get(m.peer) == peer
    others = {q if send else p for p, q in pairs if (p if send else q) == own}
    return others == {peer}


def _results(ran: Schedule) -> tuple[dict[Place, list[Mark]], dict[Place, list[Mark]]]:
    """Results in the order they are made, by (from, to): as the sender's marks, and as the receiver's."""
    made: dict[Place, list[Mark]] = defaultdict(list)
    used: dict[Place, list[Mark]] = defaultdict(list)
    home = ran.stage_rank
    for rank, order in enumerate(ran.orders):
        for action in (a for step in order for a in parts(step)):
            if action.kind is Kind.BACKWARD_WEIGHT:
                continue
            before, after = ran.neighbours[action.stage]
            kind, target = ("F", after) if action.kind is Kind.FORWARD else ("B", before)
            if target >= 0 and home[target] != rank:
                made[rank, home[target]].append((kind, action.stage, action.micro_batch))
                used[rank, home[target]].append((kind, target, action.micro_batch))
    return made, used

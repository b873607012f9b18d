"""What travels between ranks in a simulated step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracekit.theory.schedules.actions import Action, Kind, parts
from tracekit.theory.schedules.times import delays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.theory.schedules.timeline import Timeline


class Transfer(NamedTuple):
    """One send from rank `source` to rank `target`: the result of `action`, activations of F or else gradients.

    Sent when the action ends, there at `arrived_ns`, and used from `used_ns` on, when the receiving action starts.
    """

    source: int
    target: int
    action: Action
    sent_ns: int
    arrived_ns: int
    used_ns: int


def transfers(timeline: Timeline, p2p_ns: int | Sequence[int] = 0) -> list[Transfer]:
    """All transfers between ranks by time of sending; `p2p_ns` is the latency the timeline was simulated with, ns."""
    schedule = timeline.schedule
    delay, m, wiring = delays(schedule, p2p_ns), schedule.micro_batches, schedule.wiring
    makers = wiring.makers()
    found = []
    for target, needs in enumerate(wiring.needs):
        for used, keys in zip(timeline.start_ns[target], needs, strict=True):
            for key in keys:
                source, entry = makers[key]
                if source == target:
                    continue
                gradient = bool(key // m % 2)
                made = parts(schedule.orders[source][entry])
                action = next(a for a in made if (a.kind is not Kind.FORWARD) == gradient)
                sent = timeline.end_ns[source][entry]
                found.append(Transfer(source, target, action, sent, sent + delay[key // m], used))
    return sorted(found, key=lambda t: (t.sent_ns, t.source, t.action.stage, t.action.kind, t.action.micro_batch))

"""What one rank does in each of its groups: tags that rules may ask for as `group_traffic`.

* p2p_only: nothing but sends and receives
* neighbours: every known peer stands next to this rank in the group
* ring: all sends go to one neighbour and all receives come from the other one (three members or more)
* both_ways: with some peer it both sends and receives
* wraps: some peer stands at the other end of the group (three members or more)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from tracekit.model import Call

    Traffic = dict[Hashable, tuple[frozenset[str], frozenset[str]]]

TRAFFIC = ("p2p_only", "neighbours", "ring", "both_ways", "wraps")
_P2P = frozenset({"send", "recv", "send_recv"})


@dataclass(slots=True)
class _Seen:
    ops: set[str] = field(default_factory=set)
    to: set[int] = field(default_factory=set)
    back: set[int] = field(default_factory=set)
    members: tuple[int, ...] | None = None


def group_key(call: Call) -> Hashable:
    """What tells groups of one rank apart: the name, else the members, else the size."""
    return call.group_name if call.group_name is not None else (call.members, call.group_size)


def group_traffic(calls: Iterable[Call], rank: int | None) -> Traffic:
    """Per group: (operations, tags of `TRAFFIC`). rank: global rank of the trace, where known."""
    seen: dict[Hashable, _Seen] = defaultdict(_Seen)
    for call in calls:
        one = seen[group_key(call)]
        one.ops.add(call.op)
        one.members = one.members or call.members
        if call.op == "send" and call.dst_rank is not None:
            one.to.add(call.dst_rank)
        elif call.op == "recv" and call.src_rank is not None:
            one.back.add(call.src_rank)
    return {key: (frozenset(one.ops), frozenset(_tags(one, rank))) for key, one in seen.items()}


def _tags(seen: _Seen, rank: int | None) -> Iterable[str]:
    if not seen.ops <= _P2P | {"barrier", "coalesced"} or not seen.ops & _P2P:
        return
    yield "p2p_only"
    if seen.to & seen.back:
        yield "both_ways"
    members = seen.members
    if rank is None or not members or rank not in members or not (seen.to | seen.back) <= set(members):
        return
    place = {r: i for i, r in enumerate(members)}
    n, own = len(members), place[rank]
    steps = {(place[p] - own) for p in seen.to | seen.back}
    if not steps:
        return
    if all(abs(s) == 1 for s in steps):
        yield "neighbours"
    if n < 3:
        return
    if any(abs(s) == n - 1 for s in steps):
        yield "wraps"
    forth, back = ({(place[p] - own) % n for p in peers} for peers in (seen.to, seen.back))
    if (forth, back) in (({1}, {n - 1}), ({n - 1}, {1})):
        yield "ring"

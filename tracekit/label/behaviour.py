"""What one rank does in each of its groups: tags that rules may ask for as `group_traffic`.

* p2p_only: nothing but sends and receives
* neighbours: every known peer stands next to this rank in the group
* ring: all sends go to one neighbour and all receives come from the other one (three members or more)
* both_ways: with some peer it both sends and receives
* wraps: some peer stands at the other end of the group (three members or more)
* stages: what pipeline stages do, whatever else the group carries: as many sends as receives with each peer, at least
  two; peers next to it only; and messages that go one way alone, while a ring or an exchange sends and receives at
  once. Between two members, where a ring looks much the same: two results under way before the first comes back, or
  batches of which the first holds one direction alone and a later one the other
* balanced: as `stages`, but for the order of the messages, and with the other end of the group, too: what a stage does
  whose own messages do not tell it from a ring, where those of another rank do
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from tracekit.model import Call

    Traffic = dict[Hashable, tuple[frozenset[str], frozenset[str]]]

TRAFFIC = ("p2p_only", "neighbours", "ring", "both_ways", "wraps", "stages", "balanced")
_P2P = frozenset({"send", "recv", "send_recv"})


class _Seen(Struct):
    ops: set[str] = field(default_factory=set)
    to: set[int] = field(default_factory=set)
    back: set[int] = field(default_factory=set)
    members: tuple[int, ...] | None = None
    turns: dict[int, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))
    """Per peer: (launch, whether it is a send) of each message, in order."""


def group_key(call: Call) -> Hashable:
    """What tells groups of one rank apart: the name, else the members, else the size."""
    return call.group_name if call.group_name is not None else (call.members, call.group_size)


def group_traffic(calls: Iterable[Call], rank: int | None) -> Traffic:
    """Per group: (operations, tags of `TRAFFIC`). rank: global rank of the trace, where known."""
    seen: dict[Hashable, _Seen] = defaultdict(_Seen)
    for number, call in enumerate(calls):
        one = seen[group_key(call)]
        one.ops.add(call.op)
        one.members = one.members or call.members
        if call.op == "send" and call.dst_rank is not None:
            one.to.add(call.dst_rank)
            one.turns[call.dst_rank].append((number if call.coalesced_into is None else call.coalesced_into, True))
        elif call.op == "recv" and call.src_rank is not None:
            one.back.add(call.src_rank)
            one.turns[call.src_rank].append((number if call.coalesced_into is None else call.coalesced_into, False))
    return {key: (frozenset(one.ops), frozenset(_tags(one, rank))) for key, one in seen.items()}


def _tags(seen: _Seen, rank: int | None) -> Iterable[str]:
    if rank is not None and _balanced(seen, rank):
        yield "balanced"
        if _stages(seen, rank):
            yield "stages"
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


def _balanced(seen: _Seen, rank: int) -> bool:
    """Whether a rank sends its neighbours as much as it receives from them."""
    members = seen.members
    if not members or rank not in members or not seen.turns or not set(seen.turns) <= set(members):
        return False
    place = {r: i for i, r in enumerate(members)}
    if any(abs(place[peer] - place[rank]) not in (1, len(members) - 1) for peer in seen.turns):
        return False
    for turns in seen.turns.values():
        sends = sum(send for _, send in turns)
        if sends < 2 or len(turns) - sends < 2 or abs(2 * sends - len(turns)) > _CUT:
            return False
    return True


def _stages(seen: _Seen, rank: int) -> bool:
    """Whether the messages of a rank, which are balanced, are those of a pipeline stage."""
    members = seen.members or ()
    place = {r: i for i, r in enumerate(members)}
    if any(abs(place[peer] - place[rank]) != 1 for peer in seen.turns):
        return False
    return all(_alone(turns, pair=len(members) == 2) for turns in seen.turns.values())


def _alone(turns: Sequence[tuple[int, bool]], *, pair: bool) -> bool:
    """Whether a rank does not always send to a peer and receive from it at once."""
    launches: dict[int, set[bool]] = defaultdict(set)
    for launch, send in turns:
        launches[launch].add(send)
    alone = [next(iter(ways)) for ways in launches.values() if len(ways) == 1]
    if not pair or not alone:
        return bool(alone)
    if len(launches) < len(turns):  # in batches
        return alone[0] != alone[-1] and next(iter(launches.values())) == {alone[0]}
    under_way = most = 0
    for _, send in turns:
        under_way += 1 if send else -1
        most = max(most, abs(under_way))
    return most >= 2


_CUT = 2
"""Messages that a recording may lack at its ends."""

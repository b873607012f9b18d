"""Groups of sends and receives that are one all-to-all: NCCL has no such call of its own (before 2.28).

torch's all-to-all sends to and receives from every member, the process itself among them; parts without elements are
left out. A pipeline or a ring never sends to itself and has at most two peers. So a group of calls that were launched
at once is an all-to-all if it has the process itself on both sides, or if it sends to and receives from all the others
where those are three or more. Anything else stays sends and receives.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, MutableSequence, Sequence

    from tracekit.model import Activities, Call, Witness, WitnessCall, WitnessGroup

FOLDED = "Send+Recv"
"""`op_raw` of a folded group; the vocabulary has it as all_to_all."""
_MIN_OTHERS = 3
_LAUNCHES = frozenset({"nccl-log", "flight-recorder"})
"""Sources whose number of a point-to-point call is that of its launch (NCCL's opCount, torch's p2p_seq_id)."""


def is_all_to_all(own: int | None, size: int | None, sent: set[int], received: set[int]) -> bool:
    """Whether peers of one launch are those of an all-to-all. own, sent, received: numbered alike, in the group or
    globally.
    """
    if not sent or not received:
        return False
    if own is not None and own in sent and own in received:
        return True
    if size is None:
        return False
    if len(sent) == len(received) == size >= 2:
        return True
    others = size - 1
    return others >= _MIN_OTHERS and len(sent - {own}) >= others and len(received - {own}) >= others


def fold_witness(witness: Witness, is_send: Callable[[str], bool | None]) -> MutableSequence[WitnessCall]:
    """The calls of a witness with its all-to-alls folded, in order of issue.

    is_send(op_raw): True for a send, False for a receive, None for any other operation. Calls of a group with one
    number were launched at once, where a source numbers launches (`_LAUNCHES`).
    """
    if witness.source not in _LAUNCHES:
        return witness.calls
    groups = {g.key: g for g in witness.groups}
    together: dict[tuple[str | None, int], list[int]] = defaultdict(list)
    for i, call in enumerate(witness.calls):
        if call.is_p2p and call.p2p_seq is not None and is_send(call.op_raw) is not None:
            together[call.group, call.p2p_seq].append(i)
    gone: set[int] = set()
    whole: dict[int, WitnessCall] = {}
    for (name, _), members in together.items():
        if len(members) < 2:
            continue
        one = _folded([witness.calls[i] for i in members], groups.get(name or ""), is_send)
        if one is not None:
            whole[members[0]] = one
            gone.update(members[1:])
    if not whole:
        return witness.calls
    return [whole.get(i, call) for i, call in enumerate(witness.calls) if i not in gone]


def _folded(
    calls: Sequence[WitnessCall], group: WitnessGroup | None, is_send: Callable[[str], bool | None]
) -> WitnessCall | None:
    """One call for those of a launch; None where they are no all-to-all."""
    sends = [c for c in calls if is_send(c.op_raw)]
    receives = [c for c in calls if not is_send(c.op_raw)]
    peers = [c.peer for c in calls]
    own, size = (group.own, group.size) if group is not None else (None, None)
    if None in peers or len({c.dtype for c in calls}) != 1:
        return None
    if not is_all_to_all(own, size, {c.peer or 0 for c in sends}, {c.peer or 0 for c in receives}):
        return None
    given, taken = _by_peer(sends, size), _by_peer(receives, size)
    first = calls[0]
    return replace(
        first, op_raw=FOLDED, is_p2p=False, seq=first.seq if first.seq is not None else first.p2p_seq, p2p_seq=None,
        in_nelems=_total(sends), out_nelems=_total(receives), in_sizes=None, out_sizes=None, peer=None,
        payload_bytes=None, in_splits=None if given is None else str(given),
        out_splits=None if taken is None else str(taken), extra=first.extra | {"folded": len(calls)},
    )  # fmt: skip


def _elements(call: WitnessCall) -> int | None:
    from tracekit.label.vocabulary import nelems

    return call.in_nelems if call.in_nelems is not None else nelems(call.in_sizes)


def _total(calls: Sequence[WitnessCall]) -> int | None:
    counts = [_elements(c) for c in calls]
    return None if None in counts else sum(n or 0 for n in counts)


def _by_peer(calls: Sequence[WitnessCall], size: int | None) -> list[int] | None:
    """Elements for each position of the group, 0 where nothing goes; None where they are not told."""
    if size is None or any(_elements(c) is None for c in calls):
        return None
    out = [0] * size
    for c in calls:
        if c.peer is None or not 0 <= c.peer < size:
            return None
        out[c.peer] += _elements(c) or 0
    return out


def fold_calls(calls: list[Call], rank: int | None, activities: Activities) -> list[Call]:
    """The calls of a trace with its all-to-alls folded; `coalesced_into` says which were launched at once.

    activities: their references to calls are renumbered.
    """
    together: dict[int, list[int]] = defaultdict(list)
    for i, call in enumerate(calls):
        if call.coalesced_into is not None:
            together[call.coalesced_into].append(i)
    gone: set[int] = set()
    for owner, more in together.items():
        members = [owner, *more]
        if all(calls[i].op in ("send", "recv") for i in members) and _fold_into(owner, members, calls, rank):
            gone.update(more)
    if not gone:
        return calls
    kept = [i for i in range(len(calls)) if i not in gone]
    place = np.full(len(calls) + 1, -1, np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    activities.call = place[activities.call]
    out = [calls[i] for i in kept]
    for call in out:
        if call.coalesced_into is not None:
            call.coalesced_into = int(place[call.coalesced_into])
    return out


def _fold_into(owner: int, members: Sequence[int], calls: Sequence[Call], rank: int | None) -> bool:
    sends = [calls[i] for i in members if calls[i].op == "send"]
    receives = [calls[i] for i in members if calls[i].op == "recv"]
    sent, received = [c.dst_rank for c in sends], [c.src_rank for c in receives]
    first = calls[owner]
    if None in sent or None in received or len({calls[i].dtype for i in members}) != 1:
        return False
    if not is_all_to_all(rank, first.group_size, {r or 0 for r in sent}, {r or 0 for r in received}):
        return False
    given, taken = [c.in_nelems for c in sends], [c.out_nelems for c in receives]
    nbytes = [c.payload_bytes for c in sends], [c.payload_bytes for c in receives]
    first.op, first.op_raw = "all_to_all", FOLDED
    first.src_rank = first.dst_rank = None
    first.in_nelems = None if None in given else sum(n or 0 for n in given)
    first.out_nelems = None if None in taken else sum(n or 0 for n in taken)
    first.payload_bytes = None if any(None in b for b in nbytes) else max(sum(n or 0 for n in b) for b in nbytes)
    place = {r: i for i, r in enumerate(first.members or ())}
    if place and None not in given and None not in taken and {*sent, *received} <= place.keys():
        for name, peers, counts in (("in_splits", sent, given), ("out_splits", received, taken)):
            parts = [0] * len(place)
            for peer, n in zip(peers, counts, strict=True):
                parts[place[peer or 0]] += n or 0
            setattr(first, name, str(parts))
    return True

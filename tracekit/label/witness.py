"""A witness of communication → `LabelledRank`: calls with groups, sizes, frames and labels; no activities.

What tells the phase in a dump: calls that autograd issues come from its own threads (`AUTOGRAD`), which is shown to the
rules as a scope; Python frames are there without any profiler.
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from tracekit.label.apply import Labeller, described
from tracekit.label.enrich import Enricher
from tracekit.label.fold import fold_witness
from tracekit.label.frameworks import detect
from tracekit.label.job import Job
from tracekit.label.place import places_by_order
from tracekit.label.vocabulary import nelems
from tracekit.model import Activities, Call, HealthEntry, LabelledRank, ProcessGroup, WitnessGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableSequence, Sequence

    from tracekit.label.rules import Rules
    from tracekit.label.vocabulary import Vocabulary
    from tracekit.model import Witness, WitnessCall

AUTOGRAD = "thread:pt_autograd"
"""Scope of a call that one of autograd's threads issued (they are named pt_autograd_<device>)."""
_BACKWARD = (AUTOGRAD,)
_ROOT = {"broadcast": "src_rank", "scatter": "src_rank", "reduce": "dst_rank", "gather": "dst_rank"}
_PEER = {"send": "dst_rank", "recv": "src_rank"}
_UNEQUAL = frozenset({"all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"})
"""Operations whose input and output differ by the size of the group."""
_NOWHERE = WitnessGroup("")


def label_witness(witness: Witness, rules: Rules, job: Job | None = None) -> LabelledRank:
    """Label the calls of one process. job: what other ranks and the user know."""
    out = describe_witness(witness, rules)
    Labeller(out, rules).label(job or Job())
    return out


def describe_witness(witness: Witness, rules: Rules, *, fold: bool = True) -> LabelledRank:
    """Everything of `label_witness` but the labels; `meta.groups`, window and health come from the witness, too.

    The end of a coalesced group and what moves no data are no calls: `issued` tells which of the witness' calls count.
    fold: sends and receives that are an all-to-all become one call, so that `issued` speaks of `witness.calls` as they
    are from now on.
    """
    words = rules.vocabulary
    groups = {g.key: g for g in witness.groups}
    folded = len(witness.calls)
    if fold:
        witness.calls = folded_calls(witness, words)
    folded -= len(witness.calls)
    counted = issued(witness, words)
    asked: dict[int, tuple[str, ...]] = {}
    enricher = Enricher(witness.source)
    alike: dict[tuple[Any, ...], list[Any]] = {}
    calls = []
    for i in counted:
        seen = witness.calls[i]
        if seen.in_sizes is None and seen.out_sizes is None:
            call = _as_before(seen, groups, rules, asked, alike)
        else:
            call = _call(seen, groups, rules, asked)
        extra = seen.extra
        if seen.dur_ns is not None or seen.frames or "algorithm" in extra or "channels" in extra:
            enricher.fill(call, seen)
        calls.append(call)
    _without_shared_numbers(witness, calls)
    number(calls)
    if witness.landmarks:
        order = [witness.calls[i].record for i in counted]
        for call, place in zip(calls, places_by_order(order, witness.landmarks), strict=True):
            call.place = place
    places: dict[tuple[str, ...], tuple[str, ...]] = {}
    for call in calls:
        call.frames = places.setdefault(call.frames, call.frames)  # calls of one place share one object
    meta = witness.meta
    meta.witness = witness.source
    meta.groups = tuple(
        ProcessGroup(name, g.desc, g.size, g.ranks, g.backend) for g in witness.groups if (name := _name(g)) is not None
    )
    stacks = {id(call.frames): call.frames for call in witness.calls}
    names = dict.fromkeys(f for stack in stacks.values() for f in stack)
    health = list(witness.health)
    if folded:
        health.append(HealthEntry("sends and receives that are part of an all-to-all", folded))
    if left_out := len(witness.calls) - len(counted):
        health.append(HealthEntry("entries that move no data (the end of a coalesced group and the like)", left_out))
    return LabelledRank(
        meta=meta,
        rank=meta.rank,
        activities=no_activities(),
        calls=calls,
        markers=[],
        event_counts={"call": len(witness.calls), "frame": sum(len(call.frames) for call in witness.calls)},
        health=health,
        window_ns=_window(witness.calls),
        frameworks=detect(rules.frameworks, names, meta.extra, described(calls, meta)),
    )


def folded_calls(witness: Witness, words: Vocabulary) -> MutableSequence[WitnessCall]:
    """The witness' calls with the sends and receives that are an all-to-all as one (`tracekit.label.fold`)."""
    sends = {"send": True, "recv": False}
    return fold_witness(witness, lambda raw: sends.get(words.op(raw)[0]))


def _name(group: WitnessGroup) -> str | None:
    """Name of a group; a communicator's identity is one, too: all its ranks share it."""
    return group.name or group.comm_hash


def _without_shared_numbers(witness: Witness, calls: Sequence[Call]) -> None:
    """NCCL counts transfers and collectives of a communicator together, so where it has both, the numbers of a
    collective differ between ranks: then they are no sequence numbers.
    """
    if witness.source != "nccl-log":
        return
    mixed = {_key(c) for c in calls if c.op in ("send", "recv")}
    for call in calls:
        if _key(call) in mixed:
            call.seq = None


def issued(witness: Witness, words: Vocabulary) -> list[int]:
    """Positions of the witness' calls that `label_witness` labels, in the order of its calls."""
    out = []
    for i, call in enumerate(witness.calls):
        op, moves = words.op(call.op_raw)
        if moves and op != "coalesced":
            out.append(i)
    return out


def no_activities() -> Activities:
    """Activities of a source that saw none."""
    wide, half, byte = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int8)
    return Activities([], [], wide, wide, byte, half, wide, half, half, wide, half, wide)


def _call(seen: WitnessCall, groups: dict[str, WitnessGroup], rules: Rules, asked: dict[int, tuple[str, ...]]) -> Call:
    """asked: by identity of a stack (the witness keeps them alive), its frames that some rule asks for."""
    words = rules.vocabulary
    group = groups.get(seen.group or "", _NOWHERE)
    op = words.op(seen.op_raw)[0]
    kept = asked.get(id(seen.frames))
    if kept is None:
        kept = asked[id(seen.frames)] = frames(seen, rules)
    found = words.dtype(seen.dtype or seen.out_dtype)
    call = Call(
        op=op,
        op_raw=seen.op_raw,
        call_ts=seen.created_ns,
        group_name=_name(group),
        group_desc=group.desc,
        group_size=group.size,
        members=group.ranks,
        seq=seen.p2p_seq if seen.is_p2p else seen.seq,
        dtype=found.name if found else seen.dtype,
        in_nelems=nelems(seen.in_sizes) if seen.in_nelems is None else seen.in_nelems,
        out_nelems=nelems(seen.out_sizes) if seen.out_nelems is None else seen.out_nelems,
        dims=list(seen.in_sizes[0]) if seen.in_sizes and len(seen.in_sizes) == 1 else None,
        frames=kept,
        scopes=scopes(seen),
        in_splits=seen.in_splits,
        out_splits=seen.out_splits,
    )
    if not seen.noticed and seen.started_ns is not None and seen.dur_ns is not None:
        call.ts, call.dur = seen.started_ns, seen.dur_ns
    known = [n for n in (call.in_nelems, call.out_nelems) if n is not None]
    if len(known) == 1 and op in _UNEQUAL and seen.in_nelems is not seen.out_nelems:
        known = []  # the larger side needs the group's size, which the source does not tell
    if known and found is not None:
        call.payload_bytes = max(known) * found.bytes
    if call.payload_bytes is None:
        call.payload_bytes = seen.payload_bytes
    for sides, place in ((_PEER, seen.peer), (_ROOT, seen.root)):
        if op in sides and place is not None and group.ranks and 0 <= place < len(group.ranks):
            setattr(call, sides[op], group.ranks[place])
    return call


_ALIKE = attrgetter(
    "op_raw", "group", "is_p2p", "in_nelems", "out_nelems", "dtype", "out_dtype", "peer", "root", "payload_bytes",
    "thread_name", "in_splits", "out_splits",
)  # fmt: skip
"""What `_call` sees of a call without shapes, beside its number, its times, and what stands around it."""
_FIELDS = attrgetter(*(f.name for f in structs.fields(Call)))
_PLACES = {name: i for i, name in enumerate(f.name for f in structs.fields(Call))}
_SEQ, _CALL_TS, _TS, _DUR = (_PLACES[name] for name in ("seq", "call_ts", "ts", "dur"))


def _as_before(
    seen: WitnessCall,
    groups: dict[str, WitnessGroup],
    rules: Rules,
    asked: dict[int, tuple[str, ...]],
    alike: dict[tuple[Any, ...], list[Any]],
) -> Call:
    """`_call` of a call without shapes; alike: what came of one that differs in number and times only."""
    key = (_ALIKE(seen), id(seen.frames), id(seen.scopes))  # the witness keeps both alive
    known = alike.get(key)
    if known is None:
        call = _call(seen, groups, rules, asked)
        alike[key] = list(_FIELDS(call))
        return call
    values = known.copy()
    values[_SEQ] = seen.p2p_seq if seen.is_p2p else seen.seq
    values[_CALL_TS] = seen.created_ns
    timed = not seen.noticed and seen.started_ns is not None and seen.dur_ns is not None
    values[_TS], values[_DUR] = (seen.started_ns, seen.dur_ns) if timed else (None, None)
    return Call(*values)


def frames(seen: WitnessCall, rules: Rules) -> tuple[str, ...]:
    """Frames that some rule asks for, outermost first."""
    asked = rules.frames
    if asked is None:
        return ()
    return tuple(f for f in reversed(seen.frames) if asked.search(f))


def scopes(seen: WitnessCall) -> tuple[str, ...]:
    """What stands around the call, or what the thread tells as a scope."""
    if seen.scopes:
        return seen.scopes
    return _BACKWARD if (seen.thread_name or "").startswith("pt_autograd") else ()


def number(calls: Iterable[Call]) -> None:
    """Number the calls of each group in order of issue."""
    ordinal: Counter[object] = Counter()
    for call in calls:
        key = _key(call)
        call.ordinal = ordinal[key]
        ordinal[key] += 1


def _key(call: Call) -> object:
    return call.group_name, call.members if call.group_name is None else None, call.group_size


def _window(calls: Sequence[WitnessCall]) -> tuple[int, int]:
    """First issue to the last thing known to have happened; (0, 0) without any time."""
    times = [t for c in calls for t in (c.created_ns, c.started_ns, c.completed_ns) if t is not None]
    return (min(times), max(times)) if times else (0, 0)

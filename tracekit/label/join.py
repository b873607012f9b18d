"""Tie the calls of a profiler's trace to those that a witness of the same process saw, and take what it knows more.

By the number of the record where both have it (execution traces), by group and sequence number where both tell them;
else by time: a witness notes a call while its operator runs on the host, so the note lies within the operator's span,
and one operation has exactly one such note.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tracekit.label.apply import UNDESCRIBED, described
from tracekit.label.communicators import SOURCES, join_nccl
from tracekit.label.enrich import Enricher
from tracekit.label.frameworks import detect
from tracekit.label.groups import Groups
from tracekit.label.join_et import by_record, fill_sizes
from tracekit.label.vocabulary import nelems
from tracekit.label.witness import folded_calls, frames, issued, number
from tracekit.model import CommArgs, HealthEntry, on_unix_clock

if TYPE_CHECKING:
    from tracekit.label.rules import Rules
    from tracekit.model import Call, LabelledRank, Witness, WitnessCall, WitnessGroup

BY_RECORD, BY_SEQ, BY_TIME = "rf_id", "seq", "time"
_P2P = frozenset({"send", "recv", "send_recv"})
_NEAR_NS = 1_000_000_000
"""No job starts anew within it."""


class Join(Struct):
    """tied: position of the call → (position in the witness' calls, how); odd: in what they contradict each other."""

    tied: dict[int, tuple[int, str]] = field(default_factory=dict)
    odd: Counter[str] = field(default_factory=Counter)


def join(rank: LabelledRank, witness: Witness, rules: Rules) -> Join:
    """Join one rank, before its labels: fills group, number and frames where the trace has none; notes the outcome
    in `rank.health`. The trace's own word always stands.
    """
    witness.calls = folded_calls(witness, rules.vocabulary)
    if witness.source in SOURCES:
        join_nccl(rank, witness, rules.vocabulary)
        number(rank.calls)
        return Join()
    found = tie(rank, witness, rules)
    enricher = Enricher(witness.source)
    declared = Groups(rank.meta)
    groups = {g.key: g for g in witness.groups}
    for position, (at, how) in found.tied.items():
        call, seen = rank.calls[position], witness.calls[at]
        call.witness = " ".join(filter(None, (call.witness, f"{witness.source}:{how}")))
        _check(call, seen, groups.get(seen.group or ""), found.odd)
        _fill(call, seen, groups.get(seen.group or ""), declared, enricher)
        enricher.fill(call, seen)
        if seen.rf_id is not None:
            fill_sizes(call, seen, rules.vocabulary, enricher)
        if not call.frames:
            call.frames = frames(seen, rules)
    number(rank.calls)
    names = {f for at, _ in found.tied.values() for f in witness.calls[at].frames}
    told = detect(rules.frameworks, names, (), described(rank.calls, rank.meta))
    rank.frameworks = told | rank.frameworks
    rank.health += _health(rank, witness, found)
    return found


def tie(rank: LabelledRank, witness: Witness, rules: Rules) -> Join:
    """Which call is which."""
    out = Join()
    words = rules.vocabulary
    notes = issued(witness, words)
    op_of = {i: words.op(witness.calls[i].op_raw)[0] for i in notes}
    out.tied = {position: (at, BY_RECORD) for position, at in by_record(rank, witness, op_of).items()}
    names = {g.key: g.name for g in witness.groups}
    by_seq: dict[tuple[str | None, int | None, str], list[int]] = {}
    for i in notes:
        seen = witness.calls[i]
        by_seq.setdefault(
            (names.get(seen.group or ""), seen.p2p_seq if seen.is_p2p else seen.seq, op_of[i]), []
        ).append(i)
    dated = on_unix_clock(rank.meta, rank.window_ns[0])
    for position, call in enumerate(rank.calls):
        hits = by_seq.get((call.group_name, call.seq, call.op), ())
        if (
            position not in out.tied
            and call.group_name is not None
            and call.seq is not None
            and len(hits) == 1
            and (not dated or _near(call, witness.calls[hits[0]]))
        ):
            out.tied[position] = (hits[0], BY_SEQ)
    if dated:
        _by_time(rank, witness, op_of, out)
    return out


def _near(call: Call, seen: WitnessCall) -> bool:
    """Both read the clock of one host around one call: numbers of another run would tie calls far apart."""
    return call.call_ts is None or seen.created_ns is None or abs(call.call_ts - seen.created_ns) < _NEAR_NS


def _by_time(rank: LabelledRank, witness: Witness, op_of: dict[int, str], out: Join) -> None:
    taken = {at for at, _ in out.tied.values()}
    free = [
        (created, i) for i in op_of if i not in taken and (created := witness.calls[i].created_ns) is not None
    ]  # fmt: skip
    free.sort()
    times = [t for t, _ in free]
    for position, call in enumerate(rank.calls):
        if position in out.tied or call.call_ts is None or call.call_end is None:
            continue
        inside = free[bisect_left(times, call.call_ts) : bisect_right(times, call.call_end)]
        hits = [i for _, i in inside if i not in taken and _same(call.op, op_of[i], witness.calls[i])]
        if len(hits) == 1:
            out.tied[position] = (hits[0], BY_TIME)
            taken.add(hits[0])
        elif inside and not hits:
            out.odd["operation"] += 1


def _same(op: str, noted: str, seen: WitnessCall) -> bool:
    """One operation; gloo has no reduce-scatter and notes the all-reduce that it runs in its place."""
    return op == noted or (op == "reduce_scatter" and noted == "all_reduce" and seen.op_raw.startswith("gloo:"))


def _check(call: Call, seen: WitnessCall, group: WitnessGroup | None, odd: Counter[str]) -> None:
    pairs = (
        ("group", call.group_name, group.name if group is not None else None),
        ("members of the group", call.members, group.ranks if group is not None else None),
        ("input size", call.in_nelems, nelems(seen.in_sizes)),
    )
    for what, mine, theirs in pairs:
        if mine is not None and theirs is not None and mine != theirs:
            odd[what] += 1


def _fill(call: Call, seen: WitnessCall, group: WitnessGroup | None, declared: Groups, enricher: Enricher) -> None:
    """What the trace lacks; members of a group that the witness only names come from the trace's own metadata."""
    if group is not None and call.group_name is None and group.name is not None:
        known = declared.resolve(CommArgs(pg_name=group.name, pg_desc=group.desc, group_size=group.size))
        fits = call.group_size is None or known.size is None or call.group_size == known.size
        if fits:
            call.group_name, call.group_desc = group.name, group.desc or known.desc
            call.members = group.ranks or known.members or call.members
            call.group_size = len(call.members) if call.members else call.group_size or known.size
            enricher.told(call, "group")
    elif group is not None and call.group_name == group.name and call.group_desc in (None, *UNDESCRIBED):
        call.group_desc = group.desc or call.group_desc
    if call.seq is None and call.group_name is not None:
        call.seq = seen.p2p_seq if seen.is_p2p else seen.seq
        if call.seq is not None:
            enricher.told(call, "seq")


def _health(rank: LabelledRank, witness: Witness, found: Join) -> list[HealthEntry]:
    how = Counter(h for _, h in found.tied.values())
    out = []
    for name, what in ((BY_RECORD, "the number of the record"), (BY_SEQ, "group and number"), (BY_TIME, "time")):
        if how[name]:
            out.append(
                HealthEntry(f"calls tied to the {witness.source} by {what}", how[name], "info", witness.meta.path)
            )
    left = [c for i, c in enumerate(rank.calls) if i not in found.tied and c.op not in _P2P]
    if left:
        reason = f"collectives that the {witness.source} does not hold"
        out.append(HealthEntry(reason, len(left), "info", left[0].op_raw))
    out += [
        HealthEntry(
            f"trace and {witness.source} contradict each other: {what}; the trace counts", n, "info", witness.meta.path
        )
        for what, n in sorted(found.odd.items())
    ]
    return out

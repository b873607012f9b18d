"""How far each rank came in each of its groups, as its witness tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.model import Call, Witness, WitnessCall, WitnessGroup

GroupKey = tuple[str, tuple[int, ...]]
"""Name and members: after a split several groups may bear one name."""


class RankDump(Struct):
    """What one rank left behind. labels: position in `witness.calls` → its labelled call."""

    rank: int
    witness: Witness
    labels: Mapping[int, Call] = field(default_factory=dict)

    def label(self, position: int) -> str | None:
        """Strategy of a call, None while it has none."""
        call = self.labels.get(position)
        return call.label.strategy if call is not None and call.label.strategy != "unknown" else None


class Progress(Struct):
    """Sequence numbers of the last collective of a group on one rank; None = not known.

    pending: position of the call → for each call of the group that was issued and not seen to complete.
    """

    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None
    pending: list[int] = field(default_factory=list)


class GroupState(Struct):
    """One group over all ranks. p2p: sends or receives run in it, so that the file's own counters mix both kinds.

    calls: sequence number → rank → position of the collective in that rank's calls.
    """

    key: GroupKey
    desc: str | None = None
    p2p: bool = False
    progress: dict[int, Progress] = field(default_factory=dict)
    calls: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the process group."""
        return self.key[0]

    @property
    def members(self) -> tuple[int, ...]:
        """Global ranks; empty when no dump tells them."""
        return self.key[1]


def is_pending(call: WitnessCall) -> bool:
    """Issued and not seen to complete. A call without a state tells nothing; gloo retires calls without completing."""
    return call.state in ("scheduled", "started") and call.retired is not True and call.completed_ns is None


def key_of(group: WitnessGroup) -> GroupKey | None:
    """Identity over ranks; None when the dump does not name the group."""
    return None if group.name is None else (group.name, group.ranks or ())


def gather(dumps: Sequence[RankDump]) -> dict[GroupKey, GroupState]:
    """State of every named group, from the calls and from the counters."""
    out: dict[GroupKey, GroupState] = {}
    for dump in dumps:
        for group in dump.witness.groups:
            key = key_of(group)
            if key is not None:
                state = out.setdefault(key, GroupState(key))
                state.desc = state.desc or group.desc
                state.progress[dump.rank] = Progress()
    for dump in dumps:
        _add_calls(dump, out)
    for dump in dumps:
        _add_counters(dump, out)
    return out


def group_keys(witness: Witness) -> dict[str, GroupKey]:
    """Identity of each group that this witness' calls name."""
    found = {g.key: key_of(g) for g in witness.groups}
    return {name: key for name, key in found.items() if key is not None}


def _add_calls(dump: RankDump, out: dict[GroupKey, GroupState]) -> None:
    keys = group_keys(dump.witness)
    for position, call in enumerate(dump.witness.calls):
        key = keys.get(call.group or "")
        if key is None:
            continue
        state = out[key]
        mine = state.progress[dump.rank]
        if call.seq is not None:
            mine.enqueued = max(call.seq, mine.enqueued or 0)
        if is_pending(call):
            mine.pending.append(position)
        if call.is_p2p:
            state.p2p = True
        elif call.seq is not None:
            state.calls.setdefault(call.seq, {}).setdefault(dump.rank, position)


def _add_counters(dump: RankDump, out: dict[GroupKey, GroupState]) -> None:
    """Counters count sends and receives, too, so those of a group with both say nothing of its collectives."""
    calls = dump.witness.calls
    for group in dump.witness.groups:
        key = key_of(group)
        if key is None:
            continue
        state = out[key]
        mine = state.progress[dump.rank]
        pending = [calls[i].seq for i in mine.pending if not calls[i].is_p2p]
        first = min((s for s in pending if s is not None), default=None)
        if not state.p2p:
            mine.enqueued = _largest(mine.enqueued, group.last_enqueued)
            mine.started, mine.completed = group.last_started, group.last_completed
        if first is not None:
            mine.completed = first - 1
        elif mine.completed is None and not pending:
            mine.completed = mine.enqueued


def _largest(*values: int | None) -> int | None:
    return max((v for v in values if v is not None), default=None)

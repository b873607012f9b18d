"""Dumps that say nothing of the hang: empty ones, and those taken before a peer's.

A call in which every member waits for every other completes nowhere before all have issued it. A dump in which a rank
has not issued what a peer's dump shows as completed is therefore older than that: the rank went on afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.analysis.hang.state import GroupKey, GroupState, RankDump

_TOGETHER = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})


def useless(dumps: Mapping[int, RankDump], groups: Mapping[GroupKey, GroupState]) -> dict[int, str]:
    """Rank → why its dump cannot tell where it is."""
    out = {rank: "its dump is empty" for rank, dump in dumps.items() if not _tells(dump)}
    for group in groups.values():
        seq, by = _last_together(group, dumps)
        for rank, mine in group.progress.items():
            if seq is not None and mine.enqueued is not None and mine.enqueued < seq:
                name = f"{group.desc or 'group'} {group.name}"
                why = f"which shows call {seq} of {name} completed when rank {rank} had issued {mine.enqueued}"
                out.setdefault(rank, f"its dump is older than rank {by}'s, {why}")
    return out


def _tells(dump: RankDump) -> bool:
    counters = (g.last_enqueued is not None or g.last_completed is not None for g in dump.witness.groups)
    return bool(dump.witness.calls) or any(counters)


def _last_together(group: GroupState, dumps: Mapping[int, RankDump]) -> tuple[int | None, int | None]:
    """(number, rank) of the last call that takes all members and that some rank saw complete."""
    for seq in sorted(group.calls, reverse=True):
        for rank, position in sorted(group.calls[seq].items()):
            call, label = dumps[rank].witness.calls[position], dumps[rank].labels.get(position)
            done = call.state == "completed" or call.completed_ns is not None
            if done and label is not None and label.op in _TOGETHER:
                return seq, rank
    return None, None

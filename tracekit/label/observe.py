"""What one labelled rank shows of the job: its frameworks and groups, and what it does in each of them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tracekit.label.apply import UNDESCRIBED
from tracekit.label.behaviour import group_key
from tracekit.label.engine import Engine
from tracekit.label.layout.kinds import JobGroup
from tracekit.label.matching import Context

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tracekit.label.behaviour import Traffic
    from tracekit.label.layout.kinds import Key
    from tracekit.label.rules import Rules
    from tracekit.model import Call, LabelledRank

_OF_TRAFFIC = {"p2p_only": "p2p", "neighbours": "chain", "ring": "ring"}
_P2P = frozenset({"send", "recv", "send_recv", "barrier"})
_TWO_WAY = frozenset({"all_reduce", "all_gather", "reduce_scatter"})
"""Operations that carry activations when a group has them in the forward and in the backward."""

_IDLE = frozenset({"idle"})


class Observed(Struct, frozen=True):
    """One rank's contribution to the knowledge of the job; small and picklable.

    stages: groups in which its messages are those of a pipeline stage.
    """

    rank: int | None
    world_size: int | None
    pg_count: int | None
    frameworks: frozenset[str]
    groups: tuple[JobGroup, ...]
    stages: frozenset[Key] = frozenset()


def observe(rank: LabelledRank, rules: Rules, traffic: Traffic) -> Observed:
    """Gather what a labelled rank shows. traffic: as `tracekit.label.behaviour.group_traffic` finds it."""
    calls, meta = rank.calls, rank.meta
    engine = Engine(rules, Context(frozenset(rank.frameworks)))
    behaviour = _behaviour(calls, traffic)
    last = {group_key(c): c for c in calls}
    shown = {key: JobGroup(c.group_name, c.group_desc, c.members, c.group_size) for key, c in last.items()}
    named = {g.name for g in shown.values()}
    shown |= {g.name: JobGroup(g.name, g.desc, g.ranks, g.size) for g in meta.groups if g.name not in named}
    found: dict[Key, JobGroup] = {}
    for key, group in shown.items():
        told = group.desc if group.desc not in UNDESCRIBED else None
        axes = engine.axes_of(told) if told else None
        one = replace(group, desc=told, axes=axes, behaviour=behaviour.get(key, _IDLE))
        found.setdefault(one.key, one)
    stages = frozenset(shown[key].key for key, (_, tags) in traffic.items() if "stages" in tags)
    return Observed(
        meta.rank, meta.world_size, meta.pg_count, frozenset(rank.frameworks), tuple(found.values()), stages
    )


def _behaviour(calls: Sequence[Call], traffic: Traffic) -> dict[Hashable, frozenset[str]]:
    phases: dict[Hashable, set[str | None]] = defaultdict(set)
    out: dict[Hashable, set[str]] = {
        key: {_OF_TRAFFIC[t] for t in tags if t in _OF_TRAFFIC} | ({"all_to_all"} & ops)
        for key, (ops, tags) in traffic.items()
    }
    for call in calls:
        label = call.label
        if label.purpose in ("grad_reduce", "activation"):
            out[group_key(call)].add(label.purpose)
        elif label.purpose is None and call.op in _TWO_WAY and (call.in_nelems or 0) > 1:
            phases[group_key(call)].add(label.phase)
    for key, seen in phases.items():
        if {"forward", "backward"} <= seen:
            out[key].add("activation")
    unnamed = {group_key(c) for c in calls if c.group_name is None}
    for key in unnamed:
        if traffic[key][0] & _P2P and traffic[key][0] - _P2P:
            out[key] = set()  # several groups of the same ranks: what is done in which is not known
    return {key: frozenset(tags) for key, tags in out.items()}

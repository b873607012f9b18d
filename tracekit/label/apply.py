"""Gather the evidence of each call of a rank and let the engine label it."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from tracekit.label.behaviour import group_key, group_traffic
from tracekit.label.engine import Engine, ndim
from tracekit.label.facts import find_facts
from tracekit.label.lone import label_lone
from tracekit.label.matching import Context, GroupEvidence

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from tracekit.label.job import Job
    from tracekit.label.matching import Evidence
    from tracekit.label.rules import Rules
    from tracekit.model import Call, LabelledRank, TraceMeta

_NUMBER = re.compile(r"-?\d+")
UNDESCRIBED = frozenset({"", "undefined"})


def described(calls: Iterable[Call], meta: TraceMeta) -> tuple[str, ...]:
    """Descriptions of all groups of a rank."""
    return tuple(sorted({g.desc for g in meta.groups if g.desc} | {c.group_desc for c in calls if c.group_desc}))


class Labeller:
    """Labels the calls of one rank, again if need be: calls that look alike to every rule are looked at once.

    traffic: per group of the rank, its operations and tags (see `tracekit.label.behaviour`).
    """

    def __init__(self, rank: LabelledRank, rules: Rules) -> None:
        self._rank, self._rules = rank, rules
        self.traffic = group_traffic(rank.calls, rank.meta.rank)
        self._keys = [group_key(c) for c in rank.calls]
        self._kind, self._examples = _alike(rank.calls, self._keys)

    def label(self, job: Job) -> None:
        """Set the label of every call; an earlier label is forgotten."""
        rank, rules = self._rank, self._rules
        context = Context(frozenset(rank.frameworks) | job.frameworks, job_groups=described(rank.calls, rank.meta))
        engine = Engine(rules, context)
        groups = self._groups(job)
        evidence = []
        for number in self._examples:
            call = rank.calls[number]
            group, description = groups[self._keys[number]]
            scopes = _visible(call, rank.step_names)
            evidence.append(engine.evidence(call, description, scopes, group, (splits(call), call.place)))
        counts: Counter[Evidence] = Counter()
        for kind, n in Counter(self._kind).items():
            counts[evidence[kind]] += n
        context.facts, context.group_facts = find_facts(rules.facts, engine, list(counts.items()), len(rank.markers))
        labels = [engine.label(e) for e in evidence]
        for call, kind in zip(rank.calls, self._kind, strict=True):
            call.label = labels[kind]
        label_lone(rank.calls)

    def _groups(self, job: Job) -> dict[Hashable, tuple[GroupEvidence, str | None]]:
        """Per group of the rank: what is known of it, and its description (perhaps from another rank)."""
        world = job.world_size or self._rank.meta.world_size
        out: dict[Hashable, tuple[GroupEvidence, str | None]] = {}
        for key, call in dict(zip(reversed(self._keys), reversed(self._rank.calls), strict=True)).items():
            ops, tags = self.traffic[key]
            if "balanced" in tags and (call.group_name, call.members) in job.stages:
                tags = tags | {"stages"}
            told = call.group_desc if call.group_desc not in UNDESCRIBED else None
            other = job.descriptions.get(call.group_name) if told is None and call.group_name is not None else None
            claims = job.claims.get((call.group_name, call.members), ())
            whole = world is not None and world > 1 and call.group_size == world
            group = GroupEvidence(key, ops, tags, whole, other is not None, claims)
            out[key] = (group, other if other is not None else call.group_desc)
        return out


_SEEN = attrgetter(
    "op", "op_raw", "group_desc", "dtype", "family", "kernel", "place", "in_nelems", "out_nelems", "payload_bytes",
    "in_splits", "out_splits",
)  # fmt: skip


def _alike(calls: Sequence[Call], groups: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    """(kind of each call, first call of each kind): calls of one kind differ in nothing that a rule can see.

    Scopes, operators and frames of equal places are one object each, so their identity will do.
    """
    kinds: dict[tuple[Hashable, ...], int] = {}
    kind: list[int] = []
    examples: list[int] = []
    for number, (c, group) in enumerate(zip(calls, groups, strict=True)):
        key = (_SEEN(c), group, id(c.scopes), id(c.via), id(c.frames), ndim(c) if c.dims else None)
        found = kinds.setdefault(key, len(kinds))
        kind.append(found)
        if found == len(examples):
            examples.append(number)
    return kind, examples


def _visible(call: Call, steps: Mapping[str, str | None]) -> tuple[str, ...]:
    """Scopes as rules see them: a step marker shows only the phase it tells; the call's operators come last."""
    out = []
    for scope in call.scopes:
        if scope not in steps:
            out.append(scope)
        elif (phase := steps[scope]) is not None:
            out.append(f"step:{phase}")
    return (*out, *call.via)


def splits(call: Call) -> str:
    """Kind of an all-to-all's split sizes: even (or none recorded), single (one entry alone is not 0), uneven."""
    if call.op != "all_to_all":
        return "none"
    return _split_kind(call.in_splits or "", call.out_splits or "")


@lru_cache(4096)
def _split_kind(given: str, taken: str) -> str:
    kinds = {_kind([int(n) for n in _NUMBER.findall(text)], cut="..." in text) for text in (given, taken)}
    return next((k for k in ("uneven", "single") if k in kinds), "even")


def _kind(sizes: list[int], *, cut: bool) -> str:
    if len(set(sizes)) <= 1:
        return "even"
    return "single" if not cut and sum(n != 0 for n in sizes) == 1 else "uneven"

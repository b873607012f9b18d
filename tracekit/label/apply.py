"""Gather the evidence of each call of a rank and let the engine label it."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from tracekit.label.behaviour import group_key, group_traffic
from tracekit.label.engine import Engine
from tracekit.label.facts import find_facts
from tracekit.label.lone import label_lone
from tracekit.label.matching import Context, GroupEvidence

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from tracekit.label.job import Job
    from tracekit.label.rules import Rules
    from tracekit.model import Call, LabelledRank, TraceMeta

_NUMBER = re.compile(r"-?\d+")
UNDESCRIBED = frozenset({"", "undefined"})


def described(calls: Iterable[Call], meta: TraceMeta) -> tuple[str, ...]:
    """Descriptions of all groups of a rank."""
    return tuple(sorted({g.desc for g in meta.groups if g.desc} | {c.group_desc for c in calls if c.group_desc}))


def apply_rules(rank: LabelledRank, rules: Rules, job: Job) -> None:
    """Set the label of every call of a rank; an earlier label is forgotten."""
    calls = rank.calls
    context = Context(frozenset(rank.frameworks) | job.frameworks, job_groups=described(calls, rank.meta))
    engine = Engine(rules, context)
    groups = _groups(rank, job)
    seen: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[str, ...]] = {}
    evidence = []
    for call in calls:
        key = (call.scopes, call.via)
        scopes = seen.get(key)
        if scopes is None:
            scopes = seen[key] = _visible(call, rank.step_names)
        group, description = groups[group_key(call)]
        evidence.append(engine.evidence(call, description, scopes, group, (splits(call), call.place)))
    counts = list(Counter(evidence).items())
    context.facts, context.group_facts = find_facts(rules.facts, engine, counts, len(rank.markers))
    for call, one in zip(calls, evidence, strict=True):
        call.label = engine.label(one)
    label_lone(calls)


def _groups(rank: LabelledRank, job: Job) -> dict[Hashable, tuple[GroupEvidence, str | None]]:
    """Per group of the rank: what is known of it, and its description (perhaps from another rank)."""
    world = job.world_size or rank.meta.world_size
    out: dict[Hashable, tuple[GroupEvidence, str | None]] = {}
    traffic = group_traffic(rank.calls, rank.meta.rank)
    for call in rank.calls:
        key = group_key(call)
        if key in out:
            continue
        ops, tags = traffic[key]
        told = call.group_desc if call.group_desc not in UNDESCRIBED else None
        other = job.descriptions.get(call.group_name) if told is None and call.group_name is not None else None
        claims = job.claims.get((call.group_name, call.members), ())
        whole = world is not None and world > 1 and call.group_size == world
        group = GroupEvidence(key, ops, tags, whole, other is not None, claims)
        out[key] = (group, other if other is not None else call.group_desc)
    return out


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

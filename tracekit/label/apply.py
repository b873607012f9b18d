"""Gather the evidence of each call of a rank and let the engine label it."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from tracekit.label.behaviour import group_key, group_traffic
from tracekit.label.engine import Engine
from tracekit.label.facts import find_facts
from tracekit.label.frameworks import detect
from tracekit.label.matching import Context, GroupEvidence
from tracekit.label.place import places

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tracekit.label.job import Job
    from tracekit.label.rules import Rules
    from tracekit.label.steps import Steps
    from tracekit.model import Call, RankTrace

_NUMBER = re.compile(r"-?\d+")
UNDESCRIBED = frozenset({"", "undefined"})


def apply_rules(calls: Sequence[Call], rules: Rules, trace: RankTrace, steps: Steps, job: Job) -> dict[str, str]:
    """Set the label of every call; returns the frameworks of the rank with what told each."""
    descriptions = sorted({g.desc for g in trace.meta.groups if g.desc} | {c.group_desc for c in calls if c.group_desc})
    frameworks = detect(rules.frameworks, trace, descriptions)
    context = Context(frozenset(frameworks) | job.frameworks, job_groups=tuple(descriptions))
    engine = Engine(rules, context)
    groups = _groups(calls, trace, job)
    seen: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[str, ...]] = {}
    evidence = []
    for call, place in zip(calls, places(calls, trace, steps), strict=True):
        key = (call.scopes, call.via)
        scopes = seen.get(key)
        if scopes is None:
            scopes = seen[key] = _visible(call, steps)
        group, description = groups[group_key(call)]
        evidence.append(engine.evidence(call, description, scopes, group, (splits(call), place)))
    counts = list(Counter(evidence).items())
    context.facts, context.group_facts = find_facts(rules.facts, engine, counts, len(steps.markers))
    for call, one in zip(calls, evidence, strict=True):
        call.label = engine.label(one)
    return frameworks


def _groups(calls: Sequence[Call], trace: RankTrace, job: Job) -> dict[Hashable, tuple[GroupEvidence, str | None]]:
    """Per group of the rank: what is known of it, and its description (perhaps from another rank)."""
    world = job.world_size or trace.meta.world_size
    out: dict[Hashable, tuple[GroupEvidence, str | None]] = {}
    traffic = group_traffic(calls, trace.meta.rank)
    for call in calls:
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


def _visible(call: Call, steps: Steps) -> tuple[str, ...]:
    """Scopes as rules see them: a step marker shows only the phase it tells; the call's operators come last."""
    out = []
    for scope in call.scopes:
        if scope not in steps.names:
            out.append(scope)
        elif (phase := steps.names[scope]) is not None:
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

"""Label one rank: link, classify, find calls and steps, apply the rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np

from tracekit.label.collectives import Attached, attach, describe_activities
from tracekit.label.engine import Engine, explain
from tracekit.label.facts import find_facts
from tracekit.label.groups import Groups
from tracekit.label.host import (
    add_orphans,
    fill_from_workers,
    has_host_work,
    host_activities,
    join_workers,
    sorted_activities,
)
from tracekit.label.hostcalls import (
    IS_C10D,
    IS_FUNCTIONAL,
    IS_WRAPPER,
    CallBuilder,
    HostCalls,
    find_host_calls,
)
from tracekit.label.kernels import COMPUTE, DeviceKinds, classify
from tracekit.label.matching import Context
from tracekit.label.steps import Steps, find_steps
from tracekit.model import NO_TIME, Activities, Call, DeviceClass, HealthEntry, Kind, LabelledRank
from tracekit.parsers.links import Links, link

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.label.rules import Rules
    from tracekit.model import RankTrace


_OPERATORS = (IS_C10D, IS_FUNCTIONAL, IS_WRAPPER)


def label_rank(trace: RankTrace, rules: Rules) -> LabelledRank:
    """Classify the activities of one rank, build and label its communication calls, find its steps."""
    words = rules.vocabulary
    links = link(trace)
    kinds = classify(trace, rules.kernels)
    host = find_host_calls(trace, words)
    groups = Groups(trace.meta)
    builder = CallBuilder(trace, words, groups)
    steps = find_steps(trace, rules.steps)
    found = attach(trace, links, kinds, host, builder)
    n_host = len(host.roots.row)
    describe_activities(trace, kinds, found)
    join = join_workers(trace, found.calls[:n_host], host, words)
    worker = np.full(len(found.calls), -1, np.int64)
    worker[:n_host] = join.worker
    worker = add_orphans(trace, found, worker, join.orphans, words)
    fill_from_workers(trace, found.calls, worker, words)
    if has_host_work(trace, host):
        activities = host_activities(trace, found.calls, host, worker, steps.markers)
    else:
        activities = _device_activities(trace, links, kinds, found)
    _scopes(trace, links, host, found)
    calls = _in_order(found.calls, activities)
    _label(calls, rules, trace, steps)
    return LabelledRank(
        meta=trace.meta,
        rank=trace.meta.rank,
        activities=activities,
        calls=calls,
        markers=steps.markers,
        event_counts=trace.event_counts,
        health=[*trace.health, *_health(trace, links, kinds, found, groups, steps, activities)],
        window_ns=trace.window_ns,
    )


def explain_call(call: Call) -> list[str]:
    """Each rule that fired for a call: what it concluded, what it saw, whether it won."""
    return explain(call.label)


def _device_activities(trace: RankTrace, links: Links, kinds: DeviceKinds, found: Attached) -> Activities:
    device = trace.device
    families: dict[str, int] = {}
    by_name = np.full(len(trace.names) + 1, -1, np.int32)
    for i, cls in kinds.classes.items():
        if cls.family is not None:
            by_name[i] = families.setdefault(cls.family, len(families))
    family = by_name[device.name]
    copies = (device.cls == DeviceClass.MEMCPY) & (kinds.kind == Kind.COMM)
    if copies.any():
        family[copies] = families.setdefault("copy_engine", len(families))
    family[(device.cls != DeviceClass.KERNEL) & ~copies] = -1
    launched = links.launch >= 0
    launch_ts = np.full(len(device), NO_TIME, np.int64)
    launch_ts[launched] = trace.host.ts[links.launch[launched]]
    return sorted_activities(
        Activities(
            trace.names,
            list(families),
            device.ts,
            device.dur,
            kinds.kind,
            device.device,
            device.stream,
            device.name,
            family,
            device.corr,
            found.call.astype(np.int32),
            launch_ts,
        )
    )


def _scopes(trace: RankTrace, links: Links, host: HostCalls, found: Attached) -> None:
    """Enclosing scopes of each call (outermost first), and the operators that are the call itself."""
    own = np.array(found.own, np.int64)
    asked = np.flatnonzero(own >= 0)
    if not len(asked):
        return
    row = own[asked]
    rows = trace.host
    offsets, scope = links.scopes(rows.track[row], rows.ts[row], rows.ts[row] + rows.dur[row], row)
    names = rows.name[scope]
    roles = host.roles[names]
    known: dict[bytes, tuple[str, ...]] = {}
    is_operator = np.isin(roles, _OPERATORS)
    bounds = offsets.tolist()
    own_names = rows.name[row].tolist()
    for i, position in enumerate(asked.tolist()):
        part = slice(bounds[i], bounds[i + 1])
        call = found.calls[position]
        call.scopes = _texts(trace, names[part][roles[part] == 0], known)
        via = _texts(trace, names[part][is_operator[part]], known)
        if host.roles[own_names[i]] in _OPERATORS:
            via = (*via, trace.names[own_names[i]])
        call.via = via


def _texts(trace: RankTrace, codes: NDArray[np.int32], known: dict[bytes, tuple[str, ...]]) -> tuple[str, ...]:
    key = codes.tobytes()
    found = known.get(key)
    if found is None:
        found = known[key] = tuple(trace.names[i] for i in codes.tolist())
    return found


def _in_order(calls: list[Call], activities: Activities) -> list[Call]:
    """Calls in order of issue, numbered within their group; references renumbered."""
    when = [c.call_ts if c.call_ts is not None else c.ts if c.ts is not None else 0 for c in calls]
    order = sorted(range(len(calls)), key=lambda i: (when[i], calls[i].ts or 0, i))
    place = np.full(len(calls) + 1, -1, np.int32)
    place[order] = np.arange(len(calls), dtype=np.int32)
    activities.call = place[activities.call]
    ordinal: Counter[object] = Counter()
    out = [calls[i] for i in order]
    for call in out:
        if call.coalesced_into is not None:
            call.coalesced_into = int(place[call.coalesced_into])
        key = (call.group_name, call.members if call.group_name is None else None, call.group_size)
        call.ordinal = ordinal[key]
        ordinal[key] += 1
    return out


def _label(calls: list[Call], rules: Rules, trace: RankTrace, steps: Steps) -> None:
    job_groups = {g.desc for g in trace.meta.groups if g.desc} | {c.group_desc for c in calls if c.group_desc}
    context = Context(job_groups=tuple(sorted(job_groups)))
    engine = Engine(rules, context)
    group_ops: dict[object, set[str]] = defaultdict(set)
    for call in calls:
        group_ops[call.group_name].add(call.op)
    frozen = {k: frozenset(v) for k, v in group_ops.items()}
    joined: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[str, ...]] = {}
    evidence = []
    for call in calls:
        key = (call.scopes, call.via)
        scopes = joined.get(key)
        if scopes is None:
            scopes = joined[key] = _visible(call, steps)
        ops = frozen[call.group_name] if call.group_name is not None else frozenset[str]()
        evidence.append(engine.evidence(call, scopes, ops))
    counts = Counter(evidence)
    context.facts = find_facts(rules.facts, engine, list(counts.items()), len(steps.markers))
    for call, seen in zip(calls, evidence, strict=True):
        call.label = engine.label(seen)


def _visible(call: Call, steps: Steps) -> tuple[str, ...]:
    """Scopes as rules see them: a step marker shows only the phase it tells; the call's operators come last."""
    out = []
    for scope in call.scopes:
        if scope not in steps.names:
            out.append(scope)
        elif (phase := steps.names[scope]) is not None:
            out.append(f"step:{phase}")
    return (*out, *call.via)


def _health(
    trace: RankTrace,
    links: Links,
    kinds: DeviceKinds,
    found: Attached,
    groups: Groups,
    steps: Steps,
    activities: Activities,
) -> list[HealthEntry]:
    """What was guessed or could not be tied together."""
    out = []
    lost = np.flatnonzero(links.launch < 0)
    if len(lost):
        example = trace.names[trace.device.name[lost[0]]][:120]
        out.append(HealthEntry("device activity without its launch call", len(lost), "info", example))
    if links.skewed:
        worst = f"by up to {links.worst_skew_ns / 1000:.1f} us"
        out.append(HealthEntry("device activity that seems to start before its launch", links.skewed, "info", worst))
    if groups.mismatches:
        out.append(HealthEntry("records that contradict the group their name declares", groups.mismatches))
    lonely = [c for c in found.calls if c.n_activities and c.op == "unknown"]
    if lonely:
        out.append(HealthEntry("communication of unknown operation", len(lonely), "info", lonely[0].kernel or ""))
    if not len(activities) and len(trace.host):
        out.append(HealthEntry("no device activity, and the host did not do the work itself", 1, "info"))
    if not steps.markers and steps.unmatched:
        example = ", ".join(f"{n} ({k})" for n, k in steps.unmatched[:3])
        out.append(HealthEntry("annotations that look like steps, but match no step grammar",
                               sum(k for _, k in steps.unmatched), "info", example))  # fmt: skip
    if kinds.kind.size and not (kinds.kind == Kind.COMM).any() and not (kinds.kind == Kind.FUSED).any():
        out += _near_misses(trace, kinds)
    return out


def _near_misses(trace: RankTrace, kinds: DeviceKinds) -> list[HealthEntry]:
    """Kernel names that sound like communication, for a trace in which none was recognised."""
    words = ("reduce_scatter", "reducescatter", "allreduce", "all_reduce", "allgather", "all_gather", "alltoall",
             "all_to_all", "dispatch", "combine", "barrier", "broadcast", "sendrecv")  # fmt: skip
    near = [
        trace.names[i] for i, c in kinds.classes.items()
        if c is COMPUTE and any(w in trace.names[i].split("(")[0].split("<")[0].lower() for w in words)
    ]  # fmt: skip
    if not near:
        return []
    return [
        HealthEntry(
            "kernels whose name sounds like communication, counted as compute",
            len(near),
            "info",
            near[0][:120],
        )
    ]

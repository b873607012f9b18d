"""Label one rank: link, classify, find calls and steps, apply the rules."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from tracekit.label.apply import Labeller, described
from tracekit.label.chunks import find_chunks
from tracekit.label.collectives import Attached, attach, describe_activities
from tracekit.label.engine import explain
from tracekit.label.fold import fold_calls
from tracekit.label.frameworks import detect
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
    IS_RECORD,
    IS_WRAPPER,
    CallBuilder,
    HostCalls,
    find_host_calls,
)
from tracekit.label.job import Job
from tracekit.label.kernels import COMPUTE, DeviceKinds, classify
from tracekit.label.place import places
from tracekit.label.steps import Steps, find_steps
from tracekit.label.syncs import host_times
from tracekit.model import NO_TIME, Activities, Call, DeviceClass, HealthEntry, HostCat, Kind, LabelledRank
from tracekit.parsers.links import Links, link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.label.rules import Rules
    from tracekit.model import RankTrace


POINT_TO_POINT = ("send", "recv")
_OPERATORS = (IS_C10D, IS_FUNCTIONAL, IS_WRAPPER)


def label_rank(trace: RankTrace, rules: Rules, job: Job | None = None) -> LabelledRank:
    """Classify the activities of one rank, build and label its communication calls, find its steps.

    job: what other ranks and the user know; without it the trace speaks for itself alone.
    """
    out = describe_rank(trace, rules)
    Labeller(out, rules).label(job or Job())
    return out


def describe_rank(trace: RankTrace, rules: Rules) -> LabelledRank:
    """Everything of `label_rank` but the labels."""
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
    _scopes(trace, links, host, found, rules)
    calls = fold_calls(_in_order(found.calls, activities), trace.meta.rank, activities)
    for call, place in zip(calls, places(calls, trace, steps), strict=True):
        call.place = place
    descriptions = described(calls, trace.meta)
    return LabelledRank(
        meta=trace.meta,
        rank=trace.meta.rank,
        activities=activities,
        calls=calls,
        markers=steps.markers,
        event_counts=trace.event_counts,
        health=[*trace.health, *_health(trace, links, kinds, found, groups, steps, activities)],
        window_ns=trace.window_ns,
        frameworks=detect(rules.frameworks, trace.names, trace.meta.extra, descriptions),
        step_names=steps.names,
        pipeline=find_chunks(trace, rules.chunks) if any(c.op in POINT_TO_POINT for c in calls) else None,
        host=host_times(trace),
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


def _scopes(trace: RankTrace, links: Links, host: HostCalls, found: Attached, rules: Rules) -> None:
    """Enclosing scopes and frames of each call (outermost first), and the operators that are the call itself."""
    own = np.array(found.own, np.int64)
    asked = np.flatnonzero(own >= 0)
    if not len(asked):
        return
    row = own[asked]
    rows = trace.host
    offsets, scope = links.scopes(rows.track[row], rows.ts[row], rows.ts[row] + rows.dur[row], row, python=True)
    names = rows.name[scope]
    is_frame = rows.cat[scope] == HostCat.PYTHON
    roles = np.where(is_frame, IS_RECORD, host.roles[names])
    what = np.where(np.isin(roles, _OPERATORS), _OPERATOR, np.where(roles == 0, _SCOPE, _OTHER))
    what[is_frame & _frames_asked(trace, names, is_frame, rules)] = _FRAME
    # Calls of one place have equal rows round them: what they show is told once, and is one object.
    packed = (names.astype(np.int64) * 4 + what).tobytes()
    bounds = (offsets * 8).tolist()
    own_operator = np.isin(host.roles[rows.name[row]], _OPERATORS)
    own_names = np.where(own_operator, rows.name[row], -1).tolist()
    known: dict[tuple[bytes, int], tuple[Texts, Texts, Texts]] = {}
    texts: dict[Texts, Texts] = {}
    for i, position in enumerate(asked.tolist()):
        key = (packed[bounds[i] : bounds[i + 1]], own_names[i])
        found_texts = known.get(key)
        if found_texts is None:
            found_texts = known[key] = _shown(trace.names, *key, texts)
        call = found.calls[position]
        call.scopes, call.via, call.frames = found_texts


Texts = tuple[str, ...]
_SCOPE, _OPERATOR, _FRAME, _OTHER = range(4)


def _shown(names: Sequence[str], packed: bytes, own: int, known: dict[Texts, Texts]) -> tuple[Texts, Texts, Texts]:
    """Scopes, operators (`own`: name of the call's own, -1 = none) and asked frames; equal ones are one object."""
    rows = [divmod(code, 4) for code in np.frombuffer(packed, np.int64).tolist()]
    scopes, via, frames = (tuple(names[i] for i, k in rows if k == kind) for kind in (_SCOPE, _OPERATOR, _FRAME))
    if own >= 0:
        via = (*via, names[own])
    return known.setdefault(scopes, scopes), known.setdefault(via, via), known.setdefault(frames, frames)


def _frames_asked(
    trace: RankTrace, names: NDArray[np.int32], is_frame: NDArray[np.bool_], rules: Rules
) -> NDArray[np.bool_]:
    """Which frames some rule asks for: all others would only tell equal calls apart."""
    asked = np.zeros(len(trace.names), np.bool_)
    pattern = rules.frames
    if pattern is not None:
        for code in np.unique(names[is_frame]).tolist():
            asked[code] = pattern.search(trace.names[code]) is not None
    out: NDArray[np.bool_] = asked[names]
    return out


def _in_order(calls: list[Call], activities: Activities) -> list[Call]:
    """Calls in order of issue, numbered within their group; references renumbered."""
    when = [c.call_ts if c.call_ts is not None else c.ts if c.ts is not None else 0 for c in calls]
    order = np.lexsort((np.array([c.ts or 0 for c in calls], np.int64), np.array(when, np.int64)))
    place = np.full(len(calls) + 1, -1, np.int32)
    place[order] = np.arange(len(calls), dtype=np.int32)
    activities.call = place[activities.call]
    ordinal: Counter[object] = Counter()
    out = [calls[i] for i in order.tolist()]
    for call in out:
        if call.coalesced_into is not None:
            call.coalesced_into = int(place[call.coalesced_into])
        key = (call.group_name, call.members if call.group_name is None else None, call.group_size)
        call.ordinal = ordinal[key]
        ordinal[key] += 1
    return out


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


_HEAD = re.compile(r"[^(<]*")
_SOUNDS = re.compile(
    "(?i)reduce_?scatter|all_?reduce|all_?gather|alltoall|all_to_all|dispatch|combine|barrier|broadcast|sendrecv"
)


def _near_misses(trace: RankTrace, kinds: DeviceKinds) -> list[HealthEntry]:
    """Kernel names that sound like communication, for a trace in which none was recognised."""
    near = [
        trace.names[i] for i, c in kinds.classes.items()
        if c is COMPUTE and _SOUNDS.search(_HEAD.match(trace.names[i])[0])  # type: ignore[index]  # matches anything
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

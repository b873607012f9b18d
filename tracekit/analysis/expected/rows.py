"""Rows of the table `theory`: a strategy's calls in one group, measured and expected, a rank and step."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.expected.planned import plan_columns
from tracekit.analysis.expected.timing import (
    DURATION,
    NCCL,
    NONE,
    TRANSFER,
    UNKNOWN,
    VERDICTS,
    WAITING,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.expected.calls import Calls, Kind, Recording
    from tracekit.analysis.expected.machine import Machine
    from tracekit.analysis.expected.planned import Planned
    from tracekit.analysis.expected.timing import Judged, Timed

Row = dict[str, Any]


class Key(NamedTuple):
    """One row."""

    strategy: str
    purpose: str | None
    phase: str | None
    op: str
    group_id: str | None


class Sums(Struct):
    """What the calls of one row add up to, over ranks. Lists hold one array a recording and kind.

    per_step: (recording, step) → [calls, bytes or None]; times: [measured, expected, least, low, high] ns of judged
    calls in counted steps; plain: durations or transfers of all timed calls there.
    """

    calls: int = 0
    ranks: set[int | None] = field(default_factory=set)
    sizes: set[int | None] = field(default_factory=set)
    per_step: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0]))
    times: NDArray[np.float64] = field(default_factory=lambda: np.zeros(5))
    judged: int = 0
    plain: int = 0
    timed: int = 0
    exact: int = 0
    bus: list[NDArray[np.float64]] = field(default_factory=list)
    ratio: list[NDArray[np.float64]] = field(default_factory=list)
    payload: Counter[int] = field(default_factory=Counter)
    counted_payload: Counter[int] = field(default_factory=Counter)
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(VERDICTS)))
    over_ns: float = 0.0
    kinds: dict[int, tuple[Kind, Timed]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)


def collect(
    recordings: Sequence[Recording], calls: Sequence[Calls], judged: Sequence[Judged], machine: Machine
) -> dict[Key, Sums]:
    """Add up the calls of all recordings by row."""
    sums: dict[Key, Sums] = defaultdict(Sums)
    for number, (one, mine, verdicts) in enumerate(zip(recordings, calls, judged, strict=True)):
        steps = np.array(sorted(one.counted_steps), np.int64)
        counted = np.isin(mine.step, steps)
        per_step = _per_step(mine, steps, counted)
        for kind, rows, counts in zip(mine.counted_kinds, mine.counted_rows, per_step, strict=True):
            s = sums[Key(*kind[:5])]
            s.ranks.add(one.rank)
            s.sizes.add(size_of(kind, machine))
            _count(s, kind, number, len(rows), dict(zip(steps.tolist(), counts, strict=True)))
        for kind, timed, rows in zip(mine.kinds, verdicts.timed, mine.rows, strict=True):
            if len(rows):
                _add(sums[Key(*kind[:5])], kind, timed, rows, verdicts, counted)
    return dict(sums)


def _per_step(calls: Calls, steps: NDArray[np.int64], counted: NDArray[np.bool_]) -> list[list[int]]:
    """Calls of each kind in each of the counted steps, which ascend."""
    shape = (len(calls.counted_kinds), len(steps))
    at = calls.counted[counted] * len(steps) + np.searchsorted(steps, calls.step[counted])
    found: list[list[int]] = np.bincount(at, minlength=prod(shape)).reshape(shape).tolist()
    return found


def _count(s: Sums, kind: Kind, number: int, calls: int, by_step: Mapping[int, int]) -> None:
    """Calls and bytes, each call by itself."""
    s.calls += calls
    for step, count in by_step.items():
        if count:
            at = s.per_step[number, step]
            at[0] += count
            at[1] += count * (kind.payload or 0)
            at[2] += count if kind.payload is None else 0
    if kind.payload is not None:
        s.payload[kind.payload] += calls
        s.counted_payload[kind.payload] += sum(by_step.values())


def _add(s: Sums, kind: Kind, timed: Timed, rows: NDArray[np.intp], judged: Judged, counted: NDArray[np.bool_]) -> None:
    """Times, each kernel once."""
    s.kinds.setdefault(id(timed), (kind, timed))
    if timed.reason:
        s.reasons[timed.reason] += len(rows)
    known = rows[judged.measured[rows] > 0]
    ns = judged.measured[known].astype(np.float64)
    s.exact += int(judged.exact[known].sum())
    s.timed += len(known)
    if kind.payload and timed.factor is not None and len(known):
        s.bus.append(kind.payload * timed.factor / ns)
    in_steps = known[counted[known]]
    s.plain += int(judged.measured[in_steps].sum())
    e = timed.expectation
    if e is None or not len(known):
        return
    verdict = judged.verdict[known]
    np.add.at(s.weights, verdict[verdict != NONE], (e.expected_ns or e.bound.lower_bound_ns) + 1e-9)
    if e.expected_ns is None or e.low_ns is None or e.high_ns is None:
        return
    s.judged += len(in_steps)
    s.ratio.append(ns / max(e.expected_ns, 1e-9))
    one = (e.expected_ns, e.bound.lower_bound_ns, e.low_ns, e.high_ns)
    s.times += np.array([judged.measured[in_steps].sum(), *(len(in_steps) * x for x in one)])
    s.over_ns += float(np.maximum(judged.measured[in_steps] - e.high_ns, 0)[judged.exact[in_steps]].sum())


def theory_rows(
    sums: dict[Key, Sums],
    exposed: Mapping[Key, Sequence[float]],
    compute: Mapping[tuple[int, int], int],
    machine: Machine,
    found: Planned,
) -> list[Row]:
    """One row a key, the longest first.

    exposed: avoidable, structural, unknown and waiting ns of all counted steps. compute: (recording, step) → ns with
    compute active. found: the plan of the job.
    """
    roles = Counter((k[:4], r) for k, s in sums.items() if s.per_step for r in s.ranks)
    order = sorted(sums, key=lambda k: (-sums[k].plain, tuple(str(x) for x in k)))
    return [
        _row(k, sums[k], machine)
        | _exposed(exposed.get(k), len(sums[k].per_step))
        | _hide(sums[k], compute)
        | plan_columns(
            k, sums[k], _only(sums[k].sizes), found,
            any(roles[k[:4], r] > 1 for r in sums[k].ranks),
        )
        for k in order
    ]  # fmt: skip


def _hide(s: Sums, compute: Mapping[tuple[int, int], int]) -> Row:
    """Bandwidth at which all compute of the steps would just hide the calls."""
    factor = _only(t.factor for _, t in s.kinds.values())
    ns = sum(compute.get(at, 0) for at in s.per_step)
    whole = not any(missing for _, _, missing in s.per_step.values())
    return {"hide_gbps": sum(b for _, b, _ in s.per_step.values()) * factor / ns if factor and ns and whole else None}


def _exposed(parts: Sequence[float] | None, steps: int) -> Row:
    names = ("avoidable_ns", "structural_ns", "unknown_ns")
    if parts is None or not steps:
        return dict.fromkeys(("exposed_ns", *names))
    return {"exposed_ns": round(sum(parts) / steps)} | {
        n: round(v / steps) for n, v in zip(names, parts, strict=False)
    }  # fmt: skip


def _row(key: Key, s: Sums, machine: Machine) -> Row:
    steps = len(s.per_step)
    places = {(t.placement.path, t.placement.nodes) for _, t in s.kinds.values() if t.placement}
    factors = {t.factor for _, t in s.kinds.values()}
    whole_bytes = steps and not any(missing for _, _, missing in s.per_step.values())
    bus = np.concatenate(s.bus) if s.bus else None
    factor = _only(factors)
    head: Row = dict(zip(Key._fields, key, strict=True))
    median = None if bus is None else float(np.median(bus))
    return head | {
        "group_size": _only(s.sizes), "ranks": len(s.ranks), "nodes": _only({n for _, n in places}),
        "path": _only({p for p, _ in places}), "bus_factor": factor, "calls": s.calls,
        "calls_per_step": sum(c for c, _, _ in s.per_step.values()) / steps if steps else None,
        "payload_bytes": _typical(s.payload),
        "step_payload_bytes": round(sum(b for _, b, _ in s.per_step.values()) / steps) if whole_bytes else None,
        "basis": None if not s.timed else TRANSFER if s.exact == s.timed else DURATION,
        **_times(s, steps),
        "algbw_gbps": median / factor if median is not None and factor else None,
        "busbw_gbps": median, "busbw_max_gbps": None if bus is None else float(bus.max()),
        **_limits(s, machine), **_verdict(s),
    }  # fmt: skip


def _only(values: Iterable[Any]) -> Any:
    """The value, where there is only one."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _typical(payload: Counter[int]) -> int | None:
    """Median payload of a call, one that occurs."""
    left = (payload.total() + 1) // 2
    for size in sorted(payload):
        left -= payload[size]
        if left <= 0:
            return size
    return None


def _times(s: Sums, steps: int) -> Row:
    """Mean of a rank and step, ns."""
    names = ("measured_ns", "expected_ns", "least_ns", "low_ns", "high_ns")
    out: Row = dict.fromkeys((*names, "ratio", "over_ns"))
    if not steps:
        return out
    if s.judged:
        out |= {name: round(float(v) / steps) for name, v in zip(names, s.times.tolist(), strict=True)}
        out["over_ns"] = round(s.over_ns / steps) if s.exact else None
    elif s.timed:
        out["measured_ns"] = round(s.plain / steps)
    if s.ratio:
        out["ratio"] = float(np.median(np.concatenate(s.ratio)))
    return out


def _limits(s: Sums, machine: Machine) -> Row:
    """Bus bandwidth that the links allow, and what NCCL's rings reach inside a node."""
    limits = {
        round(kind.payload * t.factor / t.least_ns, 6)
        for kind, t in s.kinds.values() if kind.payload and t.factor and t.least_ns
    }  # fmt: skip
    inside = all(t.placement is not None and t.placement.nodes == 1 for _, t in s.kinds.values() if t.expectation)
    ceiling = machine.hardware.ring_ceiling_gbps if machine.hardware and inside and limits else None
    return {"limit_gbps": max(limits) if limits else None, "ceiling_gbps": ceiling}


def _verdict(s: Sums) -> Row:
    """The verdict with most expected time behind it, its share, and why there is none or what it is worth."""
    total = float(s.weights.sum())
    if not total:
        why = s.reasons.most_common(1)[0][0] if s.reasons else "no call has a time"
        return {"verdict": None, "verdict_ratio": None, "reason": why}
    best = int(np.argmax(s.weights))
    why_not = s.reasons.most_common(1)[0][0] if s.reasons else None
    if best == UNKNOWN and why_not is None:
        why_not = WAITING
    families = {k.family for k, _ in s.kinds.values()} - NCCL
    if families and why_not is None:
        why_not = f"the expectation is NCCL's, the kernels are of {', '.join(sorted(map(str, families)))}"
    return {"verdict": VERDICTS[best], "verdict_ratio": float(s.weights[best]) / total, "reason": why_not}

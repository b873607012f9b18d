"""What is true of a simulated job, from the intervals it placed: one walk over elementary intervals."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.simulate.device import Work
    from tracekit.simulate.run import Simulation

Span = tuple[int, int, str]
"""Start, end and what it is: `compute`, `copy`, `set` or the strategy of communication."""
_DEVICE = frozenset({"compute", "copy", "set"})


def account(spans: Sequence[Span], start: int, end: int) -> dict[str, Any]:
    """Classify every ns of the window [start, end); all results in ns."""
    events = sorted(
        [(max(s, start), 1, what) for s, e, what in spans if e > start and s < end]
        + [(min(e, end), -1, what) for s, e, what in spans if e > start and s < end]
    )
    active: Counter[str] = Counter()
    out: Counter[str] = Counter()
    strategies: defaultdict[str, Counter[str]] = defaultdict(Counter)
    at = start
    for time, change, what in [*events, (end, 0, "")]:
        if time > at:
            names = {name for name, count in active.items() if count}
            comm = names - _DEVICE
            out[_class(names, comm)] += time - at
            for name in comm:
                strategies[name]["total_ns"] += time - at
                if "compute" not in names:
                    strategies[name]["exposed_ns"] += time - at
                    strategies[name]["exposed_alone_ns"] += (time - at) * (len(comm) == 1)
        at = time
        active[what] += change
    keys = ("compute_only_ns", "overlapped_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    parts = ("total_ns", "exposed_ns", "exposed_alone_ns")
    return {
        "window_ns": end - start,
        **{key: out[key] for key in keys},
        "by_strategy": {s: {p: strategies[s][p] for p in parts} for s in sorted(strategies)},
    }


def _class(names: set[str], comm: set[str]) -> str:
    if "compute" in names:
        return "overlapped_ns" if comm else "compute_only_ns"
    if comm:
        return "exposed_comm_ns"
    return "exposed_copy_ns" if names else "idle_ns"


def rank_truth(device: Sequence[Work]) -> dict[str, Any]:
    """Whole file and every step of one rank; a step runs to the first activity of the next one."""
    by_step: defaultdict[int, list[Work]] = defaultdict(list)
    for work in device:
        by_step[work.step].append(work)
    steps = sorted(by_step)
    starts = [min(w.start for w in by_step[s]) for s in steps]
    last_end = max(w.end for w in device)
    spans = [(w.start, w.end, w.labels[0].strategy if w.labels else w.kind) for w in device]
    out: dict[str, Any] = {"whole": {**account(spans, starts[0], last_end), **_traffic(device)}, "steps": {}}
    for step, start, end in zip(steps, starts, [*starts[1:], last_end], strict=True):
        out["steps"][str(step)] = {**account(spans, start, end), **_traffic(by_step[step])}
    return out


def _traffic(works: Sequence[Work]) -> dict[str, dict[str, int]]:
    """Calls and payload bytes by strategy."""
    calls: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for label in (x for w in works for x in w.labels):
        calls[label.strategy] += 1
        size[label.strategy] += label.payload_bytes
    return {"calls": dict(sorted(calls.items())), "payload_bytes": dict(sorted(size.items()))}


def truth(simulation: Simulation) -> dict[str, Any]:
    """What is true of the job, in ns, bytes and global ranks.

    `pipeline` of a rank and step: idle of the rank within the window common to its pipeline (first start of an action
    to last end), an action running from when its inputs and the rank are there to when its results are; split as
    `tracekit.theory.schedules.IdleSplit` does.
    """
    lay, options = simulation.job.layout, simulation.options
    ranks = {str(g.rank): rank_truth(g.device) for g in simulation.gpus}
    for step in simulation.steps:
        for members in lay.groups("pp"):
            timeline = simulation.timeline(step, members)
            for place, rank in enumerate(members):
                split = timeline.idle_split(place)
                ranks[str(rank)]["steps"][str(step)]["pipeline"] = {
                    "window_ns": timeline.makespan_ns, "warmup_ns": split.warmup_ns, "steady_ns": split.steady_ns,
                    "drain_ns": split.drain_ns,
                }  # fmt: skip
    orders = {
        str(r): [str(s) for s in simulation.schedule.orders[i]] for g in lay.groups("pp") for i, r in enumerate(g)
    }
    return {
        "world_size": lay.world_size,
        "degrees": {a: getattr(lay, a) for a in ("tp", "cp", "dp", "pp", "ep") if getattr(lay, a) > 1},
        "order": "-".join(lay.order),
        "framework": options.framework,
        "schedule": simulation.schedule.name,
        "micro_batches": simulation.schedule.micro_batches,
        "steps": list(simulation.steps),
        "slow_ranks": {str(r): f for r, f in sorted(options.slow.items())},
        **_faults(simulation),
        "groups": _groups(simulation),
        "pipeline_order": dict(sorted(orders.items(), key=lambda x: int(x[0]))),
        "ranks": ranks,
    }


def _faults(simulation: Simulation) -> dict[str, Any]:
    """What else was put in, only what there is. `clocks`: rank → how far its clock is ahead at first, and runs fast.

    All other times are true ones.
    """
    o = simulation.options
    tables = {
        "slow_stages": o.slow_stage, "long_micro_batches": o.long_micro_batches, "late_input_us": o.late_input_us,
        "slow_links": o.slow_link,
    }  # fmt: skip
    out: dict[str, Any] = {k: {str(n): v for n, v in sorted(t.items())} for k, t in tables.items() if t}
    out |= {k: v for k, v in (("p2p_latency_us", o.p2p_latency_us), ("end_skew_us", o.end_skew_us)) if v}
    clocks = {g.rank: simulation.clock(g.rank) for g in simulation.gpus}
    if any(c.offset_ns or c.drift_ppm for c in clocks.values()):
        out["clocks"] = {str(r): {"offset_ns": c.offset_ns, "drift_ppm": c.drift_ppm} for r, c in clocks.items()}
    return out


def _groups(simulation: Simulation) -> dict[str, list[list[int]]]:
    """Ranks of the groups that carry calls, by description."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for gpu in simulation.gpus:
        for role in {x.axis for w in gpu.device for x in w.labels}:
            group = simulation.groups.of(role, gpu.rank)
            found.setdefault(group.desc, set()).add(group.ranks)
    return {desc: [list(g) for g in sorted(groups)] for desc, groups in sorted(found.items())}

"""The accounting of a simulated job, by the plainest possible means: one walk over elementary intervals."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_cluster import Work

Span = tuple[int, int, str]
"""Start, end and what it is: `compute`, `copy`, `set` or the strategy of communication."""


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
            comm = names - {"compute", "copy", "set"}
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
    spans = [(w.start, _end(w), w.strategy or w.kind) for w in device]
    first: dict[int, int] = {}
    for work in device:
        first[work.step] = min(first.get(work.step, work.start), work.start)
    last_end = max(end for _, end, _ in spans)
    steps = sorted(first)
    ends = [first[s] for s in steps[1:]] + [last_end]
    out: dict[str, Any] = {"whole": account(spans, min(first.values()), last_end), "steps": {}}
    out["whole"]["calls"] = _calls(device)
    for step, end in zip(steps, ends, strict=True):
        entry = account(spans, first[step], end)
        entry["calls"] = _calls([w for w in device if w.step == step])
        out["steps"][str(step)] = entry
    return out


def _end(work: Work) -> int:
    if work.end is None:
        raise ValueError(f"unfinished work: {work}")
    return work.end


def _calls(works: Sequence[Work]) -> dict[str, int]:
    out: Counter[str] = Counter()
    for work in works:
        if work.strategy:
            out[work.strategy] += work.calls
    return dict(sorted(out.items()))

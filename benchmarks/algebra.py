"""Interval algebra of five million kernels, by tracekit or by HTA; prints one JSON object.

    python benchmarks/algebra.py tracekit|hta [KERNELS]

Both get the same arrays (compute and five kinds of communication on eight ranks) and answer the same question: per
rank the compute and communication time and the overlap, and for each kind its time and its overlap with compute.
The way of HTA is its published one: merge the intervals of a data frame with `merge_kernel_intervals` of the
installed package, melt two merged sets into one column of boundaries weighted +1/-1 and +2/-2, sort, sum up, and join
each boundary where both are active with its successor.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

RANKS, KINDS = 8, 5
Arrays = tuple[Any, Any, Any]


def rank_arrays(rank: int, count: int) -> Arrays:
    """(start, end, kind) of one rank in order of time; kind 0 is compute, two kernels in three.

    Each kind is a stream of its own: kernels one after another with gaps, as devices run them.
    """
    parts = []
    for kind, share in enumerate((10, *[1] * KINDS)):
        i = np.arange(count * share // (10 + KINDS), dtype=np.int64)
        noise = ((i + rank * 977 + kind * 31) * 2_654_435_761) % 2**32
        took = (2_000 + noise % 6_000) * (10 // share)
        gap = (400 + (noise >> 9) % 1_500) * (10 // share)
        start = np.cumsum(took + gap) - took
        parts.append((start, start + took, np.full(len(i), kind)))
    start, end, kinds = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(start, kind="stable")
    return start[order], end[order], kinds[order]


def by_tracekit(start: Any, end: Any, kind: Any) -> list[int]:
    """Times of one rank, ns, from one sweep over all kinds."""
    from tracekit.analysis.intervals import time_by_state

    sets = [(start[kind == k], end[kind == k]) for k in range(KINDS + 1)]
    window = np.array([start.min(), end.max()])
    states = time_by_state(sets, window)
    out = [0] * (3 + 2 * KINDS)
    for number, ns in zip(states.state.tolist(), states.ns.tolist(), strict=True):
        state = states.members[number]
        compute, comm = 0 in state, [k for k in state if k]
        out[0] += ns * compute
        out[1] += ns * bool(comm)
        out[2] += ns * (compute and bool(comm))
        for k in comm:
            out[1 + 2 * k] += ns
            out[2 + 2 * k] += ns * compute
    return out


def by_hta(start: Any, end: Any, kind: Any) -> list[int]:
    """The same, from merged data frames."""
    import pandas as pd
    from hta.utils.utils import merge_kernel_intervals

    frame = pd.DataFrame({"ts": start, "dur": end - start, "kind": kind})
    compute = merge_kernel_intervals(frame[frame["kind"].eq(0)].copy())
    out = [_time(compute)]
    for chosen in (frame["kind"].ne(0), *(frame["kind"].eq(k) for k in range(1, KINDS + 1))):
        comm = merge_kernel_intervals(frame[chosen].copy())
        out += [_time(comm), _overlap(comm, compute)]
    return out


def _time(merged: Any) -> int:
    return int((merged["end"] - merged["ts"]).sum())


def _overlap(comm: Any, compute: Any) -> int:
    import pandas as pd

    weighted = [
        merged.melt(var_name="change", value_name="time").replace({"ts": weight, "end": -weight})
        for merged, weight in ((comm, 1), (compute, 2))
    ]
    edges = pd.concat(weighted).sort_values("time").reset_index(drop=True)
    edges["running"] = edges["change"].cumsum()
    both = edges[edges["running"].eq(3)]
    pairs = both.merge(edges.shift(-1).dropna(), left_index=True, right_index=True)
    return int((pairs["time_y"] - pairs["time_x"]).sum())


def main() -> None:
    """Command line."""
    way: Callable[..., list[int]] = {"tracekit": by_tracekit, "hta": by_hta}[sys.argv[1]]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 5_000_000
    data = [rank_arrays(rank, count // RANKS) for rank in range(RANKS)]
    way(*(column[:1000] for column in data[0]))  # imports are not part of the measure
    began = time.process_time()
    result = [way(*arrays) for arrays in data]
    print(json.dumps({"cpu": time.process_time() - began, "result": result}))


if __name__ == "__main__":
    main()

"""What overlap costs compute: kernels that run alone and under communication, compared with themselves (theory: 4.2).

A name stands for one shape of a kernel only where its lone runs agree, so names whose lone runs spread by more than a
tenth are left out. Partly covered runs are left out, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.intervals import covered, union
from tracekit.model import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.model import Activities

MIN_RUNS = 5
"""Runs of a kernel needed alone, and under communication."""
SPREAD = 0.1
"""Interquartile range over median of the lone runs up to which they count as equal."""
COVERED = 0.9
"""Share of a run under communication from which on it counts as overlapped."""


class Slowdown(Struct, frozen=True):
    """ratio: time of overlapped runs over what they take alone (median), None with too few; kernels and runs compared.

    extra_ns: time they take longer, summed.
    """

    ratio: float | None
    kernels: int
    runs: int
    extra_ns: int | None


def slowdown(acts: Activities, rows: NDArray[np.intp]) -> Slowdown:
    """Compare the compute activities among `rows` (of one device)."""
    comm = rows[acts.kind[rows] == Kind.COMM]
    compute = rows[(acts.kind[rows] == Kind.COMPUTE) & (acts.dur[rows] > 0)]
    if not len(comm) or not len(compute):
        return Slowdown(None, 0, 0, None)
    spans = union(acts.ts[comm], acts.ts[comm] + acts.dur[comm])
    begin, dur = acts.ts[compute], acts.dur[compute]
    under = covered(spans, begin + dur) - covered(spans, begin)
    alone, over = under == 0, under >= COVERED * dur
    name = acts.name[compute]
    order = np.argsort(name, kind="stable")
    cuts = np.flatnonzero(np.diff(name[order])) + 1
    expected, measured, kernels, runs = 0.0, 0, 0, 0
    for mine in np.split(order, cuts):
        lone, busy = dur[mine[alone[mine]]], dur[mine[over[mine]]]
        if len(lone) < MIN_RUNS or len(busy) < MIN_RUNS:
            continue
        low, middle, high = np.percentile(lone, (25, 50, 75)).tolist()
        if high - low > SPREAD * middle:
            continue
        kernels, runs = kernels + 1, runs + len(busy)
        expected += middle * len(busy)
        measured += int(busy.sum())
    if not kernels:
        return Slowdown(None, 0, 0, None)
    return Slowdown(measured / expected, kernels, runs, round(measured - expected))

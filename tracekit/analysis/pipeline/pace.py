"""How long the same kernels take on the ranks of a pipeline: what tells a slow stage from one with more to do.

Every stage runs the kernels of the same layers; the ends of the model add some (embedding, head, loss). Durations of
one name are compared quantile by quantile: kernels that only one stage has move the upper quantiles of a name, a slow
stage moves all of them.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Pace = dict[str, tuple[tuple[int, ...], int]]

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
LEAST_LAUNCHES, MOST_NAMES = 8, 64
COVERED = 0.5
"""Share of a rank's compute that must be in names that the others have, too."""


def pace_of(names: Sequence[str], name: NDArray[np.int32], dur: NDArray[np.int64]) -> Pace:
    """Name → (its durations at QUANTILES, ns; their sum, ns), of the names with most time and some launches.

    name: int32 [n] into `names`; dur: int64 [n] ns. The sum of all durations stands under the name "".
    """
    order = np.lexsort((dur, name))
    name, dur = name[order], dur[order]
    first = np.flatnonzero(np.append(True, np.diff(name) != 0)[: len(name)])
    count = np.diff(np.append(first, len(name)))
    total = np.add.reduceat(dur, first) if len(first) else first
    out: Pace = {"": ((), int(dur.sum()))}
    for i in np.argsort(-total, kind="stable")[:MOST_NAMES].tolist():
        n = int(count[i])
        code = int(name[first[i]])
        if n >= LEAST_LAUNCHES and code >= 0:
            at = [int(first[i]) + int(q * (n - 1)) for q in QUANTILES]
            out[names[code]] = (tuple(dur[at].tolist()), int(total[i]))
    return out


def reference(paces: Iterable[Sequence[Pace]]) -> dict[str, tuple[float, ...]]:
    """Typical quantiles of the names that all of some stages run: median over stages of medians over their ranks."""
    stages = [list(ranks) for ranks in paces if ranks]
    shared = set.intersection(*(set(p) for ranks in stages for p in ranks)) - {""} if stages else set()
    out = {}
    for name in shared:
        by_stage = [[statistics.median(column) for column in zip(*(p[name][0] for p in ranks), strict=True)]
                    for ranks in stages]  # fmt: skip
        out[name] = tuple(statistics.median(column) for column in zip(*by_stage, strict=True))
    return out


def ratio(own: Pace, typical: Mapping[str, Sequence[float]]) -> tuple[float, float] | None:
    """(at least, about) how many times as long as typical the same kernels take; None when they are too few.

    Of each name the smallest and the median ratio of its quantiles; of these the medians over names, by time.
    """
    rows = []
    for name, quantiles in typical.items():
        if name in own and all(q > 0 for q in quantiles):
            each = [a / b for a, b in zip(own[name][0], quantiles, strict=True)]
            rows.append((min(each), statistics.median(each), own[name][1]))
    if not rows or sum(ns for *_, ns in rows) < COVERED * own.get("", ((), 0))[1]:
        return None
    return _median([(low, ns) for low, _, ns in rows]), _median([(mid, ns) for _, mid, ns in rows])


def _median(values: Iterable[tuple[float, int]]) -> float:
    """Weighted median."""
    rows = sorted(values)
    half, so_far = sum(w for _, w in rows) / 2, 0
    for value, weight in rows:
        so_far += weight
        if so_far >= half:
            return value
    return rows[-1][0]

"""Clock differences between ranks, from the ends of matched synchronising calls.

All ranks leave such a call at nearly the same moment, so the median difference of its ends is the difference of the
clocks and the spread of the residuals tells its error (theory: 6.3). Ranks of one host share a clock; that is
checked, not assumed. Where the laws of causality contradict every offset, no aligned time is given.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.crossrank.align import END_SKEW_NS, SAME_HOST_NS
from tracekit.analysis.crossrank.columns import median, shared
from tracekit.analysis.crossrank.flat import gathered
from tracekit.analysis.crossrank.sequences import SYNCHRONISING
from tracekit.analysis.distinct import order_of
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.matches import Matches

MIN_PAIRS = 3
"""Fewer common calls give no offset with an error."""
DRIFT_GAIN = 0.5
"""A drift is believed when it brings the spread of the residuals below this share."""
USUAL_PPM = 100.0
"""Two quartz clocks run apart by no more."""
_MAD, _MEAN, _MEDIAN = 1.4826, 1.2533, 1.2533
"""Of a normal variable: deviation over median and over mean distance from the centre; error of median over of mean."""
MAX_ERROR_NS = 10_000_000
"""An offset less sure than this orders no arrivals: what was matched can hardly be the same calls."""
_BROKEN = 0.02
"""Share of causal pairs that may contradict an offset before it is refused."""


class Clock(Struct):
    """What to add to a rank's times: offset_ns + drift · (t - at).

    error_ns: four standard errors of the median difference, of every step on the chain to the reference.

    method: `reference`, `same-host`, `collective-ends`, `message-order`, or why there is none: `not-connected`,
    `infeasible`.
    """

    method: str
    offset_ns: int | None = None
    error_ns: int | None = None
    drift_ppm: float = 0.0
    at: int = 0
    pairs: int = 0
    component: int = -1

    @property
    def aligned(self) -> bool:
        """True when times can be put on the common clock."""
        return self.offset_ns is not None

    def place(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Times on the common clock; `NO_TIME` stays."""
        if self.offset_ns is None:
            return np.full(len(times), NO_TIME, np.int64)
        moved = times + self.offset_ns
        if self.drift_ppm:
            moved = moved + np.rint((times - self.at) * (self.drift_ppm * 1e-6)).astype(np.int64)
        return np.where(times == NO_TIME, NO_TIME, moved)


class _Edge(Struct):
    """Common calls of two recordings: their ends and starts on both clocks."""

    end_a: NDArray[np.int64]
    end_b: NDArray[np.int64]
    start_a: NDArray[np.int64]
    start_b: NDArray[np.int64]


def align_clocks(parts: Sequence[RankCalls], matches: Matches) -> list[Clock]:
    """A clock for each recording, against the first of its connected component.

    Along a chain of groups offsets add up and errors, too; the chain with most common calls is taken, messages and
    the bare word of a host's name only where no collective ties two recordings.
    """
    edges = _edges(parts, matches)
    bounds = _message_bounds(parts, matches)
    hosts = {
        (p, q): (-SAME_HOST_NS, SAME_HOST_NS)
        for p in range(len(parts)) for q in range(p + 1, len(parts)) if _one_host(parts[p], parts[q])
    }  # fmt: skip
    tree: dict[int, list[int]] = defaultdict(list)
    root = list(range(len(parts)))
    for kind in (edges, bounds, hosts):
        for p, q in sorted(kind, key=lambda pq: (-len(edges[pq].end_a) if pq in edges else 0, pq)):
            if (a := _find(root, p)) != (b := _find(root, q)):
                root[max(a, b)] = min(a, b)
                tree[p].append(q)
                tree[q].append(p)
    clocks = [Clock("not-connected") for _ in parts]
    for start in range(len(parts)):
        if clocks[start].component < 0 and start in tree:
            _walk(parts, edges, bounds, tree, clocks, start)
    _refuse_infeasible(edges, clocks)
    return clocks


def _one_host(a: RankCalls, b: RankCalls) -> bool:
    return a.host is not None and a.host == b.host and a.comparable and b.comparable


def _message_bounds(parts: Sequence[RankCalls], matches: Matches) -> dict[tuple[int, int], tuple[int, int]]:
    """Bounds of what to add to the second clock, where messages went both ways: none arrives before it was sent."""
    low: dict[tuple[int, int], int] = {}
    high: dict[tuple[int, int], int] = {}
    messages = matches.chosen(np.flatnonzero(matches.source >= 0))
    part, row = messages.part, messages.row
    begins, ends = (gathered(part, row, times) for times in ([p.begin for p in parts], [p.end for p in parts]))
    ranks = np.array([p.rank for p in parts], np.int64)
    sent = np.arange(0, len(part), 2) + (ranks[part[::2]] != messages.source)
    got = sent ^ 1
    apart = begins[sent] - ends[got]
    known = (begins[sent] != NO_TIME) & (ends[got] != NO_TIME)
    for key, at in _pairs(part[sent[known]], part[got[known]], len(parts)):
        most = int(apart[known][at].max())
        if key[0] < key[1]:
            low[key] = most
        else:
            high[key[1], key[0]] = -most
    return {k: (low[k], high[k]) for k in low if k in high and not _one_host(parts[k[0]], parts[k[1]])} | {
        k: (low.get(k, -SAME_HOST_NS), high.get(k, SAME_HOST_NS))
        for k in sorted({*low, *high}) if _one_host(parts[k[0]], parts[k[1]])
    }  # fmt: skip


def _find(root: list[int], p: int) -> int:
    while root[p] != p:
        root[p] = root[root[p]]
        p = root[p]
    return p


def _edges(parts: Sequence[RankCalls], matches: Matches) -> dict[tuple[int, int], _Edge]:
    """Common synchronising calls of pairs of recordings: each call ties its first recording to the others."""
    codes, names = shared(parts, "op")
    wanted = np.array([name in SYNCHRONISING for name in names], np.bool_)
    op = gathered(matches.part[matches.first], matches.row[matches.first], codes)
    matches = matches.chosen(np.flatnonzero(~matches.p2p & wanted[op]))
    size, part, row = matches.size, matches.part, matches.row
    if not len(size):
        return {}
    first = matches.first
    starts, ends = (gathered(part, row, times) for times in ([p.start for p in parts], [p.end for p in parts]))
    peers, members = (gathered(part, row, [p.number[n] for p in parts]) for n in ("peers", "group_size"))
    timed = ends != NO_TIME
    partial = timed & (peers != NO_TIME) & (members != NO_TIME) & (peers < members - 1)
    whole = np.repeat(~np.logical_or.reduceat(partial, first), size)
    n = np.arange(len(part))
    head = np.repeat(np.minimum.reduceat(np.where(timed, n, len(n)), first), size)  # the first timed call of the match
    other = np.flatnonzero(timed & whole & (head < n))
    head = head[other]
    return {
        pair: _Edge(ends[head[at]], ends[other[at]], starts[head[at]], starts[other[at]])
        for pair, at in _pairs(part[head], part[other], len(parts)) if len(at) >= MIN_PAIRS
    }  # fmt: skip


def _pairs(
    a: NDArray[np.int64], b: NDArray[np.int64], parts: int
) -> Iterator[tuple[tuple[int, int], NDArray[np.intp]]]:
    """Every distinct pair of parts and its positions, ascending."""
    key = a * parts + b
    order = order_of(key)
    key = key[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    for value, at in zip(key[first].tolist(), np.split(order, first[1:]), strict=False):
        yield divmod(value, parts), at


def _walk(
    parts: Sequence[RankCalls],
    edges: dict[tuple[int, int], _Edge],
    bounds: dict[tuple[int, int], tuple[int, int]],
    tree: dict[int, list[int]],
    clocks: list[Clock],
    start: int,
) -> None:
    clocks[start] = Clock("reference", 0, 0, component=start)
    queue = [start]
    while queue:
        p = queue.pop(0)
        for q in sorted(tree[p]):
            if clocks[q].component >= 0:
                continue
            if (p, q) in edges:
                clocks[q] = _by_ends(parts[p], parts[q], edges[p, q], clocks[p], start)
            elif (q, p) in edges:
                clocks[q] = _by_ends(parts[p], parts[q], _turned(edges[q, p]), clocks[p], start)
            else:
                low, high = bounds.get((min(p, q), max(p, q)), (-SAME_HOST_NS, SAME_HOST_NS))
                limits = (low, high) if p < q else (-high, -low)
                clocks[q] = _by_bounds(parts[p], parts[q], limits, clocks[p], start)
            queue.append(q)


def _turned(e: _Edge) -> _Edge:
    return _Edge(e.end_b, e.end_a, e.start_b, e.start_a)


def _by_bounds(a: RankCalls, b: RankCalls, limits: tuple[int, int], known: Clock, component: int) -> Clock:
    """The clock of b where only messages, or the host's name, tie it to that of a."""
    low, high = limits
    if not known.aligned or low > high + END_SKEW_NS:
        return Clock("infeasible", component=component)
    offset, error = known.offset_ns or 0, known.error_ns or 0
    if _one_host(a, b):
        if low > SAME_HOST_NS or high < -SAME_HOST_NS:
            return Clock("infeasible", component=component)
        method = "same-host" if known.method in _SHARED else known.method
        return Clock(method, offset, error, known.drift_ppm, known.at, component=component)
    middle, half = (low + high) // 2, max(high - low, 0) // 2
    return Clock("message-order", offset + middle, error + half, known.drift_ppm, known.at, component=component)


def _by_ends(a: RankCalls, b: RankCalls, edge: _Edge, known: Clock, component: int) -> Clock:
    """The clock of b from that of a and their common calls."""
    if not known.aligned:
        return Clock("infeasible", component=component)
    target, n = known.place(edge.end_a), len(edge.end_a)
    difference = target - edge.end_b
    offset = int(median(difference))
    spread = _spread(difference - offset)
    error = (known.error_ns or 0) + _error(spread, n)
    if _one_host(a, b) and known.method in _SHARED:
        if abs(offset) <= SAME_HOST_NS + error:
            return Clock("same-host", 0, error, pairs=n, component=component)
        # clocks of one host cannot differ that much: what is matched here is not one call
        return Clock("infeasible", pairs=n, component=component)
    at = int(edge.end_b.min())
    line = _drift(edge.end_b, difference, b.window)
    base = known.error_ns or 0
    if not line.believed:
        return Clock("collective-ends", offset, error + line.error_ns, 0.0, at, n, component)
    offset = line.offset_ns + round(line.slope * (at - line.centre))
    return Clock("collective-ends", offset, base + line.error_ns, line.slope * 1e6, at, n, component)


class _Line(Struct, frozen=True):
    """A drift: slope, and the offset at `centre`. error_ns: of the offset at the ends of the recording; where the drift
    is not believed, what it would add to the error of a constant offset there.
    """

    believed: bool
    error_ns: int
    slope: float = 0.0
    offset_ns: int = 0
    centre: int = 0


def _drift(end: NDArray[np.int64], difference: NDArray[np.int64], window: tuple[int, int]) -> _Line:
    """The drift that differences of ends show, where it is beyond doubt: far from zero and most of their spread.

    Of few calls none can be told; two clocks then run apart as fast as is usual.
    """
    centre = int(np.mean(end))
    reach = max(centre - min(window[0], int(end.min())), max(window[1], int(end.max())) - centre)
    if len(end) < 2 * MIN_PAIRS or not np.ptp(end):
        return _Line(False, int(np.ceil(USUAL_PPM * 1e-6 * reach)))
    slope, middle = _line(end - centre, difference)
    left = difference - np.rint(middle + slope * (end - centre)).astype(np.int64)
    spread = _spread(left)
    doubt = 4 * _MEDIAN * spread / (float(np.std(end)) * len(end) ** 0.5)
    if abs(slope) > doubt and spread <= DRIFT_GAIN * _spread(difference):
        return _Line(True, _error(spread, len(end)) + int(np.ceil(doubt * reach)), slope, round(middle), centre)
    return _Line(False, int(np.ceil((abs(slope) + doubt) * reach)))


_SHARED = ("reference", "same-host")


def _spread(residual: NDArray[np.int64]) -> int:
    """Standard deviation of normal residuals with their median and their mean distance from it, the larger."""
    away = np.abs(residual - median(residual))
    return int(np.ceil(max(_MAD * median(away), _MEAN * float(np.mean(away)))))


def _error(spread: int, n: int) -> int:
    """Four standard errors of the median of n differences with this spread, wider for few; and the ns of rounding."""
    return int(np.ceil(4 * _MEDIAN * spread / n**0.5 * (1 + 4 / n))) + 1


def _line(x: NDArray[np.int64], y: NDArray[np.int64]) -> tuple[float, float]:
    """(slope, intercept) of a line through most points: least squares on the half nearest to it, three times over."""
    keep = np.ones(len(x), np.bool_)
    slope = base = 0.0
    for _ in range(3):
        slope, base = (float(v) for v in np.polyfit(x[keep].astype(np.float64), y[keep].astype(np.float64), 1))
        left = np.abs(y - (base + slope * x))
        keep = left <= median(left)
        if np.ptp(x[keep]) == 0:
            break
    return slope, base


def _refuse_infeasible(edges: dict[tuple[int, int], _Edge], clocks: list[Clock]) -> None:
    """A rank on which calls often end before they began elsewhere, or whose offset is anybody's guess, has no clock."""
    broken: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for (p, q), e in edges.items():
        a, b = clocks[p], clocks[q]
        if not (a.aligned and b.aligned):
            continue
        slack = END_SKEW_NS + (a.error_ns or 0) + (b.error_ns or 0)
        early = np.maximum(a.place(e.start_a) - b.place(e.end_b), b.place(e.start_b) - a.place(e.end_a))
        broken[q][0] += int((early > slack).sum())
        broken[q][1] += len(early)
    for i, c in enumerate(clocks):
        if (c.error_ns or 0) > MAX_ERROR_NS:
            clocks[i] = Clock("infeasible", pairs=c.pairs, component=c.component)
    for q, (bad, total) in broken.items():
        if bad > _BROKEN * total:
            clocks[q] = Clock("infeasible", pairs=total, component=clocks[q].component)

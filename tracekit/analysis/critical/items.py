"""One rank's device work as items in lanes: what a stream did one after the other, with communication call by call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.distinct import distinct_rows
from tracekit.model import CPU_DEVICE, NO_TIME, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.analysis.alike import CallKinds
    from tracekit.analysis.critical.parts import Flags, Ints
    from tracekit.model import LabelledRank

POSTS = -2
"""Stream of calls that only the host shows (a gloo send)."""


class Items(Struct):
    """Work of one rank, in order of lane and time; n items. Times int64 ns on the file's clock.

    lane: int32 into `lanes` (device, stream); launch: when the host issued it, NO_TIME = unknown; name: int32 (-1);
    call: int32 position of the call (-1); comm, copy: what it is (else compute); first: begins its lane;
    reach: latest end in the lane up to here; before: the same without the item itself (NO_TIME for the first);
    advance: what it adds to the reach.
    """

    ts: Ints
    end: Ints
    lane: NDArray[np.int32]
    launch: Ints
    name: NDArray[np.int32]
    call: NDArray[np.int32]
    comm: Flags
    copy: Flags
    lanes: list[tuple[int, int]]
    first: Flags
    reach: Ints
    before: Ints
    advance: Ints
    on_host: bool

    def __len__(self) -> int:
        return len(self.ts)


def items_of(labelled: LabelledRank, kinds: CallKinds) -> Items | None:
    """Items of a rank; None where nothing but calls is known of it. kinds: of its calls."""
    acts, calls = labelled.activities, kinds.calls
    if not len(acts) or labelled.meta.witness is not None:
        return None
    on_host = bool((acts.device == CPU_DEVICE).any())
    first_row = _first_rows(acts.call, len(calls))
    start = kinds.numbers("ts")
    seen = (first_row >= 0) & (start != NO_TIME) & (kinds.numbers("coalesced_into") == NO_TIME)
    timed = np.flatnonzero(seen)
    own = np.flatnonzero((acts.kind != Kind.COMM) | ~np.append(seen, False)[acts.call])
    posted = np.array(
        [i for i, c in enumerate(calls) if not c.n_activities and c.call_ts is not None] if on_host else [], np.intp
    )
    rows = first_row[timed]
    length = kinds.numbers("dur")[timed]
    ts = [acts.ts[own], start[timed], kinds.numbers("call_ts")[posted]]
    dur = [acts.dur[own], np.where(length == NO_TIME, 0, length), np.zeros(len(posted), np.int64)]
    # host and device clocks of a file may disagree a little: nothing starts before its launch
    launch = [np.minimum(acts.launch_ts[own], ts[0]), np.minimum(acts.launch_ts[rows], ts[1]), ts[2]]
    if on_host:
        launch[0] = np.where(acts.kind[own] == Kind.COMM, launch[0], NO_TIME)  # operators run where they are called
    call = np.concatenate([np.full(len(own), -1), timed, posted])
    at = np.concatenate([own, rows])
    places = [
        np.concatenate([column[at].astype(np.int64), np.full(len(posted), other)])
        for column, other in ((acts.device, CPU_DEVICE), (acts.stream, POSTS))
    ]
    lanes, lane = distinct_rows(places)
    name = np.concatenate([acts.name[own], acts.name[rows], np.full(len(posted), -1)])
    kind = np.concatenate([acts.kind[own], np.full(len(timed) + len(posted), Kind.COMM)])
    return _sorted(
        np.concatenate(ts), np.concatenate(dur), lane, np.concatenate(launch), name, call, kind,
        [(int(d), int(s)) for d, s in lanes.tolist()], on_host,
    )  # fmt: skip


def _first_rows(call: NDArray[np.int32], n: int) -> NDArray[np.intp]:
    """First activity of each call (activities are in order of time)."""
    out = np.full(n + 1, -1, np.intp)
    out[call[::-1]] = np.arange(len(call) - 1, -1, -1)
    return out[:n]


def _sorted(
    ts: Ints,
    dur: Ints,
    lane: Ints,
    launch: Ints,
    name: NDArray[np.int64],
    call: Ints,
    kind: NDArray[np.int64],
    lanes: list[tuple[int, int]],
    on_host: bool,
) -> Items:
    order = np.lexsort((ts + dur, ts, lane))
    ts, end, lane = ts[order], (ts + dur)[order], lane[order]
    first = np.ones(len(ts), np.bool_)
    first[1:] = lane[1:] != lane[:-1]
    reach = _reach(end, lane)
    before = np.concatenate([[NO_TIME], reach[:-1]])
    before[first] = NO_TIME
    kind = kind[order]
    return Items(
        ts, end, lane.astype(np.int32), launch[order], name[order].astype(np.int32), call[order].astype(np.int32),
        kind == Kind.COMM, (kind == Kind.COPY) | (kind == Kind.SET), lanes, first, reach, before,
        np.maximum(end - np.maximum(before, ts), 0), on_host,
    )  # fmt: skip


def _reach(end: Ints, lane: Ints) -> Ints:
    """Latest end so far within each lane (lanes in blocks): shifted apart, so that one sweep serves all."""
    if not len(end):
        return end
    low, span = int(end.min()), int(end.max() - end.min()) + 1
    if lane[-1] * span < 2**62:
        away = lane.astype(np.int64) * span
        out: Ints = np.maximum.accumulate(end - low + away) - away + low
        return out
    parts = [np.maximum.accumulate(end[lane == n]) for n in np.unique(lane).tolist()]
    return np.concatenate(parts)

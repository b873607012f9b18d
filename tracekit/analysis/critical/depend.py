"""What each item of a rank waited for: the item ahead in its stream, its launch, work of other streams, or nothing.

Streams wait for events that recordings rarely show. So dependencies between streams come from two rules that hold for
communication libraries, each believed of a kind of call only where its times never contradict it: a call starts after
the compute issued before it, and the compute issued next starts after the call is over. What still started later than
everything it is known to wait for, at the moment when other work ended, waited for that work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.analysis.alike import CallKinds
    from tracekit.analysis.critical.items import Items
    from tracekit.analysis.critical.parts import Flags, Ints
    from tracekit.model import HostTimes

TOLERANCE_NS = 1_000
"""Times of two streams may be out of order by this much."""
BELIEVED = 0.98
"""Share of a kind of calls that must obey a rule."""
TOGETHER_NS, TOGETHER_ON_HOST_NS = 3_000, 50_000
"""A gap beyond what precedes it asks for another cause; shorter ones are the device's (on a host, the thread's) own."""
STREAM_NS, LAUNCH_NS, WORKER_NS = 50_000, 100_000, 1_000_000
"""Longest explained delay: within a stream or after an event, from a launch to its start, of a gloo worker."""
MOST_LATENCY_NS = 20_000
NEVER = np.iinfo(np.int64).min // 2
"""A time before all others that can still be added to."""


class Dependencies(Struct):
    """source → target: items, target starts after source; the rest one entry an item (ns).

    ready: when the launch allows it to start (NEVER without one), anchor: position in `waits` of the last host wait
    before its launch (-1 = none). delay: from the last that it waits for to its start, where explained; excess: where
    not. wait_source: item that each host wait waited for; waits: rows of `HostTimes.sync_*`, in order of their end.
    """

    source: Ints
    target: Ints
    ready: Ints
    anchor: Ints
    delay: Ints
    excess: Ints
    waits: Ints
    wait_source: Ints


def depend(items: Items, kinds: CallKinds, host: HostTimes | None) -> Dependencies:
    """Find what every item waited for. kinds: of the rank's calls."""
    issued = np.where((items.launch == NO_TIME) & items.on_host, items.ts, items.launch)
    main = _main_lane(items)
    of_call = _kinds(kinds)
    pairs = [_after_compute(items, of_call, issued, main), _before_compute(items, of_call, issued, main)]
    ready = _ready(items)
    if items.on_host:
        ready[items.lane == main] = NEVER  # the thread itself comes to it, as to a receive that it waits for
    lane = np.where(items.first, NEVER, np.minimum(items.before, items.ts))
    last = np.maximum(lane, ready)
    for source, target in pairs:
        np.maximum.at(last, target, np.minimum(items.end[source], items.ts[target]))
    more = _by_time(items, issued, last)
    np.maximum.at(last, more[1], items.end[more[0]])
    pairs.append(more)
    gap = items.ts - last
    most = np.where(last == ready, LAUNCH_NS, STREAM_NS)
    if items.on_host:
        most = np.where(items.lane == main, np.iinfo(np.int64).max, WORKER_NS)
    known = (last > NEVER) & (gap <= most)
    waits, wait_source = _host_waits(items, host)
    ends = host.sync_end[waits] if host is not None else np.empty(0, np.int64)
    return Dependencies(
        np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs]), ready,
        np.searchsorted(ends, items.launch, "right") - 1,
        np.where(known, gap, 0), np.where(known | (last == NEVER), 0, gap), waits, wait_source,
    )  # fmt: skip


def _main_lane(items: Items) -> int:
    work = np.where(items.comm, 0, items.advance).astype(np.float64)
    return int(np.bincount(items.lane, weights=work, minlength=1).argmax())


def _ready(items: Items) -> Ints:
    """Launch plus the least latency that the recording shows, at most the start; NEVER without a launch."""
    known = items.launch != NO_TIME
    late = (items.ts - items.launch)[known]
    latency = int(np.clip(np.percentile(late, 1), 0, MOST_LATENCY_NS)) if len(late) else 0
    return np.where(known, np.minimum(np.where(known, items.launch, 0) + latency, items.ts), NEVER)


def _kinds(kinds: CallKinds) -> Ints:
    """A number for each call, the same for those with the same label and operation."""
    number: dict[object, int] = {}
    keys = ((c.label.strategy, c.label.purpose, c.label.phase, c.op) for c in kinds.examples)
    return np.array([number.setdefault(key, len(number)) for key in keys], np.int64)[kinds.which]


def _asked(items: Items, issued: Ints, main: int) -> NDArray[np.intp]:
    """Calls outside the main stream whose issue is known."""
    return np.flatnonzero(items.comm & (items.call >= 0) & (items.lane != main) & (issued != NO_TIME))


def _issue_order(items: Items, issued: Ints, main: int) -> NDArray[np.intp]:
    """Compute of the main stream in order of issue."""
    rows = np.flatnonzero((items.lane == main) & ~items.comm & (issued != NO_TIME))
    return rows[np.argsort(issued[rows], kind="stable")]


def _obeyed(items: Items, of_call: Ints, rows: NDArray[np.intp], obeys: Flags) -> Flags:
    """Which of the calls obey, if nearly all of their kind in their lane do."""
    if not len(rows):
        return obeys
    kinds = of_call[items.call[rows]] * len(items.lanes) + items.lane[rows]
    share = np.bincount(kinds, weights=obeys.astype(np.float64)) / np.maximum(np.bincount(kinds), 1)
    out: Flags = obeys & (share[kinds] >= BELIEVED)
    return out


def _after_compute(items: Items, of_call: Ints, issued: Ints, main: int) -> tuple[Ints, Ints]:
    """A call starts after the compute that was issued before it."""
    rows, order = _asked(items, issued, main), _issue_order(items, issued, main)
    if items.on_host:  # the thread that made the call had done what was over by then
        order = order[np.argsort(items.reach[order], kind="stable")]
    key = items.reach if items.on_host else issued
    at = np.searchsorted(key[order], issued[rows], "right" if items.on_host else "left") - 1
    rows, at = rows[at >= 0], at[at >= 0]
    source = order[at]
    if items.on_host:
        return source.astype(np.int64), rows.astype(np.int64)
    ok = _obeyed(items, of_call, rows, items.reach[source] <= items.ts[rows] + TOLERANCE_NS)
    return source[ok].astype(np.int64), rows[ok].astype(np.int64)


def _before_compute(items: Items, of_call: Ints, issued: Ints, main: int) -> tuple[Ints, Ints]:
    """The compute issued after a call starts when the call is over."""
    rows, order = _asked(items, issued, main), _issue_order(items, issued, main)
    rows = rows[items.end[rows] > items.ts[rows]]
    at = np.searchsorted(issued[order], issued[rows], "right")
    rows, at = rows[at < len(order)], at[at < len(order)]
    target = order[at]
    ok = _obeyed(items, of_call, rows, items.ts[target] >= items.end[rows] - TOLERANCE_NS)
    return rows[ok].astype(np.int64), target[ok].astype(np.int64)


def _by_time(items: Items, issued: Ints, last: Ints) -> tuple[Ints, Ints]:
    """What started long after all that is known of it, when other work had just ended that was issued no later."""
    slack = TOGETHER_ON_HOST_NS if items.on_host else TOGETHER_NS
    late = (items.ts - last > slack) & (items.end > items.ts)
    if items.on_host:
        late &= ~items.comm
    rows = np.flatnonzero(late)
    real = np.flatnonzero(items.end > items.ts)
    order = real[np.argsort(items.end[real], kind="stable")]
    at = np.searchsorted(items.end[order], items.ts[rows], "right") - 1
    rows, at = rows[at >= 0], at[at >= 0]
    source = order[at]
    known = (issued[source] != NO_TIME) & (issued[rows] != NO_TIME)
    ok = (items.end[source] > last[rows] + slack) & (~known | (issued[source] <= issued[rows])) & (source != rows)
    return source[ok].astype(np.int64), rows[ok].astype(np.int64)


def _host_waits(items: Items, host: HostTimes | None) -> tuple[Ints, Ints]:
    """Host calls that returned when device work issued before them ended, in order of return; and that work."""
    if host is None or not len(host.sync_ts) or not len(items):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    calls = np.argsort(host.sync_end, kind="stable")
    order = np.argsort(items.end, kind="stable")
    at = np.searchsorted(items.end[order], host.sync_end[calls] + TOLERANCE_NS, "right") - 1
    calls, at = calls[at >= 0], at[at >= 0]
    source = order[at]
    ok = (items.end[source] > host.sync_ts[calls]) & (items.launch[source] <= host.sync_ts[calls])
    return calls[ok].astype(np.int64), source[ok].astype(np.int64)

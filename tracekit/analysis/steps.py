"""Steps: which step launched an activity, and the device window of each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.model import Activities, Marker

WHOLE = "whole-window"
_LARGEST_STEP = 2**31 - 1


class Window(Struct):
    """One step on one device: [start, end) ns; `complete` is False when the file may cut it.

    marker: position of its marker, -1 for the whole recording.
    """

    step: int
    name: str
    start: int
    end: int
    found_by: str
    complete: bool
    phase: str | None = None
    marker: int = -1


def distinct_markers(markers: list[Marker]) -> tuple[list[Marker], int]:
    """Markers in order of time, each with a start, an end and a number of its own; and how many were renumbered.

    A marker inside another (nested scopes, the same step told twice) marks no step of its own and goes. Of two
    that overlap in part (pipelined steps) both stay. A number that comes again, as after a restart of the
    count, or that is no step number (negative, beyond int32) is replaced by the next free one, so that a step
    number names one step.
    """
    kept: list[Marker] = []
    for marker in sorted(markers, key=lambda m: (m.start, -m.end, m.step, m.name)):
        if not kept or marker.end > kept[-1].end:
            kept.append(marker)
    fits = _LARGEST_STEP - len(kept)
    free = max((m.step for m in kept if 0 <= m.step <= fits), default=-1) + 1
    seen: set[int] = set()
    renumbered = 0
    for i, marker in enumerate(kept):
        if marker.step in seen or not 0 <= marker.step <= fits:
            kept[i] = replace(marker, step=free)
            free, renumbered = free + 1, renumbered + 1
        seen.add(kept[i].step)
    return kept, renumbered


def launched_in(times: NDArray[np.int64], found: list[Marker]) -> NDArray[np.int64]:
    """Position of the marker (of `distinct_markers`) that a host time lies in, -1 = none; all 0 without markers.

    Where two markers overlap, the later one has it. A launch between two markers belongs to no step; so does,
    for now, an activity whose launch is not in the file (`windows` gives it to the window its device time
    falls in).
    """
    if not found:
        return np.zeros(len(times), np.int64)
    start = np.array([m.start for m in found], np.int64)
    end = np.array([m.end for m in found], np.int64)
    at = np.searchsorted(start, times, "right") - 1
    inside = (times != NO_TIME) & (at >= 0) & (times < end[np.maximum(at, 0)])
    return np.where(inside, at, -1)


def windows(
    acts: Activities, rows: NDArray[np.intp], found: list[Marker], member: NDArray[np.int64]
) -> tuple[list[Window], NDArray[np.int64]]:
    """Windows of one device and the window position of each of its rows (-1 = outside every step).

    A step's window runs from its first activity to the first activity of the next step; the last one to its own
    end. So windows follow one another without gap or overlap: where a step began on the device before the step
    ahead of it did, the one ahead gets a window without length. Steps without an activity have no window.
    """
    ts, end = acts.ts[rows], acts.ts[rows] + acts.dur[rows]
    own = member[rows]
    lost = acts.launch_ts[rows] == NO_TIME
    if found and not (own >= 0).any() and lost.any():  # launches not recorded: by device time alone
        start = np.array([m.start for m in found], np.int64)
        own = np.where(lost, np.searchsorted(start, ts, "right") - 1, -1)
    present = np.unique(own[own >= 0]).tolist()
    if not found or not present:
        whole = Window(0, "window", int(ts.min()), int(end.max()), WHOLE, complete=True)
        return [whole], np.zeros(len(rows), np.int64)
    starts = np.array([ts[own == p].min() for p in present], np.int64)
    starts = np.minimum.accumulate(starts[::-1])[::-1]
    edges = np.append(starts, max(end[own == present[-1]].max(), starts[-1]))
    position = np.full(len(found) + 1, -1, np.int64)
    position[present] = np.arange(len(present))
    at = position[own]
    by_time = np.searchsorted(edges, ts, "right") - 1
    inside = (by_time >= 0) & (by_time < len(present))
    at = np.where(lost & (own < 0) & inside, by_time, at)
    return [_window(found, p, int(a), int(b)) for p, a, b in zip(present, edges[:-1], edges[1:], strict=True)], at


def _window(found: list[Marker], position: int, start: int, end: int) -> Window:
    m = found[position]
    complete = 0 < position < len(found) - 1
    return Window(m.step, m.name, start, end, m.found_by, complete, m.phase, position)

"""Steps: which step launched an activity, and the device window of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.model import Activities, Marker

WHOLE = "whole-window"


@dataclass(slots=True)
class Window:
    """One step on one device: [start, end) ns; `complete` is False when the file may cut it."""

    step: int
    name: str
    start: int
    end: int
    found_by: str
    complete: bool
    phase: str | None = None


def membership(acts: Activities, found: list[Marker]) -> NDArray[np.int64]:
    """Position of the marker that launched each activity, -1 = none.

    A launch between two markers belongs to no step; so does, for now, an activity whose launch is not
    in the file (`windows` gives it to the window its device time falls in).
    """
    if not found:
        return np.zeros(len(acts), np.int64)
    start = np.array([m.start for m in found], np.int64)
    end = np.array([m.end for m in found], np.int64)
    at = np.searchsorted(start, acts.launch_ts, "right") - 1
    inside = (acts.launch_ts != NO_TIME) & (at >= 0) & (acts.launch_ts < end[np.maximum(at, 0)])
    return np.where(inside, at, -1)


def windows(
    acts: Activities, rows: NDArray[np.intp], found: list[Marker], member: NDArray[np.int64]
) -> tuple[list[Window], NDArray[np.int64]]:
    """Windows of one device and the window position of each of its rows (-1 = outside every step).

    A step's window runs from its first activity to the first activity of the next step; the last one to
    its own end. Steps without an activity on the device have no window.
    """
    ts, end = acts.ts[rows], acts.ts[rows] + acts.dur[rows]
    if not found:
        whole = Window(0, "window", int(ts.min()), int(end.max()), WHOLE, complete=True)
        return [whole], np.zeros(len(rows), np.int64)
    own = member[rows]
    present = np.unique(own[own >= 0]).tolist()
    if not present:  # markers, but nothing that they launched (launches not recorded): by device time
        return _by_marker_time(ts, end, found)
    starts = [int(ts[own == p].min()) for p in present]
    starts = np.maximum.accumulate(np.array(starts, np.int64)).tolist()
    last_end = max(int(end[own == present[-1]].max()), starts[-1])
    edges = np.array([*starts, last_end], np.int64)
    position = np.full(len(found) + 1, -1, np.int64)
    position[present] = np.arange(len(present))
    at = position[own]
    lost = acts.launch_ts[rows] == NO_TIME
    by_time = np.searchsorted(edges, ts, "right") - 1
    inside = (by_time >= 0) & (by_time < len(present))
    at = np.where(lost & inside, by_time, at)
    return _windows(found, present, edges), at


def _windows(found: list[Marker], present: list[int], edges: NDArray[np.int64]) -> list[Window]:
    return [
        Window(
            found[p].step, found[p].name, int(edges[i]), int(edges[i + 1]), found[p].found_by,
            complete=0 < p < len(found) - 1, phase=found[p].phase,
        )
        for i, p in enumerate(present)
    ]  # fmt: skip


def _by_marker_time(
    ts: NDArray[np.int64], end: NDArray[np.int64], found: list[Marker]
) -> tuple[list[Window], NDArray[np.int64]]:
    starts = np.array([m.start for m in found], np.int64)
    at = np.searchsorted(starts, ts, "right") - 1
    present = np.unique(at[at >= 0]).tolist()
    if not present:
        whole = Window(0, "window", int(ts.min()), int(end.max()), WHOLE, complete=True)
        return [whole], np.zeros(len(ts), np.int64)
    firsts = [int(ts[at == p].min()) for p in present]
    edges = np.array([*firsts, max(int(end[at == present[-1]].max()), firsts[-1])], np.int64)
    position = np.full(len(found) + 1, -1, np.int64)
    position[present] = np.arange(len(present))
    return _windows(found, present, edges), position[at]

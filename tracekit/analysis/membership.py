"""Where each communication call counts: on which device, in which step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.accounting import RowKey, row_key
from tracekit.analysis.steps import launched_in
from tracekit.model import CPU_DEVICE, NO_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.analysis.steps import Window
    from tracekit.model import LabelledRank, Marker


class Membership:
    """Counts of calls by membership (times go by clipping); `step`: number of each call's step, None = none.

    A call counts on each device that holds an activity of it, in the step of the first of them there; a coalesced
    one where its group's owner does. A call that left no activity counts in the step its host call lies in, on
    the device it names, or on the rank's device when there is but one. `keys`: row of each call's label.
    """

    def __init__(self, labelled: LabelledRank, markers: list[Marker]) -> None:
        calls = labelled.calls
        labels = [c.label for c in calls]  # of equal calls one object
        known = {number: row_key(label) for number, label in dict(zip(map(id, labels), labels, strict=True)).items()}
        self.keys: list[RowKey] = [known[id(label)] for label in labels]
        self.step: list[int | None] = [None] * len(calls)
        self._call_of_row = labelled.activities.call
        self._owner = [i if c.coalesced_into is None else c.coalesced_into for i, c in enumerate(calls)]
        timed = np.zeros(len(calls) + 1, np.bool_)
        timed[self._call_of_row] = True
        self._timed = [bool(timed[owner]) for owner in self._owner]
        devices = np.unique(labelled.activities.device).tolist()
        only = devices[0] if len(devices) == 1 else None
        self._device = [c.device if only is None else only for c in calls]
        host = [NO_TIME if c.call_ts is None else c.call_ts for c in calls]
        self._marker = launched_in(np.array(host, np.int64), markers).tolist()

    def untimed_on(self, device: int) -> bool:
        """True for the host of a trace that holds calls, but no time of any (a device shows its own work)."""
        return device == CPU_DEVICE and bool(self._timed) and not any(self._timed)

    def count(
        self, device: int, rows: NDArray[np.intp], at: NDArray[np.int64], found: list[Window]
    ) -> tuple[list[Counter[RowKey]], Counter[str]]:
        """Calls of a device: in each window by label, and in all by strategy. Notes the step of each call.

        rows: activities of the device, in order of time; at: window of each, -1 = none.
        """
        tied = np.flatnonzero(self._call_of_row[rows] >= 0)
        call, first = np.unique(self._call_of_row[rows[tied]], return_index=True)
        window_of: dict[int, int] = dict(zip(call.tolist(), at[tied[first]].tolist(), strict=True))
        by_marker = {w.marker: i for i, w in enumerate(found)}
        counts: list[Counter[RowKey]] = [Counter() for _ in found]
        on_device: Counter[str] = Counter()
        for position, owner in enumerate(self._owner):
            if owner in window_of:
                window = window_of[owner]
            elif not self._timed[position] and self._device[position] == device:
                window = 0 if found[0].marker < 0 else by_marker.get(self._marker[position], -1)
            else:
                continue
            on_device[self.keys[position][0]] += 1
            if window >= 0:
                counts[window][self.keys[position]] += 1
                if self.step[position] is None:
                    self.step[position] = found[window].step
        return counts, on_device

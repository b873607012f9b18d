"""Where each communication call counts: on which device, in which step."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.accounting import RowKey, row_key
from tracekit.analysis.distinct import distinct_rows
from tracekit.analysis.steps import launched_in
from tracekit.model import CPU_DEVICE, NO_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.analysis.alike import CallKinds
    from tracekit.analysis.steps import Window
    from tracekit.model import LabelledRank, Marker


_ELSEWHERE = -2
"""Window of a call that a device has nothing of."""


class Membership:
    """Counts of calls by membership (times go by clipping). kinds: of the rank's calls.

    A call counts on each device that holds an activity of it, in the step of the first of them there; a coalesced
    one where its group's owner does. A call that left no activity counts in the step its host call lies in, on
    the device it names, or on the rank's device when there is but one. `keys`: row of each call's label.
    """

    def __init__(self, labelled: LabelledRank, markers: list[Marker], kinds: CallKinds) -> None:
        calls = labelled.calls
        by_kind = [row_key(c.label) for c in kinds.examples]
        number: dict[RowKey, int] = {}
        self._key = np.array([number.setdefault(key, len(number)) for key in by_kind], np.int64)[kinds.which]
        self._keys = list(number)
        self.keys: list[RowKey] = [by_kind[kind] for kind in kinds.which.tolist()]
        self._step = np.full(len(calls), NO_TIME, np.int64)
        self._call_of_row = labelled.activities.call
        owner = kinds.numbers("coalesced_into")
        self._owner = np.where(owner == NO_TIME, np.arange(len(calls)), owner)
        timed = np.zeros(len(calls) + 1, np.bool_)
        timed[self._call_of_row] = True
        self._timed = timed[self._owner]
        devices = np.unique(labelled.activities.device).tolist()
        only = devices[0] if len(devices) == 1 else None
        self._device = kinds.numbers("device") if only is None else np.full(len(calls), only)
        self._marker = launched_in(kinds.numbers("call_ts"), markers)

    @cached_property
    def step(self) -> list[int | None]:
        """Number of each call's step, when all devices have been counted; None = none."""
        return [None if number == NO_TIME else number for number in self._step.tolist()]

    def untimed_on(self, device: int) -> bool:
        """True for the host of a trace that holds calls, but no time of any (a device shows its own work)."""
        return device == CPU_DEVICE and bool(len(self._timed)) and not self._timed.any()

    def count(
        self, device: int, rows: NDArray[np.intp], at: NDArray[np.int64], found: list[Window]
    ) -> tuple[list[Counter[RowKey]], Counter[str]]:
        """Calls of a device: in each window by label, and in all by strategy. Notes the step of each call.

        rows: activities of the device, in order of time; at: window of each, -1 = none.
        """
        tied = np.flatnonzero(self._call_of_row[rows] >= 0)
        call, first = np.unique(self._call_of_row[rows[tied]], return_index=True)
        window_of = np.full(len(self._owner), _ELSEWHERE, np.int64)
        window_of[call] = at[tied[first]]
        window = window_of[self._owner]
        here = np.flatnonzero((window == _ELSEWHERE) & ~self._timed & (self._device == device))
        by_marker = {w.marker: i for i, w in enumerate(found)}
        whole = found[0].marker < 0
        window[here] = [0 if whole else by_marker.get(m, -1) for m in self._marker[here].tolist()]
        counts: list[Counter[RowKey]] = [Counter() for _ in found]
        on_device: Counter[str] = Counter()
        positions = np.flatnonzero(window != _ELSEWHERE)
        for (number, i), n in _counted(self._key[positions], window[positions]):
            key = self._keys[number]
            on_device[key[0]] += n
            if i >= 0:
                counts[i][key] += n
        new = positions[(window[positions] >= 0) & (self._step[positions] == NO_TIME)]
        self._step[new] = np.array([w.step for w in found], np.int64)[window[new]]
        return counts, on_device


def _counted(*columns: NDArray[np.int64]) -> list[tuple[list[int], int]]:
    """Each combination of values, in order, with the number of its rows."""
    found, which = distinct_rows(columns)
    return list(zip(found.tolist(), np.bincount(which, minlength=len(found)).tolist(), strict=True))

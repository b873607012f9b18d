"""All matches in flat columns: one entry a call of a match, entries of a match side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.matching import Match


class Flat(Struct):
    """first: index of each match's first entry; the rest one entry a call (ns on the run's axis, `NO_TIME` = missing).

    arrival: start on the common clock; error: ns, of that; component: which common clock (-1 = none).
    """

    first: NDArray[np.intp]
    match: NDArray[np.int64]
    part: NDArray[np.int64]
    row: NDArray[np.int64]
    dur: NDArray[np.int64]
    arrival: NDArray[np.int64]
    error: NDArray[np.int64]
    component: NDArray[np.int64]
    payload: NDArray[np.int64]
    peers_lack: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.row)

    def least(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Smallest value of each match."""
        return np.minimum.reduceat(values, self.first) if len(self.first) else values

    def most(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Largest value of each match."""
        return np.maximum.reduceat(values, self.first) if len(self.first) else values

    def all(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether a flag holds for every entry of a match."""
        return np.logical_and.reduceat(flags, self.first) if len(self.first) else flags

    def order(self, values: NDArray[np.int64]) -> NDArray[np.intp]:
        """Positions of all entries, match by match in ascending order of a value."""
        return np.lexsort((values, self.match))


def flatten(parts: Sequence[RankCalls], matches: Sequence[Match], clocks: Sequence[Clock]) -> Flat:
    """Columns of all calls of all matches."""
    size = np.array([len(m.rows) for m in matches], np.int64)
    first = (np.cumsum(size) - size).astype(np.intp)
    part = np.array([p for m in matches for p in m.parts], np.int64)
    row = np.array([r for m in matches for r in m.rows], np.int64)
    n = len(row)
    columns = {name: np.full(n, NO_TIME, np.int64) for name in ("dur", "arrival", "payload")}
    error, component = np.zeros(n, np.int64), np.full(n, -1, np.int64)
    lack = np.zeros(n, np.bool_)
    for number, one in enumerate(parts):
        mine = np.flatnonzero(part == number)
        at = row[mine]
        clock = clocks[number]
        columns["dur"][mine] = one.number["dur_ns"][at]
        columns["arrival"][mine] = clock.place(one.begin[at])
        columns["payload"][mine] = one.number["payload_bytes"][at]
        error[mine] = clock.error_ns or 0
        component[mine] = clock.component if clock.aligned else -1
        peers, members = one.number["peers"][at], one.number["group_size"][at]
        lack[mine] = (peers != NO_TIME) & (members != NO_TIME) & (peers < members - 1)
    match = np.repeat(np.arange(len(matches)), size)
    return Flat(first, match, part, row, columns["dur"], columns["arrival"], error, component, columns["payload"], lack)

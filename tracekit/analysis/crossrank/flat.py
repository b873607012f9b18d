"""All matches in flat columns: one entry a call of a match, entries of a match side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tracekit.analysis.intervals import running
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.matches import Matches


class Flat(Struct):
    """first: index of each match's first entry; size: its entries; of: entries of each part, ascending; the rest one
    entry a call (ns on the run's axis, `NO_TIME` = missing).

    arrival: start on the common clock; error: ns, of that; component: which common clock (-1 = none).
    """

    first: NDArray[np.intp]
    size: NDArray[np.int64]
    match: NDArray[np.int64]
    part: NDArray[np.int64]
    row: NDArray[np.int64]
    of: list[NDArray[np.intp]]
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

    def sums(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum of each match."""
        return np.add.reduceat(values, self.first) if len(self.first) else values

    def places(self, part: int, calls: int) -> NDArray[np.int64]:
        """The entry of each call of a part, -1 = none."""
        out = np.full(calls, -1, np.int64)
        out[self.row[self.of[part]]] = self.of[part]
        return out

    def heads(self, values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """A column of the calls, for the first entry of each match. values: the column of each part."""
        return gathered(self.part[self.first], self.row[self.first], values)

    def largest(self, values: NDArray[np.int64]) -> NDArray[np.intp]:
        """The entry of each match with its largest value; of equals the last."""
        at = np.flatnonzero(values == np.repeat(self.most(values), self.size))
        out = np.empty(len(self.first), np.intp)
        out[self.match[at]] = at
        return out

    def smallest(self, values: NDArray[np.int64]) -> NDArray[np.intp]:
        """The entry of each match with its smallest value; of equals the first."""
        at = np.flatnonzero(values == np.repeat(self.least(values), self.size))[::-1]
        out = np.empty(len(self.first), np.intp)
        out[self.match[at]] = at
        return out


def gathered(part: NDArray[np.int64], row: NDArray[np.int64], values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """A column of the calls (part, row). values: the column of each part."""
    first = running(np.array([len(column) for column in values], np.int64))
    out: NDArray[Any] = np.concatenate([*values] or [_NONE])[first[part] + row]
    return out


_NONE = np.empty(0, np.int64)


def flatten(parts: Sequence[RankCalls], matches: Matches, clocks: Sequence[Clock]) -> Flat:
    """Columns of all calls of all matches."""
    part, row = matches.part, matches.row
    peers = gathered(part, row, [p.number["peers"] for p in parts])
    members = gathered(part, row, [p.number["group_size"] for p in parts])
    error = np.array([c.error_ns or 0 for c in clocks], np.int64)
    component = np.array([c.component if c.aligned else -1 for c in clocks], np.int64)
    return Flat(
        first=matches.first,
        size=matches.size,
        match=np.repeat(np.arange(len(matches)), matches.size),
        part=part,
        row=row,
        of=matches.entries(len(parts)),
        dur=gathered(part, row, [p.number["dur_ns"] for p in parts]),
        arrival=gathered(part, row, [c.place(p.begin) for p, c in zip(parts, clocks, strict=True)]),
        error=error[part],
        component=component[part],
        payload=gathered(part, row, [p.number["payload_bytes"] for p in parts]),
        peers_lack=(peers != NO_TIME) & (members != NO_TIME) & (peers < members - 1),
    )

"""All matches of a run in columns: a match is made when one is looked at."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.streams import Stream

CONFIDENCE = {
    "comms-id": 0.99,
    "seq": 0.97,
    "order": 0.9,
    "order-in-step": 0.85,
    "order-with-gaps": 0.8,
    "assumed-group": 0.6,
}
"""How far a way of matching is trusted, most first; each was checked by operation and size."""
HOW = tuple(CONFIDENCE)
"""Ways of matching, by their number."""


class Match(Struct):
    """One call: `rows[i]` of part `parts[i]`."""

    stream: Stream
    how: str
    parts: tuple[int, ...]
    rows: tuple[int, ...]


class Matches(Struct, dict=True):
    """Per match: stream (position in `streams`), how (position in HOW), size (calls of it); part and row of each call,
    match by match. All int64.
    """

    streams: list[Stream]
    stream: NDArray[np.int64]
    how: NDArray[np.int64]
    size: NDArray[np.int64]
    part: NDArray[np.int64]
    row: NDArray[np.int64]

    @classmethod
    def of(cls, matches: Sequence[Match]) -> Matches:
        """Columns of single matches."""
        streams = {id(m.stream): m.stream for m in matches}
        number = {key: i for i, key in enumerate(streams)}
        return cls(
            [*streams.values()],
            *(np.array(column, np.int64) for column in (
                [number[id(m.stream)] for m in matches], [HOW.index(m.how) for m in matches],
                [len(m.rows) for m in matches], [*chain.from_iterable(m.parts for m in matches)],
                [*chain.from_iterable(m.rows for m in matches)],
            )),
        )  # fmt: skip

    @classmethod
    def joined(cls, pieces: Sequence[Matches]) -> Matches:
        """Some after others; a stream that stands in several has one number in all."""
        if len(pieces) == 1:
            return pieces[0]
        streams: dict[int, Stream] = {}
        numbers: dict[int, int] = {}
        stream = [np.empty(0, np.int64)]
        for one in pieces:
            streams |= {id(s): s for s in one.streams}
            own = [numbers.setdefault(id(s), len(numbers)) for s in one.streams]
            stream.append(np.array(own, np.int64)[one.stream])
        columns = (
            np.concatenate([np.empty(0, np.int64), *(getattr(one, name) for one in pieces)])
            for name in ("how", "size", "part", "row")
        )
        return cls([*streams.values()], np.concatenate(stream), *columns)

    def __len__(self) -> int:
        return len(self.size)

    def __getitem__(self, i: int) -> Match:
        at = int(self.first[range(len(self))[i]])
        here = slice(at, at + int(self.size[i]))
        parts, rows = tuple(self.part[here].tolist()), tuple(self.row[here].tolist())
        return Match(self.streams[self.stream[i]], HOW[self.how[i]], parts, rows)

    def __iter__(self) -> Iterator[Match]:
        return (self[i] for i in range(len(self)))

    def chosen(self, which: NDArray[np.intp]) -> Matches:
        """Some of the matches, in this order."""
        size = self.size[which]
        at = np.repeat(self.first[which] - (np.cumsum(size) - size), size) + np.arange(int(size.sum()))
        return Matches(self.streams, self.stream[which], self.how[which], size, self.part[at], self.row[at])

    @cached_property
    def first(self) -> NDArray[np.intp]:
        """Position of the first call of each match."""
        return (np.cumsum(self.size) - self.size).astype(np.intp)

    @cached_property
    def p2p(self) -> NDArray[np.bool_]:
        """Which are messages."""
        return np.array([s.kind == "p2p" for s in self.streams], np.bool_)[self.stream]

    @cached_property
    def source(self) -> NDArray[np.int64]:
        """Rank that sends, of messages; -1 elsewhere."""
        sends = [s.pair[0] if s.kind == "p2p" and s.pair is not None else -1 for s in self.streams]
        return np.array(sends, np.int64)[self.stream]

    def expected(self, world: int | None) -> NDArray[np.int64]:
        """Ranks that took part in each, as far as the files tell, -1 = not known; world: ranks of the job."""
        told = ({"p2p": 2, "assumed": world}.get(s.kind, s.size) for s in self.streams)
        return np.array([-1 if ranks is None else ranks for ranks in told], np.int64)[self.stream]

    def entries(self, parts: int) -> list[NDArray[np.intp]]:
        """Positions of the calls of each of so many parts, ascending."""
        if len(self._entries) != parts:
            self._entries = by_part(self.part, parts)
        return self._entries

    @cached_property
    def _entries(self) -> list[NDArray[np.intp]]:
        return []


def by_part(part: NDArray[np.int64], parts: int) -> list[NDArray[np.intp]]:
    """Positions of each part, ascending."""
    short = part.astype(np.uint16) if parts <= np.iinfo(np.uint16).max else part  # sorted by digits
    order = np.argsort(short, kind="stable")
    return np.split(order, np.cumsum(np.bincount(part, minlength=parts))[:-1])

"""Arrows between ranks: from a send to its receive, and from the last to arrive to those that waited for it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.timeline import NO_CALL
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.timeline import Timeline
    from tracekit.output.callargs import CallTexts

Arrow = tuple[str, int]
"""(title as JSON, number)."""
_MESSAGE, _LATE = '"message"', '"waited for"'


@dataclass(slots=True)
class Arrows:
    """Arrows of one recording: span → those that begin, and those that end there."""

    begin: dict[int, list[Arrow]] = field(default_factory=lambda: defaultdict(list))
    end: dict[int, list[Arrow]] = field(default_factory=lambda: defaultdict(list))


class Flows:
    """First every recording is learnt, then each is asked for its arrows: no arrow is left with one end only."""

    def __init__(self, matches: Sequence[Mapping[str, Any]]) -> None:
        self._of = {m["match_id"]: m for m in matches if self._source(m) is not None}
        self._began: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self.left_out = 0

    @staticmethod
    def _source(match: Mapping[str, Any]) -> int | None:
        if match["kind"] == "p2p":
            return match["src_rank"]  # type: ignore[no-any-return]
        return match["last_rank"] if match["last_by"] == "clock" else None

    def _rows(
        self, rank: int | None, calls: CallTexts, line: Timeline, kept: NDArray[np.bool_]
    ) -> list[tuple[int, Mapping[str, Any], int]]:
        """(match, its row, span) of the calls that have a partner; a call in a coalesced group is in its owner's."""
        if rank is None or not self._of:
            return []
        span = {c: i for i, c in enumerate(line.call.tolist()) if c != NO_CALL and kept[i]}
        match, owner = calls.number["match_id"], calls.number["coalesced_into"]
        out = []
        for call in np.flatnonzero(match != NO_TIME).tolist():
            row = self._of.get(int(match[call]))
            at = span.get(call if owner[call] == NO_TIME else int(owner[call]))
            if row is not None and at is not None and line.end[at] > line.start[at]:
                out.append((int(match[call]), row, at))
        return out

    def learn(self, rank: int | None, calls: CallTexts, line: Timeline, kept: NDArray[np.bool_]) -> None:
        """Remember what of a recording is drawn."""
        for number, match, at in self._rows(rank, calls, line, kept):
            if rank == self._source(match):
                self._began[number] = int(line.start[at])
            elif self._waits(match, calls, int(line.call[at])):
                self._ends[number] = max(int(line.end[at]), self._ends.get(number, 0))

    @staticmethod
    def _waits(match: Mapping[str, Any], calls: CallTexts, call: int) -> bool:
        wait = int(calls.number["wait_ns"][call])
        return bool(match["kind"] == "p2p" or (wait != NO_TIME and wait > 0))

    def of_rank(self, rank: int | None, calls: CallTexts, line: Timeline, kept: NDArray[np.bool_]) -> Arrows:
        """The arrows of one recording, to be asked once a recording."""
        out = Arrows()
        for number, match, at in self._rows(rank, calls, line, kept):
            began = self._began.get(number)
            title = _MESSAGE if match["kind"] == "p2p" else _LATE
            if began is None:
                continue
            if rank == self._source(match):
                if self._ends.get(number, began) - 1 > began:
                    out.begin[at].append((title, number))
            elif self._waits(match, calls, int(line.call[at])):
                if line.end[at] - 1 > began:
                    out.end[at].append((title, number))
                else:  # the clocks do not agree well enough to draw it
                    self.left_out += 1
        return out

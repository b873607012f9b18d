"""Whom ranks wait for in the end: late arrivals at collectives, followed back to the rank and the cause.

Who comes last to a collective is late against the other members, since the last call they had in common. What it did
more than they (the median of them) in that time tells why: it computed longer, transferred longer, or did nothing
(before the step's first device work: input; after: launches), or it waited itself, for somebody who was late elsewhere.
That waiting is followed to the one it was for: in a collective to who came last there, in a message to its sender,
which is compared with the senders of the others' messages. Lengths only are compared, so no clock is needed.
Where there is nobody to compare with, or the last one cannot be told, the cause is unknown: no rank is accused.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.crossrank.lapse import UNKNOWN, WAITING, Lapse, excess
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.matching import Match
    from tracekit.analysis.crossrank.waiting import Waits

Origin = tuple[int | None, str]
"""(rank, cause); the rank is None where it cannot be told."""
Shares = dict[Origin, float]
MOST, ENOUGH, DEPTH = 1_500, 0.98, 200
"""Calls that are followed, share of all waiting that is enough, and how far back."""
LONGEST = 8
"""Waits of one time that are followed; the others are left unknown."""
NOBODY: Shares = {(None, UNKNOWN): 1.0}


class Traced(Struct, frozen=True):
    """Waiting of all ranks in one step's collectives, by origin; direct: of it what was for the origin itself."""

    step: int | None
    rank: int | None
    cause: str
    wait_ns: int
    direct_ns: int
    calls: int


class Blame:
    """Follows late arrivals; `lapses[part]` measures what a recording did in a time."""

    def __init__(
        self, parts: Sequence[RankCalls], matches: Sequence[Match], flat: Flat, waits: Waits, lapses: Sequence[Lapse]
    ) -> None:
        self.parts, self.matches, self.flat, self.waits, self.lapses = parts, matches, flat, waits, lapses
        self.entry = {pr: i for i, pr in enumerate(zip(flat.part.tolist(), flat.row.tolist(), strict=True))}
        self.starts = [p.start.tolist() for p in parts]
        self.ends = [p.end.tolist() for p in parts]
        self.before = self._before()
        self.known: dict[int, Shares] = {}

    def _before(self) -> dict[tuple[int, int], int]:
        """(part, row) → row of the call before it in the same stream."""
        out: dict[tuple[int, int], int] = {}
        last: dict[tuple[int, int], int] = {}
        for match in self.matches:
            for p, r in zip(match.parts, match.rows, strict=True):
                key = (id(match.stream), p)
                if key in last:
                    out[p, r] = last[key]
                last[key] = r
        return out

    def window(self, part: int, row: int) -> tuple[int, int] | None:
        """From the end of the stream's call before to the start of this one, ns on the recording's own clock."""
        previous = self.before.get((part, row))
        if previous is None:
            return None
        low, high = self.ends[part][previous], self.starts[part][row]
        return (low, high) if NO_TIME not in (low, high) and low <= high else None

    def traced(self) -> list[Traced]:
        """All waiting in collectives by step and origin; the waiting that is not followed has no rank."""
        wait = np.where(self.waits.wait == NO_TIME, 0, self.waits.wait)
        total = np.add.reduceat(wait, self.flat.first) if len(self.flat.first) else wait
        rows: dict[tuple[int | None, int | None, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
        left = float(sum(int(total[i]) for i, m in enumerate(self.matches) if m.stream.kind != "p2p")) * (1 - ENOUGH)
        order = [i for i in np.argsort(-total, kind="stable").tolist() if self.matches[i].stream.kind != "p2p"]
        followed = 0
        rest = float(sum(int(total[i]) for i in order))
        for i in order:
            cost = int(total[i])
            if not cost:
                break
            far = followed >= MOST or rest <= left
            shares = NOBODY if far else self.of(i)
            followed, rest = followed + 1, rest - cost
            match = self.matches[i]
            step = int(self.parts[match.parts[0]].number["step"][match.rows[0]])
            last = self._last(i)
            for (rank, cause), share in shares.items():
                row = rows[None if step == NO_TIME else step, rank, cause]
                row[0] += share * cost
                row[1] += share * cost if last is not None and self.parts[last[0]].rank == rank else 0.0
                row[2] += 1
        return [
            Traced(step, rank, cause, round(ns), round(direct), int(calls))
            for (step, rank, cause), (ns, direct, calls) in sorted(rows.items(), key=lambda x: (_key(x[0]), -x[1][0]))
        ]

    def _last(self, i: int) -> tuple[int, int] | None:
        """(part, row) of the last to arrive."""
        at = int(self.waits.last[i])
        return None if at < 0 else (int(self.flat.part[at]), int(self.flat.row[at]))

    def of(self, i: int, depth: int = 0) -> Shares:
        """Origins of the lateness at a collective; shares add up to 1."""
        if i not in self.known:
            last = self._last(i)
            match = self.matches[i]
            others = [pr for pr in zip(match.parts, match.rows, strict=True) if pr != last]
            self.known[i] = NOBODY if last is None or depth > DEPTH else self._compared(last, others, depth)
        return self.known[i]

    def _compared(self, late: tuple[int, int], others: Iterable[tuple[int, int]], depth: int) -> Shares:
        """Origins of what a call came later than its counterparts."""
        own = self.window(*late)
        theirs = [(p, w) for p, r in others if (w := self.window(p, r)) is not None]
        if own is None or not theirs:
            return NOBODY
        found = excess(self.lapses[late[0]], own, [(self.lapses[p], w) for p, w in theirs])
        out: Shares = defaultdict(float)
        for cause, share in found.items():
            if cause == WAITING:
                for origin, part in self._waited(late[0], own, theirs, depth).items():
                    out[origin] += share * part
            else:
                out[None if cause == UNKNOWN else self.parts[late[0]].rank, cause] += share
        return dict(out)

    def _waited(
        self, part: int, own: tuple[int, int], theirs: Sequence[tuple[int, tuple[int, int]]], depth: int
    ) -> Shares:
        """Origins of the waiting of a recording in a time, call by call, beyond that of the counterparts' calls."""
        rows, wait = self.lapses[part].waited(*own)
        lists = [(p, self.lapses[p].waited(*w)) for p, w in theirs]
        same = [(p, r, w) for p, (r, w) in lists if len(r) == len(rows)]
        usual = _medians([w for _, _, w in same]) if same else np.zeros(len(rows))
        weight = np.maximum(wait - usual, 0.0)
        total = float(weight.sum())
        if not total:
            return NOBODY
        out: Shares = defaultdict(float)
        longest = np.argsort(-weight, kind="stable")[:LONGEST]
        for n in longest[weight[longest] > 0].tolist():
            share = float(weight[n]) / total
            counterparts = [(p, int(r[n])) for p, r, _ in same]
            for origin, part_of in self._met(part, int(rows[n]), counterparts, depth + 1).items():
                out[origin] += share * part_of
        if (rest := 1.0 - sum(out.values())) > 0:
            out[None, UNKNOWN] += rest
        return out

    def _met(self, part: int, row: int, counterparts: Sequence[tuple[int, int]], depth: int) -> Shares:
        """Whom a call waited for, and why that one was late."""
        at = self.entry.get((part, row))
        if at is None or depth > DEPTH:
            return NOBODY
        i = int(self.flat.match[at])
        if self.matches[i].stream.kind != "p2p":
            return self.of(i, depth)
        if i not in self.known:
            sender = self._partner(part, row)
            senders = [s for p, r in counterparts if (s := self._partner(p, r)) is not None]
            self.known[i] = NOBODY if sender is None or not senders else self._compared(sender, senders, depth)
        return self.known[i]

    def _partner(self, part: int, row: int) -> tuple[int, int] | None:
        """The other end of a message."""
        at = self.entry.get((part, row))
        if at is None:
            return None
        match = self.matches[int(self.flat.match[at])]
        if match.stream.kind != "p2p" or len(match.parts) != 2:
            return None
        other = 1 - match.parts.index(part)
        return match.parts[other], match.rows[other]


def _medians(rows: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Column by column; for few rows much faster than `np.median`."""
    ordered = np.sort(np.array(rows), axis=0)
    return np.asarray((ordered[(len(rows) - 1) // 2] + ordered[len(rows) // 2]) / 2, np.float64)


def _key(key: tuple[int | None, int | None, str]) -> tuple[bool, int]:
    return (key[0] is None, key[0] or 0)

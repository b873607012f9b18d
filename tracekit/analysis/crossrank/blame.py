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

from tracekit.analysis.crossrank.excess import Compared, excess, longer
from tracekit.analysis.crossrank.flat import gathered
from tracekit.analysis.crossrank.lapse import CAUSES, UNKNOWN, WAITING, Lapse
from tracekit.analysis.distinct import order_of
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.matches import Matches
    from tracekit.analysis.crossrank.waiting import Waits

Origin = tuple[int | None, str]
"""(rank, cause); the rank is None where it cannot be told."""
Shares = dict[Origin, float]
LONGEST = 8
"""Waits of one time that are followed; the others are left unknown."""
NOBODY: Shares = {(None, CAUSES[UNKNOWN]): 1.0}


class Traced(Struct, frozen=True):
    """Waiting of all ranks in one step's collectives, by origin; direct: of it what was for the origin itself."""

    step: int | None
    rank: int | None
    cause: str
    wait_ns: int
    direct_ns: int
    calls: int


class Blame:
    """Follows late arrivals; `lapses[part]` measures what a recording did in a time.

    A call that was waited for is known by its entry in `Flat`: the last to come to a collective, the other end of a
    message. `own`: entry → shares of what it did more than its counterparts, but for waiting; `ahead`: entry → whom
    it waited for itself, with the share of each.
    """

    def __init__(
        self, parts: Sequence[RankCalls], matches: Matches, flat: Flat, waits: Waits, lapses: Sequence[Lapse]
    ) -> None:
        self.parts, self.matches, self.flat, self.waits = parts, matches, flat, waits
        self.p2p = matches.p2p
        self._windows(lapses)
        self.own: dict[int, Shares] = {}
        self.ahead: dict[int, list[tuple[int, float]]] = defaultdict(list)
        self.known: dict[int, Shares] = {}

    def _windows(self, lapses: Sequence[Lapse]) -> None:
        """For each entry the time since the end of the stream's call before, on the recording's own clock; what was
        done in it, and which calls began in it.
        """
        flat, parts = self.flat, self.parts
        key = self.matches.stream[flat.match] * len(parts) + flat.part
        order = order_of(key)
        follows = np.append(False, np.diff(key[order]) == 0)[: len(order)]
        low = np.full(len(flat), NO_TIME, np.int64)
        ends = gathered(flat.part, flat.row, [p.end for p in parts])
        low[order[follows]] = ends[order[np.flatnonzero(follows) - 1]]
        high = gathered(flat.part, flat.row, [p.start for p in parts])
        self.valid = (low != NO_TIME) & (high != NO_TIME) & (low <= high)
        self.spent = np.zeros((len(flat), len(CAUSES)), np.int64)
        self.begin, self.length = np.zeros(len(flat), np.int64), np.zeros(len(flat), np.int64)
        base = 0
        calls = []
        for number_, (mine, lapse) in enumerate(zip(flat.of, lapses, strict=True)):
            at = mine[self.valid[mine]]
            self.spent[at], first, last = lapse.spent(low[at], high[at])
            self.begin[at], self.length[at] = base + first, last - first
            base += len(lapse.rows)
            calls.append(flat.places(number_, len(parts[number_]))[lapse.rows])
        self.entry = np.concatenate(calls)
        self.wait = np.concatenate([lapse.wait for lapse in lapses])

    def traced(self) -> list[Traced]:
        """All waiting in collectives by step and origin; the waiting that cannot be followed has no rank."""
        total = self.flat.sums(np.where(self.waits.wait == NO_TIME, 0, self.waits.wait))
        together = np.flatnonzero(~self.p2p & (total > 0)) if len(total) else np.empty(0, np.intp)
        self._follow(np.flatnonzero(~self.p2p & (self.waits.last >= 0)))
        steps = self.flat.heads([p.number["step"] for p in self.parts])
        rows: dict[int, dict[Origin, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0, 0]))
        ranks = [p.rank for p in self.parts]
        columns = (together, total[together], steps[together], self.waits.last[together])
        for _, cost, step, last in zip(*(c.tolist() for c in columns), strict=True):
            shares = self.of(last) if last >= 0 else NOBODY
            late = ranks[self.flat.part[last]] if last >= 0 else None
            of_step = rows[step]
            for origin, share in shares.items():
                row = of_step[origin]
                row[0] += share * cost
                row[1] += share * cost if late is not None and late == origin[0] else 0.0
                row[2] += 1
        return [
            Traced(None if step == NO_TIME else step, rank, cause, round(ns), round(direct), int(calls))
            for step in sorted(rows, key=lambda step: (step == NO_TIME, step))
            for (rank, cause), (ns, direct, calls) in sorted(rows[step].items(), key=lambda row: -row[1][0])
        ]

    def _follow(self, collectives: NDArray[np.intp]) -> None:
        """Compare who came last to collectives with the others there, then whoever they waited for, until all are."""
        flat = self.flat
        late = self.waits.last[collectives]
        number = np.full(len(self.matches), -1, np.int64)
        number[collectives] = np.arange(len(collectives))
        owner = number[flat.match]
        other = np.flatnonzero(owner >= 0)
        other = other[other != late[owner[other]]]
        them = Compared(late, other, owner[other])
        while len(them.late):
            them = self._compare(them)

    def _compare(self, them: Compared) -> Compared:
        """Fill `own` and `ahead` for comparisons; those with ends of messages that were waited for, and are new."""
        them = self._possible(them)
        if not len(them.late):
            return them
        shares = excess(self.spent, them)
        self._put_own(them.late, shares)
        waited = shares[:, WAITING]
        late, other, owner = [], [], []
        new: dict[int, int] = {}
        for found in longer(self.wait, self.begin, self.length, _only(them, waited > 0), LONGEST):
            comparison = np.flatnonzero(waited > 0)[found.comparison]
            source = them.late[comparison]
            target, message = self._met(found.call)
            ends, both = self._met(found.counterparts)
            share = found.share * waited[comparison]
            for i, (s, t, m, w) in enumerate(
                zip(source.tolist(), target.tolist(), message.tolist(), share.tolist(), strict=True)
            ):
                self.ahead[s].append((t, w))
                if m and t >= 0 and t not in self.own and t not in new:
                    new[t] = len(new)
                    late.append(t)
                    with_ = ends[i][both[i]]
                    other += with_.tolist()
                    owner += [new[t]] * len(with_)
        columns = (np.array(c, np.int64) for c in (late, other, owner))
        return Compared(*columns)

    def _put_own(self, late: NDArray[np.int64], shares: NDArray[np.float64]) -> None:
        """Fill `own`: the shares but for waiting."""
        self.own |= {at: {} for at in late.tolist()}
        own = shares.copy()
        own[:, WAITING] = 0
        row, cause = np.nonzero(own)
        ranks = np.array([p.rank for p in self.parts], np.int64)[self.flat.part[late[row]]]
        columns = (c.tolist() for c in (late[row], ranks, cause, own[row, cause]))
        for at, rank, what, share in zip(*columns, strict=True):
            self.own[at][None if what == UNKNOWN else rank, CAUSES[what]] = share

    def _possible(self, them: Compared) -> Compared:
        """Without the windows that are not known; comparisons that lose all or their own are nobody's."""
        keep = self.valid[them.other]
        other, owner = them.other[keep], them.owner[keep]
        good = self.valid[them.late] & (np.bincount(owner, minlength=len(them.late)) > 0)
        for at in them.late[~good].tolist():
            self.own[at] = NOBODY
        return _only(Compared(them.late, other, owner), good)

    def _met(self, calls: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(entry that calls waited for, -1 = not known; whether it is the other end of a message)."""
        entry = self.entry[calls]
        match = self.flat.match[entry]
        message = (entry >= 0) & self.p2p[match]
        partner = 2 * self.flat.first[match] + 1 - entry
        return np.where(message, partner, np.where(entry >= 0, self.waits.last[match], -1)), message

    def of(self, entry: int) -> Shares:
        """Origins of the lateness of a call; shares add up to 1. Without recursion: chains may be long."""
        stack = [entry]
        open_: set[int] = set()
        while stack:
            at = stack[-1]
            if at in self.known:
                stack.pop()
                continue
            if at not in open_:
                open_.add(at)
                stack += [t for t, _ in self.ahead.get(at, ()) if t >= 0 and t not in self.known and t not in open_]
                continue
            stack.pop()
            self.known[at] = self._sum(at)
        return self.known[entry]

    def _sum(self, entry: int) -> Shares:
        """Own shares of a call and those of the calls it waited for; what is still open (a circle) is unknown."""
        out: Shares = dict(self.own.get(entry, NOBODY))
        for target, share in self.ahead.get(entry, ()):
            for origin, part in self.known.get(target, NOBODY).items():
                out[origin] = out.get(origin, 0.0) + share * part
        rest = 1.0 - sum(out.values())
        if rest > _ROUNDING:
            out[None, CAUSES[UNKNOWN]] = out.get((None, CAUSES[UNKNOWN]), 0.0) + rest
        return out


_ROUNDING = 1e-12
"""Shares that add up to one do so but for this."""


def _only(them: Compared, keep: NDArray[np.bool_]) -> Compared:
    """Some of the comparisons."""
    number = np.cumsum(keep) - 1
    use = keep[them.owner]
    return Compared(them.late[keep], them.other[use], number[them.owner[use]])

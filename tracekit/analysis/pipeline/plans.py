"""The order of a pipeline in flat entries, rank after rank; many steps of one order replayed at once."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.pipeline.parts import Mark
    from tracekit.theory.schedules import Schedule

    Results = defaultdict[tuple[int, int], list[Mark]]
    Ints = NDArray[np.int64]

Work = tuple[tuple[str, int], ...]
"""(kind, stage) of an entry's actions."""
AHEAD = 64
"""How many entries further on are looked at for one whose message is already there."""


class Plan:
    """What an order asks of a replay. Entries are numbered rank after rank; `first` is that of each rank's first.

    needs: the entries whose results each waits for, None where nobody makes one of them. marks: the actions of each
    entry of each rank, named in full; work: kinds and stages, of each entry.
    """

    def __init__(self, schedule: Schedule) -> None:
        from tracekit.theory.schedules import parts  # takes long to load, and most recordings show no pipeline

        self.schedule = schedule
        orders = schedule.orders
        sizes = [len(order) for order in orders]
        self.first = [sum(sizes[:rank]) for rank in range(len(sizes))]
        self.entries = sum(sizes)
        made = {key: self.first[rank] + i for key, (rank, i) in schedule.wiring.makers().items()}
        self.needs: list[tuple[int, ...] | None] = [
            None if any(key not in made for key in keys) else tuple(made[key] for key in keys)
            for row in schedule.wiring.needs
            for keys in row
        ]
        self.marks: list[list[list[tuple[str, int, int]]]] = [
            [[(a.kind.value, a.stage, a.micro_batch) for a in parts(step)] for step in order] for order in orders
        ]
        self.work: list[Work] = [tuple((kind, at) for kind, at, _ in entry) for row in self.marks for entry in row]

    @cached_property
    def chunk_of(self) -> list[dict[int | None, int]]:
        """Of each rank: stage → which of its stages that is."""
        out: list[dict[int | None, int]] = [{} for _ in self.first]
        for stage, rank in enumerate(self.schedule.stage_rank):
            out[rank][stage] = len(out[rank])
        return out

    @cached_property
    def results(self) -> tuple[Results, Results]:
        """Results in the order they are made, by (from, to): as the sender's marks, and as the receiver's."""
        made: Results = defaultdict(list)
        used: Results = defaultdict(list)
        home = self.schedule.stage_rank
        for rank, row in enumerate(self.marks):
            for work, stage, mb in chain.from_iterable(row):
                before, after = self.schedule.neighbours[stage]
                kind, target = ("F", after) if work == "F" else ("B", before)
                if work != "W" and target >= 0 and home[target] != rank:
                    made[rank, home[target]].append((kind, stage, mb))
                    used[rank, home[target]].append((kind, target, mb))
        return made, used

    @cached_property
    def order(self) -> list[int] | None:
        """Entries in an order in which each comes after the one before it and what it waits for; None without one."""
        follows: dict[int, list[int]] = {}
        left = []
        for entry, needs in enumerate(self.needs):
            if needs is None:
                return None
            before = {*needs, entry - 1} if entry not in self.first else set(needs)
            for other in before:
                follows.setdefault(other, []).append(entry)
            left.append(len(before))
        ready = [entry for entry, n in enumerate(left) if not n]
        for entry in ready:  # grows while it is read
            for later in follows.get(entry, ()):
                left[later] -= 1
                if not left[later]:
                    ready.append(later)
        return ready if len(ready) == self.entries else None

    @cached_property
    def ahead(self) -> list[list[int]]:
        """For each entry the later ones of its rank that wait for other ranks only, but not for what lies between."""
        out: list[list[int]] = []
        for first, order in zip(self.first, self.marks, strict=True):
            mine = [{(stage, mb) for _, stage, mb in entry} for entry in order]
            last = first + len(order)
            remote = [any(not first <= k < last for k in self.needs[first + i] or ()) for i in range(len(order))]
            for i in range(len(order)):
                between: set[tuple[int, int]] = set()
                found = []
                for j in range(i + 1, min(len(order), i + AHEAD)):
                    between |= mine[j - 1]
                    if remote[j] and between.isdisjoint(mine[j]):
                        found.append(first + j)
                out.append(found)
        return out

    def ready(self, end: Ints, begin: int) -> Ints:
        """When all that each entry waits for had ended, ns; `end` of every entry."""
        out = np.full(self.entries, begin, np.int64)
        rows, first, needed = self._needed
        if len(rows):
            out[rows] = np.maximum.reduceat(end[needed], first)
        return out

    def there(self, ready: Ints) -> Ints:
        """When the first of the entries `ahead` of each could begin as to others, ns; without one, when it could."""
        out = ready.copy()
        rows, first, later = self._later
        if len(rows):
            out[rows] = np.minimum.reduceat(ready[later], first)
        return out

    @cached_property
    def _needed(self) -> _Ragged:
        return _ragged([needs or () for needs in self.needs])

    @cached_property
    def _later(self) -> _Ragged:
        return _ragged(self.ahead)

    def lengths(self, occupied: NDArray[np.int64]) -> list[int] | None:
        """ns from the first start to the last end, for every row of durations; None where the order cannot finish."""
        if self.order is None:
            return None
        end = np.zeros((self.entries, len(occupied)), np.int64)
        firsts = set(self.first)
        for entry in self.order:
            start = end[entry - 1] if entry not in firsts else np.zeros(len(occupied), np.int64)
            for other in self.needs[entry] or ():
                start = np.maximum(start, end[other])
            end[entry] = start + occupied[:, entry]
        return [int(ns) for ns in end.max(axis=0)]


_Ragged = tuple["NDArray[np.intp]", "NDArray[np.intp]", "NDArray[np.intp]"]


def _ragged(lists: Sequence[Sequence[int]]) -> _Ragged:
    """(lists with any value, where the values of each begin, all values) for `reduceat`."""
    size = np.array([len(values) for values in lists], np.intp)
    rows = np.flatnonzero(size)
    return rows, (np.cumsum(size) - size)[rows], np.array([*chain.from_iterable(lists)], np.intp)


class Plans:
    """The plan of each schedule, and replays that are gathered first and then run together."""

    def __init__(self) -> None:
        self._of: dict[int, Plan] = {}
        self._asked: dict[int, list[tuple[int, Sequence[int] | Ints]]] = {}
        self._count = 0
        self._length: dict[int, int] = {}

    def of(self, schedule: Schedule) -> Plan:
        """Its plan; steps that share a schedule share it."""
        if id(schedule) not in self._of:
            self._of[id(schedule)] = Plan(schedule)
        return self._of[id(schedule)]

    def ask(self, schedule: Schedule, occupied: Sequence[int] | Ints) -> int:
        """Number under which `length` gives the length of a replay with these durations of all entries."""
        self.of(schedule)
        self._asked.setdefault(id(schedule), []).append((self._count, occupied))
        self._count += 1
        return self._count - 1

    def length(self, number: int) -> int | None:
        """ns of a replay that was asked for; None where the order cannot finish."""
        for key, rows in self._asked.items():
            work = np.array([occupied for _, occupied in rows], np.int64).reshape(len(rows), -1)
            if (found := self._of[key].lengths(work)) is not None:
                self._length |= dict(zip((n for n, _ in rows), found, strict=True))
        self._asked = {}
        return self._length.get(number)


def flat(grid: Sequence[Sequence[int]]) -> list[int]:
    """Values of all entries, rank after rank."""
    return list(chain.from_iterable(grid))

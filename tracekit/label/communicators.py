"""Join a trace with what NCCL itself tells of the same process: a log, the Inspector, the profiler plugin.

NCCL knows communicators, not process groups: which is which follows from members, size and place of the process, and
from the calls themselves. Calls of a pair are tied by the place they have in their sequence (`tracekit.label.align`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tracekit.label.align import ALIKE, UNTOLD, Aligner, Alignment
from tracekit.label.enrich import Enricher
from tracekit.label.lanes import P2P, Codes, Entry, of_calls, of_witness
from tracekit.model import HealthEntry, on_unix_clock

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tracekit.label.vocabulary import Vocabulary
    from tracekit.model import Call, LabelledRank, Witness, WitnessCall, WitnessGroup

SOURCES = frozenset({"nccl-log", "nccl-inspector", "nccl-profiler"})
_LAUNCHES = frozenset({"nccl-log"})
"""Sources that number launches; the others number the calls of each operation."""
Pairing = tuple[list[Entry], list[Entry], Aligner, Alignment]


class _Side(Struct):
    """A group of the trace or a communicator: positions of its calls, in order of issue."""

    key: object
    size: int | None
    ranks: tuple[int, ...] | None
    own: int | None
    names: frozenset[str]
    calls: list[int] = field(default_factory=list)


class _Match(Struct):
    mine: _Side
    theirs: _Side
    pairings: list[Pairing]
    agree: int
    odd: int
    order: bool = False


def join_nccl(rank: LabelledRank, witness: Witness, words: Vocabulary) -> None:
    """Tie calls of `rank` to those of `witness` and take what it knows more; the outcome is in `rank.health`."""
    joiner = _Joiner(rank, witness, words)
    joiner.join()


class _Joiner:
    def __init__(self, rank: LabelledRank, witness: Witness, words: Vocabulary) -> None:
        self.rank, self.witness, self.words = rank, witness, words
        self.enricher = Enricher(witness.source)
        self.ways: Counter[str] = Counter()
        self.odd: Counter[str] = Counter()
        self.dated = on_unix_clock(rank.meta, rank.window_ns[0])
        self.comms = {g.key: g for g in witness.groups}
        self.tied: set[int] = set()

    def join(self) -> None:
        """All groups of the trace."""
        mine, theirs = self._groups(), self._communicators()
        nameless = [g for g in mine if g.size is None and g.ranks is None and not g.names]
        found = [m for g in mine if g not in nameless for c in theirs if (m := self._match(g, c)) is not None]
        for match in self._assigned(found, mine, theirs):
            self._tie(match)
        for group in nameless:  # neither name nor size: the whole process' calls in order, whatever communicator
            whole = _Side("*", None, None, None, frozenset(), sorted(i for c in theirs for i in c.calls))
            if (fits := self._match(group, whole)) is not None:
                self._tie(fits)
        self.rank.health += self._health()

    # ------------------------------------------------------------------ which communicator is which group

    def _groups(self) -> list[_Side]:
        out: dict[Hashable, _Side] = {}
        rank = self.rank.rank
        for i, call in enumerate(self.rank.calls):
            key = call.group_name if call.group_name is not None else (call.members, call.group_size)
            side = out.get(key)
            if side is None:
                ranks = call.members
                own = ranks.index(rank) if ranks and rank in ranks else None
                names = frozenset(n for n in (call.group_name, call.group_desc) if n)
                side = out[key] = _Side(key, call.group_size, ranks, own, names)
            side.calls.append(i)
        return list(out.values())

    def _communicators(self) -> list[_Side]:
        believed = self.rank.rank is None or self.witness.meta.rank in (None, self.rank.rank)
        if not believed:
            self.odd[f"rank {self.witness.meta.rank} instead of {self.rank.rank}"] += 1
        out = {
            g.key: _Side(
                g.key, g.size, g.ranks if believed else None, g.own,
                frozenset(n for n in (g.name, g.comm_hash) if n),
            )
            for g in self.witness.groups
        }  # fmt: skip
        for i, call in enumerate(self.witness.calls):
            if call.group in out:
                out[call.group].calls.append(i)
        return [side for side in out.values() if side.calls]

    def _match(self, mine: _Side, theirs: _Side) -> _Match | None:
        for a, b in ((mine.size, theirs.size), (mine.ranks, theirs.ranks), (mine.own, theirs.own)):
            if a is not None and b is not None and a != b:
                return None
        pairings = self._pairings(mine, theirs)
        for _, _, _, found in pairings:
            if found.refuted:
                self.odd["durations"] += found.agree
        pairings = [p for p in pairings if not p[3].refuted]
        if not pairings:
            return None
        return _Match(mine, theirs, pairings, sum(p[3].agree for p in pairings), sum(p[3].odd for p in pairings))

    def _assigned(self, found: list[_Match], groups: Sequence[_Side], comms: Sequence[_Side]) -> list[_Match]:
        """One communicator a group: a shared name first, then the most calls that agree; of equals by creation."""
        place = {id(s): i for i, s in enumerate((*self._created(groups), *comms))}
        left = sorted(found, key=lambda m: (not m.mine.names & m.theirs.names, -m.agree, m.odd, place[id(m.theirs)]))
        out: list[_Match] = []
        taken: set[int] = set()
        for match in left:
            if {id(match.mine), id(match.theirs)} & taken:
                continue
            equal = [
                m for m in left
                if (m.agree, m.odd) == (match.agree, match.odd) and not {id(m.mine), id(m.theirs)} & taken
                and not m.mine.names & m.theirs.names
            ]  # fmt: skip
            cluster = _cluster(match, equal)
            mine = sorted({id(m.mine) for m in cluster}, key=lambda k: place[k])
            theirs = sorted({id(m.theirs) for m in cluster}, key=lambda k: place[k])
            taken.update(mine, theirs)
            if len(mine) != len(theirs):
                self.odd["communicators that fit several groups alike"] += len(theirs)
                continue
            by_pair = {(id(m.mine), id(m.theirs)): m for m in cluster}
            for pair in zip(mine, theirs, strict=True):
                if (one := by_pair.get(pair)) is not None:
                    one.order = len(cluster) > 1
                    out.append(one)
        return out

    def _created(self, groups: Sequence[_Side]) -> list[_Side]:
        """Groups in the order of their creation: as the trace lists them, and by number where names are numbers."""
        listed = {g.name: i for i, g in enumerate(self.rank.meta.groups)}
        return sorted(
            groups,
            key=lambda g: (
                int(g.key) if isinstance(g.key, str) and g.key.isdecimal() else 0,
                listed.get(str(g.key), 0),
            ),
        )

    # ------------------------------------------------------------------ which call is which

    def _pairings(self, mine: _Side, theirs: _Side) -> list[Pairing]:
        if self.witness.source in _LAUNCHES:
            return self._launches(mine, theirs)
        out = []
        first = (0,) if self._from_the_start(mine) else ()
        by_op: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for i in mine.calls:
            op = self.rank.calls[i].op
            by_op["all_reduce" if op == "barrier" else op][0].append(i)
        for i in theirs.calls:
            by_op[self.words.op(self.witness.calls[i].op_raw)[0]][1].append(i)
        for given, taken in by_op.values():
            a = of_calls(self.rank.calls, given, singly=True, dated=self.dated)
            b = of_witness(self.witness.calls, taken, self.words, lambda i, _: i)
            if (pairing := self._aligned(a, b, numbered=True, expected=first)) is not None:
                out.append(pairing)
        return out

    def _from_the_start(self, mine: _Side) -> bool:
        """Whether the trace holds a group's calls from the first one on (torch counts from 1), so that the calls of
        each operation count from 0, as NCCL does.
        """
        collectives = [c for c in (self.rank.calls[i] for i in mine.calls) if c.op not in P2P]
        seen = {c.seq for c in collectives if c.seq is not None}
        told = bool(seen) and all(c.seq is not None for c in collectives)
        return told and min(seen) == 1 and max(seen) == len(seen)

    def _launches(self, mine: _Side, theirs: _Side) -> list[Pairing]:
        """All calls in one sequence; where that does not fit, collectives and transfers each in theirs (torch may keep
        a communicator of its own for a pair).
        """
        whole = self._sequence(mine.calls, theirs.calls, numbered=theirs.key != "*")
        if whole is not None and 2 * whole[3].agree >= len(whole[0]):
            return [whole]
        calls, notes = self.rank.calls, self.witness.calls
        halves = []
        for p2p in (False, True):
            a = [i for i in mine.calls if (calls[i].op in P2P) is p2p]
            b = [i for i in theirs.calls if notes[i].is_p2p is p2p]
            if a and b and (half := self._sequence(a, b, numbered=False)) is not None:
                halves.append(half)
        return halves or ([whole] if whole is not None else [])

    def _sequence(self, mine: list[int], theirs: list[int], *, numbered: bool) -> Pairing | None:
        a = of_calls(self.rank.calls, mine, singly=False, dated=self.dated)
        b = of_witness(self.witness.calls, theirs, self.words, lambda _, c: (c.group, c.op_id, c.is_p2p))
        return self._aligned(a, b, numbered=numbered)

    def _aligned(
        self, mine: list[Entry], theirs: list[Entry], *, numbered: bool, expected: tuple[int, ...] = ()
    ) -> Pairing | None:
        codes = Codes()
        launches = self.witness.source in _LAUNCHES
        theirs.sort(key=lambda e: e.number or 0) if numbered else None
        a = codes.lane(mine, numbered=launches and numbered)
        b = codes.lane(theirs, numbered=numbered)
        unbroken = len(b) > 0 and int(b.number[-1] - b.number[0]) == len(b) - 1
        begun = launches and self._from_its_start(theirs)
        b.whole = begun and not self.witness.lost and unbroken
        aligner = Aligner(a, b)
        if launches and not self.witness.lost:
            expected = self._expected(mine, a.number.tolist(), theirs, begun=begun)
        found = aligner.align(expected)
        return None if found is None else (mine, theirs, aligner, found)

    def _from_its_start(self, theirs: list[Entry]) -> bool:
        """Whether the log holds communicators from their start: initialisation, or the call that NCCL numbers 0."""
        least: dict[str, int] = {}
        for entry in theirs:
            call = self.witness.calls[entry.members[0]]
            key, number = call.group or "", call.op_id or 0
            least[key] = min(least.get(key, number), number)
        return all(n == 0 or ((comm := self.comms.get(key)) and comm.own is not None) for key, n in least.items())

    def _expected(self, mine: list[Entry], number: list[int], theirs: list[Entry], *, begun: bool) -> tuple[int, ...]:
        """torch numbers the collectives of a group from 1 on; the log holds the communicator's life from its start."""
        first = mine[0].number if mine else None
        if first is None or not theirs or any(set(e.ops) & P2P for e in (*mine, *theirs)):
            return ()
        steady = all(e.number == first + i for i, e in enumerate(mine))
        begins = {0, theirs[0].number or 0} if begun else {0}  # NCCL counts from 0; the first lines may be lost
        return tuple(sorted(b + first - 1 - number[0] for b in begins)) if steady else ()

    # ------------------------------------------------------------------ taking over

    def _tie(self, match: _Match) -> None:
        for mine, theirs, aligner, found in match.pairings:
            self.odd["operation or size"] += found.odd
            way = found.way + ("+creation" if match.order else "")
            if found.way == ALIKE:
                self._alike(mine, theirs, way)
                continue
            for a, b in zip(*(p.tolist() for p in aligner.pairs(found.shifts[0])), strict=True):
                self._tie_entries(mine[a], theirs[b], way)

    def _tie_entries(self, mine: Entry, theirs: Entry, way: str) -> None:
        """Members of one launch in order; several calls of NCCL for one of torch are told by the first."""
        for i, j in zip(mine.members, theirs.members, strict=False):
            call, seen = self.rank.calls[i], self.witness.calls[j]
            self._mark(i, way)
            self._fill(call, seen, alone=len(mine.members) == len(theirs.members))
            self.enricher.fill(call, seen)

    def _mark(self, position: int, way: str) -> None:
        call = self.rank.calls[position]
        call.witness = " ".join(filter(None, (call.witness, f"{self.witness.source}:{way}")))
        self.ways[way] += 1
        self.tied.add(position)

    def _alike(self, mine: list[Entry], theirs: list[Entry], way: str) -> None:
        """Which call it was is not known; what is the same for all calls of that kind is."""
        seen: dict[tuple[tuple[str, ...], int], set[tuple[object, ...]]] = defaultdict(set)
        example: dict[tuple[tuple[str, ...], int], WitnessCall] = {}
        for entry in theirs:
            one = self.witness.calls[entry.members[0]]
            seen[entry.ops, entry.size].add(tuple(one.extra.get(n) for n in ("algorithm", "protocol", "channels")))
            example.setdefault((entry.ops, entry.size), one)
        for entry in mine:
            kind = (entry.ops, entry.size) if (entry.ops, entry.size) in example else (entry.ops, UNTOLD)
            if (known := example.get(kind)) is None:
                continue
            for i in entry.members:
                self._mark(i, way)
                self._group(self.rank.calls[i], self.comms.get(known.group or ""))
                if len(seen[kind]) == 1:
                    self.enricher.choice(self.rank.calls[i], known.extra)

    def _fill(self, call: Call, seen: WitnessCall, *, alone: bool) -> None:
        self._group(call, self.comms.get(seen.group or ""))
        if not alone or call.payload_bytes is not None:
            return
        kind = self.words.dtype(seen.dtype)
        nbytes = seen.payload_bytes
        counts = [n for n in (seen.in_nelems, seen.out_nelems) if n is not None]
        if counts and kind is not None:
            call.in_nelems, call.out_nelems, call.dtype = seen.in_nelems, seen.out_nelems, kind.name
            nbytes = max(counts) * kind.bytes
        if nbytes is not None:
            call.payload_bytes = nbytes
            self.enricher.told(call, "size")

    def _group(self, call: Call, comm: WitnessGroup | None) -> None:
        """Members and size of a group that the trace only names, or does not know at all."""
        if comm is None or call.members is not None or (comm.ranks is None and call.group_size is not None):
            return
        call.members = comm.ranks
        call.group_size = call.group_size if call.group_size is not None else comm.size
        call.group_name = call.group_name or comm.name or comm.comm_hash
        self.enricher.told(call, "group")

    def _health(self) -> list[HealthEntry]:
        source, path = self.witness.source, self.witness.meta.path
        out = [
            HealthEntry(f"calls tied to the {source} by {way}", n, "info", path) for way, n in sorted(self.ways.items())
        ]
        loose = [c for i, c in enumerate(self.rank.calls) if i not in self.tied]
        if loose:
            out.append(HealthEntry(f"calls that the {source} does not hold", len(loose), "info", loose[0].op_raw))
        out += [
            HealthEntry(f"trace and {source} contradict each other: {what}; the trace counts", n, "info", path)
            for what, n in sorted(self.odd.items())
            if n
        ]
        return out


def _cluster(match: _Match, equal: Sequence[_Match]) -> list[_Match]:
    """The match and those that fit as well and share a group or a communicator with it, directly or through others."""
    mine, theirs = {id(match.mine)}, {id(match.theirs)}
    while True:
        found = [m for m in equal if id(m.mine) in mine or id(m.theirs) in theirs]
        wider = mine | {id(m.mine) for m in found}, theirs | {id(m.theirs) for m in found}
        if wider == (mine, theirs):
            return found or [match]
        mine, theirs = wider

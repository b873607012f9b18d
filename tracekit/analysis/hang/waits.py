"""Who waits for whom: the first call that each rank has pending, and the ranks that keep it from completing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from tracekit.analysis.hang.state import group_keys, is_pending

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.analysis.hang.state import GroupKey, GroupState, Progress, RankDump

MISSING, BEHIND, NO_DUMP, NOT_STARTED, UNTOLD = "missing", "behind", "no-dump", "not-started", "untold"


class Front(Struct, frozen=True):
    """The first call a rank has pending, in order of issue. position None: only a counter tells that something is.

    seq: number of the collective (of the p2p call for a send or receive); peer: global rank of the other side.
    """

    rank: int
    group: GroupKey
    seq: int | None
    position: int | None
    is_p2p: bool = False
    peer: int | None = None


class Edge(Struct, frozen=True):
    """`waiter` cannot go on before `on` does. why: missing (it has not issued the call), behind (it has, but is stuck
    before it), not-started (its device has not begun it although another's has), no-dump (it left nothing behind that
    tells), untold (its dump does not show how far it came in this group).
    """

    waiter: int
    on: int
    why: str


class Waits(Struct):
    """fronts: of each stuck rank; edges: waiter → its edges; passed: rank → peers that completed what it has pending;
    together: ranks whose first pending call all members have issued and none is held up elsewhere.
    """

    fronts: dict[int, Front] = field(default_factory=dict)
    edges: dict[int, list[Edge]] = field(default_factory=dict)
    passed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    together: set[int] = field(default_factory=set)


def find_waits(dumps: Mapping[int, RankDump], groups: Mapping[GroupKey, GroupState]) -> Waits:
    """The waits of every rank."""
    out = Waits()
    for rank, dump in sorted(dumps.items()):
        front = _front(dump, groups)
        if front is not None:
            out.fronts[rank] = front
    known: dict[tuple[GroupKey, int | None], tuple[Held, dict[int, bool]]] = {}
    for rank, front in out.fronts.items():
        if front.is_p2p:
            edges = list(_p2p(front, dumps, out))
        else:
            call = front.group, front.seq
            if call not in known:
                begun = _started(front, dumps, groups[front.group])
                known[call] = list(_held(front, dumps, groups[front.group], begun, out)), begun
            edges = list(_collective(front, *known[call], out))
        out.edges[rank] = edges
        if not edges and rank not in out.passed:
            out.together.add(rank)
    return out


def _front(dump: RankDump, groups: Mapping[GroupKey, GroupState]) -> Front | None:
    keys = group_keys(dump.witness)
    for position, call in enumerate(dump.witness.calls):
        key = keys.get(call.group or "")
        if key is None or not is_pending(call):
            continue
        members = groups[key].members
        peer = members[call.peer] if call.peer is not None and 0 <= call.peer < len(members) else None
        seq = call.p2p_seq if call.is_p2p else call.seq
        return Front(dump.rank, key, seq, position, call.is_p2p, peer)
    for key in sorted(set(keys.values())):
        mine = groups[key].progress[dump.rank]
        if not groups[key].p2p and _open(mine):
            return Front(dump.rank, key, (mine.completed or 0) + 1, None)
    return None


def _open(mine: Progress) -> bool:
    return mine.enqueued is not None and mine.completed is not None and mine.enqueued > mine.completed


_PASSED = "passed"
Held = list[tuple[int, str]]


def _collective(front: Front, held: Held, begun: Mapping[int, bool], out: Waits) -> Iterable[Edge]:
    """held: what `_held` says of the call, the same for all who wait for it."""
    passed = []
    for m, why in held:
        if m == front.rank:
            continue
        if why == _PASSED:
            passed.append(m)
        elif why != NOT_STARTED or begun.get(front.rank):
            yield Edge(front.rank, m, why)
    if passed:
        out.passed[front.rank] = tuple(passed)


def _held(
    front: Front, dumps: Mapping[int, RankDump], group: GroupState, begun: Mapping[int, bool], out: Waits
) -> Iterable[tuple[int, str]]:
    """(member, why it holds up who waits for this call) for those that do, in order; or that it has passed it."""
    seq = front.seq
    if seq is None:
        return
    for m in group.members:
        if m not in dumps:
            yield m, NO_DUMP
            continue
        other = group.progress.get(m)
        if other is None or (other.enqueued is not None and other.enqueued < seq):
            yield m, MISSING
        elif other.enqueued is None and m not in out.fronts:
            yield m, UNTOLD
        elif other.completed is not None and other.completed >= seq:
            yield m, _PASSED
        elif (theirs := out.fronts.get(m)) is not None and (theirs.group, theirs.seq) != (front.group, seq):
            yield m, BEHIND
        elif begun.get(m) is False:
            yield m, NOT_STARTED


def _started(front: Front, dumps: Mapping[int, RankDump], group: GroupState) -> dict[int, bool]:
    """Of the ranks that show the call: has its device begun it? Empty where no dump tells starts."""
    at = group.calls.get(front.seq or -1, {})
    found = {r: dumps[r].witness.calls[p].state == "started" for r, p in at.items()}
    return found if any(found.values()) else {}


def _p2p(front: Front, dumps: Mapping[int, RankDump], out: Waits) -> Iterable[Edge]:
    """A send or receive waits for its other side: not issued there, or issued behind something that is stuck."""
    if front.peer is None or front.peer == front.rank:
        return
    if front.peer not in dumps:
        yield Edge(front.rank, front.peer, NO_DUMP)
        return
    theirs = out.fronts.get(front.peer)
    answering = theirs is not None and theirs.is_p2p and theirs.group == front.group and theirs.peer == front.rank
    if answering and _opposite(front, theirs, dumps):
        return
    yield Edge(front.rank, front.peer, BEHIND if theirs is not None else MISSING)


def _opposite(front: Front, theirs: Front | None, dumps: Mapping[int, RankDump]) -> bool:
    """A send faces a receive: both sides are there."""
    if theirs is None or front.position is None or theirs.position is None:
        return False
    mine = dumps[front.rank].witness.calls[front.position].op_raw
    other = dumps[theirs.rank].witness.calls[theirs.position].op_raw
    return ("send" in mine) != ("send" in other)


def waiters(edges: Mapping[int, Sequence[Edge]], on: int) -> dict[int, Edge]:
    """Ranks that wait for `on`, through others or not: rank → the edge that leads there, by the shortest way."""
    back: dict[int, list[Edge]] = {}
    for mine in edges.values():
        for edge in mine:
            back.setdefault(edge.on, []).append(edge)
    found: dict[int, Edge] = {}
    todo = [on]
    for rank in todo:
        for edge in back.get(rank, ()):
            if edge.waiter not in found and edge.waiter != on:
                found[edge.waiter] = edge
                todo.append(edge.waiter)
    return found


def circles(edges: Mapping[int, Sequence[Edge]]) -> list[list[int]]:
    """Sets of ranks that wait for each other in a circle and for nobody outside it (Kosaraju's algorithm)."""
    after = {r: sorted({e.on for e in mine}) for r, mine in edges.items()}
    order: list[int] = []
    seen: set[int] = set()
    for root in sorted(after):
        stack = [(root, iter(after.get(root, ())))] if root not in seen else []
        seen.add(root)
        while stack:
            rank, rest = stack[-1]
            step = next((n for n in rest if n not in seen), None)
            if step is None:
                order.append(rank)
                stack.pop()
            else:
                seen.add(step)
                stack.append((step, iter(after.get(step, ()))))
    before: dict[int, list[int]] = {}
    for rank, ons in after.items():
        for on in ons:
            before.setdefault(on, []).append(rank)
    number: dict[int, int] = {}
    for root in reversed(order):
        todo = [root] if root not in number else []
        for rank in todo:
            if number.setdefault(rank, root) == root:
                todo += [r for r in before.get(rank, ()) if r not in number and r not in todo]
    sets: dict[int, list[int]] = {}
    for rank, root in number.items():
        sets.setdefault(root, []).append(rank)
    return [
        sorted(mine) for mine in sets.values()
        if len(mine) > 1 and all(on in mine for r in mine for on in after.get(r, ()))
    ]  # fmt: skip

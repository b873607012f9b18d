"""Which schedule an order of work is: compared, action by action, with the orders of the known schedules."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from tracekit.theory.schedules import NAMES, ScheduleError, build, from_order, parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.analysis.pipeline.parts import Mark
    from tracekit.theory.schedules import Schedule

Entry = tuple["Mark", ...]
Orders = tuple[tuple[Entry, ...], ...]
ENOUGH = 0.75
"""Share of actions in the order of a schedule from which on it is that schedule, with deviations."""
MOST_VIRTUAL = 16
MOST_COMPARED, CLOSEST = 400, 3
"""Longest order that is compared with others at quadratic cost, and with how many: those equal in most places."""


class Recognised(Struct, frozen=True):
    """What an order was found to be.

    name: schedules with exactly this order, joined by "|"; None = no known one. ideal: its order; ran: the order that
    ran, with every action named, None where that cannot be told. deviations: per rank, actions out of the ideal order;
    first: the first of them in words. reason: why name or ran is None.
    """

    name: str | None
    ideal: Schedule | None
    ran: Schedule | None
    deviations: tuple[int, ...]
    first: tuple[str | None, ...]
    reason: str | None = None


@lru_cache(maxsize=256)
def recognise(orders: Orders, ring: bool | None, sends: int | None) -> Recognised:
    """Compare recorded orders, one a rank from the first stage on, with all schedules of as many micro-batches.

    ring: whether the ends of the pipeline exchange messages; sends: messages sent in the step; None = not known.
    """
    p = len(orders)
    told = _given(orders)
    if not all(orders):
        return Recognised(None, None, told, (0,) * p, (None,) * p, "no-work-on-a-stage")
    candidates = [s for s in _candidates(orders) if _fits(s, ring, sends) and (told or not _only_reversed(s))]
    exact = [s for s in candidates if all(map(_agrees, orders, s.orders))]
    if exact:
        same = [s for s in exact if (s.orders, s.stage_rank) == (exact[0].orders, exact[0].stage_rank)]
        if len(same) < len(exact) and told is None:
            names = "|".join(dict.fromkeys(s.name for s in exact))
            return Recognised(names, None, None, (0,) * p, (None,) * p, "schedule-ambiguous")
        ideal = exact[0]
        return Recognised("|".join(s.name for s in same), ideal, told or ideal, (0,) * p, (None,) * p)
    return _nearest(orders, candidates, told)


def _nearest(orders: Orders, candidates: Sequence[Schedule], told: Schedule | None) -> Recognised:
    """The known schedule with most actions in its order, if that is clear."""
    p = len(orders)
    total = sum(map(len, orders))
    scored = []
    fit = [
        s for s in candidates if all(len(a) == len(b) <= MOST_COMPARED for a, b in zip(orders, s.orders, strict=True))
    ]
    fit.sort(key=lambda s: -sum(sum(map(_same, o, s.orders[r])) for r, o in enumerate(orders)))
    for s in fit[:CLOSEST]:
        off = tuple(len(o) - _common(o, s.orders[r]) for r, o in enumerate(orders))
        scored.append((sum(off), off, s))
    scored.sort(key=lambda x: x[0])
    best = scored[0] if scored else None
    clear = best is not None and (len(scored) == 1 or scored[1][0] > best[0])
    none = (0,) * p, (None,) * p
    if best is None or not clear or best[0] > (1 - ENOUGH) * total:
        if told is None:
            told = _by_count(orders)
        return Recognised(None, None, told, *none, "schedule-unknown" if told else "order-unknown")
    _, off, ideal = best
    ran = told or _by_count(orders)
    first = tuple(_first(o, ideal.orders[r]) for r, o in enumerate(orders))
    return Recognised(ideal.name, ideal, ran, off, first, None if ran else "order-unknown")


def _given(orders: Orders) -> Schedule | None:
    """The order as annotated, when every action names its stage and micro-batch and together they are a schedule."""
    if any(None in mark for order in orders for entry in order for mark in entry):
        return None
    return _schedule([[_text(entry) for entry in order] for order in orders])


def _by_count(orders: Orders) -> Schedule | None:
    """One stage a rank: the n-th forward is that of micro-batch n, where nothing says otherwise; backward likewise."""
    texts = []
    for stage, order in enumerate(orders):
        count: dict[str, int] = {}
        row = []
        for entry in order:
            marks = []
            for kind, told, mb in entry:
                if told not in (None, stage):
                    return None
                n = count.setdefault(kind, 0)
                count[kind] = n + 1
                marks.append((kind, stage, n if mb is None else mb))
            row.append(_text(tuple(marks)))
        texts.append(row)
    return _schedule(texts)


def _text(entry: Entry) -> str:
    names = [f"{stage}{kind}{mb}" for kind, stage, mb in entry]
    return names[0] if len(names) == 1 else f"({';'.join(names)})OVERLAP_F_B"


def _schedule(texts: Sequence[Sequence[str]]) -> Schedule | None:
    try:
        return from_order(texts, "recorded")
    except ScheduleError:
        return None


def _candidates(orders: Orders) -> Iterable[Schedule]:
    """Known schedules with as many forwards on each rank, for every number of virtual stages that divides them."""
    counts = {sum(kind == "F" for entry in order for kind, _, _ in entry) for order in orders}
    if len(counts) != 1 or not (forwards := counts.pop()):
        return
    for name in NAMES:
        for v in range(1, min(forwards, MOST_VIRTUAL) + 1):
            m = forwards if name == "DualPipe" and v == 2 else forwards // v
            if name != "DualPipe" and forwards % v:
                continue
            try:
                yield build(name, len(orders), m, v)
            except ScheduleError:
                continue


def _fits(s: Schedule, ring: bool | None, sends: int | None) -> bool:
    """Whether a schedule has the messages that were seen."""
    if sends is not None and s.sends != sends:
        return False
    if ring is None or s.ranks < 3:
        return True
    first, last = 0, s.ranks - 1
    pairs = {(s.stage_rank[a], s.stage_rank[b]) for lane in s.lanes for a, b in pairwise(lane)}
    return ring == ((last, first) in pairs or (first, last) in pairs)


def _only_reversed(s: Schedule) -> bool:
    """GPipe with its backwards from the last micro-batch on: only annotations tell it from GPipe, and it is rarer."""
    return s.name == "LoopedBFS" and s.stages == s.ranks


def _agrees(order: Sequence[Entry], known: Sequence[object]) -> bool:
    return len(order) == len(known) and all(map(_same, order, known))


def _same(entry: Entry, step: object) -> bool:
    """Whether what is told of an entry is true of a step of a schedule."""
    actions = parts(step)  # type: ignore[arg-type]
    return len(entry) == len(actions) and all(
        kind == a.kind and stage in (None, a.stage) and mb in (None, a.micro_batch)
        for (kind, stage, mb), a in zip(entry, actions, strict=True)
    )


def _common(order: Sequence[Entry], known: Sequence[object]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(known) + 1)
    for entry in order:
        before = 0
        for j, step in enumerate(known, 1):
            before, row[j] = row[j], before + 1 if _same(entry, step) else max(row[j], row[j - 1])
    return row[-1]


def _first(order: Sequence[Entry], known: Sequence[object]) -> str | None:
    """The first place where two orders part, in words."""
    for i, (entry, step) in enumerate(zip(order, known, strict=True)):
        if not _same(entry, step):
            ran = "+".join(f"{'' if s is None else s}{k}{'' if m is None else m}" for k, s, m in entry)
            return f"entry {i}: {ran}, the schedule has {step}"
    return None

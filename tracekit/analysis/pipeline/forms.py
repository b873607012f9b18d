"""What work without annotations shows of its order: what ran from one send to the next.

A send follows the work that makes its result, so it cuts the work of a rank for certain. Whatever else separates
micro-batches, such as a receive that was waited for, need not be there: it can be posted long before. Of a known
schedule it is told in the same way what would be seen between its sends; the number of messages gives that of
micro-batches.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct

from tracekit.analysis.pipeline.orders import ANNOTATION
from tracekit.theory.schedules import NAMES, Action, Kind, Schedule, ScheduleError, build, parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.analysis.pipeline.parts import Chunk
    from tracekit.theory.schedules import Step

Segment = tuple[str, tuple[int, ...]]
"""What ran: F, B, FB … or X with a pair that runs as one; places that the results were sent to, ascending."""
MOST_VIRTUAL = 16
MOST_SENDS = 20_000
"""Messages of a step; beyond, all schedules take seconds to build, and the recording has likely no steps."""
TAKING_TURNS = 4
"""From so many runs of forward and backward in turn, and no send between, on they are a pair that runs as one: without
such pairs there are at most three (backward, forward, backward at the turn of a V)."""


class Form(Struct, frozen=True):
    """A schedule as it shows without annotations.

    shown: with whole backwards where nothing comes between the halves, those are `halved`; segments: per rank; entries:
    those of `shown` in each segment; given: the schedule itself.
    """

    name: str
    shown: Schedule
    segments: tuple[tuple[Segment, ...], ...]
    entries: tuple[tuple[tuple[Step, ...], ...], ...]
    halved: frozenset[Action]
    given: Schedule


class Split(Struct, frozen=True):
    """The pieces of one rank between its sends: what ran in each segment, and its pieces."""

    segments: tuple[Segment, ...]
    pieces: tuple[tuple[Chunk, ...], ...]


def split(row: Sequence[Chunk], peers: Sequence[int | None]) -> Split:
    """Cut the pieces of one rank after each that something was sent after.

    peers: place that each of the rank's messages went to (or came from) in the pipeline, None = not known.
    """
    segments: list[Segment] = []
    out: list[tuple[Chunk, ...]] = []
    here: list[Chunk] = []
    for i, chunk in enumerate(row):
        here.append(chunk)
        if chunk.after or i + 1 == len(row):
            to = [-1 if (p := peers[k]) is None else p for k in chunk.after]
            segments.append((_word(tuple(c.kinds for c in here)), tuple(sorted(to))))
            out.append(tuple(here))
            here = []
    return Split(tuple(segments), tuple(out))


def known_forms(splits: Sequence[Split]) -> list[Form]:
    """The schedules that would show what was seen, one split a rank from the first stage on."""
    sends = sum(len(to) for one in splits for _, to in one.segments)
    if not 0 < sends <= MOST_SENDS or not all(one.pieces for one in splits):
        return []
    forwards = [_forwards(one) for one in splits]
    seen = tuple(one.segments for one in splits)
    return [
        f
        for f in _forms(len(splits), sends)
        if f.segments == seen and all(n in (None, _count(o)) for n, o in zip(forwards, f.shown.orders, strict=True))
    ]


def _forwards(one: Split) -> int | None:
    """How many forwards there are, where annotations tell."""
    found = [c for row in one.pieces for c in row if "F" in c.kinds]
    return len(found) if all(c.source == ANNOTATION for c in found) else None


def _count(order: Iterable[Step]) -> int:
    return sum(a.kind is Kind.FORWARD for step in order for a in parts(step))


@lru_cache(maxsize=1024)
def _word(kinds: tuple[str, ...]) -> str:
    """Runs of forward and backward in one word."""
    letters = ["X" if len(k) > 1 else "F" if k == "F" else "B" for k in kinds]
    word = "".join(letter for letter, _ in groupby(letters))
    return "X" if "X" in word or len(word) >= TAKING_TURNS else word


@lru_cache(maxsize=32)
def _forms(p: int, sends: int) -> tuple[Form, ...]:
    """All schedules over p ranks with so many messages."""
    return tuple(_form(s) for s in _schedules(p, sends))


def _schedules(p: int, sends: int) -> Iterable[Schedule]:
    for name in NAMES:
        for v in range(1, MOST_VIRTUAL + 1):
            hops = {"ZBVZeroBubble": 2 * p - 2, "DualPipeV": 2 * p - 2, "DualPipe": p - 1}.get(name, p * v - 1)
            m, rest = divmod(sends, 2 * hops)
            if rest or not m or (name == "LoopedBFS" and v == 1):  # GPipe, but for the order of its backwards
                continue
            try:
                yield build(name, p, m, v)
            except ScheduleError:
                continue


def _form(s: Schedule) -> Form:
    shown = Schedule(s.name, tuple(tuple(_shown(s, order)) for order in s.orders), s.stage_rank, s.lanes, s.model_stage)
    given = {a for order in s.orders for step in order for a in parts(step)}
    halved = frozenset(a for order in shown.orders for step in order for a in parts(step) if a not in given)
    return Form(s.name, shown, *_segments(shown), halved, s)


def in_halves(form: Form) -> Form | None:
    """The form with all halves apart, where some would stand beside whole backwards made of halves; else None."""
    kinds = {a.kind for order in form.given.orders for step in order for a in parts(step)}
    left = {a.kind for order in form.shown.orders for step in order for a in parts(step)}
    if not form.halved or Kind.BACKWARD in kinds or Kind.BACKWARD_INPUT not in left:
        return None
    return Form(form.name, form.given, *_segments(form.given), frozenset(), form.given)


def _segments(s: Schedule) -> tuple[tuple[tuple[Segment, ...], ...], tuple[tuple[tuple[Step, ...], ...], ...]]:
    """Per rank, what runs from one send to the next, and the entries of that."""
    segments, entries = [], []
    for rank, order in enumerate(s.orders):
        row: list[Segment] = []
        inside: list[tuple[Step, ...]] = []
        here: list[Step] = []
        for i, step in enumerate(order):
            here.append(step)
            to = sorted(target for a in parts(step) if (target := _target(s, a)) not in (None, rank))
            if to or i + 1 == len(order):
                row.append((_word(tuple("".join(a.kind for a in parts(e)) for e in here)), tuple(to)))
                inside.append(tuple(here))
                here = []
        segments.append(tuple(row))
        entries.append(tuple(inside))
    return tuple(segments), tuple(entries)


def _shown(s: Schedule, order: Sequence[Step]) -> Iterable[Step]:
    """An order with the halves of a backward as one where they follow each other and no gradients are sent between."""
    i = 0
    while i < len(order):
        step, later = order[i], order[i + 1] if i + 1 < len(order) else None
        i += 1
        if isinstance(step, Action) and step.kind is Kind.BACKWARD_INPUT:
            target = _target(s, step)
            if later == step._replace(kind=Kind.BACKWARD_WEIGHT) and target in (None, s.stage_rank[step.stage]):
                step = step._replace(kind=Kind.BACKWARD)
                i += 1
        yield step


def _target(s: Schedule, action: Action) -> int | None:
    """Rank that the result of an action goes to."""
    if action.kind is Kind.BACKWARD_WEIGHT:
        return None
    stage = s.neighbours[action.stage][1 if action.kind is Kind.FORWARD else 0]
    return s.stage_rank[stage] if stage >= 0 else None


def received(s: Schedule, action: Action) -> bool:
    """Whether an action begins with what another rank has made."""
    if action.kind is Kind.BACKWARD_WEIGHT:
        return False
    stage = s.neighbours[action.stage][0 if action.kind is Kind.FORWARD else 1]
    return stage >= 0 and s.stage_rank[stage] != s.stage_rank[action.stage]

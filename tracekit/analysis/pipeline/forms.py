"""What work without annotations shows of its order: what ran from one send to the next.

A send follows the work that makes its result, so it cuts the work of a rank for certain. Whatever else separates
micro-batches, such as a receive that was waited for, need not be there: it can be posted long before. Of a known
schedule it is told in the same way what would be seen between its sends; the number of messages gives that of
micro-batches.
"""

from __future__ import annotations

import statistics
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tracekit.analysis.pipeline.orders import ANNOTATION, joined
from tracekit.theory.schedules import NAMES, Action, Kind, Schedule, ScheduleError, build, parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.analysis.pipeline.parts import Chunk
    from tracekit.theory.schedules import Step

Segment = tuple[str, tuple[int, ...]]
"""What ran: F, B, FB … or X with a pair that runs as one; places that the results were sent to, ascending."""
MOST_VIRTUAL = 16
TAKING_TURNS = 4
"""From so many runs of forward and backward in turn, and no send between, on they are a pair that runs as one: without
such pairs there are at most three (backward, forward, backward at the turn of a V)."""

ALIKE = 2
"""Times as long, at most, as one that needed no cut is a chunk cut out of a longer one."""


class Form(Struct, frozen=True):
    """A schedule as it shows without annotations.

    shown: with whole backwards where nothing comes between the halves; segments: per rank; entries: those of `shown`
    in each segment.
    """

    name: str
    shown: Schedule
    segments: tuple[tuple[Segment, ...], ...]
    entries: tuple[tuple[tuple[Step, ...], ...], ...]


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
            segments.append((_word(c.kinds for c in here), tuple(sorted(to))))
            out.append(tuple(here))
            here = []
    return Split(tuple(segments), tuple(out))


def known_forms(splits: Sequence[Split]) -> list[Form]:
    """The schedules that would show what was seen, one split a rank from the first stage on."""
    sends = sum(len(to) for one in splits for _, to in one.segments)
    if not sends or not all(one.pieces for one in splits):
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


def _word(kinds: Iterable[str]) -> str:
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
    segments, entries = [], []
    for rank, order in enumerate(shown.orders):
        row: list[Segment] = []
        inside: list[tuple[Step, ...]] = []
        here: list[Step] = []
        for i, step in enumerate(order):
            here.append(step)
            to = sorted(target for a in parts(step) if (target := _target(s, a)) not in (None, rank))
            if to or i + 1 == len(order):
                row.append((_word("".join(a.kind for a in parts(e)) for e in here), tuple(to)))  # type: ignore[arg-type]
                inside.append(tuple(here))
                here = []
        segments.append(tuple(row))
        entries.append(tuple(inside))
    return Form(s.name, shown, tuple(segments), tuple(entries))


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


def aligned(one: Split, entries: Sequence[Sequence[Step]]) -> list[Chunk] | None:
    """A chunk for each entry of a rank, of the kinds it has; None where nothing separates some of them."""
    out: list[Chunk] = []
    for pieces, steps in zip(one.pieces, entries, strict=True):
        found = _fitted(pieces, steps)
        if found is None:
            return None
        out += found
    return out


def _fitted(pieces: Sequence[Chunk], steps: Sequence[Step]) -> list[Chunk] | None:
    """The pieces of one segment as its entries: joined where one was cut into several, cut where one repeats itself."""
    if len(steps) == 1:
        found = [_joined(pieces)]
    else:
        found = _runs(pieces, steps)
    if len(found) != len(steps):
        return None
    out = []
    for chunk, step in zip(found, steps, strict=True):
        actions = parts(step)
        told = chunk.actions if chunk.source == ANNOTATION else ((None, None, None),) * len(actions)
        if len(told) != len(actions) or any(
            k == "F" != a.kind or st not in (None, a.stage) or mb not in (None, a.micro_batch)
            for (k, st, mb), a in zip(told, actions, strict=True)
        ):
            return None
        out.append(replace(chunk, actions=tuple((a.kind.value, None, None) for a in actions)))
    return out


def _joined(pieces: Sequence[Chunk]) -> Chunk:
    out = pieces[0]
    for piece in pieces[1:]:
        out = joined(out, piece)
    return out


def _runs(pieces: Sequence[Chunk], steps: Sequence[Step]) -> list[Chunk]:
    """Run by run of one letter; what does not come out is left as it is, and the counts tell."""
    if any(len(parts(step)) > 1 for step in steps):
        return _by_receives(pieces)
    groups = [list(g) for _, g in groupby(steps, key=lambda s: parts(s)[0].kind is Kind.FORWARD)]
    runs = [list(g) for _, g in groupby(pieces, key=lambda c: c.kinds == "F")]
    if len(groups) != len(runs):
        return list(pieces)
    out: list[Chunk] = []
    for wanted, run in zip(groups, runs, strict=True):
        out += _cut(run, wanted)
    return out


def _by_receives(pieces: Sequence[Chunk]) -> list[Chunk]:
    """Pieces with those that nothing was received before joined to the one before."""
    out: list[Chunk] = []
    for piece in pieces:
        if out and not piece.before and piece.source != ANNOTATION:
            out[-1] = joined(out[-1], piece)
        else:
            out.append(piece)
    return out


def _cut(run: Sequence[Chunk], wanted: Sequence[Step]) -> list[Chunk]:
    """As many chunks as are wanted, if they can be told apart."""
    n = len(wanted)
    if n == 1:
        return [_joined(run)]
    found = list(run) if len(run) <= n else _by_receives(run)
    alike = len({(a.kind, a.stage) for step in wanted for a in parts(step)}) == 1
    if len(found) < n and alike:
        found = _repeated(found, n)
    return found


def _repeated(run: Sequence[Chunk], n: int) -> list[Chunk]:
    """The run with what repeats itself cut into equal numbers of parts, as long as what needs no cut, n in all."""
    single = [c.compute for c in run if not c.repeats]
    parts_of = [len(c.repeats) for c in run if c.repeats]
    size, rest = divmod(sum(parts_of), max(1, n - len(single)))
    if rest or not size or any(count % size for count in parts_of):
        return list(run)
    out: list[Chunk] = []
    for chunk in run:
        for i in range(0, len(chunk.repeats), size):
            part = chunk.repeats[i : i + size]
            end = max(ts + dur for ts, dur, _ in part)
            last = i + size == len(chunk.repeats)
            out.append(replace(chunk, ts=part[0][0], dur=end - part[0][0], compute=sum(c for _, _, c in part),
                               before=() if i else chunk.before, after=chunk.after if last else (),
                               repeats=part if size > 1 else ()))  # fmt: skip
            if single and not 1 / ALIKE <= out[-1].compute / max(1, statistics.median(single)) <= ALIKE:
                return list(run)
        if not chunk.repeats:
            out.append(chunk)
    return out

"""The order of a step in which annotations do not name every action: as the schedule that shows the same has it."""

from __future__ import annotations

import statistics
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracekit.analysis.pipeline.forms import known_forms, received, split
from tracekit.analysis.pipeline.orders import ANNOTATION, joined, pieces
from tracekit.analysis.pipeline.recognise import Recognised
from tracekit.theory.schedules import Kind, parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.pipeline.forms import Split
    from tracekit.analysis.pipeline.lines import Line
    from tracekit.analysis.pipeline.parts import Chunk, RankPipeline
    from tracekit.theory.schedules import Schedule, Step

SHARES = (0.0, 0.25, 0.4, 0.6)
"""Shares of the median forward below which work without annotations may be none, tried until a schedule fits: on a busy
host casting and counting can take long."""
ALIKE = 2
"""Times as long, at most, as one that needed no cut is a chunk cut out of a longer one."""


def by_form(
    line: Line, ranks: Sequence[RankPipeline], step: int, known: Recognised, found: list[list[Chunk]]
) -> tuple[Recognised, list[list[Chunk]]] | None:
    """The schedule that would show the same between its sends, and the chunks of each rank; None without one.

    Where nothing separates some of the entries, `ran` is None and the chunks are the pieces that were found.
    known: what was found action by action; it stands (None) unless its schedule would show something else. found: the
    `pieces` of each rank.
    """
    place = {rank: p for p, rank in enumerate(line.ranks)}
    peers = [[None if m.peer is None else place.get(m.peer) for m in part.messages] for part in ranks]
    for share in SHARES:
        rows = [pieces(part, step, share=share) for part in ranks] if share else found
        splits = [split(row, to) for row, to in zip(rows, peers, strict=True)]
        if forms := known_forms(splits):
            break
    else:
        return None
    names = dict.fromkeys(f.name for f in forms)
    exact = known.ran is not None and known.name is not None and not any(known.deviations)
    if exact and {*(known.name or "").split("|")} & {*names}:
        return None
    none, nothing, name = (0,) * len(rows), (None,) * len(rows), "|".join(names)
    first = forms[0].shown
    if any((f.shown.orders, f.shown.stage_rank) != (first.orders, first.stage_rank) for f in forms):
        return Recognised(name, None, None, none, nothing, "schedule-ambiguous"), rows
    fitted = [aligned(one, entries, first) for one, entries in zip(splits, forms[0].entries, strict=True)]
    whole = [row for row in fitted if row is not None]
    if len(whole) < len(fitted):
        return Recognised(name, first, None, none, nothing, "micro-batches-merged"), rows
    return Recognised(name, first, first, none, nothing), whole


def aligned(one: Split, entries: Sequence[Sequence[Step]], shown: Schedule) -> list[Chunk] | None:
    """A chunk for each entry of a rank, of the kinds it has; None where nothing separates some of them."""
    out: list[Chunk] = []
    for segment, steps in zip(one.pieces, entries, strict=True):
        found = _fitted(segment, steps, shown)
        if found is None:
            return None
        out += found
    return out


def _fitted(segment: Sequence[Chunk], steps: Sequence[Step], shown: Schedule) -> list[Chunk] | None:
    """The pieces of one segment as its entries: joined where one was cut into several, cut where one repeats itself."""
    found = [_joined(segment)] if len(steps) == 1 else _runs(segment, steps, shown)
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


def _joined(segment: Sequence[Chunk]) -> Chunk:
    out = segment[0]
    for piece in segment[1:]:
        out = joined(out, piece)
    return out


def _runs(segment: Sequence[Chunk], steps: Sequence[Step], shown: Schedule) -> list[Chunk]:
    """Run by run of one letter; what does not come out is left as it is, and the counts tell."""
    if any(len(parts(step)) > 1 for step in steps):
        return _by_receives(segment)
    groups = [list(g) for _, g in groupby(steps, key=lambda s: parts(s)[0].kind is Kind.FORWARD)]
    runs = [list(g) for _, g in groupby(segment, key=lambda c: c.kinds == "F")]
    if len(groups) != len(runs):
        return list(segment)
    out: list[Chunk] = []
    for wanted, run in zip(groups, runs, strict=True):
        out += _cut(run, wanted, [any(received(shown, a) for a in parts(step)) for step in wanted])
    return out


def _by_receives(segment: Sequence[Chunk]) -> list[Chunk]:
    """Pieces with those that nothing was received before joined to the one before."""
    out: list[Chunk] = []
    for piece in segment:
        if out and not piece.before and piece.source != ANNOTATION:
            out[-1] = joined(out[-1], piece)
        else:
            out.append(piece)
    return out


def _cut(run: Sequence[Chunk], wanted: Sequence[Step], receives: Sequence[bool]) -> list[Chunk]:
    """As many chunks as are wanted, if they can be told apart. receives: whether each begins with a message."""
    n = len(wanted)
    if n == 1:
        return [_joined(run)]
    if len(run) == n and all(c.before or not waits for c, waits in zip(run[1:], receives[1:], strict=True)):
        return list(run)
    found = _by_receives(run)
    alike = len({(a.kind, a.stage) for step in wanted for a in parts(step)}) == 1
    return _repeated(found, n) if len(found) < n and alike else found


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

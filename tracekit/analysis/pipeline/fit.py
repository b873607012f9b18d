"""The order of a step in which annotations do not name every action: as the schedule that shows the same has it."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import groupby, islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracekit.analysis.pipeline.forms import known_forms, received, split
from tracekit.analysis.pipeline.orders import ANNOTATION, joined, pieces
from tracekit.analysis.pipeline.recognise import Recognised
from tracekit.theory.schedules import Kind, parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.analysis.pipeline.forms import Form, Split
    from tracekit.analysis.pipeline.lines import Line
    from tracekit.analysis.pipeline.parts import Chunk, Message, RankPipeline
    from tracekit.theory.schedules import Step

SHARES = (0.0, 0.25, 0.4, 0.6)
"""Shares of the median forward below which work without annotations may be none, tried until a schedule fits: on a busy
host casting and counting can take long."""
ALIKE, UNEVEN = 2, 8
"""Times as long, at most, as one that needed no cut is a chunk cut out of a longer one; as the shortest half of a
backward is the longest."""


def by_form(
    line: Line, ranks: Sequence[RankPipeline], step: int, known: Recognised, found: list[list[Chunk]]
) -> tuple[Recognised, list[list[Chunk]]] | None:
    """The schedule that would show the same between its sends, and the chunks of each rank; None without one,
    or where messages lack one of their ends.

    Where nothing separates some of the entries, `ran` is None and the chunks are the pieces that were found.
    known: what was found action by action; it stands (None) unless its schedule would show something else. found: the
    `pieces` of each rank.
    """
    place = {rank: p for p, rank in enumerate(line.ranks)}
    peers = [[_peer(m, p, place) for m in part.messages] for p, part in enumerate(ranks)]
    if not _complete(ranks, peers, step):
        return None
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
    fitted = [aligned(one, forms[0], rank) for rank, one in enumerate(splits)]
    whole = [row for row in fitted if row is not None]
    if len(whole) < len(fitted):
        return Recognised(name, first, None, none, nothing, "micro-batches-merged"), rows
    return Recognised(name, first, first, none, nothing), whole


def _peer(m: Message, own: int, place: Mapping[int, int]) -> int | None:
    """Place of the rank at a message's other end; of two ranks it is the other one."""
    if m.peer is None and len(place) == 2:
        return 1 - own
    return None if m.peer is None else place.get(m.peer)


def _complete(ranks: Sequence[RankPipeline], peers: Sequence[Sequence[int | None]], step: int) -> bool:
    """Whether every message of a step has both of its ends: a recording that is cut may look like a shorter one."""
    ends = [
        (m.send, (own, to) if m.send else (to, own))
        for own, (part, row) in enumerate(zip(ranks, peers, strict=True))
        for m, to in zip(part.messages, row, strict=True)
        if m.step == step
    ]
    return Counter(pair for send, pair in ends if send) == Counter(pair for send, pair in ends if not send)


def aligned(one: Split, form: Form, rank: int) -> list[Chunk] | None:
    """A chunk for each entry of a rank, of the kinds it has; None where nothing separates some of them."""
    out: list[Chunk] = []
    for segment, steps in zip(one.pieces, form.entries[rank], strict=True):
        found = _fitted(segment, steps, form)
        if found is None:
            return None
        out += found
    return out


def _fitted(segment: Sequence[Chunk], steps: Sequence[Step], form: Form) -> list[Chunk] | None:
    """The pieces of one segment as its entries: joined where one was cut into several, cut where one repeats itself."""
    found = [_joined(segment)] if len(steps) == 1 else _runs(segment, steps, form)
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


def _runs(segment: Sequence[Chunk], steps: Sequence[Step], form: Form) -> list[Chunk]:
    """Run by run of one letter; what does not come out is left as it is, and the counts tell."""
    if any(len(parts(step)) > 1 for step in steps):
        return _by_receives(segment)
    groups = [list(g) for _, g in groupby(steps, key=lambda s: parts(s)[0].kind is Kind.FORWARD)]
    runs = [list(g) for _, g in groupby(segment, key=lambda c: c.kinds == "F")]
    if len(groups) != len(runs):
        return list(segment)
    out: list[Chunk] = []
    for wanted, run in zip(groups, runs, strict=True):
        out += _cut(run, wanted, form)
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


def _cut(run: Sequence[Chunk], wanted: Sequence[Step], form: Form) -> list[Chunk]:
    """As many chunks as are wanted, if they can be told apart."""
    n = len(wanted)
    if n == 1:
        return [_joined(run)]
    waits = [any(received(form.shown, a) for a in parts(step)) for step in wanted]
    if len(run) == n and all(c.before or not w for c, w in zip(run[1:], waits[1:], strict=True)):
        return list(run)
    found = _by_receives(run)
    halves = [1 + (parts(step)[0] in form.halved) for step in wanted]
    for layers in (False, True):
        for some, sizes in ((found, [1] * n), (run, halves)):
            every = [part for c in some for part in ([c] if c.alike and not layers else _taken_apart(c, 1))]
            cut = len(some) < len(every) or (some is run and _even(run))
            if len(every) == sum(sizes) and cut:
                rest = iter(every)
                return [_joined(list(islice(rest, size))) for size in sizes]
    alike = len({(a.kind, a.stage) for step in wanted for a in parts(step)}) == 1
    return _repeated(found, n) if len(found) < n and alike else found


def _even(run: Sequence[Chunk]) -> bool:
    """Whether pieces can be halves of backwards, rather than fragments of some."""
    compute = [c.compute for c in run]
    return max(compute) <= UNEVEN * min(compute)


def _repeated(run: Sequence[Chunk], n: int) -> list[Chunk]:
    """The run with what repeats itself cut into equal numbers of parts, as long as what needs no cut, n in all."""
    single = [c.compute for c in run if not c.repeats]
    parts_of = [len(c.repeats) for c in run if c.repeats]
    size, rest = divmod(sum(parts_of), max(1, n - len(single)))
    if rest or not size or any(count % size for count in parts_of):
        return list(run)
    out = [part for chunk in run for part in _taken_apart(chunk, size)]
    usual = max(1, statistics.median(single)) if single else 0
    if usual and not all(1 / ALIKE <= c.compute / usual <= ALIKE for c in out):
        return list(run)
    return out


def _taken_apart(chunk: Chunk, size: int) -> list[Chunk]:
    """A chunk as several of `size` of its parts each."""
    out = []
    for i in range(0, len(chunk.repeats), size):
        some = chunk.repeats[i : i + size]
        end = max(ts + dur for ts, dur, _ in some)
        last = i + size >= len(chunk.repeats)
        out.append(
            replace(chunk, ts=some[0][0], dur=end - some[0][0], compute=sum(c for _, _, c in some), repeats=(),
                    before=() if i else chunk.before, after=chunk.after if last else ())
        )  # fmt: skip
    return out or [chunk]

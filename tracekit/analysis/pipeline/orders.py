"""The order of work of each rank of one pipeline in one step, as it was recorded."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.pipeline.lines import Line
    from tracekit.analysis.pipeline.parts import Chunk, Message, RankPipeline

ANNOTATION = "annotation"
ON_HOST = "operators"
NEAR = 1_000
"""ns by which a receive may seem to end after the work that needs it began."""
NOISE = 0.025
"""Work without an annotation below this share of the median backward, which takes about twice as long, is no forward:
detaching, casting, counting."""


def ordered(line: Line, parts: Sequence[RankPipeline], rows: Sequence[list[Chunk]]) -> list[list[Chunk]]:
    """Chunks of each rank of the line in its order; those that one piece of work was cut into are one.

    rows: the `pieces` of each rank in a step.
    """
    return [_whole(line, position, *pair) for position, pair in enumerate(zip(parts, rows, strict=True))]


def pieces(part: RankPipeline, step: int, *, share: float = 0.0) -> list[Chunk]:
    """Chunks of a step as they were found, each with the messages sent after it; without what is no micro-batch.

    Forwards without an annotation that are far shorter than others belong to none (also below `share` of the median of
    those with messages), nor do those after the last backward: gradient norms, an optimizer without a name; nor, on a
    host, whose receives end just before the work that needs them, what follows a backward without any message. A
    backward launched inside an annotated forward runs as one with it.
    """
    chunks = [c for c in part.chunks if c.step == step]
    if all(c.source == ANNOTATION for c in chunks):
        return chunks
    chunks = _paired(chunks)
    last = max((i for i, c in enumerate(chunks) if c.kinds != "F"), default=len(chunks))
    backward = [c.compute for c in chunks if c.kinds != "F"]
    passing = [c.compute for c in chunks if c.kinds != "F" and (c.before or c.after)]
    least = NOISE * statistics.median(passing or backward) if backward else 0.0
    if share:
        forward = [c.compute for c in chunks if c.kinds == "F" and c.compute >= least and (c.before or c.after)]
        least = max(least, share * statistics.median(forward)) if forward else least
    found: list[Chunk] = []
    for i, c in enumerate(chunks):
        if c.source == ANNOTATION or c.kinds != "F" or (c.compute >= least and i < last and not _stray(found, c)):
            found.append(c)
    order = sorted(range(len(found)), key=lambda i: found[i].launch)
    launches = [found[i].launch for i in order]
    after: list[list[int]] = [[] for _ in found]
    for number, m in enumerate(part.messages):
        if m.send and m.step == step and m.call_ts is not None and (at := bisect_left(launches, m.call_ts)):
            after[order[at - 1]].append(number)
    told = ((c, tuple(numbers)) for c, numbers in zip(found, after, strict=True))
    return [c if c.after == numbers else replace(c, after=numbers) for c, numbers in told]


def _stray(done: Sequence[Chunk], c: Chunk) -> bool:
    """Whether a forward on a host passes nothing on and follows a backward."""
    return c.source == ON_HOST and not c.before and not c.after and bool(done) and done[-1].kinds != "F"


def _paired(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Chunks in which an annotated forward and the backwards launched during it are one."""
    if all(c.source != ANNOTATION for c in chunks):
        return sorted(chunks, key=lambda c: (c.ts, c.dur, c.launch, -c.until))
    out: list[Chunk] = []
    for chunk in sorted(chunks, key=lambda c: (c.launch, -c.until)):
        last = out[-1] if out else None
        if last is not None and last.source == ANNOTATION != chunk.source and chunk.launch <= last.until:
            out[-1] = joined(last, chunk) if last.kinds == "FB" else joined(replace(
                last, actions=(*last.actions, *chunk.actions)), chunk)  # fmt: skip
        else:
            out.append(chunk)
    return sorted(out, key=lambda c: (c.ts, c.dur))


def joined(a: Chunk, b: Chunk) -> Chunk:
    """Two pieces of one entry, what an annotation holds counted once."""
    inside = a.source == ANNOTATION and b.launch <= a.until
    start, end = min(a.ts, b.ts), max(a.ts + a.dur, b.ts + b.dur)
    return replace(a, ts=start, dur=end - start, compute=a.compute + (0 if inside else b.compute),
                   after=(*a.after, *b.after), until=max(a.until, b.until) if not inside else a.until,
                   repeats=())  # fmt: skip


def backward_split(line: Line, chunks: Sequence[Sequence[Chunk]], messages: Sequence[Sequence[Message]]) -> bool:
    """Whether backwards without annotations outnumber the forwards because some pass no gradients on: those of weights.

    Nothing may speak for a cut: as many forwards on every rank, and every message with both of its ends. What follows
    the gradients of a micro-batch without a message between is one chunk, so parts can be fewer than their actions.
    messages: of the same step.
    """
    forwards = {sum(c.kinds == "F" for c in row) for row in chunks}
    rest = [[c for c in row if c.kinds != "F"] for row in chunks]
    if len(forwards) > 1 or any(c.kinds != "B" or c.source == ANNOTATION for row in rest for c in row):
        return False
    sent = Counter((r, m.peer) for r, row in zip(line.ranks, messages, strict=True) for m in row if m.send)
    got = Counter((m.peer, r) for r, row in zip(line.ranks, messages, strict=True) for m in row if not m.send)
    if sent != got:
        return False
    more = [(len(row) - min(forwards), sum(not c.after for c in row)) for row in rest]
    return any(n > 0 for n, _ in more) and all(n <= silent for n, silent in more)


def _whole(line: Line, position: int, part: RankPipeline, chunks: Sequence[Chunk]) -> list[Chunk]:
    """Annotated chunks, and of the others those that pass something on, with what one was cut into joined again.

    A forward begins with activations from the stage before, unless it is the first, and sends its own on, unless it
    is the last; work that does neither belongs to no micro-batch. Backwards go the other way. A message that goes the
    wrong way cuts nothing: it came, or was posted, while the work went on.
    """
    before = line.ranks[position - 1] if position else None
    after = line.ranks[position + 1] if position + 1 < len(line.ranks) else None
    peer = [m.peer for m in part.messages]
    came = sorted(
        m.ts + (m.dur or 0) - NEAR
        for m in part.messages
        if not m.send and m.ts is not None and before is not None and m.peer in (before, None)
        and chunks and m.step == chunks[0].step
    )  # fmt: skip

    def got(c: Chunk) -> bool:
        source = before if c.kinds == "F" else after
        return source is not None and any(peer[i] in (source, None) for i in c.before)

    def sent(c: Chunk) -> bool:
        target = after if c.kinds == "F" else before
        return target is not None and any(peer[i] in (target, None) for i in c.after)

    def passes(c: Chunk) -> bool:
        return c.source == ANNOTATION or c.kinds != "F" or got(c) or sent(c)

    out: list[Chunk] = []
    forwards = 0
    for chunk in chunks:
        last = out[-1] if out and ANNOTATION not in (out[-1].source, chunk.source) else None
        if last is not None and last.kinds == chunk.kinds and not sent(last) and not got(chunk):
            out[-1] = replace(last, dur=chunk.ts + chunk.dur - last.ts, compute=last.compute + chunk.compute,
                              after=(*last.after, *chunk.after), repeats=())  # fmt: skip
        elif passes(chunk) or bisect_right(came, chunk.ts) > forwards:  # received long before, perhaps
            out.append(chunk)
            forwards += chunk.kinds == "F"
    return out

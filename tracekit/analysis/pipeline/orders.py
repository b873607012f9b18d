"""The order of work of each rank of one pipeline in one step, as it was recorded."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.analysis.pipeline.lines import Line
    from tracekit.analysis.pipeline.parts import Chunk, Message, RankPipeline

ANNOTATION = "annotation"
NOISE = 0.05
"""Work without an annotation below this share of the median forward is no forward: detaching, casting, counting."""


def ordered(line: Line, parts: Mapping[int, RankPipeline], step: int, *, joined: bool = True) -> list[list[Chunk]]:
    """Chunks of each rank of the line in its order; joined: those that one piece of work was cut into are one."""
    out = []
    for position, rank in enumerate(line.ranks):
        part = parts[rank]
        chunks = [c for c in part.chunks if c.step == step]
        out.append(_cleaned(line, position, part, chunks, joined=joined))
    return out


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


def _cleaned(line: Line, position: int, part: RankPipeline, chunks: Sequence[Chunk], *, joined: bool) -> list[Chunk]:
    """Annotated chunks, and of the others those that pass something on, with what one was cut into joined again.

    A forward begins with activations from the stage before, unless it is the first, and sends its own on, unless it
    is the last; work that does neither belongs to no micro-batch. Backwards go the other way. A message that goes the
    wrong way cuts nothing: it came, or was posted, while the work went on.
    """
    before = line.ranks[position - 1] if position else None
    after = line.ranks[position + 1] if position + 1 < len(line.ranks) else None
    peer = [m.peer for m in part.messages]

    def passes(c: Chunk) -> bool:
        return c.source == ANNOTATION or c.kinds != "F" or got(c) or sent(c)

    def got(c: Chunk) -> bool:
        source = before if c.kinds == "F" else after
        return source is not None and any(peer[i] in (source, None) for i in c.before)

    def sent(c: Chunk) -> bool:
        target = after if c.kinds == "F" else before
        return target is not None and any(peer[i] in (target, None) for i in c.after)

    kept = [c for c in chunks if passes(c)]
    forward = [c.compute for c in kept if c.kinds == "F"]
    least = NOISE * statistics.median(forward) if forward else 0
    out: list[Chunk] = []
    for chunk in kept:
        if chunk.source != ANNOTATION and chunk.kinds == "F" and chunk.compute < least:
            continue
        last = out[-1] if out and ANNOTATION not in (out[-1].source, chunk.source) else None
        if joined and last is not None and last.kinds == chunk.kinds and not sent(last) and not got(chunk):
            out[-1] = replace(last, dur=chunk.ts + chunk.dur - last.ts, compute=last.compute + chunk.compute,
                              after=chunk.after)  # fmt: skip
        else:
            out.append(chunk)
    return out

"""What lies on an edge of the graph: pieces of one kind of time each, that add up to the time between its nodes."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.critical.depend import TOGETHER_NS
from tracekit.analysis.critical.parts import Part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.analysis.critical.parts import Flags, Ints

KINDS = ("compute", "comm", "unsplit", "copy", "launch", "host", "sync", "wait")
COMPUTE, COMM, UNSPLIT, COPY, LAUNCH, HOST, SYNC, WAIT = range(len(KINDS))
_ROUNDING = 1_000
"""A thousandth of an edge may be lost between two clocks that run at different speeds."""


class Piece(IntEnum):
    """Pieces of an edge in order of time: what nothing explains, the host, the launch, work at its end."""

    WAIT = 0
    HOST = 1
    SYNC = 2
    LAUNCH = 3
    RUN = 4
    COMM = 5


_KIND = np.array([WAIT, HOST, SYNC, LAUNCH, COMPUTE, COMM], np.int64)


class Pieces(Struct):
    """Pieces of n edges in order; each int64 (pieces), times ns.

    edge: position of its edge; piece: `Piece`; kind: position in KINDS; start, end; gap, copy: ns of a run between its
    kernels; longest: ns of a run before it was cut off; working: it holds activities.
    """

    edge: NDArray[np.intp]
    piece: NDArray[np.intp]
    kind: Ints
    start: Ints
    end: Ints
    gap: Ints
    copy: Ints
    longest: Ints
    working: Flags


def pieces_of(parts: Ints, until: Ints, length: Ints, start: Ints, on_host: Flags) -> Pieces:
    """Cut edges into pieces, and off at `start`.

    parts: (n, PARTS) ns; until: (n) when each ends; length, start: (n) ns; on_host: (n) whether it is of a recording
    without a device.
    """
    parts, unexplained = _fitted(parts, length)
    short = (parts[:, Part.LAUNCH] <= TOGETHER_NS) & (parts[:, Part.COMPUTE] != 0)
    parts[short, Part.GAP] += parts[short, Part.LAUNCH]
    parts[short, Part.LAUNCH] = 0
    gap, copy = parts[:, Part.GAP], parts[:, Part.COPY]
    run = parts[:, Part.COMPUTE] + copy + gap
    ns = np.stack(
        [unexplained, parts[:, Part.HOST], parts[:, Part.SYNC], parts[:, Part.LAUNCH], run, parts[:, Part.COMM]], axis=1
    )
    end = until[:, None] - (np.cumsum(ns[:, ::-1], axis=1)[:, ::-1] - ns)
    there = ns != 0
    before = np.logical_or.accumulate((there & (end <= start[:, None]))[:, ::-1], axis=1)[:, ::-1]
    edge, piece = np.nonzero(there & ~before)
    idle = run == gap
    of_run = np.where(idle, np.where(on_host, HOST, LAUNCH), np.where(parts[:, Part.COMPUTE] != 0, COMPUTE, COPY))
    runs = piece == Piece.RUN
    kind = np.where(runs, of_run[edge], _KIND[piece])
    working = (runs & ~idle[edge]) | (piece == Piece.COMM)
    ends = end[edge, piece]
    out = Pieces(
        edge, piece, kind, ends - ns[edge, piece], ends, np.where(runs & working, gap[edge], 0),
        np.where(runs & (kind == COMPUTE), copy[edge], 0), np.where(runs, run[edge], 0), working,
    )  # fmt: skip
    _clip(out, start[edge])
    return out


def _fitted(parts: Ints, length: Ints) -> tuple[Ints, Ints]:
    """Parts of edges and what nothing explains, adding up to the time between their nodes.

    Clocks that run at different speeds, or that are wrong by their error, leave a little too much or too little.
    """
    parts = parts.copy()
    left = length - parts.sum(axis=1)
    near = np.flatnonzero((left > 0) & (left <= length // _ROUNDING) & parts.any(axis=1))
    parts[near, parts[near].argmax(axis=1)] += left[near]
    left[near] = 0
    over = np.flatnonzero(left < 0)  # cut off the first parts
    most = np.maximum(parts[over], 0)
    earlier = np.cumsum(most, axis=1) - most
    parts[over] -= np.clip(-left[over, None] - earlier, 0, most)
    return parts, np.maximum(left, 0)


def _clip(p: Pieces, start: Ints) -> None:
    """Cut the beginning off; gaps and copies lose in proportion."""
    for i in np.flatnonzero(p.start < start).tolist():
        end, begin = int(p.end[i]), int(start[i])
        whole, left = end - int(p.start[i]), end - begin
        p.gap[i], p.copy[i], p.start[i] = int(p.gap[i]) * left // whole, int(p.copy[i]) * left // whole, begin

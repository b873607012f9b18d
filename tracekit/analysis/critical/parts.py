"""What a worker keeps of one rank for the critical path: few nodes, and edges that say what lies between them."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


class Part(IntEnum):
    """Kinds of time along an edge, in the order in which they follow one another."""

    HOST = 0
    SYNC = 1
    LAUNCH = 2
    GAP = 3
    COPY = 4
    COMPUTE = 5
    COMM = 6


PARTS = len(Part)


class NodeKind(IntEnum):
    """What happens at the time of a node."""

    RUN = 0  # a run of activities of one stream is over
    ARRIVAL = 1  # a communication call starts
    DONE = 2  # a communication call is over
    HOST = 3  # the host returns from waiting for the device
    EDGE = 4  # the first activity of a step starts: the end of the step before
    END = 5  # all work of the recording is over


class RankGraph(Struct):
    """The graph of one recording; times int64 ns from the recording's origin. n nodes, m edges, in order of time.

    time (n); kind (n) `NodeKind`; step (n): position of the step (in `steps`) in which the node lies, -1 = before all;
    item_name, lane, thread (n): int32 into `names`, `lanes`, `threads` (-1 = none); call (n): position of the call
    (-1 = none); count (n): activities of a run; issued (n): calls made before a run was issued (-1 = unknown).
    src, dst (m): nodes; parts (m, PARTS): ns of each `Part`, adding up to the edge's weight; int32 where they fit. An
    edge from -1 starts at the beginning of the recording, `begin`.
    steps: (step number, start, end, complete); lanes: (device, stream).
    owner: position of the call whose node stands for a call (itself, the owner of its kernel, or -1).
    label: of each call, into labels: (strategy, operation).
    on_host: the trace has no device; gaps between operators are then the host's time.
    """

    begin: int
    time: Ints
    kind: NDArray[np.int8]
    step: NDArray[np.int32]
    name: NDArray[np.int32]
    lane: NDArray[np.int32]
    thread: NDArray[np.int32]
    call: NDArray[np.int32]
    count: NDArray[np.int32]
    issued: NDArray[np.int32]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    parts: NDArray[np.signedinteger[Any]]
    steps: list[tuple[int, int, int, bool]]
    names: list[str]
    lanes: list[tuple[int, int]]
    threads: list[str]
    owner: NDArray[np.int32]
    label: Ints
    labels: list[tuple[str, str]]
    on_host: bool


def position_of_max(value: Ints, first: NDArray[np.intp]) -> NDArray[np.intp]:
    """Position of the (first) largest value of each run of items."""
    if not len(first):
        return first
    best = np.maximum.reduceat(value, first)
    size = np.diff(np.append(first, len(value)))
    hits: Flags = value == np.repeat(best, size)
    at = np.flatnonzero(hits)
    run = np.repeat(np.arange(len(first)), size)[at]
    out = np.zeros(len(first), np.intp)
    out[run[::-1]] = at[::-1]
    return out


def stable_order(key: NDArray[np.signedinteger[Any]]) -> NDArray[np.intp]:
    """`np.argsort(key, kind="stable")`, by a plain sort of keys and positions in one number where these fit."""
    bits = len(key).bit_length()
    if not len(key) or max(-int(key.min()), int(key.max())).bit_length() + bits > 62 or (key[1:] >= key[:-1]).all():
        return np.argsort(key, kind="stable")
    packed = key.astype(np.int64)
    packed <<= bits
    packed |= np.arange(len(key))
    packed.sort()
    packed &= (1 << bits) - 1
    return packed

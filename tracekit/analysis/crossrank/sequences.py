"""The calls of a stream as sequences to align: signatures, steps, and which laws of causality bind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.crossrank.align import END_SKEW_NS, Sequence
from tracekit.analysis.crossrank.streams import EXPERT
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Parts

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.streams import Stream

    Signature = tuple[str | None, str | None, int | None]

SYNCHRONISING = frozenset({"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier"})
"""Operations in which no rank can be done before every rank has begun (all-to-all: with all peers)."""
LOOSE = EXPERT
"""Expert traffic: its kernels wait for all peers too, but may be split into an issuing and a waiting part."""
LOOSE_NS = 1_000_000
"""By how much a loose operation is let break causality."""
_SIZE = {
    "all_reduce": "in_nelems", "reduce_scatter": "in_nelems", "all_gather": "out_nelems", "send": "in_nelems",
    "recv": "out_nelems",
}  # fmt: skip
"""The size that all ranks of a call share."""


class Signatures:
    """(operation, element type, shared size) of every call of a stream; a part that one recording lacks is left out."""

    def __init__(self, parts: Parts[RankCalls], stream: Stream) -> None:
        self._of: dict[int, dict[int, Signature]] = {}
        for p, rows in stream.rows.items():
            ops, types = parts[p].texts("op"), parts[p].texts("dtype")
            number = parts[p].number
            self._of[p] = {}
            for row in rows:
                op = ops[row]
                size = _size(op, number, row)
                self._of[p][row] = ("p2p" if stream.kind == "p2p" else op, types[row], size)
        self._lacks_type, self._lacks_size = self._lacking(1), self._lacking(2)
        self._codes: dict[tuple[object, ...], int] = {}
        self._scopes = {p: parts[p].texts("scope") for p in stream.rows}

    def _lacking(self, position: int) -> set[str | None]:
        """Operations for which some call has no such part."""
        return {s[0] for rows in self._of.values() for s in rows.values() if s[position] is None}

    def of(self, part: int, row: int) -> Signature:
        """Signature of one call."""
        op, dtype, size = self._of[part][row]
        return (op, None if op in self._lacks_type else dtype, None if op in self._lacks_size else size)

    def code(self, part: int, row: int, scopes: bool) -> int:
        """One number for each distinct signature of the stream, with the call's nearest scope or without."""
        word = (*self.of(part, row), self._scopes[part][row] if scopes else None)
        return self._codes.setdefault(word, len(self._codes))

    def agree(self, rows: Iterable[tuple[int, int]]) -> bool:
        """True when the calls (part, row) do not contradict each other."""
        return len({self.of(p, r) for p, r in rows}) <= 1


def _size(op: str | None, number: dict[str, NDArray[np.int64]], row: int) -> int | None:
    column = _SIZE.get(op or "")
    if column is None:
        return None
    value = int(number[column][row])
    if value == NO_TIME and op in ("send", "recv"):
        value = int(number["out_nelems" if op == "send" else "in_nelems"][row])
    return None if value == NO_TIME else value


def sequence(
    parts: Parts[RankCalls],
    stream: Stream,
    part: int,
    rows: list[int],
    signatures: Signatures,
    clock: Clock | None = None,
    *,
    scopes: bool = False,
) -> Sequence:
    """The calls `rows` of one recording, in call order. Steps count only where markers tell them.

    scopes: tell calls apart by their nearest scope, too. clock: puts the times on the common clock, as far as it is
    known by now.
    """
    one = parts[part]
    at = np.array(rows, np.int64)
    code = np.array([signatures.code(part, r, scopes) for r in rows], np.int64)
    ops = one.texts("op")
    kind = [ops[r] for r in rows]
    step = one.number["step"][at]
    step = np.where((step == NO_TIME) | (not one.markers), -1, step)
    binds = np.array([k in SYNCHRONISING or k in LOOSE or k == "recv" for k in kind], np.bool_)
    if stream.kind != "p2p":
        binds &= ~_partial(one, at)
    start, end, window = one.begin[at], one.end[at], np.array(one.window, np.int64)
    error = None
    if clock is not None and clock.aligned:
        start, end, window, error = clock.place(start), clock.place(end), clock.place(window), clock.error_ns or 0
    stop, end = end, np.where(binds, end, NO_TIME)
    slack = np.array([LOOSE_NS if k in LOOSE else END_SKEW_NS for k in kind], np.int64)
    mutual = binds & np.array([k not in ("send", "recv") for k in kind], np.bool_)
    low, high = window.tolist()
    return Sequence(code, step, start, end, mutual, slack, (low, high), one.host, one.comparable, stop, error)


def _partial(one: RankCalls, at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Calls that exchange nothing with some member: they do not wait for it."""
    peers, size = one.number["peers"][at], one.number["group_size"][at]
    return np.asarray((peers != NO_TIME) & (size != NO_TIME) & (peers < size - 1))

"""The calls of a stream as sequences to align: signatures, steps, and which laws of causality bind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.crossrank.align import END_SKEW_NS, Sequence
from tracekit.analysis.crossrank.columns import distinct, shared
from tracekit.analysis.crossrank.streams import EXPERT
from tracekit.analysis.distinct import distinct_rows
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Parts

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.streams import Stream

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
    """(operation, element type, shared size) of every call of a stream in one number.

    A part that one recording lacks is left out.

    of: part → number of each call of the stream, in its order; kind: part → code of its operation in `names`.
    """

    def __init__(self, parts: Parts[RankCalls], stream: Stream) -> None:
        self._parts, self._stream = parts, stream
        there = [parts[p] for p in stream.rows]
        rows = list(stream.rows.values())
        lengths = np.cumsum([len(r) for r in rows])[:-1]
        kinds, self.names = shared(there, "op")
        kind = np.concatenate([k[r] for k, r in zip(kinds, rows, strict=True)])
        types, words = shared(there, "dtype")
        dtype = np.concatenate([t[r] for t, r in zip(types, rows, strict=True)])
        size = np.concatenate([_sizes(k, self.names, p, r) for k, p, r in zip(kinds, there, rows, strict=True)])
        op = np.zeros_like(kind) if stream.kind == "p2p" else kind
        dtype[_lacking(op, dtype == len(words) - 1)] = len(words) - 1
        size[_lacking(op, size == NO_TIME)] = NO_TIME
        self._code = _numbered(_numbered(op, dtype), size)
        self._lengths = lengths
        self.kind = dict(zip(stream.rows, np.split(kind, lengths), strict=True))
        self.of = dict(zip(stream.rows, np.split(self._code, lengths), strict=True))

    def scoped(self) -> dict[int, NDArray[np.int64]]:
        """The same with the call's nearest scope."""
        scopes, _ = shared([self._parts[p] for p in self._stream.rows], "scope")
        scope = np.concatenate([s[r] for s, r in zip(scopes, self._stream.rows.values(), strict=True)])
        return dict(zip(self._stream.rows, np.split(_numbered(self._code, scope), self._lengths), strict=True))


def _numbered(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """One number for each distinct pair."""
    return a if len(b) and (b == b[0]).all() else distinct_rows([a, b])[1]


def _lacking(op: NDArray[np.int64], absent: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Calls of operations for which some call has no such part."""
    return np.isin(op, op[absent]) if absent.any() else absent


def _sizes(
    kind: NDArray[np.int64], names: list[str | None], part: RankCalls, at: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The size that all ranks of a call share, `NO_TIME` = none or not known."""
    number = part.number
    out = np.full(len(at), NO_TIME, np.int64)
    for code in distinct(kind[at]):
        op = names[code] or ""
        if (column := _SIZE.get(op)) is None:
            continue
        here = np.flatnonzero(kind[at] == code)
        value = number[column][at[here]]
        if op in ("send", "recv"):
            other = number["out_nelems" if op == "send" else "in_nelems"][at[here]]
            value = np.where(value == NO_TIME, other, value)
        out[here] = value
    return out


def sequence(
    parts: Parts[RankCalls],
    stream: Stream,
    part: int,
    signatures: Signatures,
    code: NDArray[np.int64],
    clock: Clock | None = None,
) -> Sequence:
    """The calls of one recording in a stream, in call order. Steps count only where markers tell them.

    code: of each call. clock: puts the times on the common clock, as far as it is known by now.
    """
    one, at = parts[part], stream.rows[part]
    kind = signatures.kind[part]
    step = one.number["step"][at]
    step = np.where((step == NO_TIME) | (not one.markers), -1, step)
    loose = _among(kind, signatures.names, LOOSE)
    message = _among(kind, signatures.names, ("send", "recv"))
    binds = _among(kind, signatures.names, (*SYNCHRONISING, *LOOSE, "recv"))
    if stream.kind != "p2p":
        binds &= ~_partial(one, at)
    start, end, window = one.begin[at], one.end[at], np.array(one.window, np.int64)
    error = None
    if clock is not None and clock.aligned:
        start, end, window, error = clock.place(start), clock.place(end), clock.place(window), clock.error_ns or 0
    stop, end = end, np.where(binds, end, NO_TIME)
    slack = np.where(loose, LOOSE_NS, END_SKEW_NS)
    low, high = window.tolist()
    return Sequence(
        code, step, start, end, binds & ~message, slack, (low, high), one.host, one.comparable, stop, error
    )  # fmt: skip


def _among(kind: NDArray[np.int64], names: list[str | None], wanted: Iterable[str]) -> NDArray[np.bool_]:
    chosen = set(wanted)
    return np.array([name in chosen for name in names], np.bool_)[kind]


def _partial(one: RankCalls, at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Calls that exchange nothing with some member: they do not wait for it."""
    peers, size = one.number["peers"][at], one.number["group_size"][at]
    return np.asarray((peers != NO_TIME) & (size != NO_TIME) & (peers < size - 1))

"""The calls of a stream as sequences to align: signatures, steps, and which laws of causality bind them."""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.crossrank.align import END_SKEW_NS, Sequence
from tracekit.analysis.crossrank.columns import shared
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
_SIZED_BY_INPUT, _SIZED_BY_OUTPUT = ("all_reduce", "reduce_scatter", "send"), ("all_gather", "recv")
"""Operations by the size that all ranks of a call share."""


class Contents:
    """What the calls of all parts are, in numbers. op, dtype: code of each in a list that all parts share; size: number
    of each that all ranks of a call share (0 = none or not known).
    """

    def __init__(self, parts: Parts[RankCalls]) -> None:
        self._parts = parts
        self.op, self.names = shared(parts, "op")
        self.dtype, self.types = shared(parts, "dtype")
        sizes = [_sizes(op, self.names, part) for op, part in zip(self.op, parts, strict=True)]
        values, which = distinct_rows([np.concatenate([np.array([NO_TIME]), *sizes])])
        self.size = _cut(which[1:], [len(part) for part in parts])
        self.sizes = len(values)

    @cached_property
    def scope(self) -> list[NDArray[np.int64]]:
        """Code of the nearest scope of each call."""
        return shared(self._parts, "scope")[0]


class Signatures:
    """(operation, element type, shared size) of every call of a stream in one number.

    A part that one recording lacks is left out.

    of: part → number of each call of the stream, in its order; kind: part → code of its operation in `names`.
    """

    def __init__(self, contents: Contents, stream: Stream) -> None:
        self._contents, self._rows = contents, stream.rows
        self.names = contents.names
        kind, dtype, size = map(self._joined, (contents.op, contents.dtype, contents.size))
        op = np.zeros_like(kind) if stream.kind == "p2p" else kind
        untyped = len(contents.types) - 1
        dtype[_lacking(op, dtype == untyped)] = untyped
        size[_lacking(op, size == 0)] = 0
        self._code = (op * len(contents.types) + dtype) * contents.sizes + size
        self.kind, self.of = self._split(kind), self._split(self._code)

    def _joined(self, column: Parts[NDArray[np.int64]]) -> NDArray[np.int64]:
        """A column of all calls of the stream. column: of each part."""
        return np.concatenate([column[p][rows] for p, rows in self._rows.items()])

    def _split(self, column: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
        return dict(zip(self._rows, _cut(column, [len(rows) for rows in self._rows.values()]), strict=True))

    def scoped(self) -> dict[int, NDArray[np.int64]]:
        """The same with the call's nearest scope."""
        return self._split(distinct_rows([self._code, self._joined(self._contents.scope)])[1])


def _cut(column: NDArray[np.int64], lengths: Iterable[int]) -> list[NDArray[np.int64]]:
    """Pieces of these lengths, one after the other."""
    ends = [*accumulate(lengths, initial=0)]
    return [column[a:b] for a, b in pairwise(ends)]


def _lacking(op: NDArray[np.int64], absent: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Calls of operations for which some call has no such part."""
    return np.isin(op, op[absent]) if absent.any() else absent


def _sizes(op: NDArray[np.int64], names: list[str | None], part: RankCalls) -> NDArray[np.int64]:
    """The size that all ranks of a call share, `NO_TIME` = none or not known."""
    into, out_of = part.number["in_nelems"], part.number["out_nelems"]
    size = np.where(_among(op, names, _SIZED_BY_INPUT), into, NO_TIME)
    size = np.where(_among(op, names, _SIZED_BY_OUTPUT), out_of, size)
    message = _among(op, names, ("send", "recv")) & (size == NO_TIME)
    return np.where(message, np.maximum(into, out_of), size)  # the other one: this side's is missing


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

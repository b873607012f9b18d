"""The calls of one recording as far as theory needs them: classes of equal calls, their sizes, times and steps.

A size that the file does not give in bytes follows from its elements and the type in the name of NCCL's kernel (a
reduction's kernel is compiled for one type). Calls of one coalesced kernel are one transfer: the owner moves the sum.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.arrays import codes_of, mapped, numbers_of
from tracekit.analysis.distinct import distinct_rows
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.columns import CallColumns

Row = dict[str, Any]
_TEXTS = ("strategy", "purpose", "phase", "op", "group_id", "family", "kernel", "dtype", "variant")
_NUMBERS = (
    "id", "group_size", "src_rank", "dst_rank", "in_nelems", "out_nelems", "payload_bytes", "ts_ns", "dur_ns",
    "step", "coalesced_into",
)  # fmt: skip
_TYPE_IN_NAME = re.compile(r"nccl\w*?_(?:Sum|Prod|Max|Min|MinMax|Avg|PreMulSum|SumPostDiv)_(bf|f|i|u)(\d+)")
"""NCCL compiles a kernel for each type of a reduction (src/device/generate.py)."""
P2P = frozenset({"send", "recv"})


class Recording(Struct):
    """One analysed recording. `files`: from the worker; `added`: what other ranks tell of its calls, or why nothing.

    steps, exposure, breakdown: its rows of those tables; those of exposure are completed in place.
    """

    rank: int | None
    files: dict[str, str]
    added: CallColumns | str
    host: str | None = None
    device_name: str | None = None
    devices: int = 0
    steps: list[Row] = field(default_factory=list)
    exposure: list[Row] = field(default_factory=list)
    breakdown: list[Row] = field(default_factory=list)

    @property
    def counted_steps(self) -> frozenset[int]:
        """Steps that averages are taken over: complete ones, all where none is."""
        whole = frozenset(int(s["step"]) for s in self.steps if s["complete"])
        return whole or frozenset(int(s["step"]) for s in self.steps)


class Kind(NamedTuple):
    """What equal calls have in common. `payload`: bytes of the whole transfer; `size`: ranks of the group."""

    strategy: str
    purpose: str | None
    phase: str | None
    op: str
    group_id: str | None
    family: str | None
    dtype: str | None
    variant: str | None
    size: int | None
    peer: int | None
    payload: int | None


class Calls(Struct, dict=True):
    """Calls in call order. `kinds[which[i]]` of call i, -1 for a call inside another's kernel; `NO_TIME` = none.

    counted_kinds, counted: the same for counts and bytes, every call by itself with its own payload.
    """

    kinds: list[Kind]
    which: NDArray[np.int64]
    counted_kinds: list[Kind]
    counted: NDArray[np.int64]
    step: NDArray[np.int64]
    start: NDArray[np.int64]
    dur: NDArray[np.int64]
    transfer: NDArray[np.int64]
    wait: NDArray[np.int64]

    @cached_property
    def rows(self) -> list[NDArray[np.intp]]:
        """The calls of each of `kinds`."""
        return _rows_of(self.which, len(self.kinds))

    @cached_property
    def counted_rows(self) -> list[NDArray[np.intp]]:
        """The calls of each of `counted_kinds`."""
        return self.rows if self.counted is self.which else _rows_of(self.counted, len(self.counted_kinds))

    def __len__(self) -> int:
        return len(self.which)


def read_calls(one: Recording) -> Calls:
    """Read the recording's file of collectives (memory-mapped; only the columns needed are copied)."""
    table = mapped(one.files["collectives"])
    coded = {name: codes_of(table.column(name)) for name in _TEXTS}
    number = {name: numbers_of(table.column(name)) for name in _NUMBERS}
    text = {name: (found.astype(np.int64), words) for name, (found, words) in coded.items()}
    n = len(number["id"])
    own = _payload(number, text["kernel"])
    payload = _whole_payload(number, own, text["op"])
    peer = _peer(one.rank, number, text["op"])
    kinds, which = _kinds(text, number, peer, payload)
    counted_kinds, counted = (kinds, which) if payload is own else _kinds(text, number, peer, own)
    inside = number["coalesced_into"] != NO_TIME
    if inside.any():
        which = np.where(inside, -1, which)
    none = np.full(n, NO_TIME, np.int64)
    transfer, wait = (
        none if isinstance(one.added, str) else one.added.numbers[name] for name in ("transfer_ns", "wait_ns")
    )
    return Calls(
        kinds, which, counted_kinds, counted, number["step"], number["ts_ns"], number["dur_ns"], transfer, wait
    )


def _rows_of(which: NDArray[np.int64], kinds: int) -> list[NDArray[np.intp]]:
    """Calls of each kind."""
    order = np.argsort(which, kind="stable")
    cuts = np.searchsorted(which[order], np.arange(kinds + 1))
    return [order[a:b] for a, b in pairwise(cuts.tolist())]


Codes = tuple["NDArray[np.int64]", list[str]]


def _payload(number: dict[str, NDArray[np.int64]], kernel: Codes) -> NDArray[np.int64]:
    """Bytes as recorded, else elements × the size of the type in the kernel's name."""
    recorded = number["payload_bytes"]
    codes, words = kernel
    size = np.array([element_bytes(w) or 0 for w in words] + [0], np.int64)[codes] if len(codes) else codes
    elements = np.maximum(number["in_nelems"], number["out_nelems"])
    known = (recorded == NO_TIME) & (elements >= 0) & (size > 0)
    return np.where(known, elements * size, recorded)


def element_bytes(kernel: str) -> int | None:
    """Bytes of an element of a reduction, from the name of NCCL's kernel; None where the name does not tell."""
    found = _TYPE_IN_NAME.search(kernel)
    return int(found[2]) // 8 if found else None


def _whole_payload(number: dict[str, NDArray[np.int64]], payload: NDArray[np.int64], op: Codes) -> NDArray[np.int64]:
    """Owners of coalesced kernels move what all their calls move; sends and receives run at once, the larger counts."""
    owner = number["coalesced_into"]
    inside = np.flatnonzero(owner != NO_TIME)
    if not len(inside):
        return payload
    owners = np.flatnonzero(np.bincount(owner[inside], minlength=len(owner)))
    rows, of = np.append(owners, inside), np.append(owners, owner[inside])
    values, which = distinct_rows([of, op[0][rows]])  # an operation of a kernel each
    sums = np.zeros(len(values), np.int64)
    np.add.at(sums, which, payload[rows])
    first = np.searchsorted(values[:, 0], owners)
    messages = np.array([*(word in P2P for word in op[1]), False], np.bool_)[values[:, 1]]
    several = np.diff(np.append(first, len(values))) > 1
    out = payload.copy()
    out[owners] = np.maximum.reduceat(sums, first)
    out[owners[several & ~np.logical_and.reduceat(messages, first)]] = NO_TIME
    out[of[payload[rows] == NO_TIME]] = NO_TIME
    return out


def _peer(rank: int | None, number: dict[str, NDArray[np.int64]], op: Codes) -> NDArray[np.int64]:
    """Other end of each message; none of a coalesced kernel whose messages go to several ranks."""
    p2p = np.array([*(word in P2P for word in op[1]), False], np.bool_)[op[0]]
    source, target = number["src_rank"], number["dst_rank"]
    mine = -1 if rank is None else rank
    other = np.where(source == mine, target, np.where(source != NO_TIME, source, target))
    out = np.where(p2p, other, NO_TIME)
    owner = number["coalesced_into"]
    inside = np.flatnonzero(owner != NO_TIME)
    out[owner[inside][out[inside] != out[owner[inside]]]] = NO_TIME
    return out


def _kinds(
    text: dict[str, Codes], number: dict[str, NDArray[np.int64]], peer: NDArray[np.int64], payload: NDArray[np.int64]
) -> tuple[list[Kind], NDArray[np.int64]]:
    """Distinct kinds of call, and the kind of each call."""
    names = ("strategy", "purpose", "phase", "op", "group_id", "family", "dtype", "variant")
    values, which = distinct_rows([*(text[name][0] for name in names), number["group_size"], peer, payload])
    kinds = []
    for row in values.tolist():
        words = [text[name][1][code] if code >= 0 else None for name, code in zip(names, row, strict=False)]
        rest = [None if v == NO_TIME else v for v in row[len(names) :]]
        kinds.append(Kind._make([*words, *rest]))
    return kinds, which

"""The calls that are kept of an NCCL log → columns of a witness: what many calls share is worked out once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tracekit.model import CallColumns
from tracekit.parsers.nccl_common import elements
from tracekit.parsers.nccl_log_tuning import choice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tracekit.parsers.nccl_common import DataType
    from tracekit.parsers.nccl_log_comms import Comm
    from tracekit.parsers.nccl_log_tuning import Choice

BUFFERS = re.compile(rb"sendbuff (\S+) recvbuff (\S+)(?: acc (\S+))?$")


class Shape(Struct):
    """What is equal in many lines: everything but opCount, count, buffers and time."""

    comm: Comm
    op: str
    dtype: DataType | None
    spelled: str
    fields: dict[str, Any]
    peer: int | None
    root: int | None
    thread: int
    thread_text: str
    tells: bool


def pointers(text: bytes) -> dict[str, Any]:
    """Addresses that a call names."""
    found = BUFFERS.match(text)
    if found is None:
        return {}
    names = ("sendbuff", "recvbuff", "acc")
    return {k: v.decode("utf-8", "replace") for k, v in zip(names, found.groups(), strict=True) if v is not None}


class Extras:
    """What a call says beyond the fields that all formats have; equal ones are one object."""

    def __init__(self, shapes: Sequence[Shape], buffers: Sequence[dict[str, str]], stamps: Sequence[str]) -> None:
        self._shapes, self._buffers, self._stamps = shapes, buffers, stamps
        self._known: dict[tuple[int, int, int, Choice | None], dict[str, Any]] = {}

    def of(self, keys: list[tuple[int, int, int, Choice | None]]) -> list[dict[str, Any]]:
        """keys: numbers of the shape, the buffers and the time (-1: none), and the choice of each call."""
        known = self._known
        for key in dict.fromkeys(keys):
            if key not in known:
                shape, where, stamp, told = key
                known[key] = self._shapes[shape].fields | (self._buffers[where] if where >= 0 else {}) | choice(told)
                if stamp >= 0:
                    known[key]["local_time"] = self._stamps[stamp]
        return [known[key] for key in keys]


def calls_of(
    known: Sequence[Shape],
    extras: Extras,
    tuned: Mapping[int, Choice],
    record: NDArray[Any],
    columns: Sequence[NDArray[Any]],
) -> CallColumns:
    """Calls of one process. record: number of each in the file; columns: as the ring has them."""
    shape, count, op_count, where, stamp = (c.tolist() for c in columns)
    records = record.tolist()
    pairs = list(zip(shape, count, strict=True))
    size = {(s, n): elements(known[s].op, n, known[s].comm.nranks) for s, n in dict.fromkeys(pairs)}
    sizes = [size[p] for p in pairs]
    shapes = [known[s] for s in shape]
    p2p = [s.peer is not None for s in shapes]
    told = [tuned.get(r) for r in records] if tuned else [None] * len(records)
    out = {
        "op_raw": [s.op for s in shapes],
        "group": [s.comm.key for s in shapes],
        "seq": [None if p else n for p, n in zip(p2p, op_count, strict=True)],
        "p2p_seq": [n if p else None for p, n in zip(p2p, op_count, strict=True)],
        "op_id": op_count,
        "record": records,
        "is_p2p": p2p,
        "in_nelems": [given for given, _ in sizes],
        "out_nelems": [taken for _, taken in sizes],
        "dtype": [s.spelled for s in shapes],
        "peer": [s.peer for s in shapes],
        "root": [s.root for s in shapes],
        "thread": [s.thread_text for s in shapes],
        "extra": extras.of(list(zip(shape, where, stamp, told, strict=True))),
    }
    return CallColumns(len(records), out)

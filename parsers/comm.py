"""Arguments of one communication record, normalised over all eras."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Sequence
from operator import attrgetter, eq
from typing import TYPE_CHECKING, Any, overload

import msgspec
import numpy as np
from msgspec import Struct

from tracekit.model import CommArgs, CommRecords
from tracekit.parsers.convert import as_int
from tracekit.parsers.decode import Args

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMM_NAME = re.compile(r"record_param_comms|(?:_?c10d(?:_functional\w*)?|gloo|symm_mem)(?:::|:)")
"""Names of host rows whose arguments are kept."""
_U64 = 1 << 64


_MAX_KNOWN = 1 << 15


def _text(value: Any) -> str | None:
    """Interned: a job has few groups and types, and tens of thousands of records that name them."""
    return None if value is None else sys.intern(str(value))


def _int(value: Any) -> int | None:
    return value if type(value) is int else as_int(value)


_REPEATED = (
    "collective", "in_nelems", "in_size", "out_nelems", "out_size", "dtype", "group_size", "pg_name", "pg_id",
    "pg_desc", "ranks_text", "rank_start", "rank_stride", "rank", "src_rank", "dst_rank", "in_splits", "out_splits",
)  # fmt: skip
"""Fields of `Args` that repeat from record to record: all but sequence number, Comms Id and the lists."""
_repeated = attrgetter(*_REPEATED)
_identifying = attrgetter("collective", "pg_name", "pg_id", "group_size")
_NO_LIST = Args().dims


class CommReader:
    """Arguments of records → `CommArgs`. What repeats is normalised once; lists are shared between records."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._lists: dict[bytes, list[Any] | None] = {}

    def read(self, a: Args) -> CommArgs:
        """Normalise: "msg size" of torch 2.2 is "msg nelems", "Process Group ID" of 2.3 is the name."""
        lists = (
            self._list(a.dims if a.dims is not _NO_LIST else a.old_dims),
            self._list(a.types),
            self._list(a.concrete),
            None if a.stack is None else _text(a.stack) or None,
        )
        if _identifying(a) == (None, None, None, None):
            return CommArgs(dims=lists[0], types=lists[1], concrete=lists[2], stack=lists[3], rf_id=_rf_id(a))
        key = _repeated(a)
        try:
            known = self._known.get(key)
        except TypeError:  # a list where a scalar belongs
            known = _normal(key)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[key] = _normal(key)
        before, after = known
        comms_id = None if a.comms_id is None else _int(a.comms_id)
        values: tuple[Any, ...] = (
            *before, _int(a.seq), None if comms_id is None else comms_id % _U64, *after, *lists,
        )  # fmt: skip
        found = CommArgs(*values)
        found.rf_id = _rf_id(a)
        return found

    def _list(self, value: msgspec.Raw) -> list[Any] | None:
        if value is _NO_LIST:
            return None
        text = bytes(value)
        if text in self._lists:
            return self._lists[text]
        if len(self._lists) >= _MAX_KNOWN:
            self._lists.clear()
        try:
            decoded = msgspec.json.decode(text) if text else None
        except (ValueError, RecursionError):
            decoded = None
        found = self._lists[text] = decoded if isinstance(decoded, list) else None
        return found


_FIELDS = CommArgs.__struct_fields__
_SEQ = _FIELDS.index("seq")
_all = attrgetter(*_FIELDS)


class Repeated(Struct):
    """A record but for its sequence number and `Comms Id`: the fields before and after those, whether it takes any,
    whether it names its operation; number: its place among the known ones.
    """

    before: tuple[Any, ...]
    after: tuple[Any, ...]
    numbered: bool
    of: bool
    number: int


class Records(CommRecords):
    """Arguments of records, in order of their rows; those that repeat known ones are made when they are asked for.

    A job has tens of thousands of records, nearly all of a few hundred kinds: as objects they would take more memory
    than all columns of numbers together.
    """

    def __init__(self) -> None:
        self._reader = CommReader()
        self._made: list[CommArgs] = []
        self._known: list[Repeated] = []
        # Of each record: number of what it repeats, or ~ its place among the made ones; what it does not repeat.
        self._of, self._has = array("q"), array("b")
        self._seq, self._id = array("q"), array("Q")

    def __len__(self) -> int:
        return len(self._of)

    @overload
    def __getitem__(self, at: int) -> CommArgs: ...
    @overload
    def __getitem__(self, at: slice) -> list[CommArgs]: ...
    def __getitem__(self, at: int | slice) -> CommArgs | list[CommArgs]:
        """One record (an object of its own at each look), or several."""
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        of = self._of[at]
        if of < 0:
            return self._made[~of]
        known, has = self._known[of], self._has[at]
        numbers = (self._seq[at] if has & _HAS_SEQ else None, self._id[at] if has & _HAS_ID else None)
        values: tuple[Any, ...] = (*known.before, *numbers, *known.after)
        return CommArgs(*values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # it grows

    def add(self, args: Args) -> int:
        """Number of the new record."""
        return self.put(self._reader.read(args))

    def repeated(self, args: Args) -> Repeated:
        """What a record of these arguments, any sequence number and any id is."""
        args.seq = args.comms_id = 0
        read = self._reader.read(args)
        values = _all(read)
        out = Repeated(
            values[:_SEQ], values[_SEQ + 2 :], numbered=read.seq is not None, of=args.collective is not None,
            number=len(self._known),
        )  # fmt: skip
        self._known.append(out)
        return out

    def again(self, known: NDArray[np.int64], seq: NDArray[np.int64], comms_id: NDArray[np.int64]) -> NDArray[np.int32]:
        """Numbers of new records that repeat known ones (by their place); seq, comms_id (64 bits): `ABSENT` = none."""
        numbered = np.array([k.numbered for k in self._known], np.bool_)[known]
        has_seq, has_id = numbered & (seq != ABSENT), numbered & (comms_id != ABSENT)
        first = len(self._of)
        for column, values in (
            (self._of, known), (self._has, (has_seq * _HAS_SEQ | has_id * _HAS_ID).astype(np.int8)),
            (self._seq, np.where(has_seq, seq, 0)), (self._id, np.where(has_id, comms_id, 0)),
        ):  # fmt: skip
            column.frombytes(values.tobytes())
        return np.arange(first, len(self._of), dtype=np.int32)

    def kinds(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """As `CommRecords` says: number of the known record, and below -1 one for each that another format has read."""
        out = np.full(len(numbers), -1, np.int64)
        given = numbers >= 0
        of = self._column("_of")[numbers[given]]
        out[given] = np.where(of < 0, of - 1, of)
        return out

    def own(self, numbers: NDArray[np.int64]) -> tuple[list[int | None], list[int | None]]:
        """As `CommRecords` says."""
        has = np.where(numbers >= 0, self._column("_has")[numbers], 0) if len(self) else np.zeros(len(numbers), np.int8)
        found = []
        for name, flag in (("_seq", _HAS_SEQ), ("_id", _HAS_ID)):
            values = np.full(len(numbers), None, object)
            given = np.flatnonzero(has & flag)
            values[given] = self._column(name)[numbers[given]].tolist()
            found.append(values.tolist())
        for i in np.flatnonzero(self.kinds(numbers) < -1).tolist():
            args = self[int(numbers[i])]
            found[0][i], found[1][i] = args.seq, args.comms_id
        return found[0], found[1]

    def _column(self, name: str) -> NDArray[Any]:
        column: array[int] = getattr(self, name)
        return np.frombuffer(column, column.typecode) if column else np.empty(0, column.typecode)

    def put(self, args: CommArgs) -> int:
        """Number of a record that another format has read."""
        self._made.append(args)
        return self._append(-len(self._made), 0, 0, 0)

    def _append(self, of: int, has: int, seq: int, comms_id: int) -> int:
        self._of.append(of)
        self._has.append(has)
        self._seq.append(seq)
        self._id.append(comms_id)
        return len(self._of) - 1

    def picked(self, rows: NDArray[np.int32]) -> Records:
        """The records of some numbers, in that order."""
        out = Records()
        out._made, out._known = self._made, self._known
        for name in ("_of", "_has", "_seq", "_id"):
            if len(self):
                chosen = self._column(name)[rows]
                setattr(out, name, array(chosen.dtype.char, chosen.tobytes()))
        return out


_HAS_SEQ, _HAS_ID = 1, 2
ABSENT = int(np.iinfo(np.int64).min)
"""Of a sequence number or id in a column: the record has none."""


def _rf_id(a: Args) -> int | None:
    """The record's number; 0 is none."""
    return _int(a.rf_id) or None if a.rf_id else None


def _normal(key: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Fields of `CommArgs` before `seq` and after `comms_id`, in its order, up to `out_splits`."""
    a = dict(zip(_REPEATED, key, strict=True))
    before = (
        _text(a["collective"]),
        _int(a["in_nelems"] if a["in_nelems"] is not None else a["in_size"]),
        _int(a["out_nelems"] if a["out_nelems"] is not None else a["out_size"]),
        _text(a["dtype"]),
        _int(a["group_size"]),
        _text(a["pg_name"] if a["pg_name"] is not None else a["pg_id"]),
        _text(a["pg_desc"]),
        _text(a["ranks_text"]),
        *(_int(a[name]) for name in ("rank_start", "rank_stride", "rank", "src_rank", "dst_rank")),
    )
    after = (_text(a["in_splits"]), _text(a["out_splits"]))
    return before, after

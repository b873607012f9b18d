"""Arguments of one communication record, normalised over all eras."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import msgspec

from tracekit.model import CommArgs
from tracekit.parsers.convert import as_int
from tracekit.parsers.decode import Args

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


_FIELDS = [f.name for f in fields(CommArgs)]
_SEQ = _FIELDS.index("seq")
_all = attrgetter(*_FIELDS)


@dataclass(slots=True)
class Repeated:
    """A record but for its sequence number and `Comms Id`: the fields before and after those, whether it takes any, and
    whether it names its operation.
    """

    before: tuple[Any, ...]
    after: tuple[Any, ...]
    numbered: bool
    of: bool


class Records(list[CommArgs]):
    """Arguments of records, in order of their rows."""

    def __init__(self) -> None:
        super().__init__()
        self._reader = CommReader()

    def add(self, args: Args) -> int:
        """Number of the new record."""
        return self.put(self._reader.read(args))

    def repeated(self, args: Args) -> Repeated:
        """What a record of these arguments, any sequence number and any id is."""
        args.seq = args.comms_id = 0
        read = self._reader.read(args)
        values = _all(read)
        return Repeated(
            values[:_SEQ], values[_SEQ + 2 :], numbered=read.seq is not None, of=args.collective is not None
        )

    def again(self, known: Repeated, seq: int | None, comms_id: int | None) -> int:
        """Number of a new record that repeats a known one."""
        numbers = (seq, comms_id) if known.numbered else (None, None)
        values: tuple[Any, ...] = (*known.before, *numbers, *known.after)
        return self.put(CommArgs(*values))

    def put(self, args: CommArgs) -> int:
        """Number of a record that another format has read."""
        self.append(args)
        return len(self) - 1


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

"""Pickles of plain data only: containers, text, numbers. Nothing in the file is ever called or imported.

The opcodes are looked at before anything is built: an opcode that could name or call code is refused, as are sizes
beyond the file's own, memo numbers out of line and deep nesting. Only then does the standard unpickler read it, one
that finds no class at all.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import TYPE_CHECKING, Any, NoReturn

from tracekit.errors import BrokenInput, LimitExceeded

if TYPE_CHECKING:
    from pathlib import Path

MAX_DEPTH = 200
MAX_WAITING = 100_000
"""Objects on the unpickler's stack; writers empty it after 1,000 items."""
MAX_OPCODES = 50_000_000
_PLAIN = frozenset({
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT",
    "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT",
    "DICT", "SETITEM", "SETITEMS", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET",
})  # fmt: skip
_PLAINLY, _MARKS, _ENDS, _BUILDS, _WRAPS, _PUTS, _STAYS = range(7)
_STOP, _TEXT_PUT, _NOTHING = ord("."), ord("p"), -1
_LONGEST_NUMBER = 20
_WIDTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1, pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4, pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}  # fmt: skip
"""Bytes of the length before an argument of variable length."""


class _Closed(pickle.Unpickler):
    """The standard unpickler without any class or function to find."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"global {module_name}.{global_name}")


def load_plain(data: bytes, path: Path) -> Any:
    """The object in `data`. Raises BrokenInput for damage or code, LimitExceeded for size or nesting."""
    _check(data, path)
    try:
        return _Closed(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError) as e:
        raise BrokenInput(f"{path}: the pickle is damaged ({str(e)[:120]}); dump again") from e
    except (MemoryError, OverflowError, RecursionError) as e:
        raise LimitExceeded(f"{path}: the pickle asks for too much memory; it is no dump of a real job") from e


def _check(data: bytes, path: Path) -> None:
    """Walk over the opcodes: their kinds and sizes, their memo numbers, and how much waits on the unpickler's stack."""
    table, n = _TABLE, len(data)
    at = count = height = tuples = 0
    marks: list[int] = []
    code = 0
    while code != _STOP:
        code = data[at] if at < n else _NOTHING
        known = table.get(code)
        if known is None:
            raise _refused(code, at, path)
        size, delta, role = known
        end = at + 1 + size if size >= 0 else _end(data, at + 1, size)
        if end > n or end <= at:
            raise BrokenInput(f"{path}: the pickle is damaged: byte {at:,} asks for more than is left; dump again")
        count += 1
        if role == _MARKS:
            marks.append(height)
        elif role in (_ENDS, _BUILDS):
            if not marks:
                raise BrokenInput(f"{path}: byte {at:,}: an opcode without its mark; dump again")
            height = marks.pop() + (role == _BUILDS)
        else:
            height += delta
        if role == _WRAPS:
            tuples += 1
        elif role == _PUTS:
            _memo_in_line(data[at + 1 : end], code, count, at, path)
        elif role != _STAYS:
            tuples = 0
        if len(marks) > MAX_DEPTH or tuples > MAX_DEPTH or height > MAX_WAITING or count > MAX_OPCODES:
            raise LimitExceeded(f"{path}: byte {at:,}: nested deeper, or more opcodes, than in any real dump")
        at = end


def _end(data: bytes, at: int, kind: int) -> int:
    """Where an argument of variable length ends; 0 when it does not."""
    if kind == pickletools.UP_TO_NEWLINE:
        return data.find(b"\n", at) + 1
    width = _WIDTHS[kind]
    return at + width + int.from_bytes(data[at : at + width], "little")


def _memo_in_line(argument: bytes, code: int, count: int, at: int, path: Path) -> None:
    """The unpickler makes room for every number below this one."""
    text = code == _TEXT_PUT
    number = int(argument) if text and argument.strip().isdigit() else int.from_bytes(argument, "little")
    if number > count or (text and len(argument) > _LONGEST_NUMBER):
        raise BrokenInput(f"{path}: byte {at:,}: memo number {number:,} is out of line; dump again")


def _refused(code: int, at: int, path: Path) -> BrokenInput:
    if code == _NOTHING:
        return BrokenInput(f"{path}: the pickle ends early, at byte {at:,}; dump again")
    name = next((op.name for op in pickletools.opcodes if ord(op.code) == code), None)
    what = f"the pickle opcode {name}, which can name or run code" if name else f"no pickle opcode ({code:#x})"
    return BrokenInput(
        f"{path}: byte {at:,} holds {what}; a flight recorder dump holds plain data only, so this file is not opened"
    )


_ROLE = {
    "MARK": _MARKS, "POP_MARK": _ENDS, "APPENDS": _ENDS, "SETITEMS": _ENDS, "LIST": _BUILDS, "TUPLE": _BUILDS,
    "DICT": _BUILDS, "TUPLE1": _WRAPS, "PUT": _PUTS, "BINPUT": _PUTS, "LONG_BINPUT": _PUTS, "MEMOIZE": _STAYS,
}  # fmt: skip
_TABLE = {
    ord(op.code): (
        op.arg.n if op.arg is not None else 0, len(op.stack_after) - len(op.stack_before), _ROLE.get(op.name, _PLAINLY),
    )
    for op in pickletools.opcodes if op.name in _PLAIN
}  # fmt: skip
"""Opcode → (size of its argument, as pickletools tells it; what it adds to the stack; role)."""

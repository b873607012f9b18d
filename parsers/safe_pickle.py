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
_TO_MARK = frozenset({"POP_MARK", "LIST", "APPENDS", "TUPLE", "DICT", "SETITEMS"})
_MAKES = frozenset({"LIST", "TUPLE", "DICT"})
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})


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
    """Walk over the opcodes: their kinds, their memo numbers, and how much waits on the unpickler's stack."""
    count = height = tuples = 0
    marks: list[int] = []
    try:
        for op, arg, at in pickletools.genops(data):
            count += 1
            name = op.name
            if name not in _PLAIN:
                raise BrokenInput(
                    f"{path}: byte {at:,} holds the pickle opcode {name}, which can name or run code; a flight "
                    "recorder dump holds plain data only, so this file is not opened"
                )
            if name == "MARK":
                marks.append(height)
            elif name in _TO_MARK:
                if not marks:
                    raise BrokenInput(f"{path}: byte {at:,}: {name} without a mark; dump again")
                height = marks.pop() + (name in _MAKES)
            else:
                height += len(op.stack_after) - len(op.stack_before)
            tuples = tuples + 1 if name == "TUPLE1" else tuples if name in _PUTS else 0
            if name in _PUTS and isinstance(arg, int) and arg > count:
                raise BrokenInput(f"{path}: byte {at:,}: memo number {arg:,} is out of line; dump again")
            if len(marks) > MAX_DEPTH or tuples > MAX_DEPTH or height > MAX_WAITING:
                raise LimitExceeded(f"{path}: byte {at:,}: nested deeper than any real dump")
            if count > MAX_OPCODES:
                raise LimitExceeded(f"{path}: more than {MAX_OPCODES:,} pickle opcodes; no real dump has")
    except ValueError as e:
        raise BrokenInput(f"{path}: the pickle is damaged ({str(e)[:120]}); dump again") from e

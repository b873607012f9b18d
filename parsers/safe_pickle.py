"""Pickles of plain data only: containers, text, numbers. Nothing in the file is ever called or imported.

The opcodes are looked at before anything is built: an opcode that could name or call code is refused, as are sizes
beyond the file's own, memo numbers out of line, deep nesting and tuples that unfold without end. Only then does the
standard unpickler read it, one that finds no class at all.
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
MAX_TUPLE = 4_096
"""Objects in a tuple, counted as often as they are reached."""
_PLAIN = frozenset({
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT",
    "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT",
    "DICT", "SETITEM", "SETITEMS", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET",
})  # fmt: skip
_PLAINLY, _WRAPS3, _MARKS, _ENDS, _BUILDS, _TUPLES, _PUTS, _STAYS, _GETS, _COPIES = 0, 3, *range(4, 12)
"""What an opcode does; 1 to 3: it makes a tuple of so many."""
_MEMO = frozenset({_PUTS, _GETS})
_STOP, _NOTHING = ord("."), -1
_TEXT_MEMO = frozenset(b"pg")
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
    """Walk over the opcodes: their kinds and sizes, their memo numbers, and what waits on the unpickler's stack."""
    n, at, count, code = len(data), 0, 0, 0
    stack = _Stack(path)
    while code != _STOP:
        code = data[at] if at < n else _NOTHING
        known = _TABLE.get(code)
        if known is None:
            raise _refused(code, at, path)
        size, delta, role = known
        end = at + 1 + size if size >= 0 else _end(data, at + 1, size)
        if end > n or end <= at:
            raise BrokenInput(f"{path}: the pickle is damaged: byte {at:,} asks for more than is left; dump again")
        count += 1
        if role == _PLAINLY:
            if delta > 0:
                stack.weights.append(1)
            elif delta < 0:
                del stack.weights[delta:]
        else:
            number = _memo_number(data[at + 1 : end], code, count, at, path) if role in _MEMO else 0
            stack.apply(role, number, at)
        if len(stack.weights) > MAX_WAITING or count > MAX_OPCODES:
            raise LimitExceeded(f"{path}: byte {at:,}: nested deeper, or more opcodes, than in any real dump")
        at = end


class _Stack:
    """The unpickler's stack, an object's weight in place of each: a tuple's is that of all it holds, however often.

    A tuple that holds another twice, which holds another twice, … is small in the file and endless when it is hashed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.weights: list[int] = []
        self.marks: list[int] = []
        self.memo: dict[int, int] = {}

    def apply(self, role: int, number: int, at: int) -> None:
        """One opcode that does more than to push or pop."""
        weights = self.weights
        if role == _MARKS:
            self.marks.append(len(weights))
        elif role in (_ENDS, _BUILDS, _TUPLES):
            if not self.marks:
                raise BrokenInput(f"{self.path}: byte {at:,}: an opcode without its mark; dump again")
            bottom = self.marks.pop()
            whole = 1 + sum(weights[bottom:])
            del weights[bottom:]
            if role != _ENDS:
                weights.append(whole if role == _TUPLES else 1)
        elif role <= _WRAPS3:
            whole = 1 + sum(weights[-role:])
            del weights[-role:]
            weights.append(whole)
        elif role == _PUTS:
            self.memo[number] = weights[-1] if weights else 1
        elif role == _STAYS:
            self.memo[len(self.memo)] = weights[-1] if weights else 1
        elif role == _GETS:
            weights.append(self.memo.get(number, 1))
        else:
            weights.append(weights[-1] if weights else 1)
        if len(self.marks) > MAX_DEPTH or (weights and weights[-1] > MAX_TUPLE):
            raise LimitExceeded(f"{self.path}: byte {at:,}: nested deeper, or a tuple larger, than in any real dump")


def _end(data: bytes, at: int, kind: int) -> int:
    """Where an argument of variable length ends; 0 when it does not."""
    if kind == pickletools.UP_TO_NEWLINE:
        return data.find(b"\n", at) + 1
    width = _WIDTHS[kind]
    return at + width + int.from_bytes(data[at : at + width], "little")


def _memo_number(argument: bytes, code: int, count: int, at: int, path: Path) -> int:
    """The unpickler makes room for every number below this one."""
    text = code in _TEXT_MEMO
    if text and len(argument) > _LONGEST_NUMBER:
        raise BrokenInput(f"{path}: byte {at:,}: memo number of {len(argument):,} bytes is out of line; dump again")
    number = int(argument) if text and argument.strip().isdigit() else int.from_bytes(argument, "little")
    if number > count:
        raise BrokenInput(f"{path}: byte {at:,}: memo number {number:,} is out of line; dump again")
    return number


def _refused(code: int, at: int, path: Path) -> BrokenInput:
    if code == _NOTHING:
        return BrokenInput(f"{path}: the pickle ends early, at byte {at:,}; dump again")
    name = next((op.name for op in pickletools.opcodes if ord(op.code) == code), None)
    what = f"the pickle opcode {name}, which can name or run code" if name else f"no pickle opcode ({code:#x})"
    return BrokenInput(
        f"{path}: byte {at:,} holds {what}; a flight recorder dump holds plain data only, so this file is not opened"
    )


_ROLE = {
    "MARK": _MARKS, "POP_MARK": _ENDS, "APPENDS": _ENDS, "SETITEMS": _ENDS, "LIST": _BUILDS, "TUPLE": _TUPLES,
    "DICT": _BUILDS, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": _WRAPS3, "PUT": _PUTS, "BINPUT": _PUTS, "LONG_BINPUT": _PUTS,
    "MEMOIZE": _STAYS, "GET": _GETS, "BINGET": _GETS, "LONG_BINGET": _GETS, "DUP": _COPIES,
}  # fmt: skip
_TABLE = {
    ord(op.code): (
        op.arg.n if op.arg is not None else 0, len(op.stack_after) - len(op.stack_before), _ROLE.get(op.name, _PLAINLY),
    )
    for op in pickletools.opcodes if op.name in _PLAIN
}  # fmt: skip
"""Opcode → (size of its argument, as pickletools tells it; what it adds to the stack; role)."""

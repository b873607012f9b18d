"""Rows of the frequent categories in Kineto's own layouts → columns, without an object a row.

Such a row is a fixed text with numbers in it. The text is compared, the digits are read in numpy (eight bytes at a
time), and names with their threads become codes (`Repeats`). A row that is not exactly as expected is left to the
decoder. What follows the last number read is not proven to be valid JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct

from tracekit.parsers.convert import EXACT_BELOW_US, MAX_US
from tracekit.parsers.repeats import Repeats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

REACH = 512
"""Bytes behind the start of a row's times that may be looked at."""
_ARGS = (b',\n    "args": {\n      "External id": ', b'\n    ,\n    "args": {\n      "External id": ')
_END = b"\n    }\n "
_BETWEEN = (b',      "%s": ', b',\n      "%s": ')
# Constants of the arithmetic on eight bytes at a time.
_ASCII_ZEROS = np.uint64(0x3030303030303030)
_TO_TOP = np.uint64(0x7676767676767676)
_TOPS = np.uint64(0x8080808080808080)
_ONES = np.uint64(0x0101010101010101)
_BYTE, _ZERO = np.uint64(0xFF), np.uint64(ord("0"))
_ONE, _THREE, _SEVEN, _TOP_BYTE, _ALL = (np.uint64(n) for n in (1, 3, 7, 56, 64))
_JOINS = tuple(
    (np.uint64(ten << bits | 1), np.uint64(bits), np.uint64(mask))
    for ten, bits, mask in ((10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF), (10**4, 32, 0xFFFFFFFF))
)
_POWERS: Ints = 10 ** np.arange(9, dtype=np.int64)
_LAST_INT, _LAST_WITH_FRACTION = int(MAX_US), int(EXACT_BELOW_US)


def _u(value: int) -> np.uint64:
    return np.uint64(value)


class FixedRows(Struct):
    """Rows of one category. head: int32 into `Heads.values`; ts, dur: int64 ns; ids int64 (-1 = none)."""

    head: NDArray[np.int32]
    ts: Ints
    dur: Ints
    ext: Ints
    corr: Ints
    device: Ints
    stream: Ints

    def __len__(self) -> int:
        return len(self.ts)


class Heads:
    """Distinct (name, pid, tid) of rows, numbered as they come."""

    def __init__(self) -> None:
        self.values: list[tuple[Any, Any, Any]] = []
        self._codes: dict[tuple[Any, ...], int] = {}
        self.texts = Repeats(self._decode)

    def _decode(self, text: bytes) -> int:
        """Code of `NAME", "pid": P, "tid": T,`; -1 when it is not that."""
        try:
            event = msgspec.json.decode(b'{"name": "' + text[:-1] + b"}")
        except (ValueError, RecursionError):
            return -1
        plain = text[-1:] == b"," and list(event) == ["name", "pid", "tid"]
        if not plain or isinstance(event["pid"], list | dict) or isinstance(event["tid"], list | dict):
            return -1
        value = (event["name"], event["pid"], event["tid"])
        # 1, 1.0 and True are one key of a dict, but not one thread.
        key = (*value, type(value[1]), type(value[2]))
        if key not in self._codes:
            self._codes[key] = len(self.values)
            self.values.append(value)
        return self._codes[key]


class _Cursor:
    """One place in each row; every step moves it on, or takes the row out of `ok`."""

    def __init__(self, data: bytes, at: Ints) -> None:
        self.data, self.at = data, at
        self.ok: Mask = np.ones(len(at), np.bool_)

    def _blocks(self, at: Ints, words: int) -> Words:
        """Unaligned words from each place on, (n, words)."""
        view = np.ndarray((len(self.data) - 8 * words + 1,), f"V{8 * words}", self.data, 0, (1,))
        out: Words = view[at].view("<u8").reshape(-1, words)
        return out

    def number(self, *texts: bytes) -> Ints:
        """The integer behind one of the texts: the first one that half of the rows have; int64."""
        for text in texts:
            lead = -(-len(text) // 8)
            blocks = self._blocks(self.at + (len(text) - 8 * lead), lead + 2)
            same = _begins(blocks, text, lead)
            if 2 * np.count_nonzero(same & self.ok) >= np.count_nonzero(self.ok):
                break
        value, digits = _integers(blocks[:, lead], blocks[:, lead + 1])
        # JSON has no number that goes on behind a leading zero.
        zero = (blocks[:, lead] & _BYTE) == _ZERO
        self.ok &= same & np.where(zero, digits == 1, digits > 0)
        self.at = self.at + (len(text) + digits)
        return value

    def time(self, *texts: bytes) -> Ints:
        """The µs behind one of the texts, with three decimals or none; int64 ns."""
        whole = self.number(*texts)
        word = self._blocks(self.at, 1)[:, 0]
        dot = (word & _u(0xFF)) == _u(ord("."))
        digits = (word >> _u(8)) ^ _ASCII_ZEROS
        proper = ((digits + _TO_TOP | digits) & _u(0x808080)) == 0
        part = (digits & _u(15)) * _u(100) + (digits >> _u(8) & _u(15)) * _u(10) + (digits >> _u(16) & _u(15))
        self.ok &= np.where(dot, proper & (whole < _LAST_WITH_FRACTION), whole < _LAST_INT)
        self.at = self.at + np.where(dot, 4, 0)
        out: Ints = whole * 1000 + np.where(dot, part.astype(np.int64), 0)
        return out

    def ends(self, *, all_of_it: bool = False) -> None:
        """The number is over, and with it the member, or (all_of_it) the arguments."""
        if all_of_it:
            self.ok &= self._blocks(self.at, 1)[:, 0] == _u(int.from_bytes(_END, "little"))
            return
        last = np.frombuffer(self.data, np.uint8)[self.at]
        self.ok &= (last == ord(",")) | (last == ord("\n"))


def _begins(blocks: Words, text: bytes, lead: int) -> Mask:
    """Rows whose first `lead` words end with the text."""
    blank = 8 * lead - len(text)
    padded = bytes(blank) + text
    same: Mask = (blocks[:, 0] >> _u(8 * blank)) == _u(int.from_bytes(text[: 8 - blank], "little"))
    for i in range(1, lead):
        same &= blocks[:, i] == _u(int.from_bytes(padded[8 * i : 8 * i + 8], "little"))
    return same


def _integers(first: Words, second: Words) -> tuple[Ints, Ints]:
    """Value and number of digits (0 to 16) of the decimal integers that the words start with."""
    value, digits = _digits(first)
    full = np.flatnonzero(digits == 8)
    if len(full):
        more, n = _digits(second[full])
        value[full] = value[full] * _POWERS[n] + more
        digits[full] += n
    return value, digits


def _digits(word: Words) -> tuple[Ints, Ints]:
    """Value and number of the digits (0 to 8) that each word starts with."""
    x = word ^ _ASCII_ZEROS
    other = ((x + _TO_TOP) | x) & _TOPS  # the top bit of each byte that is no digit; right up to the first of them
    below = (other & -other) >> _SEVEN
    below -= _ONE
    below &= _ONES
    count = below * _ONES >> _TOP_BYTE
    # Digits to the top of the word, zeros below; then neighbours are joined in pairs, fours and eights.
    x <<= _ALL - (count << _THREE)
    for factor, shift, mask in _JOINS:
        x *= factor
        x >>= shift
        x &= mask
    return x.view(np.int64), count.view(np.int64)


def read(
    kind: str, data: bytes, begin: Ints, at: Ints, dur_text: bytes, heads: Heads, longest: int
) -> tuple[FixedRows, Mask]:
    """Rows of a kind ("op", "call", "kernel" or "note"), and which of those asked for they are.

    begin: start of each name (behind its quote); at: end of the line before that of the time, which ends name, pid
    and tid; longest: rows that last longer (ns) are left out. Needs `REACH` bytes behind each `at`.
    """
    cursor = _Cursor(data, at)
    ts = cursor.time(b'\n    "ts": ')
    dur = cursor.time(dur_text)
    cursor.ok &= dur <= longest
    ext = cursor.number(*_ARGS)
    none = np.full(len(at), -1, np.int64)
    corr = device = stream = none
    if kind == "call":
        cursor.number(*(b % b"cbid" for b in _BETWEEN))
        corr = cursor.number(b', "correlation": ')
    elif kind == "kernel":
        cursor.number(*(b % b"queued" for b in _BETWEEN))
        device = cursor.number(b', "device": ')
        cursor.number(b', "context": ')
        stream = cursor.number(*(b % b"stream" for b in _BETWEEN))
        corr = cursor.number(b', "correlation": ')
    cursor.ends(all_of_it=kind == "note")
    good = np.flatnonzero(cursor.ok)
    head = heads.texts.codes(data, begin[good], at[good])
    if len(good) and head.min() < 0:
        cursor.ok[good[head < 0]] = False
        good, head = good[head >= 0], head[head >= 0]
    columns = (ts, dur, ext, corr, device, stream)
    return FixedRows(head, *(c if len(good) == len(c) else c[good] for c in columns)), cursor.ok

"""Calls in a block of a log → columns, without making an object of each line.

All calls of a block are cut at once, by the positions of their blanks; what stands between is compared eight bytes at a
time. Equal texts get one number, and only one of each is looked at in Python. Lines of another form are left to be read
one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Spans = tuple[Ints, Ints]

_MIN_LINES = 50
"""Below this many lines the set-up costs more than it saves."""
_LONGEST = 512
"""Bytes of a part of a line that is compared; longer ones are read one by one."""
_PAD = _LONGEST + 24
_STAMP = 22
"""Bytes of "[2026-01-31 12:00:00] "."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)
_DIGITS = np.full(256, 255, np.int64)
for _base, _letters in ((0, b"0123456789"), (10, b"abcdef"), (10, b"ABCDEF")):
    _DIGITS[np.frombuffer(_letters, np.uint8)] = np.arange(_base, _base + len(_letters))


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


class Calls(Struct):
    """Calls that were cut, in order: number of the line, opCount, count (int64), and where in the block its parts are.

    head: before ": opCount", without a time; stamp: start of the time, -1 for none; buffers; fixed: after the count.
    others: numbers of the lines that are no such call, in order.
    """

    line: Ints
    op_count: Ints
    count: Ints
    head: Spans
    stamp: Ints
    buffers: Spans
    fixed: Spans
    others: Ints


class Block:
    """One block of whole lines: `begins` and `ends` of each (without its newline)."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.size = len(text)
        self.data = np.frombuffer(text + bytes(_PAD - self.size % 8), np.uint8)  # so that words end with it
        self._words = self.data[: len(self.data) // 8 * 8].view("<u8")
        self.ends: Ints = np.flatnonzero(self.data[: self.size] == ord("\n"))
        if self.size and text[-1:] != b"\n":
            self.ends = np.append(self.ends, self.size)
        self.begins: Ints = np.concatenate([np.zeros(1, np.int64), self.ends[:-1] + 1])

    def calls(self) -> Calls | None:
        """The calls of usual form; None where there are too few lines for it to be worth while."""
        if len(self.ends) < _MIN_LINES:
            return None
        blank, at = self._op_counts()
        line = np.searchsorted(self.ends, blank[at])
        once = np.ones(len(at), np.bool_)  # two calls in one line: writers cut into each other
        twice = np.flatnonzero(np.diff(line) == 0)
        once[twice] = once[twice + 1] = False
        at, line = at[once], line[once]
        cells = [blank.take(at + i, mode="clip") for i in range(9)]  # beyond the last blank: no width, so no number
        good, last = self._form(cells)
        cells += [blank.take(at + i, mode="clip") for i in range(9, last + 1)]
        begin, end = self.begins[line], self.ends[line]
        stamped = self._stamped(begin)
        op_count, number = self._number(cells[1] + 1, cells[2], 16)
        count, whole = self._number(cells[last - 1] + 1, cells[last], 10)
        good &= (cells[last] < end) & number & whole & (stamped >= 0)
        others = np.ones(len(self.ends), np.bool_)
        others[line[good]] = False
        head = (begin + _STAMP * stamped)[good], cells[0][good] - 1
        return Calls(
            line[good], op_count[good], count[good], head, np.where(stamped > 0, begin + 1, -1)[good],
            (cells[2][good] + 1, cells[last - 2][good]), (cells[last][good] + 1, end[good]), np.flatnonzero(others),
        )  # fmt: skip

    def _op_counts(self) -> tuple[Ints, Ints]:
        """Positions of all blanks, and which of them stand in ": opCount "."""
        blank: Ints = np.flatnonzero(self.data[: self.size] == ord(" "))
        at = np.flatnonzero(self.data[1:].take(blank) == ord("o"))
        at = at[self.words(blank.take(at) + 1) == _word(b"opCount ")]
        at = at[blank.take(at) > 0]
        return blank, at[self.data.take(blank.take(at) - 1) == ord(":")]

    def _form(self, cells: list[Ints]) -> tuple[NDArray[np.bool_], int]:
        """Which calls have the words of the block's form (NCCL's or RCCL's), and the blank after the count."""
        word = self.words(cells[6] + 1)
        good, last = (word & _MASKS[6]) == _word(b"count "), 8
        if not good.all():
            more = ((word & _MASKS[4]) == _word(b"acc ")) & self._reads(cells[8] + 1, b"count ")
            if np.count_nonzero(more) > np.count_nonzero(good):
                good, last = more, 10
        return good & self._reads(cells[2] + 1, b"sendbuff") & self._reads(cells[4] + 1, b"recvbuff"), last

    def _reads(self, at: Ints, word: bytes) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (self.words(at) & _MASKS[len(word)]) == _word(word)
        return found

    def _stamped(self, begin: Ints) -> Ints:
        """1 where a line begins with a time of the usual form, 0 for none, -1 for one of another form."""
        opens = self._reads(begin, b"[2")
        closes = opens & self._reads(begin + _STAMP - 2, b"] ")
        out: Ints = np.where(closes, 1, np.where(opens, -1, 0))
        return out

    def words(self, at: Ints) -> NDArray[np.uint64]:
        """Eight bytes from each position on, as a number; beyond the end they are zero."""
        return next(self._row_of_words(at, 1))

    def _row_of_words(self, at: Ints, n: int) -> Iterator[NDArray[np.uint64]]:
        """n times eight bytes from each position on: two aligned words make one, and each is fetched once."""
        place, down = at >> 3, ((at & 7) << 3).astype(np.uint64)
        up = np.uint64(64) - down  # numpy shifts by 64 to 0
        low = self._words.take(place)
        for i in range(1, n + 1):
            high = self._words[i:].take(place)
            low >>= down
            low |= high << up
            yield low
            low = high

    def _number(self, start: Ints, end: Ints, base: int) -> tuple[Ints, NDArray[np.bool_]]:
        """Values of digits, and which are numbers that fit."""
        width = end - start
        good = (width > 0) & (width <= (15 if base == 16 else 18))
        start = np.where(good, start, 0)
        value = np.zeros(len(start), np.int64)
        longest = int(width[good].max(initial=0))
        for i in range(longest):
            inside = good & (i < width)
            digit = _DIGITS.take(self.data.take(start + i))
            good &= ~inside | (digit < base)
            value = np.where(inside, value * base + digit, value)
        return value, good

    def distinct(self, *parts: Spans) -> tuple[Ints, Ints]:
        """(number of the combination of texts in each row, a row of each combination); a row whose text is too long, or
        that cannot be told for sure, has number -1.
        """
        kept: list[NDArray[np.uint64]] = []
        mixed = np.zeros(len(parts[0][0]), np.uint64)
        fits = np.ones(len(mixed), np.bool_)
        for start, end in parts:
            width = end - start
            fits &= width <= _LONGEST
            whole = int(width.min(initial=_LONGEST)) // 8
            for i, word in enumerate(self._row_of_words(start, (min(int(width.max(initial=0)), _LONGEST) + 7) // 8)):
                if i >= whole:
                    word &= _MASKS.take(np.clip(width - 8 * i, 0, 8))
                kept.append(word)
                mixed ^= word
                mixed *= _MULTIPLIER
                mixed ^= mixed >> _SHIFT
            kept.append(width.astype(np.uint64))
        _, first, codes = np.unique(mixed, return_index=True, return_inverse=True)
        codes = codes.reshape(-1)
        same = first.take(codes) if len(first) else codes
        for word in kept:  # equal mixtures of unequal texts
            fits &= word == word.take(same)
        return np.where(fits, codes, -1), first

    def cut(self, part: Spans, row: int) -> bytes:
        """Text of one part of one call."""
        return self.text[int(part[0][row]) : int(part[1][row])]

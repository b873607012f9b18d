"""The compiled scanner of NCCL logs (`_log.c`), where it is installed: a block of lines → columns, in one pass.

It numbers what repeats; `Numbers` has what each number means. Lines it does not take come back as they are, for the
path in pure Python, which is its oracle in the tests. The environment chooses as it does for traces (`parsers.core`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.parsers.core import built, chosen

try:
    from tracekit.parsers import _log
except ImportError:  # built without a compiler
    _log = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Codes = NDArray[np.int32]
    Ints = NDArray[np.int64]

BREAKS, SAYS = -3, -4
"""Other lines: calls before and after one are not alike; one that only says something."""
_REVISION = 1
_SHAPES, _BUFFERS, _CHOICES = range(3)
_UNKNOWN = np.iinfo(np.int32).min
_BROKEN = -2


def available() -> bool:
    """Is the scanner built for this interpreter, and of these sources?"""
    return built(_log, _REVISION)


def in_use() -> bool:
    """Does the scanner read? Raises UnusableInput when it was insisted on and is not there."""
    return chosen(available(), "the scanner of NCCL logs")


class Lines(Struct):
    """What a block holds. Of each call: elements, opCount, where its line begins, numbers of its head with its fixed
    part, of its buffers, of its time (-1: none). stamps: where each time begins. Of each other line that matters: calls
    before it, begin, end, and the number of its text (a choice of algorithm), BREAKS or SAYS.
    """

    count: Ints
    op_count: Ints
    begin: Ints
    shape: Codes
    buffers: Codes
    stamp: Codes
    stamps: Ints
    before: Ints
    begins: Ints
    ends: Ints
    kind: Codes


class Numbers:
    """What the numbers of one kind of text mean to the reader."""

    def __init__(self, which: int, number: Callable[[bytes], int]) -> None:
        self._which, self._number = which, number
        self._known: Codes = np.full(1024, _UNKNOWN, np.int32)
        self._stale = False

    def forget(self) -> None:
        """Ask for all of them anew, once one is wanted: a log may say so many times before that."""
        self._stale = True

    def _renew(self) -> None:
        if self._stale:
            self._known.fill(_UNKNOWN)
            self._stale = False

    def first(self, codes: Codes) -> list[int]:
        """Where those stand for the first time that were not asked for."""
        self._renew()
        known = self._known.take(codes, mode="clip")
        new = np.flatnonzero((known == _UNKNOWN) | (codes >= len(self._known)))
        return [] if not len(new) else new[np.sort(np.unique(codes[new], return_index=True)[1])].tolist()

    def of(self, scanner: _log.Scanner, codes: Codes) -> Codes:
        """The reader's number of each, asked for in order of appearance; _BROKEN where it raises ValueError."""
        self._renew()
        top = int(codes.max(initial=0))
        if top >= len(self._known):
            more = np.full(max(top + 1, 2 * len(self._known)) - len(self._known), _UNKNOWN, np.int32)
            self._known = np.concatenate([self._known, more])
        out: Codes = self._known.take(codes)
        new = out == _UNKNOWN
        if not new.any():
            return out
        broken = []
        for code in dict.fromkeys(codes[new].tolist()):
            try:
                self._known[code] = self._number(scanner.text(self._which, code))
            except ValueError:  # what is known of hosts may let it be read later
                broken.append(code)
        out = self._known.take(codes)
        if broken:
            out[out == _UNKNOWN] = _BROKEN
        return out


class LogCore:
    """A scanner and what its numbers mean; all three functions are given texts that were not asked for before."""

    def __init__(
        self, shape: Callable[[bytes], int], buffers: Callable[[bytes], int], choice: Callable[[bytes], int]
    ) -> None:
        self._functions = shape, buffers, choice
        self._start()

    def _start(self) -> None:
        self.scanner = _log.Scanner()
        shape, buffers, choice = self._functions
        self._shapes, self._buffers = Numbers(_SHAPES, shape), Numbers(_BUFFERS, buffers)
        self._choices = Numbers(_CHOICES, choice)

    def scan(self, text: bytes) -> Lines:
        """Look at a block of whole lines."""
        if self.scanner.full():
            self._start()
        *columns, stamps, where, kind = self.scanner.scan(text)
        count, op_count, begin = (np.frombuffer(c, np.int64) for c in columns[:3])
        shape, buffers, stamp = (np.frombuffer(c, np.int32) for c in columns[3:])
        before, begins, ends = np.frombuffer(where, np.int64).reshape(-1, 3).T
        times, kinds = np.frombuffer(stamps, np.int64), np.frombuffer(kind, np.int32)
        return Lines(count, op_count, begin, shape, buffers, stamp, times, before, begins, ends, kinds)

    def shapes(self, codes: Codes) -> Codes:
        """Numbers of shapes, -2 where a call is not whole."""
        return self._shapes.of(self.scanner, codes)

    def fresh(self, codes: Codes) -> list[int]:
        """Calls that are the first of their shape."""
        return self._shapes.first(codes)

    def buffers(self, codes: Codes) -> Codes:
        """Numbers of buffers, -2 where a call is not whole, -1 where they are not kept."""
        return self._buffers.of(self.scanner, codes)

    def choices(self, codes: Codes) -> Codes:
        """Numbers of texts that tell a choice of algorithm."""
        return self._choices.of(self.scanner, codes)

    def forget(self) -> None:
        """A communicator means another from now on."""
        self._shapes.forget()

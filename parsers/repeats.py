"""Repeated texts → small codes, without making an object of each: hashes in numpy, one look at each distinct text.

A recording has millions of rows, and a few thousand distinct names with their threads.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Rows = NDArray[np.int64]
    Codes = NDArray[np.int32]

BLOCK = 64
"""Bytes hashed at a time; a text must not end before this place of the data."""
_WORDS = BLOCK // 8
_SLOTS_LOG = 14
_MAX_KNOWN = 1 << 18
_FOLD = np.uint64(32)
_TO_SLOT = np.uint64(64 - _SLOTS_LOG)


class Repeats:
    """`decode(text)` gives the code of a text; it is called once a distinct text (and again if ever forgotten)."""

    def __init__(self, decode: Callable[[bytes], int]) -> None:
        self._decode = decode
        self._known: dict[int, int] = {}
        # The last hash seen in each slot, and its code.
        self._hash: Hashes = np.zeros(1 << _SLOTS_LOG, np.uint64)
        self._code: Codes = np.zeros(1 << _SLOTS_LOG, np.int32)

    def codes(self, data: bytes, begin: Rows, end: Rows) -> Codes:
        """int32 code of the text data[begin:end] of each row; begin <= end, end >= BLOCK."""
        hashes = _hashes(data, begin, end)
        slot = (hashes >> _TO_SLOT).astype(np.intp)
        out = self._code[slot]
        missed = np.flatnonzero(self._hash[slot] != hashes)
        if len(missed):
            new, first, back = np.unique(hashes[missed], return_index=True, return_inverse=True)
            rows = missed[first]
            texts = zip(new.tolist(), begin[rows].tolist(), end[rows].tolist(), strict=True)
            found = np.array([self._of(h, data[a:b]) for h, a, b in texts], np.int32)
            out[missed] = found[back.reshape(-1)]
            self._hash[slot[rows]], self._code[slot[rows]] = new, found
        return out

    def _of(self, key: int, text: bytes) -> int:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[key] = self._decode(text)
        return known


@cache
def _factors() -> Hashes:
    """Odd factors, five rows of them. (Importing `numpy.random` takes as long as a small file.)"""
    factors: Hashes = np.random.default_rng(20).integers(1 << 62, size=(5, _WORDS), dtype=np.uint64) | np.uint64(1)
    return factors


def _hashes(data: bytes, begin: Rows, end: Rows) -> Hashes:
    """A hash of the bytes [begin, end) of each row, never 0; what stands just before begin may count as well."""
    blocks = np.ndarray((len(data) - BLOCK + 1,), f"V{BLOCK}", data, 0, (1,))
    size = end - begin
    factors = _factors()
    out: Hashes = _mixed(blocks[end - BLOCK], 0) + size.astype(np.uint64) * factors[4, 0]
    done = 0
    long = np.flatnonzero(size > BLOCK)
    while len(long):
        # The blocks from the text's start on; the order of blocks counts, as the hash so far is multiplied.
        out[long] = (out[long] ^ out[long] >> _FOLD) * factors[4, 1]
        out[long] += _mixed(blocks[begin[long] + done], 1 + min(done // BLOCK, 2))
        done += BLOCK
        long = long[size[long] > BLOCK + done]
    out |= np.uint64(1)
    return out


def _mixed(blocks: NDArray[np.void], row: int) -> Hashes:
    """Words folded, so that a difference in the top byte alone is spread too, and weighed by odd factors."""
    words = blocks.view("<u8").reshape(-1, _WORDS)
    folded = words >> _FOLD
    folded ^= words
    out: Hashes = folded @ _factors()[row]
    return out

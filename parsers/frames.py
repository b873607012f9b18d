"""Python frames (`python_function` rows): which of the hundreds of thousands are kept.

In Kineto's own layouts the text of a row up to its thread is hashed, and one representative of each hash is looked
at: a recording has few distinct frames, so almost no row is decoded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import re

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Rows = NDArray[np.int64]
    Mask = NDArray[np.bool_]

CATEGORY = "python_function"
_BLOCK = 64
"""Bytes hashed at a time."""
_WORDS = _BLOCK // 8
_SLOTS_LOG = 14
_MAX_KNOWN = 1 << 18
_FACTORS: Hashes = np.random.default_rng(20).integers(1 << 62, size=(5, _WORDS), dtype=np.uint64) | np.uint64(1)
_MIX = np.uint64(32)
_SCANNER = json.JSONDecoder(strict=True)


class Frames:
    """Rows whose name contains a match of `pattern` (`re.search`) are kept."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern
        self._names: dict[Any, bool] = {}
        self._known: dict[int, bool] = {}
        # The last hash seen in each slot, and whether its rows are kept.
        self._hash: Hashes = np.zeros(1 << _SLOTS_LOG, np.uint64)
        self._keep: Mask = np.zeros(1 << _SLOTS_LOG, np.bool_)

    def wanted(self, name: Any) -> bool:
        """Is a frame of this name kept?"""
        found = self._names.get(name)
        if found is None:
            if len(self._names) >= _MAX_KNOWN:
                self._names.clear()
            found = self._names[name] = self.pattern.search(str(name)) is not None
        return found

    def select(self, data: bytes, begin: Rows, end: Rows) -> Mask:
        """Rows to decode, of rows whose name starts at `begin` (behind its quote) on a line that ends at `end` >= 64.

        A name that cannot be told from its line alone is among them.
        """
        hashes = _hashes(data, begin, end)
        slot = (hashes >> np.uint64(64 - _SLOTS_LOG)).astype(np.intp)
        keep = self._keep[slot]
        missed = np.flatnonzero(self._hash[slot] != hashes)
        if len(missed):
            new, first, back = np.unique(hashes[missed], return_index=True, return_inverse=True)
            lines = zip(new.tolist(), begin[missed[first]].tolist(), end[missed[first]].tolist(), strict=True)
            found = np.array([self._of_line(h, data[a:b]) for h, a, b in lines], np.bool_)
            keep[missed] = found[back]
            where = slot[missed[first]]
            self._hash[where], self._keep[where] = new, found
            # Of two that share a slot the last one written stays, in both arrays.
        return keep

    def _of_line(self, key: int, line: bytes) -> bool:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[key] = self._decoded(line)
        return known

    def _decoded(self, line: bytes) -> bool:
        try:
            text = '"' + line.decode()
            name, stop = _SCANNER.raw_decode(text)
        except ValueError:
            return True
        return text[stop : stop + 1] != "," or self.wanted(name)


def _hashes(data: bytes, begin: Rows, end: Rows) -> Hashes:
    """A hash of the bytes [begin, end) of each row, never 0; what stands just before begin may count as well."""
    blocks = np.ndarray((len(data) - _BLOCK + 1,), f"V{_BLOCK}", data, 0, (1,))
    size = end - begin
    out: Hashes = _mixed(blocks[end - _BLOCK], 0) + size.astype(np.uint64) * _FACTORS[4, 0]
    done = 0
    long = np.flatnonzero(size > _BLOCK)
    while len(long):
        # The blocks from the name's start on, each with factors of its own for the first few.
        out[long] = (out[long] ^ out[long] >> _MIX) * _FACTORS[4, 1]
        out[long] += _mixed(blocks[begin[long] + done], 1 + min(done // _BLOCK, 2))
        done += _BLOCK
        long = long[size[long] > _BLOCK + done]
    out |= np.uint64(1)
    return out


def _mixed(blocks: NDArray[np.void], row: int) -> Hashes:
    """Words folded, so that a difference in the top byte alone is spread too, and weighed by odd factors."""
    words = blocks.view("<u8").reshape(-1, _WORDS)
    folded = words >> _MIX
    folded ^= words
    out: Hashes = folded @ _FACTORS[row]
    return out

"""Kineto's own layouts: sort the events of a chunk by category before any JSON is decoded.

In the two layouts Kineto writes, an event starts at a raw newline + `  {` and ends at the next raw
newline + `  }`; no JSON string can hold a raw newline, so both are structure. The bytes at fixed
places behind the start give phase and category. Rows that are only counted are never decoded, and
the frequent categories are decoded with the few fields they need.

Whatever does not look exactly like that goes to the general decoder, event by event or whole chunk.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.parsers.decode import Batch, Event, LeanDevice, LeanHost, decode, decode_as
from tracekit.parsers.frames import CATEGORY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.parsers.frames import Frames

    Words = NDArray[np.uint64]
    Rows = NDArray[np.int64]
    Mask = NDArray[np.bool_]

_OPEN, _CLOSE = b"\n  {\n", b"\n  }"
_LEAN: tuple[tuple[str, type], ...] = (
    ("cpu_op", LeanHost),
    ("cuda_runtime", LeanHost),
    ("cuda_driver", LeanHost),
    ("kernel", LeanDevice),
)
_FLOWS = ("ac2g", "fwdbwd")
_FULL_NAMES = (b"reco", b"c10d", b"_c10", b"gloo", b"symm", b"nccl")
"""First bytes of names whose rows need every argument (superset of `comm.COMM_NAME`)."""
_MIN_EVENTS = 16
_REACH = 128
"""Bytes behind the start of an event that are looked at."""


@cache
def _word(text: bytes, at: int = 0) -> np.uint64:
    return np.uint64(int.from_bytes(text[at : at + 8], "little"))


@cache
def _mask(n: int) -> np.uint64:
    return np.uint64((1 << 8 * n) - 1)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Constant bytes of one layout: before the category, between category and name, of a flow's category."""

    head: bytes
    name: bytes
    flow_cat: bytes
    flow_line: int  # line of the event that holds a flow's category
    name_ends: int  # line break (of the event) that ends the line of the name

    def key(self, category: str) -> bytes:
        """The bytes from the category to the name."""
        return category.encode() + self.name


_LAYOUTS = (
    _Layout(b'    "ph": "X", "cat": "', b'", "name": "', b'    "cat": "', 2, 2),
    _Layout(b'    "ph": "X",\n    "cat": "', b'",\n    "name": "', b'    "cat": "', 6, 4),
)


def split(data: bytes, frames: Frames | None = None) -> tuple[Batch, Counter[str]] | None:
    """Decode a chunk by category; None when it is not in a layout of Kineto's.

    Returns the batch and the counts (`ph:cat`) of rows that were skipped; rows of Python frames are skipped but for
    those that `frames` may want. Raises ValueError when an
    event is not valid JSON.
    """
    head = data[:4096]
    layout = next((x for x in _LAYOUTS if _OPEN + x.head in head), None)
    if layout is None:
        return None
    # One unaligned 8-byte word per position: comparing words compares text.
    words: Words = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))
    lines = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)[:-1]
    at_line = words[lines]
    line = np.flatnonzero((at_line & _mask(5)) == _word(_OPEN))
    starts = lines[line]
    ends = lines[(at_line & _mask(4)) == _word(_CLOSE)]
    # The last line break may be too near the end to be a word; it closes the last event.
    ends = np.append(ends, len(data) - len(_CLOSE)) if data.endswith(_CLOSE) else ends
    if len(starts) < _MIN_EVENTS or not _whole(data, words, starts, ends):
        return None
    if int(starts[-1]) + _REACH > len(words):
        padded = data + bytes(_REACH)
        words = np.ndarray((len(padded) - 7,), "<u8", padded, 0, (1,))
    return _sorted(data, words, starts, lines, line, layout, frames)


def _whole(data: bytes, words: Words, starts: Rows, ends: Rows) -> bool:
    """Every start has its own end right before the next start: the lines prove the structure."""
    return (
        len(ends) == len(starts)
        and int(ends[-1]) + len(_CLOSE) == len(data)
        and not data[: int(starts[0])].strip()
        and bool((ends[:-1] + len(_CLOSE) + 1 == starts[1:]).all())
        and bool(((words[ends[:-1]] & _mask(5)) == _word(_CLOSE + b",")).all())
    )


def _sorted(
    data: bytes, words: Words, starts: Rows, lines: Rows, line: Rows, layout: _Layout, frames: Frames | None
) -> tuple[Batch, Counter[str]]:
    stops = np.append(starts[1:], len(data))
    first = starts + len(_OPEN)
    at = first + len(layout.head)
    phase = words[first + 8]
    timed = (words[first] == _word(layout.head)) & (phase == _word(layout.head, 8))
    timed &= (words[first + 16] == _word(layout.head, 16)) if len(layout.head) > 23 else True
    timed &= words[at - 8] == _word(layout.head, len(layout.head) - 8)
    one, two = words[at], words[at + 8]
    left = np.ones(len(starts), np.bool_)
    skipped: Counter[str] = Counter()
    python = np.flatnonzero(timed & (one == _word(b"python_f")) & (two == _word(b'unction"')))
    if frames is not None and len(python):
        python = _unwanted(data, words, python, at, lines, line, layout, frames)
    left[python] = False
    skipped[f"X:{CATEGORY}"] = len(python)
    _skip_flows(words, first, phase, lines, line, layout, left, skipped)
    batch: Batch = []
    for category, kind in _LEAN:
        key = layout.key(category)
        rows = np.flatnonzero((one == _word(key)) & (two == _word(key, 8)) & timed)
        rows = _plain(words, rows, at, key) if len(rows) else rows
        if not len(rows):
            continue
        piece = _cut(data, starts, stops, rows)
        if kind is LeanDevice and b'"Collective name"' in piece:
            kind = Event
        batch.append(("X", category, _all(kind, piece, len(rows))))
        left[rows] = False
    rest = np.flatnonzero(left)
    if len(rest):
        groups = decode(_cut(data, starts, stops, rest))
        if sum(len(events) for _, _, events in groups) != len(rest):
            raise ValueError("events do not match their lines")
        batch += groups
    return batch, +skipped


def _plain(words: Words, rows: Rows, at: Rows, key: bytes) -> Rows:
    """Rows that go on with the key to its end and whose name is none of communication."""
    names = at[rows] + len(key)
    start = words[names] & _mask(4)
    full = np.zeros(len(rows), np.bool_)
    for prefix in _FULL_NAMES:
        full |= start == _word(prefix)
    exact = words[names - 8] == _word(key, len(key) - 8)
    if len(key) > 24:
        exact &= words[names - 16] == _word(key, len(key) - 16)
    plain: Rows = rows[exact & ~full]
    return plain


def _unwanted(
    data: bytes, words: Words, rows: Rows, at: Rows, lines: Rows, line: Rows, layout: _Layout, frames: Frames
) -> Rows:
    """Those of the Python rows that need no decoding."""
    key = layout.key(CATEGORY)
    begin = at[rows] + len(key)
    exact = (words[begin - 8] == _word(key, len(key) - 8)) & (words[begin - 16] == _word(key, len(key) - 16))
    exact &= line[rows] + layout.name_ends < len(lines)
    rows, begin = rows[exact], begin[exact]
    end = lines[line[rows] + layout.name_ends]
    usual = end >= np.maximum(begin, 64)
    unwanted: Rows = rows[usual][~frames.select(data, begin[usual], end[usual])]
    return unwanted


def _skip_flows(
    words: Words,
    first: Rows,
    phase: Words,
    lines: Rows,
    line: Rows,
    layout: _Layout,
    left: Mask,
    skipped: Counter[str],
) -> None:
    """Count flow starts and ends of known categories by the line that holds the category."""
    common = _word(layout.head)
    for letter in "sf":
        rows = np.flatnonzero(phase == _word(layout.head.replace(b"X", letter.encode()), 8))
        rows = rows[(words[first[rows]] == common) & (line[rows] + layout.flow_line < len(lines))]
        at = lines[line[rows] + layout.flow_line] + 1
        for category in _FLOWS:
            text = layout.flow_cat + category.encode() + b'"'
            hit = (words[at] == _word(text)) & (words[at + len(text) - 8] == _word(text, len(text) - 8))
            hit &= words[at + 8] & _mask(len(text) - 8 if len(text) < 16 else 8) == _word(text, 8)
            found = rows[hit]
            left[found] = False
            skipped[f"{letter}:{category}"] = len(found)


def _cut(data: bytes, starts: Rows, stops: Rows, rows: Rows) -> bytes:
    """The bytes of some events; neighbours are cut in one piece."""
    gaps = np.flatnonzero(rows[1:] - rows[:-1] != 1)
    first = starts[rows[np.append(0, gaps + 1)]].tolist()
    last = stops[rows[np.append(gaps, len(rows) - 1)]].tolist()
    return b"".join([data[a:b] for a, b in zip(first, last, strict=True)]).rstrip(b",")


def _all(kind: type, piece: bytes, count: int) -> list[Any]:
    events = decode_as(kind, piece)
    if len(events) != count:
        raise ValueError("events do not match their lines")
    return events

"""Kineto's own layouts: sort the events of a chunk by category before any JSON is decoded.

In the two layouts Kineto writes, an event starts at a raw newline + `  {` and ends at the next raw
newline + `  }`; no JSON string can hold a raw newline, so both are structure. The bytes at fixed
places behind the start give phase and category. Rows that are only counted are never decoded, and
the frequent categories are read in place (`fixed`) or decoded with the few fields they need.

Whatever does not look exactly like that goes to the general decoder, event by event or whole chunk.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tracekit.parsers.convert import MAX_DUR_NS
from tracekit.parsers.decode import Batch, Event, LeanDevice, LeanHost, decode, decode_as
from tracekit.parsers.fixed import REACH, FixedRows, Heads, read
from tracekit.parsers.frames import CATEGORY
from tracekit.parsers.repeats import BLOCK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.parsers.frames import Frames

    Words = NDArray[np.uint64]
    Rows = NDArray[np.int64]
    Mask = NDArray[np.bool_]

_OPEN, _CLOSE = b"\n  {\n", b"\n  }"
_LEAN: tuple[tuple[str, type | None, str], ...] = (
    ("cpu_op", LeanHost, "op"),
    ("cuda_runtime", LeanHost, "call"),
    ("cuda_driver", LeanHost, "call"),
    ("kernel", LeanDevice, "kernel"),
    ("user_annotation", None, "op"),
    ("gpu_user_annotation", None, "note"),
)
"""Category, what its rows are decoded as (None: as any event), and how they are read in place."""
_FLOWS = ("ac2g", "fwdbwd")
FULL_NAMES = (b"reco", b"c10d", b"_c10", b"gloo", b"symm")
"""First bytes of names whose rows need every argument (superset of `comm.COMM_NAME`)."""
_FULL_KERNELS = (b"nccl",)
"""First bytes of names of kernels that mostly carry arguments of communication."""
_OF_DEVICE = frozenset({"kernel", "note"})
_MIN_EVENTS = 16
_MIN_FIXED = 16
"""Fewer rows than this are not worth the numpy calls that read them in place."""
_COLLECTIVE = b'"Collective name"'
_LAST_OF_LAUNCH = b'ncy %": '
"""End of the key of a kernel's occupancy."""
_ARGS_END = b"\n    }\n  },"
_REACH = 128
"""Bytes behind the start of an event that are looked at."""


@cache
def _word(text: bytes, at: int = 0) -> np.uint64:
    return np.uint64(int.from_bytes(text[at : at + 8], "little"))


@cache
def _mask(n: int) -> np.uint64:
    return np.uint64((1 << 8 * n) - 1)


class _Layout(Struct, frozen=True):
    """Constant bytes of one layout: before the category, between category and name, of a flow's category."""

    head: bytes
    name: bytes
    flow_cat: bytes
    flow_line: int  # line of the event that holds a flow's category
    name_ends: int  # line break (of the event) that ends the line of the name
    head_ends: int  # line break that ends name, pid and tid; the times follow
    dur: bytes  # between the two times

    def key(self, category: str) -> bytes:
        """The bytes from the category to the name."""
        return category.encode() + self.name


_LAYOUTS = (
    _Layout(b'    "ph": "X", "cat": "', b'", "name": "', b'    "cat": "', 2, 2, 2, b', "dur": '),
    _Layout(b'    "ph": "X",\n    "cat": "', b'",\n    "name": "', b'    "cat": "', 6, 4, 6, b',\n    "dur": '),
)


class _Chunk(Struct):
    """One chunk of events: `words` at every byte, `lines` (its line breaks), and for each event its `starts` and
    `stops`, its number among the lines, and the place of its category `at`.
    """

    data: bytes
    words: Words
    lines: Rows
    line: Rows
    starts: Rows
    stops: Rows
    at: Rows
    layout: _Layout

    def cut(self, rows: Rows) -> bytes:
        """The bytes of some events; neighbours are cut in one piece."""
        gaps = np.flatnonzero(rows[1:] - rows[:-1] != 1)
        first = self.starts[rows[np.append(0, gaps + 1)]].tolist()
        last = self.stops[rows[np.append(gaps, len(rows) - 1)]].tolist()
        return b"".join([self.data[a:b] for a, b in zip(first, last, strict=True)]).rstrip(b",")

    def line_break(self, rows: Rows, number: int) -> tuple[Rows, Rows]:
        """Those of the rows that have a line break of that number, and where it stands."""
        index = self.line[rows] + number
        there = index < len(self.lines)
        return rows[there], self.lines[index[there]]


def split(
    data: bytes, frames: Frames | None = None, heads: tuple[Heads, Heads] | None = None
) -> tuple[Batch, Counter[str]] | None:
    """Decode a chunk by category; None when it is not in a layout of Kineto's.

    Returns the batch and the counts (`ph:cat`) of rows that were skipped. Of Python frames only those that `frames`
    may want are decoded. heads: where the names of rows read in place (of host and device) are numbered; without it
    all are decoded. Raises ValueError when an event that is decoded is not valid JSON.
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
    stops = np.append(starts[1:], len(data))
    at = starts + (len(_OPEN) + len(layout.head))
    return _sorted(_Chunk(data, words, lines, line, starts, stops, at, layout), frames, heads)


def _whole(data: bytes, words: Words, starts: Rows, ends: Rows) -> bool:
    """Every start has its own end right before the next start: the lines prove the structure."""
    return (
        len(ends) == len(starts)
        and int(ends[-1]) + len(_CLOSE) == len(data)
        and not data[: int(starts[0])].strip()
        and bool((ends[:-1] + len(_CLOSE) + 1 == starts[1:]).all())
        and bool(((words[ends[:-1]] & _mask(5)) == _word(_CLOSE + b",")).all())
    )


def _sorted(c: _Chunk, frames: Frames | None, heads: tuple[Heads, Heads] | None) -> tuple[Batch, Counter[str]]:
    words, head = c.words, c.layout.head
    first = c.starts + len(_OPEN)
    common, phase = words[first] == _word(head), words[first + 8]
    timed = common & (phase == _word(head, 8))
    timed &= (words[first + 16] == _word(head, 16)) if len(head) > 23 else True
    timed &= words[c.at - 8] == _word(head, len(head) - 8)
    one, two = words[c.at], words[c.at + 8]
    left = np.ones(len(c.starts), np.bool_)
    skipped: Counter[str] = Counter()
    python = np.flatnonzero(timed & (one == _word(b"python_f")) & (two == _word(b'unction"')))
    if frames is not None and len(python):
        python = _unwanted(c, python, frames)
    left[python] = False
    skipped[f"X:{CATEGORY}"] = len(python)
    _skip_flows(c, common, phase, left, skipped)
    batch: Batch = []
    for category, kind, way in _LEAN:
        key = c.layout.key(category)
        rows = np.flatnonzero((one == _word(key)) & (two == _word(key, 8)) & timed)
        rows = _plain(words, rows, c.at, key, _FULL_KERNELS if way == "kernel" else FULL_NAMES) if len(rows) else rows
        if heads is not None and len(rows) >= _MIN_FIXED:
            left[rows] = False
            fixed, rows = _in_place(c, rows, len(key), way, heads[way in _OF_DEVICE])
            batch.append(("X", category, fixed))
            left[rows] = True
        if kind is not None and len(rows) >= _MIN_FIXED:
            left[rows] = False
            batch.append(("X", category, _lean(c.cut(rows), kind, len(rows))))
    rest = np.flatnonzero(left)
    if len(rest):
        groups = decode(c.cut(rest))
        if sum(len(events) for _, _, events in groups) != len(rest):
            raise ValueError("events do not match their lines")
        batch += groups
    return batch, +skipped


def _lean(piece: bytes, kind: type, count: int) -> list[Any]:
    if kind is LeanDevice and _COLLECTIVE in piece:
        kind = Event
    events = decode_as(kind, piece)
    if len(events) != count:
        raise ValueError("events do not match their lines")
    return events


def _plain(words: Words, rows: Rows, at: Rows, key: bytes, prefixes: tuple[bytes, ...]) -> Rows:
    """Rows that go on with the key (16 bytes of it are known) to its end and whose name has none of the prefixes."""
    names = at[rows] + len(key)
    start = words[names] & _mask(4)
    full = np.zeros(len(rows), np.bool_)
    for prefix in prefixes:
        full |= start == _word(prefix)
    for back in range(8, len(key) - 8, 8):
        full |= words[names - back] != _word(key, len(key) - back)
    plain: Rows = rows[~full]
    return plain


def _in_place(c: _Chunk, rows: Rows, key: int, way: str, heads: Heads) -> tuple[FixedRows, Rows]:
    """Rows read where they stand, and the other ones; key: bytes from the category to the name."""
    asked, at = c.line_break(rows, c.layout.head_ends)
    inside = (at >= BLOCK) & (at + REACH <= len(c.data))
    asked, at = asked[inside], at[inside]
    if way == "kernel":
        bare = _bare_kernels(c, asked)
        asked, at = asked[bare], at[bare]
    fixed, good = read(way, c.data, c.at[asked] + key, at, c.layout.dur, heads, MAX_DUR_NS)
    others = np.setdiff1d(rows, asked[good], assume_unique=True) if len(fixed) < len(rows) else rows[:0]
    return fixed, others


def _bare_kernels(c: _Chunk, rows: Rows) -> Mask:
    """Kernels without arguments of communication: those follow the launch's, of which the occupancy is the last."""
    end = c.stops[rows] - len(_ARGS_END)
    bare = np.zeros(len(rows), np.bool_)
    for digits in (2, 1, 3):
        todo = np.flatnonzero(~bare)
        bare[todo] = c.words[end[todo] - digits - 8] == _word(_LAST_OF_LAUNCH)
    for i in np.flatnonzero(~bare).tolist():
        bare[i] = c.data.find(_COLLECTIVE, int(c.starts[rows[i]]), int(c.stops[rows[i]])) < 0
    return bare


def _unwanted(c: _Chunk, rows: Rows, frames: Frames) -> Rows:
    """Those of the Python rows that need no decoding."""
    key = c.layout.key(CATEGORY)
    rows, end = c.line_break(rows, c.layout.name_ends)
    begin = c.at[rows] + len(key)
    usual = end >= np.maximum(begin, BLOCK)
    for back in (8, 16):
        usual &= c.words[begin - back] == _word(key, len(key) - back)
    unwanted: Rows = rows[usual][~frames.select(c.data, begin[usual], end[usual])]
    return unwanted


def _skip_flows(c: _Chunk, common: Mask, phase: Words, left: Mask, skipped: Counter[str]) -> None:
    """Count flow starts and ends of known categories by the line that holds the category."""
    words, head = c.words, c.layout.head
    for letter in "sf":
        rows = np.flatnonzero(common & (phase == _word(head.replace(b"X", letter.encode()), 8)))
        rows, at = c.line_break(rows, c.layout.flow_line)
        at = at + 1
        for category in _FLOWS:
            text = c.layout.flow_cat + category.encode() + b'"'
            hit = (words[at] == _word(text)) & (words[at + len(text) - 8] == _word(text, len(text) - 8))
            hit &= words[at + 8] & _mask(len(text) - 8 if len(text) < 16 else 8) == _word(text, 8)
            found = rows[hit]
            left[found] = False
            skipped[f"{letter}:{category}"] = len(found)

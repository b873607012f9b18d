"""Bring one damaged event back to valid JSON, if the damage is of a known kind.

Every kind stands in the field's bug trackers: quotes that the writer did not escape, raw control
characters, bytes that are not UTF-8, and number words JSON does not know. Each repair is linear in
the size of the event.
"""

from __future__ import annotations

import re

MAX_PIECE = 1 << 20
"""Larger pieces are not repaired: no event of a profiler is that long."""

_NUMBER_WORD = re.compile(rb"(?<=[:,\[\s])(-?(?:NaN|nan|Infinity|inf))(?=\s{0,64}[,}\]])")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_TRAILING_COMMA = re.compile(rb",(?=\s{0,64}[}\]])")
_QUOTE = re.compile(rb'\\.|"', re.DOTALL)
_KEY_ENDS = re.compile(rb"\s{0,64}:")
_VALUE_ENDS = re.compile(rb'\s{0,64}(?:[}\]]|,\s{0,64}"[^"]{1,120}"\s{0,64}:|$)')
_ITEM_ENDS = re.compile(rb"\s{0,64}[,\]]")


def number_words(piece: bytes) -> bytes:
    """NaN, Infinity and inf → null."""
    return _NUMBER_WORD.sub(b"null", piece)


def encoding(piece: bytes) -> bytes:
    """Bytes that are not UTF-8 → U+FFFD; raw control characters → blanks; lone backslashes doubled."""
    text = _CONTROL.sub(b" ", piece.decode("utf-8", "replace").encode())
    return _BAD_ESCAPE.sub(lambda m: b"\\\\" if m[0] == b"\\" else m[0], text)


def trailing_commas(piece: bytes) -> bytes:
    """`,}` and `,]` → `}` and `]`."""
    return _TRAILING_COMMA.sub(b"", piece)


def quotes(piece: bytes) -> bytes:
    """Escape quotes inside strings: a string ends where its context says that it can end."""
    out: list[bytes] = []
    done = 0
    ends: re.Pattern[bytes] | None = None
    for found in _QUOTE.finditer(piece):
        if len(found[0]) > 1:
            continue
        if ends is None:
            before = piece[max(0, found.start() - 64) : found.start()].rstrip()[-1:]
            ends = _VALUE_ENDS if before == b":" else _ITEM_ENDS if before == b"[" else None
            if ends is None:  # after a comma or a brace: a key, or the next item of a list
                ends = _KEY_ENDS if _is_key(piece, found.end()) else _ITEM_ENDS
        elif ends.match(piece, found.end()):
            ends = None
        else:
            out.append(piece[done : found.start()] + b"\\")
            done = found.start()
    return b"".join([*out, piece[done:]])


def _is_key(piece: bytes, start: int) -> bool:
    close = piece.find(b'"', start, start + 200)
    return close >= 0 and _KEY_ENDS.match(piece, close + 1) is not None


LADDER = (
    ("number word (NaN/Infinity) set to null", number_words),
    ("control or non-UTF-8 bytes replaced", encoding),
    ("trailing comma dropped", trailing_commas),
    ("unescaped quotes in a string escaped", quotes),
)
"""(reason, repair) in the order to try; each works on the result of those before it."""

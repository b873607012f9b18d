"""Bring one damaged event back to valid JSON, if the damage is of a known kind.

Every kind stands in the field's bug trackers: quotes that the writer did not escape, raw control
characters, bytes that are not UTF-8, and number words JSON does not know.
"""

from __future__ import annotations

import re

_NUMBER_WORD = re.compile(rb'(?<=[:,\[\s])(-?(?:NaN|nan|Infinity|inf))(?=\s*[,}\]])')
_CONTROL = re.compile(rb"[\x00-\x1f]")
_TRAILING_COMMA = re.compile(rb",(\s*[}\]])")
_STRING_VALUE = re.compile(rb'("(?:[^"\\]|\\.){1,80}"\s*:\s*")(.*?)("\s*(?:,\s*"(?:[^"\\]|\\.){1,80}"\s*:|[}\]]))', re.S)
_BARE_QUOTE = re.compile(rb'(?<!\\)"')


def number_words(piece: bytes) -> bytes:
    """NaN, Infinity and inf → null."""
    return _NUMBER_WORD.sub(b"null", piece)


def encoding(piece: bytes) -> bytes:
    """Bytes that are not UTF-8 → U+FFFD; raw control characters → blanks."""
    text = piece.decode("utf-8", "replace").encode()
    return _CONTROL.sub(b" ", text)


def trailing_commas(piece: bytes) -> bytes:
    """`,}` and `,]` → `}` and `]`."""
    return _TRAILING_COMMA.sub(rb"\1", piece)


def quotes(piece: bytes) -> bytes:
    """Escape quotes inside string values: a value ends where a next key or a closer follows."""

    def fix(match: re.Match[bytes]) -> bytes:
        return match[1] + _BARE_QUOTE.sub(b'\\"', match[2]) + match[3]

    # A closing part is shared with the next key, so neighbours need a second pass.
    return _STRING_VALUE.sub(fix, _STRING_VALUE.sub(fix, piece))


LADDER = (
    ("number word (NaN/Infinity) set to null", number_words),
    ("control or non-UTF-8 bytes replaced", encoding),
    ("trailing comma dropped", trailing_commas),
    ("unescaped quotes in a string escaped", quotes),
)
"""(reason, repair) in the order to try; each works on the result of those before it."""

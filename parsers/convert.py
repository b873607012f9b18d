"""Turn lists of decoded values into exact numpy columns."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

MAX_US = float(1 << 53)
"""Times beyond this many µs (year 2255) are no times."""
EXACT_BELOW_US = float(1 << 43)
"""Below this many µs a float64 holds three decimals without loss; above it the text is needed."""
MAX_DUR_NS = 10 * 86_400 * 10**9
"""A span longer than ten days is no span of a recording."""
BAD = int(np.iinfo(np.int64).min)
_U64 = 1 << 64
_I63 = 1 << 63
_NUMBERS = frozenset({int, float})
_INTEGER = re.compile(r"0[xX][0-9a-fA-F]+|-?\d+")


def times(values: list[Any]) -> tuple[NDArray[np.int64], int]:
    """µs (int, float, text or `Raw`) → int64 ns, exact to the writer's three decimals; `BAD` = none.

    floor and fraction are scaled apart: exact for every float below 2^43 µs and for every integer.
    Also returns how many values were floats too large for that.
    """
    if not _NUMBERS.issuperset(map(type, values)):
        return np.array([_time_of(v) for v in values], np.int64), 0
    try:
        us = np.fromiter(values, np.float64, len(values))
    except OverflowError:
        return np.array([_time_of(v) for v in values], np.int64), 0
    whole = np.floor(us)
    part = us - whole
    size = np.abs(us).max(initial=0.0)
    if size < EXACT_BELOW_US:
        return whole.astype(np.int64) * 1000 + np.rint(part * 1000).astype(np.int64), 0
    usable = np.abs(us) < MAX_US
    whole = np.where(usable, whole, 0.0)
    part = np.where(usable, part, 0.0)
    inexact = int(np.count_nonzero((np.abs(whole) >= EXACT_BELOW_US) & (part != 0)))
    ns = whole.astype(np.int64) * 1000 + np.rint(part * 1000).astype(np.int64)
    ns[~usable] = BAD
    return ns, inexact


def _time_of(value: Any) -> int:
    if isinstance(value, msgspec.Raw):
        text = bytes(value).decode("latin-1").strip('" ')
    elif isinstance(value, bool) or value is None:
        return BAD
    else:
        text = str(value)
    try:
        us = Decimal(text)
    except InvalidOperation:
        return BAD
    if not us.is_finite() or abs(us) >= MAX_US:
        return BAD
    return int((us * 1000).to_integral_value())


def as_int(value: Any) -> int | None:
    """Integer of any spelling ("7", 7.0, "0x1f"); None when there is none."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if abs(value) < MAX_US else None
    if isinstance(value, str):
        found = _INTEGER.fullmatch(value.strip()) if len(value) <= 64 else None
        return int(found[0], 0 if found[0][:2] in ("0x", "0X") else 10) if found else None
    return None


def stream_number(value: Any) -> int | None:
    """Stream of any spelling: 7, "7", "stream 7", "stream 7 user", "0x5f3a"."""
    if isinstance(value, str):
        found = _INTEGER.search(value[:64])
        return as_int(found[0]) if found else None
    return as_int(value)


def _wrap(number: int | None) -> int:
    if number is None:
        return -1
    number %= _U64
    return number - _U64 if number >= _I63 else number


def ints(values: list[Any]) -> NDArray[np.int64]:
    """Ids as 64 bits, two's complement; -1 where there is none."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([_wrap(as_int(v)) for v in values], np.int64)


def streams(values: list[Any]) -> NDArray[np.int64]:
    """Stream numbers as 64 bits; -1 where there is none."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([_wrap(stream_number(v)) for v in values], np.int64)


class Interner(dict[Any, int]):
    """Distinct values → 0, 1, 2 … in order of first sight."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number

    def codes(self, values: Iterable[Any], n: int) -> NDArray[np.int32]:
        """int32 code of each of the n values."""
        return np.fromiter(map(self.__getitem__, values), np.int32, n)

"""Turn lists of decoded values into exact numpy columns."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_US = float(1 << 53)
"""Times beyond this many µs (year 2255) are no times."""
BAD = np.iinfo(np.int64).min
_U64 = 1 << 64
_I63 = 1 << 63


def times(values: list[Any]) -> NDArray[np.int64]:
    """µs (int, float, text or `Raw`) → int64 ns, exact to the writer's three decimals; `BAD` = none.

    floor and fraction are scaled apart: exact for every float below 2^43 µs and for every integer.
    """
    if values and isinstance(values[0], msgspec.Raw):  # numpy would read the text as a float
        return np.array([_time_of(v) for v in values], np.int64)
    try:
        us = np.fromiter(values, np.float64, len(values))
    except (TypeError, ValueError):
        return np.array([_time_of(v) for v in values], np.int64)
    with np.errstate(invalid="ignore"):
        usable = np.abs(us) < MAX_US
        us = np.where(usable, us, 0.0)
        whole = np.floor(us)
        ns = whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)
    ns[~usable] = BAD
    return ns


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
    """Integer of any spelling ("7", 7.0, "stream 7"); None when there is none."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value == value and abs(value) < MAX_US else None
    if isinstance(value, str):
        digits = value.strip().rsplit(" ", 1)[-1]
        try:
            return int(digits, 16) if digits[:2] == "0x" else int(digits)
        except ValueError:
            return None
    return None


def _wrap(value: Any) -> int:
    number = as_int(value)
    if number is None:
        return -1
    number %= _U64
    return number - _U64 if number >= _I63 else number


def ints(values: list[Any]) -> NDArray[np.int64]:
    """Ids as 64 bits, two's complement; -1 where there is none."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([_wrap(v) for v in values], np.int64)


class Interner(dict[Any, int]):
    """Distinct values → 0, 1, 2 … in order of first sight."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number

    def codes(self, values: list[Any]) -> NDArray[np.int32]:
        """int32 code of each value."""
        return np.fromiter(map(self.__getitem__, values), np.int32, len(values))

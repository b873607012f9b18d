"""Distinct rows of a table of integers, and their order."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MOST_CELLS = 1 << 16
"""Possible values up to which a table of them all is faster than sorting."""
_DIGIT = MOST_CELLS.bit_length() - 1
_ROOM = 8
"""Cells of such a table for each value, where there are many values."""
_FEW = 4096
"""Values up to which sorting them is faster than a table."""
_MOST = 1 << 62


def distinct_rows(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """(k distinct rows × columns, ascending; number of each row's distinct row). At least one column, all of a length.

    What `np.unique(…, axis=0)` gives, column by column: that compares whole rows as bytes and is ten times slower.
    """
    ranges = [_range(column) for column in columns]
    packed = _packed(columns, ranges)
    if prod(r.span for r in ranges) < _MOST:
        found, which = distinct_values(packed[0])
        return _unpacked(found, ranges), which
    order = np.lexsort(tuple(packed)[::-1])
    new = np.zeros(len(order), np.bool_)
    new[:1] = True
    for column in packed:
        placed = column[order]
        new[1:] |= placed[1:] != placed[:-1]
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(new) - 1
    first = order[new]
    return np.stack([column[first] for column in columns], axis=1), which


class _Range(Struct):
    """Values of a column: `span` of them from `low` on; missing: the lowest stands for `NO_TIME`, far below all."""

    low: int
    span: int
    missing: bool = False


def _range(column: Ints) -> _Range:
    if not len(column):
        return _Range(0, 1)
    low, high = int(column.min()), int(column.max())
    if low == NO_TIME and high > low:
        low = int(column[column != NO_TIME].min()) - 1
        return _Range(low, high - low + 1, missing=True)
    return _Range(low, high - low + 1)


def _packed(columns: Sequence[Ints], ranges: Sequence[_Range]) -> list[Ints]:
    """Fewer columns of the same order, not negative where they are one: neighbours that fit share a number."""
    out: list[Ints] = []
    room = 0  # values of the last column of `out`
    for column, r in zip(columns, ranges, strict=True):
        if r.span == 1:
            continue
        if r.span >= _MOST:
            out.append(column)
            room = r.span
            continue
        placed = np.subtract(np.maximum(column, r.low) if r.missing else column, r.low, dtype=np.int64)
        if out and room * r.span < _MOST:
            out[-1] *= r.span
            out[-1] += placed
            room *= r.span
        else:
            out.append(placed)
            room = r.span
    return out or [np.zeros(len(columns[0]), np.int64)]


def _unpacked(values: Ints, ranges: Sequence[_Range]) -> Ints:
    out = np.empty((len(values), len(ranges)), np.int64)
    for i, r in reversed([*enumerate(ranges)]):
        values, digit = np.divmod(values, r.span)
        out[:, i] = digit + r.low
        if r.missing:
            out[digit == 0, i] = NO_TIME
    return out


def distinct_values(values: Ints) -> tuple[Ints, Ints]:
    """What `np.unique(…, return_inverse=True)` gives of numbers that are not negative, quick where few differ.

    Digit by digit from tables; it sorts only where pairs of digits are too many for one.
    """
    top = int(values.max(initial=0))
    if top < max(MOST_CELLS, _ROOM * len(values)):
        there = np.zeros(top + 1, np.bool_)
        there[values] = True
        found = np.flatnonzero(there)
        number = np.empty(top + 1, np.int64)
        number[found] = np.arange(len(found))
        return found, number[values]
    if len(values) < _FEW:
        few: tuple[Ints, Ints] = np.unique(values, return_inverse=True)
        return few
    high, upper = distinct_values(values >> _DIGIT)
    low, lower = distinct_values(values & MOST_CELLS - 1)
    pair = upper * len(low) + lower
    if len(high) * len(low) <= MOST_CELLS:
        found, which = distinct_values(pair)
    else:
        found, which = np.unique(pair, return_inverse=True)
    return high[found // len(low)] << _DIGIT | low[found % len(low)], which


def order_of(values: Ints) -> NDArray[np.intp]:
    """What `np.argsort(…, kind="stable")` gives, of numbers that are not negative several times as fast.

    Numbers alone are sorted faster than positions by their numbers; so these ride in the low bits where they fit.
    """
    bits = len(values).bit_length()
    if int(values.max(initial=0)).bit_length() + bits > _BITS or values.min(initial=0) < 0:
        return np.argsort(values, kind="stable")
    packed = values << bits | np.arange(len(values))
    packed.sort()
    return packed & (1 << bits) - 1


def within(key: Ints, values: Ints) -> Ints:
    """Values in the order of their keys (not negative), then of their own."""
    bits = int(values.max(initial=0)).bit_length()
    if int(key.max(initial=0)).bit_length() + bits > _BITS or values.min(initial=0) < 0:
        return values[np.lexsort((values, key))]
    packed = key << bits | values
    packed.sort()
    return packed & (1 << bits) - 1


_BITS = 63

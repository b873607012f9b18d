"""Distinct rows of a table of integers."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


MOST_CELLS = 1 << 16
"""Possible rows up to which a table of them all is faster than sorting."""


def distinct_rows(columns: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(k distinct rows × columns, ascending; number of each row's distinct row). At least one column, all of a length.

    What `np.unique(…, axis=0)` gives, column by column: that compares whole rows as bytes and is ten times slower.
    """
    lows = [int(column.min(initial=0)) for column in columns]
    spans = [int(column.max(initial=0)) - low + 1 for column, low in zip(columns, lows, strict=True)]
    if prod(spans) <= MOST_CELLS:
        return _by_table(columns, lows, spans)
    order = np.lexsort(tuple(_packed(columns, lows, spans))[::-1])
    new = np.zeros(len(order), np.bool_)
    new[:1] = True
    for column in columns:
        placed = column[order]
        new[1:] |= placed[1:] != placed[:-1]
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(new) - 1
    first = order[new]
    return np.stack([column[first] for column in columns], axis=1), which


def _packed(columns: Sequence[NDArray[np.int64]], lows: Sequence[int], spans: Sequence[int]) -> list[NDArray[np.int64]]:
    """Fewer columns of the same order: neighbours whose spans fit into one number, without those of one value."""
    out: list[NDArray[np.int64]] = []
    room = 0  # values of the last column of `out`
    for column, low, span in zip(columns, lows, spans, strict=True):
        if span == 1:
            continue
        if out and room * span < _MOST:
            out[-1] = out[-1] * span + (column - low)
            room *= span
        else:
            out.append(column - low if span < _MOST else column)
            room = span
    return out or [columns[0]]


_MOST = 1 << 63


def _by_table(
    columns: Sequence[NDArray[np.int64]], lows: Sequence[int], spans: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same where all values lie in [low, low + span) of their column, and there are few possible rows."""
    code = np.zeros(len(columns[0]), np.int64)
    for column, low, span in zip(columns, lows, spans, strict=True):
        code *= span
        code += column - low
    there = np.zeros(prod(spans), np.bool_)
    there[code] = True
    values = np.unravel_index(np.flatnonzero(there), tuple(spans))
    which = (np.cumsum(there) - 1)[code]
    return np.stack([value + low for value, low in zip(values, lows, strict=True)], axis=1), which

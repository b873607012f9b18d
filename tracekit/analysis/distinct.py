"""Distinct rows of a table of integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def distinct_rows(columns: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(k distinct rows × columns, ascending; number of each row's distinct row). At least one column, all of a length.

    What `np.unique(…, axis=0)` gives, column by column: that compares whole rows as bytes and is ten times slower.
    """
    order = np.lexsort(tuple(columns)[::-1])
    new = np.zeros(len(order), np.bool_)
    new[:1] = True
    for column in columns:
        placed = column[order]
        new[1:] |= placed[1:] != placed[:-1]
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(new) - 1
    first = order[new]
    return np.stack([column[first] for column in columns], axis=1), which

"""What a recording did more in a time than others in theirs: many comparisons at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.crossrank.lapse import CAUSES, UNKNOWN
from tracekit.analysis.distinct import within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

SMALL_NS = 1_000
"""A difference below this is none: device times are rounded to as much."""


class Compared(Struct):
    """Comparisons of one window with others, by positions in common columns of windows.

    late: the window of each; other: the windows it is compared with, comparison by comparison, `owner` of each
    (ascending).
    """

    late: NDArray[np.int64]
    other: NDArray[np.int64]
    owner: NDArray[np.int64]

    @property
    def many(self) -> NDArray[np.int64]:
        """Windows that each is compared with."""
        return np.bincount(self.owner, minlength=len(self.late))


def excess(spent: NDArray[np.int64], them: Compared) -> NDArray[np.float64]:
    """Shares, a column each of CAUSES, of what was done more than the median of the others; rows add up to 1.

    spent: as `Lapse.spent`, of every window. Each comparison has others.
    """
    many = them.many
    first = np.cumsum(many) - many
    more = np.zeros((len(them.late), len(CAUSES)))
    for cause in range(len(CAUSES)):
        values = within(them.owner, spent[them.other, cause])
        middle = (values[first + (many - 1) // 2] + values[first + many // 2]) / 2
        more[:, cause] = spent[them.late, cause] - middle
    more[more <= SMALL_NS] = 0
    total = more.sum(axis=1)
    more[total == 0, UNKNOWN] = 1
    shares: NDArray[np.float64] = more / np.where(total == 0, 1, total)[:, None]
    return shares


class Longer(Struct):
    """Calls that waited longer than their counterparts: comparison, its call and the counterparts of it (positions in
    the columns of all calls), and the share of the comparison's excess of waiting.
    """

    comparison: NDArray[np.int64]
    call: NDArray[np.int64]
    counterparts: NDArray[np.int64]
    share: NDArray[np.float64]


def longer(
    wait: NDArray[np.int64], begin: NDArray[np.int64], length: NDArray[np.int64], them: Compared, most: int
) -> Iterator[Longer]:
    """The calls in windows, one by one against those of the others' windows that have as many; the `most` longest.

    wait: ns of every call; begin, length: the calls of each window. Batches have one number of calls and counterparts.
    """
    same = length[them.other] == length[them.late][them.owner]
    other, owner = them.other[same], them.owner[same]
    many = np.bincount(owner, minlength=len(them.late))
    first = np.cumsum(many) - many
    shape = length[them.late] * (int(many.max(initial=0)) + 1) + many
    order = np.argsort(shape, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(shape[order])) + 1):
        if not len(at) or not (calls := int(length[them.late[at[0]]])):
            continue
        step = np.arange(calls)
        own = begin[them.late[at]][:, None] + step
        with_ = other[first[at][:, None] + np.arange(many[at[0]])]
        theirs = begin[with_][:, :, None] + step
        usual: NDArray[np.float64] | float = 0.0
        if n := theirs.shape[1]:
            ordered = np.sort(wait[theirs], axis=1)
            usual = (ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2
        weight = np.maximum(wait[own] - usual, 0.0)
        chosen = np.argsort(-weight, axis=1, kind="stable")[:, :most]
        share = np.take_along_axis(weight, chosen, 1) / np.maximum(weight.sum(axis=1), 1.0)[:, None]
        row, column = np.nonzero(share)
        call = chosen[row, column]
        yield Longer(at[row], own[row, call], theirs[row, :, call], share[row, column])

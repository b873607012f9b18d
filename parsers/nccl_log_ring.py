"""The last calls of a log of any length, in compact columns."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIELDS = 5


class Ring:
    """Keeps the last `size` rows of five columns (the first is a number that is counted when its row goes).

    total: rows ever added; dropped: value of the first column → rows that went.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.total = 0
        self.dropped: Counter[int] = Counter()
        self._parts: deque[tuple[NDArray[Any], ...]] = deque()
        self._kept = 0

    def add(self, *columns: NDArray[Any]) -> int:
        """Append rows; returns the number of the first of them."""
        start = self.total
        self._parts.append(columns)
        self.total += len(columns[0])
        self._kept += len(columns[0])
        while self._parts and self._kept - len(self._parts[0][0]) >= self.size:
            self._drop(self._parts.popleft()[0])
        return start

    def _drop(self, column: NDArray[Any]) -> None:
        self._kept -= len(column)
        counts = np.bincount(column)
        values = np.flatnonzero(counts)
        self.dropped.update(dict(zip(values.tolist(), counts[values].tolist(), strict=True)))

    def columns(self) -> tuple[int, list[NDArray[Any]]]:
        """(number of the first row kept, columns)."""
        if not self._parts:
            return self.total, [np.empty(0, np.int64) for _ in range(_FIELDS)]
        joined = [np.concatenate(c) for c in zip(*self._parts, strict=True)]
        extra = len(joined[0]) - self.size
        if extra > 0:
            self._parts.clear()
            self._drop(joined[0][:extra])
            joined = [c[extra:] for c in joined]
            self._parts.append(tuple(joined))
        return self.total - len(joined[0]), joined

"""Calls of an account as columns in a file of ours: a fraction of what an object at a time costs."""

from __future__ import annotations

import pickle
from typing import IO, TYPE_CHECKING, Any

from tracekit.model import CallColumns

if TYPE_CHECKING:
    from collections.abc import Mapping


def dump(n: int, columns: Mapping[str, list[Any]], sink: IO[bytes]) -> None:
    """Write the columns of n calls (`tracekit.model.columns_of`)."""
    pickle.dump((n, columns), sink, protocol=5)


def load(source: IO[bytes]) -> CallColumns:
    """The calls of a file that `dump` wrote in this very run."""
    n, columns = pickle.load(source)  # noqa: S301
    return CallColumns(n, columns)

"""Communication records as columns: which are alike, and what each has of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.model import CommRecords

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tracekit.model import CommArgs

    Numbers = NDArray[np.int64]


def kinds_of(comm: Sequence[CommArgs], numbers: Numbers) -> Numbers:
    """Kind of each of some records (-1 = none: -1): those of one kind differ in `seq` and `comms_id` alone."""
    return comm.kinds(numbers) if isinstance(comm, CommRecords) else numbers


def own_numbers(comm: Sequence[CommArgs], numbers: Numbers) -> tuple[list[int | None], list[int | None]]:
    """`seq` and `comms_id` of each of some records (-1 = none)."""
    if isinstance(comm, CommRecords):
        return comm.own(numbers)
    records = [comm[i] if i >= 0 else None for i in numbers.tolist()]
    return [r.seq if r else None for r in records], [r.comms_id if r else None for r in records]

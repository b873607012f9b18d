"""What of a rank's device work the cross-rank step needs: unions, and the activities of each call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracekit.analysis.intervals import union
from tracekit.analysis.tables import from_numpy
from tracekit.model import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.model import LabelledRank

COMPUTE, FUSED, COPY, CALL = -1, -2, -3, -4
"""Values of `call` for rows that are no activity of a call; CALL = communication without a call."""


def busy_table(labelled: LabelledRank, origin: int) -> pa.Table:
    """Columns device (int32), ts_ns, dur_ns (int64, from `origin`), call (int32).

    Rows of compute, fused, and copies with sets are disjoint unions; each communication activity has its own row
    with the number of its call.
    """
    acts = labelled.activities
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], int]] = []
    for device in np.unique(acts.device).tolist():
        here = acts.device == device
        for code, kinds in ((COMPUTE, (Kind.COMPUTE,)), (FUSED, (Kind.FUSED,)), (COPY, (Kind.COPY, Kind.SET))):
            rows = np.flatnonzero(here & np.isin(acts.kind, kinds))
            start, end = union(acts.ts[rows], acts.ts[rows] + acts.dur[rows])
            parts.append((start, end - start, np.full(len(start), code, np.int32), device))
        rows = np.flatnonzero(here & (acts.kind == Kind.COMM))
        call = np.where(acts.call[rows] >= 0, acts.call[rows], CALL).astype(np.int32)
        parts.append((acts.ts[rows], acts.dur[rows], call, device))
    device_column = np.concatenate([np.empty(0, np.int32), *(np.full(len(p[0]), p[3], np.int32) for p in parts)])
    return pa.table(
        {
            "device": from_numpy(device_column, pa.int32()),
            "ts_ns": from_numpy(np.concatenate([_NONE, *(p[0] for p in parts)]) - origin, pa.int64()),
            "dur_ns": from_numpy(np.concatenate([_NONE, *(p[1] for p in parts)]), pa.int64()),
            "call": from_numpy(np.concatenate([np.empty(0, np.int32), *(p[2] for p in parts)]), pa.int32()),
        }
    )


_NONE = np.empty(0, np.int64)

"""Runtime calls of the host: where it issued device work, and where it waited for the device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from tracekit.model import HostCat, HostTimes

if TYPE_CHECKING:
    from tracekit.model import RankTrace

_WAITS = re.compile(
    r"(?:cuda|hip|cu)(?:(?:Stream|Device|Event|Ctx|Thread)Synchronize|Memcpy(?:DtoH|HtoD|WithStream)?)(?:_v\d+)?"
)
"""Calls that return when device work is over; a copy to pageable memory blocks, too, but ends in one of them."""


def host_times(trace: RankTrace) -> HostTimes | None:
    """Runtime calls of a trace, in order of time; None when it has none."""
    rows = np.flatnonzero(trace.host.cat == HostCat.RUNTIME)
    if not len(rows):
        return None
    host = trace.host
    rows = rows[np.argsort(host.ts[rows], kind="stable")]
    names = np.unique(host.name[rows]).tolist()
    waits = np.isin(host.name[rows], [n for n in names if _WAITS.fullmatch(trace.names[n])])
    syncs = rows[waits]
    return HostTimes(
        [t.name or f"thread {t.tid}" for t in trace.tracks],
        host.ts[rows], host.track[rows].astype(np.int32),
        host.ts[syncs], host.ts[syncs] + host.dur[syncs], host.track[syncs].astype(np.int32),
    )  # fmt: skip

"""Small random jobs with their truth: who called what, which calls are the same, when everybody came."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.crossrank.columns import RankCalls
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    import random

US = 1000


@dataclass
class Event:
    """A call of one rank; `truth` is equal on the ranks that took part, and on no other call."""

    truth: int
    op: str
    group: str
    start: int
    end: int
    step: int | None
    name: str | None = None
    size: int | None = None
    seq: int | None = None
    comms: int | None = None
    src: int | None = None
    dst: int | None = None
    peers: int | None = None
    group_size: int | None = None


@dataclass
class Job:
    """Events of each rank in call order, on the true clock."""

    ranks: dict[int, list[Event]] = field(default_factory=dict)


def collectives(
    rng: random.Random,
    groups: list[tuple[int, ...]],
    steps: int,
    per_step: list[tuple[int, str, int]],
    *,
    gap: int = 300 * US,
    transfer: int = 80 * US,
    late: dict[int, int] | None = None,
) -> Job:
    """Each step calls `per_step` = (group number, op, size) in order; ranks in `late` come later by that many ns.

    A call starts on a rank when it is free and has computed for a random time; it ends on all ranks of the group
    together, `transfer` after the last of them came.
    """
    job = Job({r: [] for g in groups for r in g})
    free = dict.fromkeys(job.ranks, 0)
    seq = dict.fromkeys(range(len(groups)), 100)
    truth = 0
    for step in range(steps):
        for number, op, size in per_step:
            members = groups[number]
            truth += 1
            seq[number] += 1
            came = {}
            for rank in members:
                came[rank] = free[rank] + rng.randrange(gap // 2, gap) + (late or {}).get(rank, 0)
            end = max(came.values()) + transfer + rng.randrange(transfer // 4)
            for rank in members:
                group = ",".join(map(str, members))
                job.ranks[rank].append(
                    Event(truth, op, group, came[rank], end, step, f"g{number}", size, seq[number], 1000 + truth,
                          group_size=len(members))
                )  # fmt: skip
                free[rank] = end
    return job


def columns(
    rank: int,
    events: list[Event],
    *,
    offset: int = 0,
    drift_ppm: float = 0.0,
    host: str | None = None,
    comparable: bool = True,
    markers: bool = False,
    ids: bool = True,
    window: tuple[int, int] | None = None,
) -> RankCalls:
    """One rank's recording of some of its events on its own clock (offset and drift are what the clock shows too much)."""

    def shown(t: int) -> int:
        return t + offset + round(t * drift_ppm * 1e-6)

    def text(values: list[str | None]) -> tuple[np.ndarray, list[str]]:
        names = sorted({v for v in values if v is not None})
        return np.array([-1 if v is None else names.index(v) for v in values], np.int32), names

    def numbers(values: list[int | None]) -> np.ndarray:
        return np.array([NO_TIME if v is None else v for v in values], np.int64)

    low, high = window or (min((e.start for e in events), default=0), max((e.end for e in events), default=0))
    starts, ends = [shown(e.start) for e in events], [shown(e.end) for e in events]
    number = {
        "group_size": numbers([e.group_size for e in events]),
        "seq": numbers([e.seq if ids else None for e in events]),
        "src_rank": numbers([e.src for e in events]),
        "dst_rank": numbers([e.dst for e in events]),
        "in_nelems": numbers([e.size for e in events]),
        "out_nelems": numbers([e.size for e in events]),
        "payload_bytes": numbers([None if e.size is None else 4 * e.size for e in events]),
        "call_ts_ns": numbers([s - 10 * US for s in starts]),
        "ts_ns": numbers(starts),
        "dur_ns": numbers([e - s for s, e in zip(starts, ends, strict=True)]),
        "device": numbers([0] * len(events)),
        "step": numbers([e.step for e in events]),
        "coalesced_into": numbers([None] * len(events)),
        "peers": numbers([e.peers for e in events]),
    }
    texts = {
        "op": text([e.op for e in events]),
        "group_id": text([e.group or None for e in events]),
        "group_name": text([e.name for e in events]),
        "dtype": text(["Float"] * len(events)),
    }
    for name in ("strategy", "purpose", "phase", "scope", "family"):
        texts[name] = text([None] * len(events))
    known = [e.comms if ids else None for e in events]
    return RankCalls(
        rank, host, comparable, markers, (shown(low), shown(high)), texts, number,
        np.array([k or 0 for k in known], np.uint64), np.array([k is not None for k in known], np.bool_),
    )  # fmt: skip

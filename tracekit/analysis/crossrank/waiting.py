"""Waiting and transfer of matched calls (theory: 6.2), arrival order, bandwidth, and a verdict for each.

A synchronising collective moves data only when all ranks are there, and the last one to come waits for nobody: its
duration, the shortest, is the transfer, and needs no clock. What a call lasts longer is waiting. Messages need the
common clock: the receiver waits until the sender has begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.analysis.crossrank.align import END_SKEW_NS
from tracekit.analysis.crossrank.sequences import SYNCHRONISING
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.matching import Match

TRANSFER_BOUND, SKEW_BOUND = 0.25, 0.5
"""Share of waiting in the duration up to which a call is transfer-bound, from which on skew-bound."""


class Waits(Struct):
    """Per entry of `Flat`: wait, transfer (ns, `NO_TIME` = none) and why there is none; per match: `last`, `skew`.

    last: entry of the call that came last, -1 = undecided; last_by: `clock` | `duration`.
    """

    wait: NDArray[np.int64]
    transfer: NDArray[np.int64]
    reason: list[str | None]
    last: NDArray[np.int64]
    last_by: list[str | None]
    first_come: NDArray[np.int64]
    skew: NDArray[np.int64]
    error: NDArray[np.int64]


def waits(parts: Sequence[RankCalls], matches: Sequence[Match], flat: Flat, world: int | None) -> Waits:
    """Split every matched call where that is valid; elsewhere the reason."""
    n = len(flat)
    ops = [p.texts("op") for p in parts]
    together = np.array(
        [m.stream.kind != "p2p" and ops[m.parts[0]][m.rows[0]] in SYNCHRONISING for m in matches], np.bool_
    )
    out = Waits(
        np.full(n, NO_TIME, np.int64), np.full(n, NO_TIME, np.int64), [None] * n,
        *_arrivals(flat, len(matches), together),
    )  # fmt: skip
    timed = flat.all(flat.dur > 0)  # without a duration, or cut to none: nothing is transferred in no time
    lacking = ~flat.all(~flat.peers_lack)
    shortest = flat.least(flat.dur)
    valid = np.zeros(len(matches), np.bool_)
    flags = zip(flat.first.tolist(), timed.tolist(), lacking.tolist(), strict=True)
    for i, (match, (begin, has_time, lacks)) in enumerate(zip(matches, flags, strict=True)):
        if match.stream.kind == "p2p":
            _message(parts, match, flat, begin, out)
            continue
        reason = _invalid(match, ops[match.parts[0]][match.rows[0]], has_time, lacks, world)
        if reason is None:
            valid[i] = True
        else:
            out.reason[begin : begin + len(match.rows)] = [reason] * len(match.rows)
    if len(matches):
        entries = np.flatnonzero(valid[flat.match])
        out.transfer[entries] = shortest[flat.match[entries]]
        out.wait[entries] = flat.dur[entries] - out.transfer[entries]
    _owners_only(parts, flat, out)
    return out


def _invalid(match: Match, op: str | None, timed: bool, lacking: bool, world: int | None) -> str | None:
    """Why a collective cannot be split; None when it can."""
    if op not in SYNCHRONISING or lacking:
        return "not-synchronising"
    if not timed:
        return "untimed"
    expected = world if match.stream.kind == "assumed" else match.expected
    if expected is None:
        return "group-unknown"
    return None if len(match.rows) == expected else "ranks-missing"


def _message(parts: Sequence[RankCalls], match: Match, flat: Flat, begin: int, out: Waits) -> None:
    """Split receive and send of one message: none can move before both sides have begun."""
    assert match.stream.pair is not None
    sent = begin if parts[match.parts[0]].rank == match.stream.pair[0] else begin + 1
    got = 2 * begin + 1 - sent
    aligned = flat.component[sent] >= 0 and flat.component[sent] == flat.component[got]
    known = flat.arrival[sent] != NO_TIME and flat.arrival[got] != NO_TIME
    for me, partner in ((got, sent), (sent, got)):
        dur = int(flat.dur[me])
        if dur <= 0 or (aligned and not known):
            out.reason[me] = "untimed"
        elif not aligned:
            out.reason[me] = "clock"
        else:
            lag = int(flat.arrival[partner] - flat.arrival[me])
            if me == sent and lag > dur:  # it was gone before the receiver came: buffered, not waiting
                out.reason[me] = "eager-send"
            elif lag > dur + int(flat.error[sent] + flat.error[got]):  # received before it was sent
                out.reason[me] = "clock"
            else:
                out.wait[me] = min(max(lag, 0), dur)
                out.transfer[me] = dur - out.wait[me]


def _owners_only(parts: Sequence[RankCalls], flat: Flat, out: Waits) -> None:
    """One kernel may serve several calls: its waiting, that for the latest partner, goes to the call that owns it."""
    owner_of = np.full(len(flat), NO_TIME, np.int64)
    for p, one in enumerate(parts):
        mine = np.flatnonzero(flat.part == p)
        owner_of[mine] = one.number["coalesced_into"][flat.row[mine]]
    owned = np.flatnonzero(owner_of != NO_TIME).tolist()
    if not owned:
        return
    place = {(p, r): i for i, (p, r) in enumerate(zip(flat.part.tolist(), flat.row.tolist(), strict=True))}
    for i in owned:
        p, owner = int(flat.part[i]), int(owner_of[i])
        at = place.get((p, owner))
        if at is not None and out.wait[i] != NO_TIME and out.wait[i] > out.wait[at]:
            out.wait[at], out.transfer[at], out.reason[at] = out.wait[i], out.transfer[i], None
        out.wait[i] = out.transfer[i] = NO_TIME
        out.reason[i] = "coalesced"


def _arrivals(
    flat: Flat, n: int, together: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], list[str | None], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Last and first to come, skew and clock error of each match.

    Who came last is decided by the common clock where the gap to the last but one exceeds both clocks' error, and
    without one by duration (the last to come has the shortest) where it exceeds what ends differ by and all ranks leave
    `together`: the root of a broadcast, or a buffered send, comes first and is done first.
    """
    last, earliest = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    skew, error = np.full(n, NO_TIME, np.int64), np.full(n, NO_TIME, np.int64)
    by: list[str | None] = [None] * n
    if not n:
        return last, by, earliest, skew, error
    same = (flat.least(flat.component) == flat.most(flat.component)) & (flat.least(flat.component) >= 0)
    clocked = same & flat.all(flat.arrival != NO_TIME)
    timed = flat.all(flat.dur > 0) & flat.all(~flat.peers_lack) & together
    by_arrival, by_length = flat.order(flat.arrival), flat.order(flat.dur)
    stops = [*flat.first[1:].tolist(), len(flat)]
    for i, (begin, stop) in enumerate(zip(flat.first.tolist(), stops, strict=True)):
        if clocked[i]:
            a, b = int(by_arrival[stop - 1]), int(by_arrival[stop - 2])
            earliest[i] = by_arrival[begin]
            skew[i] = flat.arrival[a] - flat.arrival[earliest[i]]
            error[i] = int(np.sort(flat.error[begin:stop])[-2:].sum())
            if flat.arrival[a] - flat.arrival[b] > flat.error[a] + flat.error[b]:
                last[i], by[i] = a, "clock"
        elif timed[i]:
            a, b = int(by_length[begin]), int(by_length[begin + 1])
            if flat.dur[b] - flat.dur[a] > END_SKEW_NS:
                last[i], by[i] = a, "duration"
    return last, by, earliest, skew, error


def verdict(wait_ns: int, dur_ns: int) -> str:
    """`transfer-bound`, `mixed` or `skew-bound`, by the share of waiting in the duration of all ranks."""
    share = wait_ns / dur_ns if dur_ns else 0.0
    return "transfer-bound" if share <= TRANSFER_BOUND else "skew-bound" if share >= SKEW_BOUND else "mixed"


def bus_factor(op: str | None, ranks: int) -> float:
    """busbw / algbw as nccl-tests define it (theory: 3.1)."""
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if op in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter") else 1.0

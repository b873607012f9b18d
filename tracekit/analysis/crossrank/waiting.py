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
from tracekit.analysis.crossrank.columns import shared
from tracekit.analysis.crossrank.flat import gathered
from tracekit.analysis.crossrank.sequences import SYNCHRONISING
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.matches import Matches

TRANSFER_BOUND, SKEW_BOUND = 0.25, 0.5
"""Share of waiting in the duration up to which a call is transfer-bound, from which on skew-bound."""


class Waits(Struct):
    """Per entry of `Flat`: wait, transfer (ns, `NO_TIME` = none) and why there is none; per match: `last`, `skew`.

    why: position in REASONS; last: entry of the call that came last, -1 = undecided; by: position in DECIDED.
    """

    wait: NDArray[np.int64]
    transfer: NDArray[np.int64]
    why: NDArray[np.int64]
    last: NDArray[np.int64]
    by: NDArray[np.int64]
    first_come: NDArray[np.int64]
    skew: NDArray[np.int64]
    error: NDArray[np.int64]

    @property
    def reason(self) -> list[str | None]:
        """Why each entry is not split, in words; None = it is."""
        return [REASONS[code] for code in self.why.tolist()]


def waits(parts: Sequence[RankCalls], matches: Matches, flat: Flat, world: int | None) -> Waits:
    """Split every matched call where that is valid; elsewhere the reason."""
    n = len(flat)
    codes, names = shared(parts, "op")
    op = flat.heads(codes)
    p2p = matches.p2p
    synchronising = np.array([name in SYNCHRONISING for name in names], np.bool_)[op]
    out = Waits(
        np.full(n, NO_TIME, np.int64), np.full(n, NO_TIME, np.int64), np.zeros(n, np.int64),
        *_arrivals(flat, synchronising & ~p2p),
    )  # fmt: skip
    if len(matches):
        why = np.where(p2p, 0, _invalid(matches, flat, synchronising, world))
        out.why[:] = why[flat.match]
        at = np.flatnonzero(((why == 0) & ~p2p)[flat.match])
        out.transfer[at] = flat.least(flat.dur)[flat.match[at]]
        out.wait[at] = flat.dur[at] - out.transfer[at]
        _messages(parts, matches.source[p2p], flat, flat.first[p2p], out)
    _owners_only(parts, flat, out)
    return out


REASONS = (None, "ranks-missing", "group-unknown", "untimed", "not-synchronising", "clock", "eager-send", "coalesced")
_MISSING, _GROUP, _UNTIMED, _NOT_TOGETHER, _CLOCK, _EAGER, _COALESCED = range(1, len(REASONS))
"""Why a call is not split."""


def _invalid(matches: Matches, flat: Flat, synchronising: NDArray[np.bool_], world: int | None) -> NDArray[np.int64]:
    """Why each collective cannot be split, as a position in REASONS."""
    timed = flat.all(flat.dur > 0)  # without a duration, or cut to none: nothing is transferred in no time
    lacking = ~flat.all(~flat.peers_lack)
    expected = matches.expected(world)
    out = np.where(flat.size == expected, 0, _MISSING)
    out[expected < 0] = _GROUP
    out[~timed] = _UNTIMED
    out[lacking | ~synchronising] = _NOT_TOGETHER
    return out


def _messages(
    parts: Sequence[RankCalls],
    source: NDArray[np.int64],
    flat: Flat,
    begin: NDArray[np.intp],
    out: Waits,
) -> None:
    """Split receive and send of each message: none can move before both sides have begun.

    source: the rank that sends each; begin: its first entry.
    """
    ranks = np.array([p.rank for p in parts], np.int64)
    sent = begin + (ranks[flat.part[begin]] != source)
    got = 2 * begin + 1 - sent
    aligned = (flat.component[sent] >= 0) & (flat.component[sent] == flat.component[got])
    known = (flat.arrival[sent] != NO_TIME) & (flat.arrival[got] != NO_TIME)
    error = flat.error[sent] + flat.error[got]
    for me, partner in ((got, sent), (sent, got)):
        dur = flat.dur[me]
        lag = np.where(aligned & known, flat.arrival[partner] - flat.arrival[me], 0)
        early = lag > dur + error  # received before it was sent
        why = np.where(early, _CLOCK, 0)
        if me is sent:  # it was gone before the receiver came: buffered, not waiting
            why[lag > dur] = _EAGER
        why[~aligned] = _CLOCK
        why[(dur <= 0) | (aligned & ~known)] = _UNTIMED
        out.why[me] = why
        good = why == 0
        wait = np.minimum(np.maximum(lag, 0), dur)[good]
        out.wait[me[good]], out.transfer[me[good]] = wait, dur[good] - wait


def _owners_only(parts: Sequence[RankCalls], flat: Flat, out: Waits) -> None:
    """One kernel may serve several calls: its waiting, that for the latest partner, goes to the call that owns it."""
    owner_of = gathered(flat.part, flat.row, [p.number["coalesced_into"] for p in parts])
    owned = np.flatnonzero(owner_of != NO_TIME).tolist()
    if not owned:
        return
    place = {(p, r): i for i, (p, r) in enumerate(zip(flat.part.tolist(), flat.row.tolist(), strict=True))}
    for i in owned:
        p, owner = int(flat.part[i]), int(owner_of[i])
        at = place.get((p, owner))
        if at is not None and out.wait[i] != NO_TIME and out.wait[i] > out.wait[at]:
            out.wait[at], out.transfer[at], out.why[at] = out.wait[i], out.transfer[i], 0
        out.wait[i] = out.transfer[i] = NO_TIME
        out.why[i] = _COALESCED


def _arrivals(
    flat: Flat, together: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Last (with what tells) and first to come, skew and clock error of each match.

    Who came last is decided by the common clock where the gap to the last but one exceeds both clocks' error, and
    without one by duration (the last to come has the shortest) where it exceeds what ends differ by and all ranks leave
    `together`: the root of a broadcast, or a buffered send, comes first and is done first.
    """
    n = len(flat.first)
    last, earliest = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    skew, error = np.full(n, NO_TIME, np.int64), np.full(n, NO_TIME, np.int64)
    by = np.zeros(n, np.int64)
    if not n:
        return last, by, earliest, skew, error
    same = (flat.least(flat.component) == flat.most(flat.component)) & (flat.least(flat.component) >= 0)
    clocked = same & flat.all(flat.arrival != NO_TIME)
    timed = flat.all(flat.dur > 0) & flat.all(~flat.peers_lack) & together & ~clocked
    begin, a = flat.smallest(flat.arrival), flat.largest(flat.arrival)
    b = flat.largest(_without(flat.arrival, a, _LEAST))
    earliest[clocked] = begin[clocked]
    skew[clocked] = (flat.arrival[a] - flat.arrival[begin])[clocked]
    others = flat.most(_without(flat.error, flat.largest(flat.error), _LEAST))
    error[clocked] = (flat.most(flat.error) + others)[clocked]
    sure = clocked & (flat.arrival[a] - flat.arrival[b] > flat.error[a] + flat.error[b])
    last[sure], by[sure] = a[sure], 1
    a = flat.smallest(flat.dur)
    b = flat.smallest(_without(flat.dur, a, _MOST))
    sure = timed & (flat.dur[b] - flat.dur[a] > END_SKEW_NS)
    last[sure], by[sure] = a[sure], 2
    return last, by, earliest, skew, error


def _without(values: NDArray[np.int64], entries: NDArray[np.intp], instead: int) -> NDArray[np.int64]:
    out = values.copy()
    out[entries] = instead
    return out


_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
DECIDED = (None, "clock", "duration")
"""What tells who came last."""
VERDICTS = ("transfer-bound", "mixed", "skew-bound")


def verdicts(wait_ns: NDArray[np.int64], dur_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions in VERDICTS, by the share of waiting in the duration of all ranks."""
    share = wait_ns / np.where(dur_ns == 0, 1, dur_ns)
    return (share > TRANSFER_BOUND).astype(np.int64) + (share >= SKEW_BOUND)


def verdict(wait_ns: int, dur_ns: int) -> str:
    """The same of one, in words."""
    return VERDICTS[int(verdicts(np.array(wait_ns), np.array(dur_ns)))]


def bus_factor(op: str | None, ranks: int) -> float:
    """busbw / algbw as nccl-tests define it (theory: 3.1)."""
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if op in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter") else 1.0

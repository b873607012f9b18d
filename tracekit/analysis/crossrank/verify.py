"""Matches that no id tells are checked against the clocks that all matches together show; the refuted ones are undone.

A synchronising call ends on no rank before it began on another, a message is not received before it was sent, and a
receiver that is there already does not leave long after the message came. Losses in the middle of recordings can leave
sequences that look alike; the pairs are then of different calls, and break these laws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.crossrank.align import END_SKEW_NS
from tracekit.analysis.crossrank.clocks import align_clocks
from tracekit.analysis.crossrank.columns import shared
from tracekit.analysis.crossrank.flat import flatten, gathered
from tracekit.analysis.crossrank.gaps import LEAST, SHARP
from tracekit.analysis.crossrank.matches import HOW
from tracekit.analysis.crossrank.sequences import SYNCHRONISING
from tracekit.analysis.distinct import distinct_rows
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.matches import Matches
    from tracekit.analysis.crossrank.matching import Matched

REFUTED, REFUTED_ON_ONE_CLOCK = "clocks-differ", "order-differs"
_BY_ID, _NUMBERED = HOW.index("comms-id"), HOW.index("seq")
_TRUST = 0.95
"""Sequence numbers of a group are believed unless more of its calls break the laws."""
_ROUNDS = 3
"""Undone matches may have bent the clocks: look again, so often."""


def settle(parts: Sequence[RankCalls], matched: Matched) -> list[Clock]:
    """Undo the matches that break the laws, in place; the clocks of all recordings from what is left."""
    clocks = align_clocks(parts, matched.matches)
    for _ in range(_ROUNDS):
        wrong = _refuted(parts, matched.matches, clocks)
        if not wrong.any():
            break
        undone = matched.matches.chosen(np.flatnonzero(wrong))
        for p, r, why in zip(undone.part.tolist(), undone.row.tolist(), _why(parts, undone), strict=True):
            matched.unmatched[p][r] = why
        matched.matches = matched.matches.chosen(np.flatnonzero(~wrong))
        clocks = align_clocks(parts, matched.matches)
    return clocks


def _refuted(parts: Sequence[RankCalls], matches: Matches, clocks: Sequence[Clock]) -> NDArray[np.bool_]:
    """Which matches to undo."""
    wrong = np.zeros(len(matches), np.bool_)
    how, stream, streams = matches.how, matches.stream, matches.streams
    if (how == _BY_ID).all():
        return wrong
    flat = flatten(parts, matches, clocks)
    end = gathered(flat.part, flat.row, [c.place(p.end) for p, c in zip(parts, clocks, strict=True)])
    wrong = _broken(parts, matches, flat, clocks, end) | _late(parts, matches, flat, end)
    step = flat.heads([p.number["step"] for p in parts])
    _, place = distinct_rows([stream, step])  # losses shift what follows them, too
    wrong |= _across_steps(parts, flat)
    wrong = (np.bincount(place, wrong) > 0)[place] | _infeasible(flat, clocks)
    numbered = how == _NUMBERED
    broken, believed = (np.bincount(stream, flags, len(streams)) for flags in (wrong & numbered, numbered))
    share = broken / np.maximum(believed, 1)
    wrong[numbered] = (share > 1 - _TRUST)[stream[numbered]]
    wrong[how == _BY_ID] = False
    return wrong


def _why(parts: Sequence[RankCalls], undone: Matches) -> list[str]:
    """The reason for each call of undone matches: recordings of one host share a clock, which is not to blame."""
    hosts: dict[str, int] = {}
    one = np.array(
        [-1 - i if p.host is None or not p.comparable else hosts.setdefault(p.host, len(hosts))
         for i, p in enumerate(parts)], np.int64
    )[undone.part]  # fmt: skip
    same = np.minimum.reduceat(one, undone.first) == np.maximum.reduceat(one, undone.first)
    return [REFUTED_ON_ONE_CLOCK if s else REFUTED for s in np.repeat(same, undone.size).tolist()]


def _across_steps(parts: Sequence[RankCalls], flat: Flat) -> NDArray[np.bool_]:
    """Matches of calls in steps that markers number differently."""
    step = gathered(
        flat.part, flat.row, [p.number["step"] if p.markers else np.full(len(p), NO_TIME, np.int64) for p in parts]
    )
    least = flat.least(np.where(step == NO_TIME, np.iinfo(np.int64).max, step))
    return np.asarray(least < flat.most(step), np.bool_)


def _infeasible(flat: Flat, clocks: Sequence[Clock]) -> NDArray[np.bool_]:
    """Matches with a recording whose calls fit no clock: they can hardly be the same calls."""
    bad = np.array([c.method == "infeasible" for c in clocks], np.bool_)
    return ~flat.all(~bad[flat.part])


def _broken(
    parts: Sequence[RankCalls], matches: Matches, flat: Flat, clocks: Sequence[Clock], end: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Synchronising calls that end on one rank before they begin on another, whatever the clocks' error.

    end: of each entry of `flat`, on the common clock.
    """
    codes, names = shared(parts, "op")
    op = flat.heads(codes)
    together = np.array([name in SYNCHRONISING for name in names], np.bool_)[op] & ~matches.p2p
    together &= flat.all(~flat.peers_lack)
    start = gathered(flat.part, flat.row, [c.place(p.start) for p, c in zip(parts, clocks, strict=True)])
    known = (flat.component >= 0) & (start != NO_TIME) & (end != NO_TIME)
    one = flat.all(known) & (flat.least(flat.component) == flat.most(flat.component))
    slack = END_SKEW_NS + 2 * flat.most(flat.error)
    out: NDArray[np.bool_] = one & together & (flat.most(start) - flat.least(end) > slack)
    return out


def _late(parts: Sequence[RankCalls], matches: Matches, flat: Flat, end: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Messages received before they were sent; and, where receivers of a stream are seen to leave at once when both
    are there, those whose receiver stayed on. end: as in `_broken`.
    """
    out = np.zeros(len(matches), np.bool_)
    ranks = np.array([p.rank for p in parts], np.int64)
    source = matches.source
    at = np.flatnonzero(source >= 0)
    sent = flat.first[at] + (ranks[flat.part[flat.first[at]]] != source[at])
    got = 2 * flat.first[at] + 1 - sent
    end, stream = end[got], matches.stream
    begin, there = flat.arrival[sent], flat.arrival[got]
    known = (flat.component[sent] >= 0) & (flat.component[sent] == flat.component[got])
    known &= (end != NO_TIME) & (begin != NO_TIME) & (there != NO_TIME)
    at, sent, got, end, begin, there = (column[known] for column in (at, sent, got, end, begin, there))
    slack = END_SKEW_NS + flat.error[sent] + flat.error[got]
    out[at] = end < begin - slack
    took = end - np.maximum(begin, there)
    order = np.lexsort((took, stream[at]))
    for mine in np.split(order, np.flatnonzero(np.diff(stream[at][order])) + 1):
        if len(mine) >= LEAST:
            away = np.abs(took[mine] - took[mine[len(mine) // 2]])
            if float((away <= END_SKEW_NS).mean()) >= SHARP:
                out[at[mine]] |= away > slack[mine] + END_SKEW_NS
    return out

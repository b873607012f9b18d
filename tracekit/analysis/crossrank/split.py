"""Communication time of each strategy, split into waiting, transfer and what could not be split; exact to the ns.

The waiting part of a call is its beginning. An instant of a strategy counts as transfer when any call of it is in
transfer, else as waiting when any waits, else as not split. The attributed shares of the accounting are divided by
these instants, so their three parts add up to `attributed_ns`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.accounting import UNKNOWN, RowKey
from tracekit.analysis.crossrank.busy import COMPUTE, COPY, FUSED
from tracekit.analysis.crossrank.columns import distinct
from tracekit.analysis.intervals import time_by_state
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.columns import RankInput
    from tracekit.analysis.intervals import Spans, States

    Ints = NDArray[np.int64]

Row = dict[str, Any]
Key = TypeVar("Key", RowKey, str)
WAIT, TRANSFER, UNSPLIT = 0, 1, 2
Parts = list[int]
"""[waiting, transfer, not split], ns."""


class Split(Struct):
    """Time of one strategy, or row: `total` over all its time, `attributed` over its share of exposed time."""

    total: Parts = field(default_factory=lambda: [0, 0, 0])
    attributed: Parts = field(default_factory=lambda: [0, 0, 0])

    def columns(self) -> Row:
        """The published columns; null when nothing of it could be split."""
        known = self.total[WAIT] or self.total[TRANSFER]
        return {
            "wait_ns": self.total[WAIT] if known else None,
            "transfer_ns": self.total[TRANSFER] if known else None,
            "attributed_wait_ns": self.attributed[WAIT] if known else None,
            "attributed_transfer_ns": self.attributed[TRANSFER] if known else None,
            "attributed_unsplit_ns": self.attributed[UNSPLIT] if known else None,
        }


class RankSplit(Struct):
    """Splits of one recording: by (device, step) and row, and by device and strategy over the whole file."""

    rows: dict[tuple[int, int], dict[RowKey, Split]] = field(default_factory=dict)
    strategies: dict[int, dict[str, Split]] = field(default_factory=dict)


def split_rank(
    one: RankInput,
    keys: Sequence[RowKey],
    key: NDArray[np.int64],
    start: NDArray[np.int64],
    wait: NDArray[np.int64],
) -> RankSplit:
    """Split all communication of a recording.

    keys: rows of labels, each once; key: position there of each call's; start, wait: int64 ns of each call on the
    recording's own axis, wait `NO_TIME` where it has none.
    """
    busy = one.busy
    out = RankSplit()
    devices = distinct(busy.device)
    for number in devices:
        steps = [s for s in one.steps if s["device"] == number]
        if not steps:
            continue
        begin, owner, finish = busy.ts, busy.call, busy.ts + busy.dur
        if len(devices) > 1:
            here = busy.device == number
            begin, owner, finish = begin[here], owner[here], finish[here]
        low, high = int(begin.min()), int(finish.max())
        edges = np.array([low, steps[0]["ts_ns"], *(s["ts_ns"] + s["dur_ns"] for s in steps), high], np.int64)
        names, sets = _sets(begin, finish, owner, keys, key, start, wait)
        words = [*dict.fromkeys(strategy for strategy, _, _ in names)]
        of = np.array([words.index(strategy) for strategy, _, _ in names], np.int64)
        booked = _booked(of, time_by_state(sets, edges), len(edges) - 1)
        attributed = np.zeros((len(words), 3), np.int64)
        np.add.at(attributed, of, booked.shares.sum(axis=0))
        out.strategies[number] = _splits(words, booked.strategies.sum(axis=0), attributed)
        for step, *parts in zip(steps, booked.rows[1:-1], booked.shares[1:-1], strict=True):
            out.rows[number, step["step"]] = _splits(names, *parts)
    return out


def _splits(names: Sequence[Key], total: Ints, attributed: Ints) -> dict[Key, Split]:
    """Those that have any time. total, attributed: names × parts."""
    columns = zip(names, total.tolist(), attributed.tolist(), strict=True)
    return {name: Split(every, own) for name, every, own in columns if any(every)}


def _sets(
    ts: NDArray[np.int64],
    end: NDArray[np.int64],
    call: NDArray[np.int32],
    keys: Sequence[RowKey],
    key: NDArray[np.int64],
    start: NDArray[np.int64],
    wait: NDArray[np.int64],
) -> tuple[list[RowKey], list[Spans]]:
    """(rows in order; the sets of the accounting, then the waiting and the transferring part of each row)."""
    others = [np.flatnonzero(call == k) for k in (COMPUTE, FUSED, COPY)]
    sets = [(ts[rows], end[rows]) for rows in others]
    comm = np.flatnonzero((call != COMPUTE) & (call != FUSED) & (call != COPY))
    owner = call[comm]
    safe = np.where(owner >= 0, owner, len(key))
    found = np.append(key, len(keys))[safe]  # calls of no label: as a key of their own
    words = [*keys, UNKNOWN]
    used = np.flatnonzero(np.bincount(found, minlength=len(words))).tolist()
    names = sorted({words[k] for k in used})
    code_of = np.full(len(words), -1, np.int16)
    code_of[used] = [names.index(words[k]) for k in used]
    code = code_of[found]
    order = np.argsort(code, kind="stable")
    comm, safe, code = comm[order], safe[order], code[order]
    begin, stop = ts[comm], end[comm]
    waited = np.append(wait, NO_TIME)[safe]
    has = waited != NO_TIME
    turn = (np.append(start, 0)[safe] + waited)[has]
    a, b = begin[has], stop[has]
    middle = np.minimum(b, np.maximum(turn, a))
    for own, low, high in ((code, begin, stop), (code[has], a, middle), (code[has], middle, b)):
        cuts = np.searchsorted(own, np.arange(len(names) + 1)).tolist()
        sets += [(low[i:j], high[i:j]) for i, j in pairwise(cuts)]
    return names, sets


class _Active(Struct):
    """What is active in each of s states, with n rows of t strategies.

    base: number of the state of the accounting that it is part of (s); part: of each row, -1 = not active (s × n);
    together: the same of each strategy (s × t); compute: whether there is compute (s).
    """

    base: Ints
    part: Ints
    together: Ints
    compute: NDArray[np.bool_]


def _active(there: NDArray[np.bool_], of: Ints) -> _Active:
    """there: states × sets, as `_sets` has them; of: strategy of each row."""
    n = len(of)
    rows, waiting, moving = (there[:, _ACCOUNTED + i * n : _ACCOUNTED + (i + 1) * n] for i in range(3))
    part = np.where(rows, np.where(moving, TRANSFER, np.where(waiting, WAIT, UNSPLIT)), -1)
    together = np.full((len(there), int(of.max(initial=-1)) + 1), -1, np.int64)
    for which in (UNSPLIT, WAIT, TRANSFER):  # the last one found counts
        state, row = np.nonzero(part == which)
        together[state, of[row]] = which
    number: dict[bytes, int] = {}
    base = [number.setdefault(sets.tobytes(), len(number)) for sets in there[:, : _ACCOUNTED + n]]
    return _Active(np.array(base, np.int64), part, together, there[:, 0])


class _Booked(Struct):
    """Time of w windows by part: of each row (w × n × 3), of each strategy (w × t × 3), and the shares of rows in the
    exposed time (w × n × 3).
    """

    rows: Ints
    strategies: Ints
    shares: Ints


def _booked(of: Ints, states: States, windows: int) -> _Booked:
    """Book every state of the accounting, divided by the finer states it consists of.

    The shares are those of the accounting (same states, same order of names); each is cut at running sums, so that
    its parts add up to it. of: strategy of each row.
    """
    active = _active(states.active, of)
    order = np.argsort(states.window * len(active.base) + active.base[states.state], kind="stable")
    window, state, ns = states.window[order], states.state[order], states.ns[order]
    base = active.base[state]
    first = np.flatnonzero(np.append(True, (np.diff(window) != 0) | (np.diff(base) != 0))[: len(ns)])
    own = np.repeat(np.arange(len(first)), np.diff(first, append=len(ns)))
    before = np.cumsum(ns) - ns
    every = np.add.reduceat(ns, first) if len(first) else ns
    run = before - before[first][own] + ns
    amount = _shares(active, of, state[first], every)[own]
    wide = object if int(every.max(initial=0)) >= _PRODUCT else np.int64
    upto = (amount.astype(wide) * run[:, None] // every[own][:, None]).astype(np.int64)
    cut = np.diff(upto, axis=0, prepend=0)
    cut[first] = upto[first]
    return _Booked(
        _added(active.part[state], window, ns[:, None], windows),
        _added(active.together[state], window, ns[:, None], windows),
        _added(active.part[state], window, cut, windows),
    )


_ACCOUNTED = 3
"""Sets before those of rows: compute, fused, copies."""
_PRODUCT = 3_000_000_000
"""Two times (ns) below it have a product that fits into int64."""


def _added(part: Ints, window: Ints, values: Ints, windows: int) -> Ints:
    """Values (r × n, or r × 1) added up by window and part (windows × n × 3). part: -1 = none (r × n)."""
    r, i = np.nonzero(part >= 0)
    out = np.zeros((windows, part.shape[1], 3), np.int64)
    np.add.at(
        out.reshape(-1), (window[r] * part.shape[1] + i) * 3 + part[r, i], np.broadcast_to(values, part.shape)[r, i]
    )
    return out


def _shares(active: _Active, of: Ints, state: Ints, ns: Ints) -> Ints:
    """What each row is given (× n) of times in states: even shares of strategies, and even ones of rows in them."""
    one = np.zeros(active.together.shape[1], np.int64)
    share = np.where(active.compute[state], 0, ns)[:, None]
    return _evenly(_evenly(share, active.together[state] >= 0, one)[:, of], active.part[state] >= 0, of)


def _evenly(ns: Ints, on: NDArray[np.bool_], of: Ints) -> Ints:
    """`share_evenly` of times among the columns that are on, within each group of columns; 0 for the others.

    of: group of each column, ascending.
    """
    place = np.cumsum(on, axis=1)
    before: Ints = (place - on)[:, np.searchsorted(of, of, "left")]
    many = np.maximum(place[:, np.searchsorted(of, of, "right") - 1] - before, 1)
    return np.where(on, ns // many + (place - 1 - before < ns % many), 0)

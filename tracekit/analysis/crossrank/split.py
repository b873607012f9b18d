"""Communication time of each strategy, split into waiting, transfer and what could not be split; exact to the ns.

The waiting part of a call is its beginning. An instant of a strategy counts as transfer when any call of it is in
transfer, else as waiting when any waits, else as not split. The attributed shares of the accounting are divided by
these instants, so their three parts add up to `attributed_ns`.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.accounting import UNKNOWN, RowKey
from tracekit.analysis.arrays import mapped, plain
from tracekit.analysis.crossrank.busy import COMPUTE, COPY, FUSED
from tracekit.analysis.crossrank.columns import distinct
from tracekit.analysis.intervals import share_evenly, time_by_state
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.columns import RankInput

Row = dict[str, Any]
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
    table = mapped(one.files["busy"])
    device, call = (plain(table.column(n), np.dtype(np.int32))[0] for n in ("device", "call"))
    ts, dur = (plain(table.column(n), np.dtype(np.int64))[0] for n in ("ts_ns", "dur_ns"))
    end = ts + dur
    out = RankSplit()
    for number in distinct(device):
        steps = [s for s in one.steps if s["device"] == number]
        here = device == number
        if not steps:
            continue
        begin, finish, owner = ts[here], end[here], call[here]
        low, high = int(begin.min()), int(finish.max())
        edges = np.array([low, steps[0]["ts_ns"], *(s["ts_ns"] + s["dur_ns"] for s in steps), high], np.int64)
        windows = _windows(begin, finish, owner, keys, key, start, wait, edges)
        total: dict[str, Split] = defaultdict(Split)
        for window in windows:
            for (strategy, _, _), part in window.rows.items():
                _add(total[strategy].attributed, part.attributed)
            for strategy, part in window.strategies.items():
                _add(total[strategy].total, part.total)
        out.strategies[number] = dict(total)
        for step, window in zip(steps, windows[1:-1], strict=True):
            out.rows[number, step["step"]] = window.rows
    return out


def _add(into: Parts, what: Parts) -> None:
    for i, ns in enumerate(what):
        into[i] += ns


class _Window(Struct):
    rows: dict[RowKey, Split] = field(default_factory=lambda: defaultdict(Split))
    strategies: dict[str, Split] = field(default_factory=lambda: defaultdict(Split))


def _windows(
    ts: NDArray[np.int64],
    end: NDArray[np.int64],
    call: NDArray[np.int32],
    keys: Sequence[RowKey],
    key: NDArray[np.int64],
    start: NDArray[np.int64],
    wait: NDArray[np.int64],
    edges: NDArray[np.int64],
) -> list[_Window]:
    """One sweep over the same sets as the accounting and, for each row, its waiting and its transferring parts."""
    others = [np.flatnonzero(call == k) for k in (COMPUTE, FUSED, COPY)]
    sets = [(ts[rows], end[rows]) for rows in others]
    comm = np.flatnonzero((call != COMPUTE) & (call != FUSED) & (call != COPY))
    owner = call[comm]
    safe = np.where(owner >= 0, owner, len(key))
    found = np.append(key, len(keys))[safe]  # calls of no label: as a key of their own
    words = [*keys, UNKNOWN]
    used = distinct(found)
    names = sorted({words[k] for k in used})
    code_of = np.full(len(words), -1, np.int64)
    code_of[used] = [names.index(words[k]) for k in used]
    order = np.argsort(code_of[found].astype(np.int16), kind="stable")
    comm, safe, code = comm[order], safe[order], code_of[found][order]
    begin, stop = ts[comm], end[comm]
    waited = np.append(wait, NO_TIME)[safe]
    has = waited != NO_TIME
    turn = (np.append(start, 0)[safe] + waited)[has]
    a, b = begin[has], stop[has]
    middle = np.minimum(b, np.maximum(turn, a))
    for own, low, high in ((code, begin, stop), (code[has], a, middle), (code[has], middle, b)):
        cuts = np.searchsorted(own, np.arange(len(names) + 1)).tolist()
        sets += [(low[i:j], high[i:j]) for i, j in pairwise(cuts)]
    states = time_by_state(sets, edges)
    windows = [_Window() for _ in range(len(edges) - 1)]
    coarse: dict[tuple[int, tuple[int, ...]], list[tuple[int, frozenset[int]]]] = defaultdict(list)
    first_part = 3 + len(names)
    members = [(tuple(m for m in found if m < first_part), frozenset(found)) for found in states.members]
    for w, state, ns in zip(states.window.tolist(), states.state.tolist(), states.ns.tolist(), strict=True):
        base, every = members[state]
        coarse[w, base].append((ns, every))
    for (w, base), fine in coarse.items():
        active = [m - 3 for m in base if m >= 3]
        if active:
            _book(windows[w], names, 0 in base, active, fine)
    return windows


def _book(
    window: _Window, names: list[RowKey], compute: bool, active: list[int], fine: list[tuple[int, frozenset[int]]]
) -> None:
    """Book one state of the accounting, divided by the finer states it consists of.

    The shares are those of the accounting (same states, same order of names); each is cut at running sums, so that
    its parts add up to it.
    """
    ns = sum(t for t, _ in fine)
    strategies = sorted({names[i][0] for i in active})
    shares = [0] * len(strategies) if compute else share_evenly(ns, len(strategies))
    for strategy, share in zip(strategies, shares, strict=True):
        own = [i for i in active if names[i][0] == strategy]  # `names` are in order, and so are these
        parts = [[_part(members, i, len(names)) for _, members in fine] for i in own]
        total = window.strategies[strategy].total
        for (t, _), *of in zip(fine, *parts, strict=True):
            total[TRANSFER if TRANSFER in of else min(of)] += t  # waiting before not split
        for i, mine, amount in zip(own, parts, share_evenly(share, len(own)), strict=True):
            row = window.rows[names[i]]
            before = run = 0
            for (t, _), part in zip(fine, mine, strict=True):
                row.total[part] += t
                run += t
                upto = amount * run // ns if ns else 0
                row.attributed[part] += upto - before
                before = upto


def _part(members: frozenset[int], i: int, n: int) -> int:
    """Which part of row i (of n) is active in a fine state."""
    if 3 + 2 * n + i in members:
        return TRANSFER
    return WAIT if 3 + n + i in members else UNSPLIT

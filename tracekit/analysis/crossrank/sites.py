"""Table `waiting`: what the calls of a strategy, and of each of its call sites, wait over all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.crossrank.columns import shared
from tracekit.analysis.crossrank.waiting import verdict
from tracekit.analysis.distinct import distinct_rows
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.waiting import Waits

    Ints = NDArray[np.int64]

Row = dict[str, Any]
MIN_CALLS = 3
"""Fewer calls that could be split give no verdict."""
MIN_SHARE = 0.5
"""Nor do calls that make up less than this share of the time."""
LATE_SHARE = 0.5
"""A rank is named as late when it came last in at least this share of the calls in which somebody did."""


def waiting_rows(
    parts: Sequence[RankCalls],
    unmatched: Mapping[int, Mapping[int, str]],
    flat: Flat,
    waits: Waits,
    rows: Sequence[Row],
    markers: set[str],
) -> list[Row]:
    """Table `waiting`: a strategy, and each call site of it, over all ranks.

    Every timed call counts in `dur_ns`; the split ones in `split_ns` = wait + transfer. unmatched: part → row → why
    it has no match. markers: names of steps, which are no places.
    """
    places = [flat.places(p, len(part)) for p, part in enumerate(parts)]
    entry = np.concatenate([np.empty(0, np.int64), *places])
    if not len(entry):
        return []
    why, reasons = _reasons(parts, unmatched, entry, waits)
    found: list[Row] = []
    for keys, of in _keys(parts, markers):
        sums = _sums(parts, flat, waits, rows, entry, of, len(keys))
        lists = _over_matches(flat, rows, entry, of, len(keys)), _most(of, why, len(keys))
        found += [
            _waiting(key, one, late, skew, None if code is None else reasons[code])
            for key, one, (late, skew), code in zip(keys, sums, *lists, strict=True)
        ]
    return sorted(
        found,
        key=lambda r: (
            r["op"] is not None, -(r["wait_ns"] or 0), -r["dur_ns"],
            tuple(map(str, (r["strategy"], r["op"], r["group"], r["scope"]))),
        ),
    )  # fmt: skip


def _keys(parts: Sequence[RankCalls], markers: set[str]) -> Iterable[tuple[list[tuple[Any, ...]], Ints]]:
    """(strategies, which of them each call of all parts has), then the same for (strategy, op, group, scope)."""
    columns: dict[str, tuple[Ints, list[str | None]]] = {}
    for name in ("strategy", "op", "group_name", "group_id", "scope"):
        codes, names = shared(parts, name)
        columns[name] = np.concatenate(codes), names
    of, names = columns["strategy"]
    used, place = distinct_rows([of])
    yield [(names[c], None, None, None) for (c,) in used.tolist()], place
    values, key = distinct_rows([codes for codes, _ in columns.values()])
    words = {
        name: [names[c] for c in row]
        for (name, (_, names)), row in zip(columns.items(), values.T.tolist(), strict=True)
    }
    sites: dict[tuple[Any, ...], int] = {}
    number = [
        sites.setdefault((strategy, op, name or group, None if scope in markers else scope), len(sites))
        for strategy, op, name, group, scope in zip(*words.values(), strict=True)
    ]
    yield [*sites], np.array(number, np.int64)[key]


def _reasons(
    parts: Sequence[RankCalls], unmatched: Mapping[int, Mapping[int, str]], entry: Ints, waits: Waits
) -> tuple[Ints, list[str]]:
    """(for each call of all parts the number of the reason why it was not split, -1 = it was; the reasons)."""
    number: dict[str, int] = {"unmatched": 0}
    of_entry = [-1 if w else number.setdefault(r or "unmatched", len(number))
                for w, r in zip((waits.wait != NO_TIME).tolist(), waits.reason, strict=True)]  # fmt: skip
    out = np.append(np.array(of_entry, np.int64), 0)[entry]
    begin = 0
    for p, part in enumerate(parts):
        for row, reason in unmatched.get(p, {}).items():
            if entry[begin + row] < 0:
                out[begin + row] = number.setdefault(reason, len(number))
        begin += len(part)
    return out, [*number]


def _sums(
    parts: Sequence[RankCalls], flat: Flat, waits: Waits, rows: Sequence[Row], entry: Ints, of: Ints, keys: int
) -> list[list[int]]:
    """For each key: calls, matched, split, their durations: timed and split, waiting; calls split over ranks."""
    dur = np.concatenate([p.number["dur_ns"] for p in parts])
    counted = (dur != NO_TIME) & (np.concatenate([p.number["coalesced_into"] for p in parts]) == NO_TIME)
    matched = entry >= 0
    wait = np.append(waits.wait, NO_TIME)[entry]
    split = wait != NO_TIME
    whole = np.array([r["wait_ns"] is not None for r in rows], np.bool_)
    key, i, _ = _distinct(flat, entry, of)
    columns = [
        np.bincount(of, minlength=keys), np.bincount(of[matched], minlength=keys),
        np.bincount(of[split], minlength=keys), _added(of[counted], dur[counted], keys),
        _added(of[split], dur[split], keys), _added(of[split], wait[split], keys),
        np.bincount(key[whole[i]], minlength=keys),
    ]  # fmt: skip
    return [list(one) for one in zip(*(c.tolist() for c in columns), strict=True)]


def _added(of: Ints, values: Ints, keys: int) -> Ints:
    out = np.zeros(keys, np.int64)
    np.add.at(out, of, values)
    return out


def _distinct(flat: Flat, entry: Ints, of: Ints) -> tuple[Ints, Ints, Ints]:
    """(key, match) pairs of all calls, each once, and the position of the first call that has it."""
    at = np.flatnonzero(entry >= 0)
    n = len(flat.first) or 1
    pairs, first = np.unique(of[at] * n + flat.match[entry[at]], return_index=True)
    return pairs // n, pairs % n, first


def _over_matches(
    flat: Flat, rows: Sequence[Row], entry: Ints, of: Ints, keys: int
) -> list[tuple[tuple[int, int, int] | None, int | None]]:
    """For each key: (rank that came last most often, how often, of how many calls) and the median skew."""
    key, match, first = _distinct(flat, entry, of)
    last = np.array([-1 if r["last_rank"] is None else r["last_rank"] for r in rows], np.int64)[match]
    skew = np.array([NO_TIME if r["skew_ns"] is None else r["skew_ns"] for r in rows], np.int64)[match]
    order = np.argsort(first, kind="stable")
    late = order[last[order] >= 0]
    ranks = _most(key[late], last[late], keys)
    often = np.zeros((keys, 2), np.int64)
    np.add.at(often[:, 1], key[late], 1)
    named = np.array([-1 if r is None else r for r in ranks], np.int64)
    np.add.at(often[:, 0], key[late], last[late] == named[key[late]])
    known = np.flatnonzero(skew != NO_TIME)
    known = known[np.lexsort((skew[known], key[known]))]
    many = np.bincount(key[known], minlength=keys)
    start = np.cumsum(many) - many
    values = skew[known]
    out: list[tuple[tuple[int, int, int] | None, int | None]] = []
    for rank, (times, total), n, a in zip(ranks, often.tolist(), many.tolist(), start.tolist(), strict=True):
        middle = int((int(values[a + (n - 1) // 2]) + int(values[a + n // 2])) / 2) if n else None
        out.append((None if rank is None else (rank, times, total), middle))
    return out


def _most(of: Ints, value: Ints, keys: int) -> list[int | None]:
    """For each key the value (not negative) that most calls have, of several the first; None without any."""
    out: list[int | None] = [None] * keys
    at = np.flatnonzero(value >= 0)
    if not len(at):
        return out
    n = int(value.max()) + 1
    pairs, first, count = np.unique(of[at] * n + value[at], return_index=True, return_counts=True)
    for i in np.lexsort((-first, count)).tolist():
        out[int(pairs[i]) // n] = int(pairs[i]) % n
    return out


def _waiting(
    key: tuple[Any, ...], s: list[int], late: tuple[int, int, int] | None, skew: int | None, why: str | None
) -> Row:
    calls, matched, split, dur, split_ns, wait, whole = s
    enough = whole >= MIN_CALLS and split_ns >= MIN_SHARE * dur
    rank, often, total = late if late else (None, 0, 0)
    share = often / total if total else None
    named = share is not None and share >= LATE_SHARE and total >= MIN_CALLS
    return {
        "strategy": key[0], "op": key[1], "group": key[2], "scope": key[3],
        "calls": calls, "matched": matched, "split": split, "dur_ns": dur, "split_ns": split_ns,
        "wait_ns": wait if split else None, "transfer_ns": split_ns - wait if split else None,
        "wait_ratio": wait / split_ns if split_ns else None,
        "skew_ns": skew,
        "late_rank": rank if named else None, "late_ratio": share if named else None,
        "verdict": verdict(wait, split_ns) if enough else "inconclusive",
        "reason": None if enough else why or "too-few-calls",
    }  # fmt: skip

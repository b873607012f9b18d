"""Table `waiting`: what the calls of a strategy, and of each of its call sites, wait over all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tracekit.analysis.crossrank.columns import shared
from tracekit.analysis.crossrank.waiting import REASONS, verdict
from tracekit.analysis.distinct import distinct_rows, order_of, within
from tracekit.analysis.intervals import running
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
    parts: Sequence[RankCalls], unmatched: Mapping[int, Mapping[int, str]], flat: Flat, waits: Waits, markers: set[str]
) -> list[Row]:
    """Table `waiting`: a strategy, and each call site of it, over all ranks.

    Every timed call counts in `dur_ns`; the split ones in `split_ns` = wait + transfer. unmatched: part → row → why
    it has no match. markers: names of steps, which are no places.
    """
    calls = _calls(parts, flat, waits)
    if not len(calls.entry):
        return []
    why, reasons = _reasons(parts, unmatched, calls.entry, waits)
    found: list[Row] = []
    for keys, of in _keys(parts, markers):
        pairs = _pairs(flat, calls, of)
        sums = _sums(flat, waits, calls, pairs, of, len(keys))
        lists = _over_matches(parts, flat, waits, pairs, len(keys)), _most(of, why, len(keys))
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


class _Calls(Struct):
    """Columns of the calls of all parts, one part after the other. entry: in `Flat`, -1 = none; counted: timed on its
    own; wait: ns, `NO_TIME` = not split. of_entry: the call of each entry.
    """

    entry: Ints
    of_entry: Ints
    dur: Ints
    counted: NDArray[np.bool_]
    wait: Ints


def _calls(parts: Sequence[RankCalls], flat: Flat, waits: Waits) -> _Calls:
    entry, dur, owner = (np.concatenate([_NONE, *columns]) for columns in (
        (flat.places(p, len(part)) for p, part in enumerate(parts)),
        (part.number["dur_ns"] for part in parts), (part.number["coalesced_into"] for part in parts),
    ))  # fmt: skip
    first = running(np.array([len(part) for part in parts], np.int64))
    of_entry = first[flat.part] + flat.row
    return _Calls(entry, of_entry, dur, (dur != NO_TIME) & (owner == NO_TIME), np.append(waits.wait, NO_TIME)[entry])


_NONE = np.empty(0, np.int64)


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
    number = {reason or "unmatched": code for code, reason in enumerate(REASONS)}
    out = np.append(np.where(waits.wait == NO_TIME, waits.why, -1), 0)[entry]
    begin = 0
    for p, part in enumerate(parts):
        for row, reason in unmatched.get(p, {}).items():
            if entry[begin + row] < 0:
                out[begin + row] = number.setdefault(reason, len(number))
        begin += len(part)
    return out, [*number]


class _Pairs(Struct):
    """Each key that a match's calls have, once: key, match, and the first call that has it, of all parts."""

    key: Ints
    match: Ints
    first: Ints


def _pairs(flat: Flat, calls: _Calls, of: Ints) -> _Pairs:
    """of: key of each call of all parts."""
    call = calls.of_entry
    key = of[call]
    low = flat.least(key)
    one = low == flat.most(key)
    alike = np.flatnonzero(one)
    mixed = np.flatnonzero(~one[flat.match])
    values, which = distinct_rows([key[mixed], flat.match[mixed]])
    first = np.full(len(values), len(of), np.int64)
    np.minimum.at(first, which, call[mixed])
    return _Pairs(
        np.append(low[alike], values[:, 0]), np.append(alike, values[:, 1]), np.append(flat.least(call)[alike], first)
    )


def _sums(flat: Flat, waits: Waits, calls: _Calls, pairs: _Pairs, of: Ints, keys: int) -> list[list[int]]:
    """For each key: calls, matched, split, their durations: timed and split, waiting; calls split over ranks."""
    matched, split = calls.entry >= 0, calls.wait != NO_TIME
    whole = ~flat.all(waits.wait == NO_TIME)
    columns = [
        np.bincount(of, minlength=keys), np.bincount(of[matched], minlength=keys),
        np.bincount(of[split], minlength=keys), _added(of[calls.counted], calls.dur[calls.counted], keys),
        _added(of[split], calls.dur[split], keys), _added(of[split], calls.wait[split], keys),
        np.bincount(pairs.key[whole[pairs.match]], minlength=keys),
    ]  # fmt: skip
    return [list(one) for one in zip(*(c.tolist() for c in columns), strict=True)]


def _added(of: Ints, values: Ints, keys: int) -> Ints:
    out = np.zeros(keys, np.int64)
    np.add.at(out, of, values)
    return out


def _over_matches(
    parts: Sequence[RankCalls], flat: Flat, waits: Waits, pairs: _Pairs, keys: int
) -> list[tuple[tuple[int, int, int] | None, int | None]]:
    """For each key: (rank that came last most often, how often, of how many calls) and the median skew."""
    key = pairs.key
    came = waits.last[pairs.match]
    late = np.flatnonzero(came >= 0)
    late = late[order_of(pairs.first[late])]
    last = np.array([p.rank for p in parts], np.int64)[flat.part[came[late]]]
    ranks = _most(key[late], last, keys)
    often = np.zeros((keys, 2), np.int64)
    np.add.at(often[:, 1], key[late], 1)
    named = np.array([-1 if r is None else r for r in ranks], np.int64)
    np.add.at(often[:, 0], key[late], last == named[key[late]])
    skew = waits.skew[pairs.match]
    known = np.flatnonzero(skew != NO_TIME)
    many = np.bincount(key[known], minlength=keys)
    start = np.cumsum(many) - many
    values = within(key[known], skew[known])
    out: list[tuple[tuple[int, int, int] | None, int | None]] = []
    for rank, (times, total), n, a in zip(ranks, often.tolist(), many.tolist(), start.tolist(), strict=True):
        middle = int((int(values[a + (n - 1) // 2]) + int(values[a + n // 2])) / 2) if n else None
        out.append((None if rank is None else (rank, times, total), middle))
    return out


def _most(of: Ints, value: Ints, keys: int) -> list[int | None]:
    """For each key the value (not negative) that most calls have, of several the first; None without any."""
    out: list[int | None] = [None] * keys
    at = np.flatnonzero(value >= 0)
    pairs, which = distinct_rows([of[at], value[at]])
    first = np.empty(len(pairs), np.intp)
    first[which[::-1]] = np.arange(len(at))[::-1]
    ordered = pairs[np.lexsort((-first, np.bincount(which)))]
    for key, found in ordered.tolist():
        out[key] = found
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

"""Exposed time of one recording, split into avoidable, structural and unknown; exact to the ns.

Each row of `exposure` is divided in proportion to what its calls leave exposed of their transfer, call by call. Where
the other ranks do not tell a call's transfer, what exceeds the band of its expectation may be waiting and is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.arrays import mapped, view
from tracekit.analysis.crossrank.busy import COMPUTE
from tracekit.analysis.crossrank.columns import distinct
from tracekit.analysis.distinct import distinct_rows
from tracekit.analysis.expected.hiding import AVOIDABLE, STRUCTURAL, UNKNOWN, rule_of
from tracekit.analysis.expected.rows import Key
from tracekit.analysis.intervals import covered, union
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.analysis.expected.calls import Calls, Recording
    from tracekit.analysis.expected.hiding import Rule
    from tracekit.analysis.expected.timing import Judged

Row = dict[str, Any]
WAITING = 3
"""Position of waiting beside the three classes."""


def split_exposure(one: Recording, calls: Calls, judged: Judged, total: dict[Key, list[float]]) -> None:
    """Complete the recording's rows of `exposure`; add [avoidable, structural, unknown, waiting] ns by key to `total`.

    Only counted steps go into `total`.
    """
    rules = [rule_of(k) for k in calls.kinds]
    keys = [Key(*k[:5]) for k in calls.kinds]
    device, ns = _exposed_transfer(one.files["busy"], calls)
    classes = _classes(calls, keys, rules)
    high = [t.expectation.high_ns if t.expectation else None for t in judged.timed]
    limit = np.array([*(int(h or 0) for h in high), 0], np.int64)[calls.which]
    sure = np.where(judged.exact, ns, np.minimum(ns, limit))
    weights = _weights(calls, keys, device, sure, classes)
    for key, by_key in _weights(calls, keys, device, ns - sure, np.full(len(calls), UNKNOWN)).items():
        for k, w in by_key.items():
            into = weights[key].setdefault(k, [0, 0, 0])
            into[UNKNOWN] += w[UNKNOWN]
    why: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for key, rule in zip(keys, rules, strict=True):
        if rule.why not in why[key[:3]]:
            why[key[:3]].append(rule.why)
    counted = one.counted_steps
    spare = {(b["device"], b["step"]): b["compute_only_ns"] or 0 for b in one.breakdown}
    by_step: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in one.exposure:
        row |= dict.fromkeys(("avoidable_ns", "structural_ns", "unknown_ns"))
        row["overlap"] = "; ".join(why.get((row["strategy"], row["purpose"], row["phase"]), [])) or None
        if row["attributed_ns"] is not None:
            by_step[row["device"], row["step"]].append(row)
    for at, rows in by_step.items():
        found = [weights.get((*at, row["strategy"], row["purpose"], row["phase"]), {}) for row in rows]
        parts = [_divide(row, w) for row, w in zip(rows, found, strict=True)]
        _cap(parts, spare.get(at, 0))
        for row, p, mine in zip(rows, parts, found, strict=True):
            row |= dict(zip(("avoidable_ns", "structural_ns", "unknown_ns"), p, strict=True))
            if at[1] in counted:
                _spread(total, mine, p, row["attributed_wait_ns"] or 0)


def _exposed_transfer(path: str, calls: Calls) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(device, exposed ns) of each call's transfer: its device work after its waiting, less what compute covers."""
    table = mapped(path)
    device, call = (view(table.column(n), np.dtype(np.int32)) for n in ("device", "call"))
    ts, dur = (view(table.column(n), np.dtype(np.int64)) for n in ("ts_ns", "dur_ns"))
    out, where = np.zeros(len(calls), np.int64), np.zeros(len(calls), np.int64)
    waited = calls.wait != NO_TIME
    turn = np.where(waited, calls.start + np.where(waited, calls.wait, 0), NO_TIME)
    for number in distinct(device):
        here = device == number
        compute = here & (call == COMPUTE)
        over = union(ts[compute], ts[compute] + dur[compute])
        comm = np.flatnonzero(here & (call >= 0))
        end = ts[comm] + dur[comm]
        begin = np.minimum(np.maximum(ts[comm], turn[call[comm]]), end)
        left = end - begin - (covered(over, end) - covered(over, begin))
        np.add.at(out, call[comm], left)
        where[call[comm]] = number
    return where, out


def _classes(calls: Calls, keys: list[Key], rules: list[Rule]) -> NDArray[np.int64]:
    """Class of each call; the first or last of its key and step is structural where the rule says so."""
    number = {k: i for i, k in enumerate(dict.fromkeys(keys))}
    safe = np.where(calls.which >= 0, calls.which, len(keys))
    overlap = np.array([*(r.overlap for r in rules), UNKNOWN], np.int64)[safe]
    code = np.array([*(number[k] for k in keys), -1], np.int64)[safe]
    edge = np.array([*({"first": 1, "last": 2}.get(r.always or "", 0) for r in rules), 0], np.int64)[safe]
    rows = np.flatnonzero((edge > 0) & (calls.start != NO_TIME) & (calls.step != NO_TIME))
    rows = rows[np.lexsort((calls.start[rows], calls.step[rows], code[rows]))]
    new = np.ones(len(rows) + 1, np.bool_)
    same = (code[rows[1:]] == code[rows[:-1]]) & (calls.step[rows[1:]] == calls.step[rows[:-1]])
    new[1:-1] = ~same
    first, last = rows[new[:-1]], rows[new[1:]]
    overlap[first[edge[first] == 1]] = STRUCTURAL
    overlap[last[edge[last] == 2]] = STRUCTURAL
    return overlap


def _weights(
    calls: Calls, keys: list[Key], device: NDArray[np.int64], ns: NDArray[np.int64], classes: NDArray[np.int64]
) -> dict[tuple[Any, ...], dict[Key, list[int]]]:
    """(device, step, strategy, purpose, phase) → key → exposed ns of each class."""
    out: dict[tuple[Any, ...], dict[Key, list[int]]] = defaultdict(dict)
    rows = np.flatnonzero((calls.which >= 0) & (calls.step != NO_TIME) & (ns > 0))
    if not len(rows):
        return out
    values, which = distinct_rows([calls.which[rows], device[rows], calls.step[rows], classes[rows]])
    sums = np.zeros(len(values), np.int64)
    np.add.at(sums, which, ns[rows])
    for (kind, at, step, overlap), amount in zip(values.tolist(), sums.tolist(), strict=True):
        key = keys[kind]
        out[at, step, *key[:3]].setdefault(key, [0, 0, 0])[overlap] += amount
    return out


def _divide(row: Row, weights: dict[Key, list[int]]) -> list[int]:
    """Avoidable, structural and unknown part of a row, in proportion to its calls'; they add up to it exactly."""
    amount = row["attributed_ns"] - (row["attributed_wait_ns"] or 0)
    sums = _sums(weights)
    whole = sum(sums)
    if not whole:
        return [0, 0, amount]
    structural, unknown = amount * sums[STRUCTURAL] // whole, amount * sums[UNKNOWN] // whole
    if not sums[AVOIDABLE]:
        return [0, amount - unknown, unknown] if sums[STRUCTURAL] else [0, 0, amount]
    return [amount - structural - unknown, structural, unknown]


def _sums(weights: dict[Key, list[int]]) -> list[int]:
    """Exposed ns of each class."""
    out = [0, 0, 0]
    for parts in weights.values():
        for i, ns in enumerate(parts):
            out[i] += ns
    return out


def _cap(parts: list[list[int]], spare: int) -> None:
    """No more can be hidden than compute runs alone in the step: the rest is structural."""
    wanted = sum(p[AVOIDABLE] for p in parts)
    if wanted <= spare:
        return
    for p in parts:
        kept = p[AVOIDABLE] * spare // wanted
        p[STRUCTURAL] += p[AVOIDABLE] - kept
        p[AVOIDABLE] = kept


def _spread(total: dict[Key, list[float]], weights: dict[Key, list[int]], parts: list[int], wait: int) -> None:
    """Book a row's parts on the keys of its calls, in proportion to their exposed time."""
    sums = _sums(weights)
    whole = sum(sums)
    for key, w in weights.items():
        share = sum(w) / whole
        into = total.setdefault(key, [0.0] * 4)
        for i in range(3):
            into[i] += parts[i] * (w[i] / sums[i] if sums[i] else share)
        into[WAITING] += wait * share

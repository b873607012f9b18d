"""Rows of `matches` and `clocks`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.crossrank.columns import shared
from tracekit.analysis.crossrank.flat import gathered
from tracekit.analysis.crossrank.matches import CONFIDENCE, HOW
from tracekit.analysis.crossrank.waiting import bus_factor, verdict
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.matches import Matches
    from tracekit.analysis.crossrank.waiting import Waits

Row = dict[str, Any]


def _nulls(values: NDArray[np.int64]) -> list[int | None]:
    """A column as Python numbers, None where it is missing."""
    return [None if v == NO_TIME else v for v in values.tolist()]


def match_rows(parts: Sequence[RankCalls], matches: Matches, flat: Flat, waits: Waits, world: int | None) -> list[Row]:
    """Table `matches`: one row a matched call, in the order of `matches`."""
    columns = _what(parts, matches, flat, world) | _when(parts, flat, waits)
    columns |= _split(parts, matches, flat, waits, world)
    order = [columns[name] for name in _COLUMNS]
    return [dict(zip(_COLUMNS, values, strict=True)) for values in zip(*order, strict=True)]


_COLUMNS = (
    "match_id", "op", "kind", "group_id", "group_name", "src_rank", "dst_rank", "step", "strategy", "purpose", "phase",
    "scope", "ranks_present", "ranks_expected", "how", "confidence", "ts_ns", "first_rank", "last_rank", "last_by",
    "skew_ns", "clock_error_ns", "shortest_ns", "longest_ns", "wait_ns", "transfer_ns", "payload_bytes", "algbw_gbps",
    "busbw_gbps", "verdict", "reason",
)  # fmt: skip


def _what(parts: Sequence[RankCalls], matches: Matches, flat: Flat, world: int | None) -> dict[str, list[Any]]:
    """Columns of what was called, and how it was matched."""
    streams = matches.streams
    p2p = [s.kind == "p2p" for s in streams]
    pairs = [s.pair if s.pair is not None and message else (None, None)
             for s, message in zip(streams, p2p, strict=True)]  # fmt: skip
    expected = matches.expected(world)
    out = {name: _texts(parts, flat, name) for name in ("strategy", "purpose", "phase", "scope")}
    return out | {
        "match_id": [*range(len(matches))],
        "kind": _each(["p2p" if message else "collective" for message in p2p], matches.stream),
        "group_id": _each([s.group_id for s in streams], matches.stream),
        "group_name": _each([s.group_name for s in streams], matches.stream),
        "src_rank": _each([src for src, _ in pairs], matches.stream),
        "dst_rank": _each([dst for _, dst in pairs], matches.stream),
        "step": _nulls(gathered(flat.of, flat.row, [p.number["step"] for p in parts])[flat.first]),
        "ranks_present": flat.size.tolist(),
        "ranks_expected": _nulls(np.where(expected < 0, NO_TIME, expected)),
        "how": _each(HOW, matches.how),
        "confidence": _each([CONFIDENCE[how] for how in HOW], matches.how),
    }


def _each(values: Sequence[Any], which: NDArray[np.int64]) -> list[Any]:
    return [values[i] for i in which.tolist()]


def _when(parts: Sequence[RankCalls], flat: Flat, waits: Waits) -> dict[str, list[Any]]:
    """Columns of times and of who came first and last."""
    ranks = np.array([p.rank for p in parts], np.int64)[flat.part]
    shortest = flat.least(flat.dur)
    longest = flat.most(flat.dur)
    return {
        "ts_ns": _nulls(np.where(flat.all(flat.arrival != NO_TIME), flat.least(flat.arrival), NO_TIME)),
        "first_rank": _nulls(np.where(waits.first_come >= 0, ranks[waits.first_come], NO_TIME)),
        "last_rank": _nulls(np.where(waits.last >= 0, ranks[waits.last], NO_TIME)),
        "last_by": waits.last_by,
        "skew_ns": _nulls(waits.skew),
        "clock_error_ns": _nulls(waits.error),
        "shortest_ns": _nulls(shortest),
        "longest_ns": _nulls(np.where(shortest == NO_TIME, NO_TIME, longest)),
    }


def _split(
    parts: Sequence[RankCalls], matches: Matches, flat: Flat, waits: Waits, world: int | None
) -> dict[str, list[Any]]:
    """Columns of waiting, transfer and what follows from them; empty where no call of a match was split."""
    some = waits.wait != NO_TIME
    known = flat.sums(some.astype(np.int64)) > 0
    most = np.iinfo(np.int64).max
    wait, dur = (flat.sums(np.where(some, values, 0)) for values in (waits.wait, flat.dur))
    moved = flat.least(np.where(some, waits.transfer, most))
    payload = _nulls(flat.most(flat.payload))
    ops = ["send_recv" if message else op
           for op, message in zip(_texts(parts, flat, "op"), matches.p2p.tolist(), strict=True)]  # fmt: skip
    there = known.tolist()
    rate = [n / ns if k and n and ns else None for k, n, ns in zip(there, payload, moved.tolist(), strict=True)]
    ranks = matches.expected(world).tolist()
    words = [verdict(w, d) for w, d in zip(wait.tolist(), dur.tolist(), strict=True)]
    return {
        "op": ops,
        "wait_ns": _nulls(np.where(known, wait, NO_TIME)),
        "transfer_ns": _nulls(np.where(known, moved, NO_TIME)),
        "payload_bytes": payload,
        "algbw_gbps": rate,
        "busbw_gbps": [r * bus_factor(op, n) if r and n > 0 else None
                       for r, op, n in zip(rate, ops, ranks, strict=True)],
        "verdict": [word if k else "inconclusive" for k, word in zip(there, words, strict=True)],
        "reason": [None if k else waits.reason[i] for k, i in zip(there, flat.first.tolist(), strict=True)],
    }  # fmt: skip


def _texts(parts: Sequence[RankCalls], flat: Flat, column: str) -> list[str | None]:
    """A text of the first call of every match."""
    codes, names = shared(parts, column)
    return [names[c] for c in gathered(flat.of, flat.row, codes)[flat.first].tolist()]


def clock_rows(parts: Sequence[RankCalls], clocks: Sequence[Clock]) -> list[Row]:
    """Table `clocks`: one row a recording."""
    return [
        {
            "rank": p.rank, "host": p.host, "method": c.method, "offset_ns": c.offset_ns, "error_ns": c.error_ns,
            "drift_ppm": c.drift_ppm if c.aligned else None, "drift_from_ns": c.at if c.aligned else None,
            "calls": c.pairs,
            "reference_rank": parts[c.component].rank if c.aligned else None,
        }
        for p, c in zip(parts, clocks, strict=True)
    ]  # fmt: skip


def data_parallel_calls(parts: Sequence[RankCalls], clocks: Sequence[Clock]) -> list[Row]:
    """Timed calls in steps that reduce gradients or gather parameters: rank, step, purpose, start and duration.

    ns on the common clock; recordings without one have none.
    """
    rows = []
    for part, clock in zip(parts, clocks, strict=True):
        codes, names = part.text["purpose"]
        wanted = [i for i, name in enumerate(names) if name in ("grad_reduce", "param_gather")]
        step, dur, start = part.number["step"], part.number["dur_ns"], clock.place(part.start)
        known = (step != NO_TIME) & (dur != NO_TIME) & (start != NO_TIME)
        rows += [
            {
                "rank": part.rank, "step": int(step[i]), "purpose": names[codes[i]], "ts_ns": int(start[i]),
                "dur_ns": int(dur[i]),
            }
            for i in np.flatnonzero(np.isin(codes, wanted) & known).tolist()
        ]  # fmt: skip
    return rows


def unmatched_findings(left: dict[int, dict[int, str]], parts: Sequence[RankCalls]) -> Iterable[Row]:
    """One finding for each reason why calls have no match."""
    count: Counter[str] = Counter()
    for reasons in left.values():
        count.update(r for r in reasons.values() if r != "alone")
    total = sum(map(len, parts))
    for reason, n in sorted(count.items()):
        message = f"{n} of {total} communication calls have no partner on another rank: {reason} ({_WORDS[reason]})"
        yield {"severity": "info", "code": f"unmatched-{reason}", "rank": None, "message": message}


_WORDS = {
    "no-counterpart": "no other recording has the call",
    "peer-unknown": "the file does not name the peers",
    "conflict": "equal ids, but other operations or sizes",
    "no-id": "others of the group have ids, these have none",
    "groups-of-one-name": "several groups share a name and their ranks are not known",
    "several-recordings-of-a-rank": "a rank was recorded several times and calls have no ids",
    "contents-differ": "the recordings show different calls and nothing numbers them",
    "steps-differ": "the calls fit only across step numbers",
    "clocks-differ": "no difference of the clocks makes the calls fit",
    "order-differs": "taken in order they contradict the times of one clock: other orders, or calls lost",
    "ambiguous": "several alignments fit and nothing decides",
    "group-unknown": "nothing names the group and the calls of these ranks do not fit as one",
    "whole-steps": "in a step with other calls",
}

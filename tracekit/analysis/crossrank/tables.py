"""Rows of `matches` and `clocks`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tracekit.analysis.crossrank.columns import shared
from tracekit.analysis.crossrank.matches import CONFIDENCE, HOW
from tracekit.analysis.crossrank.waiting import DECIDED, REASONS, VERDICTS, bus_factor, verdicts
from tracekit.analysis.distinct import distinct_rows
from tracekit.analysis.tables import build, encoded, from_numpy, spread
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.matches import Matches
    from tracekit.analysis.crossrank.waiting import Waits

    Ints = NDArray[np.int64]

Row = dict[str, Any]
_INT64 = pa.int64()


def match_table(parts: Sequence[RankCalls], matches: Matches, flat: Flat, waits: Waits, world: int | None) -> pa.Table:
    """Table `matches`: one row a matched call, in the order of `matches`."""
    columns = _what(parts, matches, flat, world) | _when(parts, flat, waits)
    return build("matches", columns | _split(parts, matches, flat, waits, world))


def _numbers(values: NDArray[np.int64], width: pa.DataType = _INT64) -> pa.Array[Any]:
    """A column of integers, null where they are missing or do not fit (a damaged file can hold any)."""
    bounds = np.iinfo(str(width))
    return from_numpy(values, width, (values == NO_TIME) | (values < bounds.min) | (values > bounds.max))


def _said(words: Sequence[str | None], which: NDArray[Any]) -> pa.Array[Any]:
    """words[which] as a column of text."""
    codes = which.astype(np.int32)
    lacking = np.array([word is None for word in words], np.bool_)
    return encoded(codes, [word or "" for word in words], lacking[codes])


def _what(parts: Sequence[RankCalls], matches: Matches, flat: Flat, world: int | None) -> dict[str, pa.Array[Any]]:
    """Columns of what was called, and how it was matched."""
    streams, of = matches.streams, matches.stream
    pairs = [s.pair if s.pair is not None and s.kind == "p2p" else (None, None) for s in streams]
    expected = matches.expected(world)
    out = {name: _said(*_first(parts, flat, name)) for name in ("strategy", "purpose", "phase", "scope")}
    return out | {
        "match_id": from_numpy(np.arange(len(matches)), _INT64),
        "kind": _said(("collective", "p2p"), matches.p2p),
        "group_id": _said([s.group_id for s in streams], of),
        "group_name": _said([s.group_name for s in streams], of),
        "src_rank": spread([src for src, _ in pairs], of, pa.int32()),
        "dst_rank": spread([dst for _, dst in pairs], of, pa.int32()),
        "step": _numbers(flat.heads([p.number["step"] for p in parts]), pa.int32()),
        "ranks_present": _numbers(flat.size, pa.int32()),
        "ranks_expected": _numbers(np.where(expected < 0, NO_TIME, expected), pa.int32()),
        "how": _said(HOW, matches.how),
        "confidence": spread([*CONFIDENCE.values()], matches.how, pa.float64()),
    }


def _when(parts: Sequence[RankCalls], flat: Flat, waits: Waits) -> dict[str, pa.Array[Any]]:
    """Columns of times and of who came first and last."""
    ranks = np.array([p.rank for p in parts], np.int64)[flat.part]
    shortest = flat.least(flat.dur)
    return {
        "ts_ns": _numbers(np.where(flat.all(flat.arrival != NO_TIME), flat.least(flat.arrival), NO_TIME)),
        "first_rank": _numbers(np.where(waits.first_come >= 0, ranks[waits.first_come], NO_TIME), pa.int32()),
        "last_rank": _numbers(np.where(waits.last >= 0, ranks[waits.last], NO_TIME), pa.int32()),
        "last_by": _said(DECIDED, waits.by),
        "skew_ns": _numbers(waits.skew),
        "clock_error_ns": _numbers(waits.error),
        "shortest_ns": _numbers(shortest),
        "longest_ns": _numbers(np.where(shortest == NO_TIME, NO_TIME, flat.most(flat.dur))),
    }


def _split(
    parts: Sequence[RankCalls], matches: Matches, flat: Flat, waits: Waits, world: int | None
) -> dict[str, pa.Array[Any]]:
    """Columns of waiting, transfer and what follows from them; empty where no call of a match was split."""
    some = waits.wait != NO_TIME
    known = ~flat.all(~some)
    wait, dur = (flat.sums(np.where(some, values, 0)) for values in (waits.wait, flat.dur))
    moved = flat.least(np.where(some, waits.transfer, np.iinfo(np.int64).max))
    payload = flat.most(flat.payload)
    names, op = _first(parts, flat, "op")
    names, op = [*names, "send_recv"], np.where(matches.p2p, len(names), op)
    rate, bus = rates(names, op, matches.expected(world), np.where(known, payload, NO_TIME), moved)
    word = np.where(known, verdicts(wait, dur), len(VERDICTS))
    return {
        "op": _said(names, op),
        "wait_ns": _numbers(np.where(known, wait, NO_TIME)),
        "transfer_ns": _numbers(np.where(known, moved, NO_TIME)),
        "payload_bytes": _numbers(payload),
        "algbw_gbps": from_numpy(rate, pa.float64(), np.isnan(rate)),
        "busbw_gbps": from_numpy(bus, pa.float64(), np.isnan(bus)),
        "verdict": _said([*VERDICTS, "inconclusive"], word),
        "reason": _said(REASONS, np.where(known, 0, waits.why[flat.first])),
    }


def rates(
    names: Sequence[str | None], op: Ints, ranks: Ints, payload: Ints, moved: Ints
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """algbw and busbw of matches, GB/s, NaN = not known. op: position in `names`; ranks: -1 = not known; payload:
    bytes, `NO_TIME` = not known; moved: ns.
    """
    rate, bus = np.full((2, len(op)), np.nan)
    at = np.flatnonzero((payload != NO_TIME) & (payload != 0) & (moved != 0))
    rate[at] = payload[at] / moved[at]
    at = np.flatnonzero(ranks > 0)
    kinds, kind = distinct_rows([op[at], ranks[at]])
    factor = np.array([bus_factor(names[o], n) for o, n in kinds.tolist()], np.float64)
    bus[at] = rate[at] * factor[kind]
    return rate, bus


def _first(parts: Sequence[RankCalls], flat: Flat, column: str) -> tuple[list[str | None], Ints]:
    """A text of the first call of every match: words, and which of them each has."""
    codes, names = shared(parts, column)
    return names, flat.heads(codes)


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
        step, dur, start = part.number["step"], part.number["dur_ns"], clock.place(part.start)
        known = (step != NO_TIME) & (dur != NO_TIME) & (start != NO_TIME)
        rows += [
            {
                "rank": part.rank, "step": int(step[i]), "purpose": names[codes[i]], "ts_ns": int(start[i]),
                "dur_ns": int(dur[i]),
            }
            for i in np.flatnonzero(part.says("purpose", "grad_reduce", "param_gather") & known).tolist()
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

"""Rows of `matches` and `clocks`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.crossrank.columns import shared
from tracekit.analysis.crossrank.flat import gathered
from tracekit.analysis.crossrank.matching import CONFIDENCE
from tracekit.analysis.crossrank.waiting import bus_factor, verdict
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.matching import Match
    from tracekit.analysis.crossrank.waiting import Waits

Row = dict[str, Any]


def _nulls(values: NDArray[np.int64]) -> list[int | None]:
    """A column as Python numbers, None where it is missing."""
    return [None if v == NO_TIME else v for v in values.tolist()]


def match_rows(
    parts: Sequence[RankCalls], matches: Sequence[Match], flat: Flat, waits: Waits, world: int | None
) -> list[Row]:
    """Table `matches`: one row a matched call, in the order of `matches`."""
    lead = flat.first
    split = waits.wait != NO_TIME
    several = flat.sums(split.astype(np.int64)).tolist()
    most = np.iinfo(np.int64).max
    ranks = np.array([p.rank for p in parts], np.int64)[flat.part]
    columns: dict[str, Iterable[Any]] = {
        name: _texts(parts, flat, name) for name in ("op", "strategy", "purpose", "phase", "scope")
    } | {
        "step": _nulls(gathered(flat.of, flat.row, [p.number["step"] for p in parts])[lead]),
        "ts": _nulls(np.where(flat.all(flat.arrival != NO_TIME), flat.least(flat.arrival), NO_TIME)),
        "first": _nulls(np.where(waits.first_come >= 0, ranks[waits.first_come], NO_TIME)),
        "last": _nulls(np.where(waits.last >= 0, ranks[waits.last], NO_TIME)),
        "skew": _nulls(waits.skew),
        "error": _nulls(waits.error),
        "shortest": _nulls(flat.least(flat.dur)),
        "longest": flat.most(flat.dur).tolist(),
        "wait": flat.sums(np.where(split, waits.wait, 0)).tolist(),
        "dur": flat.sums(np.where(split, flat.dur, 0)).tolist(),
        "transfer": flat.least(np.where(split, waits.transfer, most)).tolist(),
        "payload": _nulls(flat.most(flat.payload)),
    }
    rows = []
    for i, (m, begin, some, values) in enumerate(
        zip(matches, lead.tolist(), several, zip(*columns.values(), strict=True), strict=True)
    ):
        (
            op,
            strategy,
            purpose,
            phase,
            scope,
            step,
            ts,
            first,
            last,
            skew,
            error,
            shortest,
            longest,
            wait,
            dur,
            moved,
            n,
        ) = values
        expected = world if m.stream.kind == "assumed" else m.expected
        alg = n / moved if some and n and moved else None
        pair = m.stream.pair if m.stream.kind == "p2p" else None
        op = "send_recv" if pair else op
        rows.append(
            {
                "match_id": i, "op": op, "kind": "p2p" if pair else "collective",
                "group_id": m.stream.group_id, "group_name": m.stream.group_name,
                "src_rank": pair[0] if pair else None, "dst_rank": pair[1] if pair else None,
                "step": step, "strategy": strategy, "purpose": purpose, "phase": phase, "scope": scope,
                "ranks_present": len(m.rows), "ranks_expected": expected,
                "how": m.how, "confidence": CONFIDENCE[m.how],
                "ts_ns": ts, "first_rank": first, "last_rank": last, "last_by": waits.last_by[i],
                "skew_ns": skew, "clock_error_ns": error,
                "shortest_ns": shortest, "longest_ns": None if shortest is None else longest,
                "wait_ns": wait if some else None, "transfer_ns": moved if some else None,
                "payload_bytes": n, "algbw_gbps": alg,
                "busbw_gbps": alg * bus_factor(op, expected) if alg and expected else None,
                "verdict": verdict(wait, dur) if some else "inconclusive",
                "reason": None if some else waits.reason[begin],
            }
        )  # fmt: skip
    return rows


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
    "ambiguous": "several alignments fit and nothing decides",
    "group-unknown": "nothing names the group and the calls of these ranks do not fit as one",
    "whole-steps": "in a step with other calls",
}

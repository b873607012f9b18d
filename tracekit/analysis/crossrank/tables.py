"""Rows of `matches`, `waiting` and `clocks`."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.crossrank.matching import CONFIDENCE
from tracekit.analysis.crossrank.waiting import bus_factor, verdict
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import RankCalls
    from tracekit.analysis.crossrank.flat import Flat
    from tracekit.analysis.crossrank.matching import Match
    from tracekit.analysis.crossrank.waiting import Waits

Row = dict[str, Any]
MIN_CALLS = 3
"""Fewer calls that could be split give no verdict."""
MIN_SHARE = 0.5
"""Nor do calls that make up less than this share of the time."""
LATE_SHARE = 0.5
"""A rank is named as late when it came last in at least this share of the calls in which somebody did."""


def _null(value: int) -> int | None:
    return None if value == NO_TIME else int(value)


def match_rows(
    parts: Sequence[RankCalls], matches: Sequence[Match], flat: Flat, waits: Waits, world: int | None
) -> list[Row]:
    """Table `matches`: one row a matched call, in the order of `matches`."""
    text = {name: [p.texts(name) for p in parts] for name in ("op", "strategy", "purpose", "phase", "scope")}
    shortest, longest, payload = flat.least(flat.dur).tolist(), flat.most(flat.dur).tolist(), flat.most(flat.payload)
    waited, moved, durations = waits.wait.tolist(), waits.transfer.tolist(), flat.dur.tolist()
    first, arrivals, steps = flat.first.tolist(), flat.arrival.tolist(), [p.number["step"].tolist() for p in parts]
    rows = []
    for i, m in enumerate(matches):
        begin = first[i]
        entries = range(begin, begin + len(m.rows))
        p, r = m.parts[0], m.rows[0]
        step = steps[p][r]
        expected = world if m.stream.kind == "assumed" else m.expected
        split = [e for e in entries if waited[e] != NO_TIME]
        wait, dur = sum(waited[e] for e in split), sum(durations[e] for e in split)
        transfer = min((moved[e] for e in split), default=None)
        last, earliest = int(waits.last[i]), int(waits.first_come[i])
        ranks = [parts[q].rank for q in m.parts]
        bytes_ = _null(int(payload[i]))
        alg = bytes_ / transfer if bytes_ and transfer else None
        pair = m.stream.pair if m.stream.kind == "p2p" else None
        op = "send_recv" if pair else text["op"][p][r]
        begins = [arrivals[e] for e in entries if arrivals[e] != NO_TIME]
        rows.append(
            {
                "match_id": i, "op": op, "kind": "p2p" if pair else "collective",
                "group_id": m.stream.group_id, "group_name": m.stream.group_name,
                "src_rank": pair[0] if pair else None, "dst_rank": pair[1] if pair else None,
                "step": None if step == NO_TIME else step,
                **{name: text[name][p][r] for name in ("strategy", "purpose", "phase", "scope")},
                "ranks_present": len(ranks), "ranks_expected": expected,
                "how": m.how, "confidence": CONFIDENCE[m.how],
                "ts_ns": min(begins) if len(begins) == len(ranks) else None,
                "first_rank": ranks[earliest - begin] if earliest >= 0 else None,
                "last_rank": ranks[last - begin] if last >= 0 else None, "last_by": waits.last_by[i],
                "skew_ns": _null(int(waits.skew[i])), "clock_error_ns": _null(int(waits.error[i])),
                "shortest_ns": _null(shortest[i]), "longest_ns": None if shortest[i] == NO_TIME else longest[i],
                "wait_ns": wait if split else None, "transfer_ns": transfer,
                "payload_bytes": bytes_, "algbw_gbps": alg,
                "busbw_gbps": alg * bus_factor(op, expected) if alg and expected else None,
                "verdict": verdict(wait, dur) if split else "inconclusive",
                "reason": None if split else waits.reason[begin],
            }
        )  # fmt: skip
    return rows


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
    # calls, matched, split, their durations: timed and split, waiting; calls split over ranks
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0, 0, 0])
    entry = {(p, r): i for i, (p, r) in enumerate(zip(flat.part.tolist(), flat.row.tolist(), strict=True))}
    late: dict[tuple[Any, ...], Counter[int]] = defaultdict(Counter)
    skews: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    why: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    match_of, waited = flat.match.tolist(), waits.wait.tolist()
    seen: set[tuple[Any, int]] = set()
    for p, part in enumerate(parts):
        columns = [part.texts(n) for n in ("strategy", "op", "group_name", "group_id", "scope")]
        durations = part.number["dur_ns"].tolist()
        owned = part.number["coalesced_into"].tolist()
        for r, (strategy, op, name, group, scope) in enumerate(zip(*columns, strict=True)):
            at = entry.get((p, r))
            place = (op, name or group, None if scope in markers else scope)
            for key in ((strategy, None, None, None), (strategy, *place)):
                s = sums[key]
                s[0] += 1
                s[1] += at is not None
                counted = durations[r] != NO_TIME and owned[r] == NO_TIME
                s[3] += durations[r] if counted else 0
                if at is None:
                    why[key][unmatched.get(p, {}).get(r, "unmatched")] += 1
                    continue
                i = match_of[at]
                if waited[at] != NO_TIME:
                    s[2] += 1
                    s[4] += durations[r]
                    s[5] += waited[at]
                else:
                    why[key][waits.reason[at] or "unmatched"] += 1
                if (key, i) not in seen:
                    seen.add((key, i))
                    s[6] += rows[i]["wait_ns"] is not None
                    if rows[i]["last_rank"] is not None:
                        late[key][rows[i]["last_rank"]] += 1
                    if rows[i]["skew_ns"] is not None:
                        skews[key].append(rows[i]["skew_ns"])
    order = sorted(sums, key=lambda k: (k[1] is not None, -sums[k][5], -sums[k][3], tuple(map(str, k))))
    return [_waiting(k, sums[k], late[k], skews[k], why[k]) for k in order]


def _waiting(key: tuple[Any, ...], s: list[int], late: Counter[int], skews: list[int], why: Counter[str]) -> Row:
    calls, matched, split, dur, split_ns, wait, whole = s
    enough = whole >= MIN_CALLS and split_ns >= MIN_SHARE * dur
    rank, often = late.most_common(1)[0] if late else (None, 0)
    share = often / late.total() if late else None
    named = share is not None and share >= LATE_SHARE and late.total() >= MIN_CALLS
    return {
        "strategy": key[0], "op": key[1], "group": key[2], "scope": key[3],
        "calls": calls, "matched": matched, "split": split, "dur_ns": dur, "split_ns": split_ns,
        "wait_ns": wait if split else None, "transfer_ns": split_ns - wait if split else None,
        "wait_ratio": wait / split_ns if split_ns else None,
        "skew_ns": int(median(skews)) if skews else None,
        "late_rank": rank if named else None, "late_ratio": share if named else None,
        "verdict": verdict(wait, split_ns) if enough else "inconclusive",
        "reason": None if enough else why.most_common(1)[0][0] if why else "too-few-calls",
    }  # fmt: skip


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

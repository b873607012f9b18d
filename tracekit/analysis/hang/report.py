"""The post-mortem of a hang as rows: groups, stuck calls, divergences, suspects, and a verdict."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tracekit.analysis.hang.divergence import divergences
from tracekit.analysis.hang.stale import useless
from tracekit.analysis.hang.state import gather
from tracekit.analysis.hang.suspects import explained, find_suspects
from tracekit.analysis.hang.waits import find_waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.analysis.hang.divergence import Divergence
    from tracekit.analysis.hang.state import GroupKey, GroupState, RankDump
    from tracekit.analysis.hang.suspects import Suspect
    from tracekit.analysis.hang.waits import Edge, Front, Waits

Row = dict[str, Any]
MAX_FRAMES = 12
MAX_DIVERGENCES = 50


def post_mortem(dumps: Iterable[RankDump], world_size: int | None) -> Row:
    """Everything that the dumps of one job tell about a hang.

    Keys: `hung` (some call is pending), `ranks`, `stuck_ranks`, `without_dump` (None when the world size is unknown),
    `useless` (dumps that are empty or older than a peer's, with the reason: as if there were none),
    `verdict`, `confidence` (0–1, None without a suspect), `suspects`, `stuck` (one row a call that is some rank's first
    pending one), `unfinished` (every other call that some members have pending and others do not), `divergences`,
    `groups` (those with a pending call or unequal counters: last enqueued, started, completed of each rank).
    """
    by_rank = {d.rank: d for d in sorted(dumps, key=lambda d: d.rank)}
    groups = gather([*by_rank.values()])
    gone = [r for r in range(world_size) if r not in by_rank] if world_size is not None else None
    unfit = useless(by_rank, groups)
    if unfit:
        by_rank = {r: d for r, d in by_rank.items() if r not in unfit}
        groups = gather([*by_rank.values()])
    waits = find_waits(by_rank, groups)
    differ = divergences([*groups.values()], by_rank)
    suspects = find_suspects(waits, by_rank, groups, differ, world_size)
    share = explained(waits, suspects)
    rows = [_suspect(s, waits, by_rank, groups, share) for s in suspects]
    for row in rows:
        if row["rank"] in unfit:
            row["reason"] = row["reason"].replace("it left no dump", unfit[row["rank"]])
    return {
        "hung": bool(waits.fronts),
        "ranks": sorted([*by_rank, *unfit]),
        "stuck_ranks": sorted(waits.fronts),
        "without_dump": gone,
        "useless": [{"rank": r, "reason": why} for r, why in sorted(unfit.items())],
        "verdict": _verdict(waits, suspects, differ, rows),
        "confidence": rows[0]["confidence"] if rows else None,
        "suspects": rows,
        "stuck": _stuck(waits, by_rank, groups),
        "unfinished": _unfinished(groups, by_rank),
        "divergences": [_divergence(d, by_rank) for d in differ[:MAX_DIVERGENCES]],
        "groups": [_group(g) for key, g in sorted(groups.items()) if _uneven(g)],
    }


def _name(group: GroupState) -> Row:
    return {"group_name": group.name, "group_desc": group.desc, "group_ranks": list(group.members) or None}


def _suspect(
    s: Suspect, waits: Waits, dumps: Mapping[int, RankDump], groups: Mapping[GroupKey, GroupState], share: float | None
) -> Row:
    front = waits.fronts.get(s.rank)
    sure = s.confidence * (share if share is not None and s.kind != "diverged" else 1.0)
    dump = dumps.get(s.rank)
    last = len(dump.witness.calls) - 1 if dump and dump.witness.calls else None
    at = front.position if front is not None else last
    return {
        "rank": s.rank, "kind": s.kind, "reason": _reason(s, waits, dumps, groups), "confidence": round(sure, 3),
        "waiting": sorted(s.waiting), "behind": s.behind, "last_issued_ns": s.since_ns,
        "chain": _chain(s, waits, dumps, groups),
        "call": _call(dump, at) if dump is not None and at is not None else None,
        "frames": _frames(dump, at),
    }  # fmt: skip


def _reason(s: Suspect, waits: Waits, dumps: Mapping[int, RankDump], groups: Mapping[GroupKey, GroupState]) -> str:
    front = waits.fronts.get(s.rank)
    what = _describe(front, dumps, groups) if front is not None else ""
    if s.kind == "diverged" and s.divergence is not None:
        d = s.divergence
        others = sorted({v for r, v in d.values.items() if r not in d.culprits})
        return (
            f"under number {d.seq} of {_title(d.group)} its {d.what} is {d.values[s.rank]}, "
            f"the others' {' or '.join(others)}"
        )
    if s.kind == "held":
        peers = waits.passed.get(s.rank, ())
        return f"{_ranks(peers)} completed what it still has pending: {what}; its device or its watchdog stopped there"
    if s.kind == "no-dump":
        return f"it left no dump, and {_ranks(_direct(s))} wait{_s(_direct(s))} for it"
    if s.kind == "silent":
        calls = Counter(_describe(waits.fronts[e.waiter], dumps, groups) for e in _at(s))
        text = max(sorted(calls), key=lambda c: calls[c])
        ranks = [e.waiter for e in _at(s) if _describe(waits.fronts[e.waiter], dumps, groups) == text]
        return f"it has nothing pending and never issued what {_ranks(sorted(ranks))} wait{_s(ranks)} for: {text}"
    if s.kind == "not-started":
        return f"its device never began {what}, which another member's device has begun"
    return f"it waits in a circle with {_ranks(s.also)}: {what}"


def _at(s: Suspect) -> list[Edge]:
    return [e for e in s.waiting.values() if e.on == s.rank]


def _direct(s: Suspect) -> list[int]:
    return sorted(e.waiter for e in _at(s))


def _s(ranks: Sequence[int]) -> str:
    return "s" if len(ranks) == 1 else ""


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"ranks {shown}"


def _title(group: GroupState) -> str:
    return f"{group.desc or 'group'} {group.name}"


def _describe(front: Front, dumps: Mapping[int, RankDump], groups: Mapping[GroupKey, GroupState]) -> str:
    """A call in words: strategy, operation, group, number."""
    group = groups[front.group]
    dump = dumps[front.rank]
    op, strategy = "call", None
    if front.position is not None:
        call = dump.labels.get(front.position)
        op = call.op if call is not None else dump.witness.calls[front.position].op_raw
        strategy = dump.label(front.position)
    number = "" if front.is_p2p or front.seq is None else f" {front.seq}"
    return f"{strategy + ' ' if strategy else ''}{op}{number} of {_title(group)}"


def _chain(s: Suspect, waits: Waits, dumps: Mapping[int, RankDump], groups: Mapping[GroupKey, GroupState]) -> list[Row]:
    """The longest of the shortest ways from a waiting rank to the suspect, hop by hop."""
    best: list[Edge] = []
    for rank in s.waiting:
        way, at = [], rank
        while at != s.rank:
            way.append(s.waiting[at])
            at = s.waiting[at].on
        if len(way) > len(best):
            best = way
    return [
        {
            "rank": e.waiter, "on": e.on, "why": e.why,
            "strategy": dumps[e.waiter].label(p) if (p := waits.fronts[e.waiter].position) is not None else None,
            "what": _describe(waits.fronts[e.waiter], dumps, groups),
        }
        for e in best
    ]  # fmt: skip


def _call(dump: RankDump, position: int) -> Row:
    seen, call = dump.witness.calls[position], dump.labels.get(position)
    label = call.label if call is not None else None
    return {
        "op": call.op if call is not None else seen.op_raw, "op_raw": seen.op_raw,
        "seq": seen.p2p_seq if seen.is_p2p else seen.seq, "state": seen.state,
        "strategy": label.strategy if label else None, "purpose": label.purpose if label else None,
        "phase": label.phase if label else None, "created_ns": seen.created_ns, "thread": seen.thread_name,
    }  # fmt: skip


def _frames(dump: RankDump | None, position: int | None) -> list[str] | None:
    """Python frames, innermost first; None when the dump holds none."""
    if dump is None or position is None:
        return None
    return list(dump.witness.calls[position].frames[:MAX_FRAMES]) or None


def _stuck(waits: Waits, dumps: Mapping[int, RankDump], groups: Mapping[GroupKey, GroupState]) -> list[Row]:
    """The calls that ranks have pending first: who waits in them, and who keeps them."""
    found: dict[tuple[Any, ...], list[Front]] = {}
    for front in waits.fronts.values():
        side = front.rank if front.is_p2p else None
        found.setdefault((front.group, front.seq, front.is_p2p, side), []).append(front)
    rows = []
    for (key, _, is_p2p, _), fronts in found.items():
        edges = [e for f in fronts for e in waits.edges.get(f.rank, ())]
        one = next((f for f in fronts if f.position is not None), fronts[0])
        dump = dumps[one.rank]
        head = _call(dump, one.position) if one.position is not None else {}
        passed = sorted({p for f in fronts for p in waits.passed.get(f.rank, ())})
        rows.append(
            _name(groups[key]) | head | {
                "p2p": is_p2p, "peer": one.peer, "waiting": sorted(f.rank for f in fronts), "completed_on": passed,
                "waits_for": {
                    why: sorted({e.on for e in edges if e.why == why}) for why in sorted({e.why for e in edges})
                },
                "all_there": all(f.rank in waits.together for f in fronts),
                "frames": _frames(dump, one.position),
            }
        )  # fmt: skip
    return sorted(rows, key=lambda r: (r.get("created_ns") is None, r.get("created_ns") or 0, r["waiting"]))


def _unfinished(groups: Mapping[GroupKey, GroupState], dumps: Mapping[int, RankDump]) -> list[Row]:
    """Collectives that some members have pending: which members never issued them, which completed them."""
    rows = []
    for _, group in sorted(groups.items()):
        open_at: dict[int, list[int]] = {}
        for rank, progress in group.progress.items():
            for position in progress.pending:
                call = dumps[rank].witness.calls[position]
                if not call.is_p2p and call.seq is not None:
                    open_at.setdefault(call.seq, []).append(rank)
        for seq, ranks in sorted(open_at.items()):
            others = [m for m in group.members if m in group.progress and m not in ranks]
            missing = [m for m in others if (e := group.progress[m].enqueued) is not None and e < seq]
            done = [m for m in others if (c := group.progress[m].completed) is not None and c >= seq]
            untold = [m for m in group.members if m not in group.progress]
            if missing or done or untold:
                position = group.calls[seq][ranks[0]]
                rows.append(
                    _name(group) | _call(dumps[ranks[0]], position)
                    | {"pending_on": sorted(ranks), "missing": missing, "completed_on": done, "without_dump": untold}
                )  # fmt: skip
    return rows


def _divergence(d: Divergence, dumps: Mapping[int, RankDump]) -> Row:
    at = d.group.calls[d.seq]
    odd = next((r for r in d.culprits if r in at), next(iter(at)))
    usual = next((r for r in at if r not in d.culprits), odd)
    return _name(d.group) | {
        "seq": d.seq, "what": d.what, "culprits": list(d.culprits), "created_ns": d.since_ns,
        "values": [{"rank": r, "value": v} for r, v in d.values.items()],
        "frames": _frames(dumps[odd], at[odd]), "frames_of_others": _frames(dumps[usual], at[usual]),
    }  # fmt: skip


def _uneven(group: GroupState) -> bool:
    if any(p.pending for p in group.progress.values()):
        return True
    numbers = {(p.enqueued, p.completed) for p in group.progress.values()}
    return not group.p2p and len(numbers) > 1


def _group(group: GroupState) -> Row:
    return _name(group) | {
        "p2p": group.p2p,
        "ranks": [
            {
                "rank": r, "enqueued": p.enqueued, "started": p.started, "completed": p.completed,
                "pending": len(p.pending),
            }
            for r, p in sorted(group.progress.items())
        ],
    }  # fmt: skip


def _verdict(waits: Waits, suspects: Sequence[Suspect], differ: Sequence[Divergence], rows: Sequence[Row]) -> str:
    if not waits.fronts:
        if differ:
            return "Nothing is pending, but ranks disagree on a call."
        return "Nothing is pending in these dumps: every call that was issued was seen to complete, or nothing tells."
    if not suspects:
        if waits.together == set(waits.fronts):
            have = "has" if len(waits.fronts) == 1 else "have"
            return (
                f"{_title_case(_ranks(sorted(waits.fronts)))} {have} issued the same calls and none completed: "
                "the transfer itself is stuck or was still running."
            )
        return "Ranks wait for each other, and no dump tells which of them began it."
    kind = suspects[0].kind
    top = [s for s in suspects if s.kind == kind]
    who = _ranks([s.rank for s in top])
    names = {s.rank for s in top}
    waiting = set(waits.fronts) & names.union(*(s.waiting for s in top))
    one = len(top) == 1
    return (
        f"{_title_case(who)} {_SHORT[kind][0 if one else 1]}. {len(waiting)} of {len(waits.fronts)} stuck ranks "
        f"are or wait for {'it' if one else 'them'}. Rank {rows[0]['rank']}: {rows[0]['reason']}."
    )


def _title_case(text: str) -> str:
    return text[:1].upper() + text[1:]


_SHORT = {
    "diverged": ("did something else than the others", "did something else than the others"),
    "no-dump": ("left no dump that tells, and others wait for it", "left no dump that tells, and others wait for them"),
    "held": ("holds the job up", "hold the job up"),
    "silent": ("stopped issuing calls", "stopped issuing calls"),
    "not-started": ("issued its call, but its device did not begin it", "issued calls their devices did not begin"),
    "circle": ("waits for itself through others", "wait for each other in a circle"),
}

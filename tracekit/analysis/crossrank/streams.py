"""Sort calls into streams: the calls of one group, or of one sender and receiver in it, on every rank that has them."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.crossrank.columns import RankCalls

P2P = ("send", "recv")
EXPERT = frozenset({"dispatch", "combine"})
"""The two halves of expert traffic alternate on one communicator: one order."""
ALONE, PEER_UNKNOWN = "alone", "peer-unknown"


class Stream(Struct):
    """Calls that happen in one order on all their ranks: part number → rows, in call order.

    kind: `group` (the group is known), `assumed` (nothing names the group: calls of one operation, on all ranks
    that have any) or `p2p` (from `pair[0]` to `pair[1]`). members: ranks of the group where known; size: of the group.
    """

    kind: str
    group_id: str | None
    group_name: str | None
    pair: tuple[int, int] | None = None
    size: int | None = None
    members: frozenset[int] | None = None
    rows: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))


class Streams(Struct):
    """All streams in a fixed order, and why each other call is in none: part → row → reason."""

    streams: list[Stream]
    left_out: dict[int, dict[int, str]]


def members_of(group_id: str | None) -> frozenset[int] | None:
    """Ranks of a group id that spells them ("0-6:2", "1,5"); None for any other."""
    if not group_id:
        return None
    if found := _SPAN.fullmatch(group_id):
        return frozenset(range(int(found[1]), int(found[2]) + 1, int(found[3] or 1)))
    return frozenset(map(int, group_id.split(","))) if _LIST.fullmatch(group_id) else None


_SPAN, _LIST = re.compile(r"(\d+)-(\d+)(?::([1-9]\d*))?"), re.compile(r"\d+(?:,\d+)*")


def find_streams(parts: Sequence[RankCalls]) -> Streams:
    """Streams of all parts. One rank set may serve several groups, so names tell groups apart where a rank has two."""
    named = _several_names(parts)
    found: dict[tuple[object, ...], Stream] = {}
    left_out: dict[int, dict[int, str]] = defaultdict(dict)
    for number, part in enumerate(parts):
        ops, groups, names = part.texts("op"), part.texts("group_id"), part.texts("group_name")
        sizes = part.number["group_size"].tolist()
        src, dst = part.number["src_rank"].tolist(), part.number["dst_rank"].tolist()
        for row, (op, group, name, size) in enumerate(zip(ops, groups, names, sizes, strict=True)):
            if size == 1:
                left_out[number][row] = ALONE
                continue
            label = name if group in named else None
            pair = None
            key: tuple[object, ...]
            if op in P2P:
                pair = (part.rank, dst[row]) if op == "send" else (src[row], part.rank)
                if NO_TIME in pair:
                    left_out[number][row] = PEER_UNKNOWN
                    continue
                key, kind = ("p2p", group, label, *pair), "p2p"
            elif op in ("send_recv", "coalesced"):  # a kernel of point-to-point calls that left no record
                left_out[number][row] = PEER_UNKNOWN
                continue
            elif group is None:
                key, kind = ("assumed", "expert" if op in EXPERT else op), "assumed"
            else:
                key, kind = ("group", group, label), "group"
            stream = found.get(key)
            if stream is None:
                known = None if size == NO_TIME else int(size)
                members = members_of(group)
                stream = found[key] = Stream(kind, group, name, pair, len(members) if members else known, members)
            stream.rows[number].append(row)
    order = sorted(found, key=lambda k: tuple(str(x) for x in k))
    return Streams([found[k] for k in order], left_out)


def _several_names(parts: Sequence[RankCalls]) -> set[str | None]:
    """Group ids under which some rank has calls of several group names."""
    out: set[str | None] = set()
    for part in parts:
        names: dict[str | None, set[str | None]] = defaultdict(set)
        for group, name in set(zip(part.texts("group_id"), part.texts("group_name"), strict=True)):
            names[group].add(name)
        out |= {g for g, found in names.items() if len(found) > 1}
    return out

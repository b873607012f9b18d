"""Sort calls into streams: the calls of one group, or of one sender and receiver in it, on every rank that has them."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.distinct import distinct_rows
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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
    rows: dict[int, NDArray[np.int64]] = field(default_factory=dict)


class Streams(Struct):
    """All streams in a fixed order, and why each other call is in none: part → row → reason."""

    streams: list[Stream]
    left_out: dict[int, dict[int, str]]


@lru_cache(maxsize=4096)
def members_of(group_id: str | None) -> frozenset[int] | None:
    """Ranks of a group id that spells them ("0-6:2", "1,5"); None for any other."""
    if not group_id:
        return None
    if found := _SPAN.fullmatch(group_id):
        return frozenset(range(int(found[1]), int(found[2]) + 1, int(found[3] or 1)))
    return frozenset(map(int, group_id.split(","))) if _LIST.fullmatch(group_id) else None


_SPAN, _LIST = re.compile(r"(\d+)-(\d+)(?::([1-9]\d*))?"), re.compile(r"\d+(?:,\d+)*")


def find_streams(parts: Sequence[RankCalls]) -> Streams:
    """Streams of all parts. One rank set may serve several groups, so names tell groups apart where a rank has two.

    Calls of one kind (operation, group, peers) are sorted in together.
    """
    named = _several_names(parts)
    found: dict[tuple[object, ...], Stream] = {}
    left_out: dict[int, dict[int, str]] = defaultdict(dict)
    for number, part in enumerate(parts):
        kind, first = _kinds(part)
        order = np.argsort(kind, kind="stable")
        rows_of = np.split(order, np.cumsum(np.bincount(kind, minlength=len(first)))[:-1])
        mine: dict[tuple[object, ...], list[NDArray[np.int64]]] = defaultdict(list)
        for i in np.argsort(first).tolist():
            key, stream, reason = _stream_of(part, int(first[i]), named)
            if stream is None or reason is not None:
                left_out[number] |= dict.fromkeys(rows_of[i].tolist(), reason or PEER_UNKNOWN)
                continue
            found.setdefault(key, stream)
            mine[key].append(rows_of[i])
        for key, rows in mine.items():
            found[key].rows[number] = rows[0] if len(rows) == 1 else np.sort(np.concatenate(rows))
    keys = sorted(found, key=lambda k: tuple(str(x) for x in k))
    return Streams([found[k] for k in keys], left_out)


def _kinds(part: RankCalls) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """(the kind of each call, the first call of each kind): operation, group, size, peers."""
    columns = [part.text[name][0].astype(np.int64) for name in ("op", "group_id", "group_name")]
    values, kind = distinct_rows([*columns, *(part.number[n] for n in ("group_size", "src_rank", "dst_rank"))])
    first = np.empty(len(values), np.intp)
    first[kind[::-1]] = np.arange(len(kind))[::-1]
    return kind, first


def _stream_of(
    part: RankCalls, row: int, named: set[str | None]
) -> tuple[tuple[object, ...], Stream | None, str | None]:
    """(key, stream without rows) of a call, or why it is in none."""
    op, group, name = (part.word(column, row) for column in ("op", "group_id", "group_name"))
    size, src, dst = (int(part.number[column][row]) for column in ("group_size", "src_rank", "dst_rank"))
    if size == 1:
        return (), None, ALONE
    label = name if group in named else None
    pair = None
    key: tuple[object, ...]
    if op in P2P:
        pair = (part.rank, dst) if op == "send" else (src, part.rank)
        if NO_TIME in pair:
            return (), None, PEER_UNKNOWN
        key, kind = ("p2p", group, label, *pair), "p2p"
    elif op in ("send_recv", "coalesced"):  # a kernel of point-to-point calls that left no record
        return (), None, PEER_UNKNOWN
    elif group is None:
        key, kind = ("assumed", "expert" if op in EXPERT else op), "assumed"
    else:
        key, kind = ("group", group, label), "group"
    members = members_of(group)
    known = None if size == NO_TIME else size
    return key, Stream(kind, group, name, pair, len(members) if members else known, members), None


def _several_names(parts: Sequence[RankCalls]) -> set[str | None]:
    """Group ids under which some rank has calls of several group names."""
    out: set[str | None] = set()
    for part in parts:
        names: dict[int, set[int]] = defaultdict(set)
        for group, name in distinct_rows([part.text[n][0].astype(np.int64) for n in ("group_id", "group_name")])[
            0
        ].tolist():
            names[group].add(name)
        words: list[str | None] = [*part.text["group_id"][1], None]
        out |= {words[g] for g, found in names.items() if len(found) > 1}
    return out

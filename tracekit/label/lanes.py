"""Calls of one group of one process as sequences that can be laid side by side (`tracekit.label.align`)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.label.align import UNTOLD, Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from tracekit.label.vocabulary import Vocabulary
    from tracekit.model import Call, WitnessCall

P2P = frozenset({"send", "recv", "send_recv"})
_SAME = {"barrier": "all_reduce"}
"""NCCL has no barrier: it runs an all-reduce of one element."""
_ONE_SIDED = frozenset({"barrier", "gather", "scatter"})
"""Operations whose size the two sides count differently."""


class Entry(Struct):
    """What was launched at once: positions of the calls, in order; number None where the source has none."""

    members: list[int]
    ops: tuple[str, ...]
    size: int
    number: int | None = None
    dur: int = UNTOLD
    at: int = UNTOLD


class Codes:
    """Numbers for combinations of operations, the same on both sides."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], int] = {}

    def lane(self, entries: Sequence[Entry], *, numbered: bool = False) -> Lane:
        """Columns of the entries. numbered: by their own numbers, where these ascend; else by their order."""
        number = np.arange(len(entries), dtype=np.int64)
        own = [e.number for e in entries]
        if numbered and None not in own:
            told = np.array(own, np.int64)
            if len(told) and (np.diff(told) > 0).all():
                number = told
        return Lane(
            np.array([self._known.setdefault(e.ops, len(self._known)) for e in entries], np.int32),
            np.array([e.size for e in entries], np.int64),
            number,
            np.array([e.dur for e in entries], np.int64),
            np.array([e.at for e in entries], np.int64),
        )


def of_calls(calls: Sequence[Call], which: Iterable[int], *, singly: bool, dated: bool) -> list[Entry]:
    """Entries of a trace's calls. singly: each call alone, not with those it was launched with."""
    together: dict[int, list[int]] = defaultdict(list)
    for i in which:
        owner = calls[i].coalesced_into
        together[i if singly or owner is None else owner].append(i)
    out = []
    for owner, members in sorted(together.items()):
        seen = [calls[i] for i in members]
        first = calls[owner]
        sizes = [UNTOLD if c.payload_bytes is None or c.op in _ONE_SIDED else c.payload_bytes for c in seen]
        dur = first.dur if first.dur is not None and first.n_activities == 1 else UNTOLD
        at = first.call_ts if dated and first.call_ts is not None else UNTOLD
        out.append(Entry(members, _ops(c.op for c in seen), _sum(sizes), first.seq, dur, at))
    return out


def of_witness(
    calls: Sequence[WitnessCall], which: Iterable[int], words: Vocabulary, key: Callable[[int, WitnessCall], Hashable]
) -> list[Entry]:
    """Entries of a witness' calls: those of one key were launched at once."""
    together: dict[Hashable, list[int]] = defaultdict(list)
    for i in which:
        together[key(i, calls[i])].append(i)
    out = []
    for members in together.values():
        seen = [calls[i] for i in members]
        ops = [words.op(c.op_raw)[0] for c in seen]
        sizes = [UNTOLD if op in _ONE_SIDED else _bytes(c, words) for c, op in zip(seen, ops, strict=True)]
        first = seen[0]
        dur = first.dur_ns if first.extra.get("timing_source", "kernel_gpu") == "kernel_gpu" else None
        number = first.p2p_seq if first.is_p2p else first.seq
        at = first.created_ns
        out.append(
            Entry(members, _ops(ops), _sum(sizes), number, UNTOLD if dur is None else dur, UNTOLD if at is None else at)
        )
    return out


def _ops(ops: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({_SAME.get(op, op) for op in ops}))


def _sum(sizes: Sequence[int]) -> int:
    return UNTOLD if UNTOLD in sizes else sum(sizes)


def _bytes(call: WitnessCall, words: Vocabulary) -> int:
    kind = words.dtype(call.dtype)
    if call.in_nelems is not None and call.out_nelems is not None and kind is not None:
        return max(call.in_nelems, call.out_nelems) * kind.bytes
    return UNTOLD if call.payload_bytes is None else call.payload_bytes

"""Where ranks of a group do different things under one sequence number: another operation, size or type.

The conditions on sizes are those that each collective sets: equal tensors on all ranks, except that a gather's output
and a scatter's input exist on one rank only; an all-gather's output holds every input, a reduce-scatter's input every
output; an all-reduce keeps its size; what an all-to-all sends in sum is received in sum.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from tracekit.analysis.hang.state import GroupState, RankDump
    from tracekit.model import WitnessCall

FREE = frozenset({"coalesced", "unknown"})
_EQUAL_IN = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather"})
_EQUAL_OUT = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "scatter"})


class Divergence(Struct, frozen=True):
    """One call that its ranks do not agree on.

    what: operation | type | size; culprits: the ranks that differ from the most, empty when it is a tie; values: what
    each rank did; since_ns: when the first of them was issued.
    """

    group: GroupState
    seq: int
    what: str
    culprits: tuple[int, ...]
    values: Mapping[int, str]
    since_ns: int | None


def divergences(groups: Sequence[GroupState], dumps: Mapping[int, RankDump]) -> list[Divergence]:
    """All of them, in order of time; of one group only those of the first number that disagrees and what follows."""
    out = [d for g in groups for seq in sorted(g.calls) if (d := _diverges(g, seq, dumps)) is not None]
    return sorted(out, key=lambda d: (d.since_ns is None, d.since_ns or 0, d.group.key, d.seq))


def _diverges(group: GroupState, seq: int, dumps: Mapping[int, RankDump]) -> Divergence | None:
    at = group.calls[seq]
    seen = {rank: dumps[rank].witness.calls[position] for rank, position in sorted(at.items())}
    ops = {rank: _op(dumps[rank], position) for rank, position in at.items()}
    times = [c.created_ns for c in seen.values() if c.created_ns is not None]

    def found(what: str, values: Mapping[int, Hashable]) -> Divergence | None:
        if len(set(values.values())) < 2:
            return None
        spelled = {rank: str(values[rank]) for rank in sorted(values)}
        return Divergence(group, seq, what, _minority(values), spelled, min(times, default=None))

    if different := found("operation", ops):
        return different
    op = next(iter(ops.values()))
    if op in FREE:
        return None
    types = {r: t for r, c in seen.items() if (t := c.dtype or c.out_dtype) is not None}
    return found("type", types) or found("size", _sizes(op, seen)) or _wrong_sum(group, seq, op, seen, times)


def _op(dump: RankDump, position: int) -> str:
    call = dump.labels.get(position)
    return call.op if call is not None else dump.witness.calls[position].op_raw


def _sizes(op: str, seen: Mapping[int, WitnessCall]) -> dict[int, Hashable]:
    out: dict[int, Hashable] = {}
    for rank, call in seen.items():
        given = str(call.in_sizes) if op in _EQUAL_IN and call.in_sizes is not None else ""
        taken = str(call.out_sizes) if op in _EQUAL_OUT and call.out_sizes is not None else ""
        if given or taken:
            out[rank] = f"{given or '-'} → {taken or '-'}"
    return out


def _wrong_sum(
    group: GroupState, seq: int, op: str, seen: Mapping[int, WitnessCall], times: Sequence[int]
) -> Divergence | None:
    """Sizes that agree over the ranks and still cannot be right."""
    numbers = {r: (_count(c.in_sizes), _count(c.out_sizes)) for r, c in seen.items()}
    known = {r: (i, o) for r, (i, o) in numbers.items() if i is not None and o is not None}
    n = len(group.members)
    wrong: dict[int, str] = {}
    if op == "all_to_all":
        whole = n > 0 and len(known) == n
        if whole and sum(i for i, _ in known.values()) != sum(o for _, o in known.values()):
            wrong = {r: f"{i:,} sent, {o:,} received" for r, (i, o) in known.items()}
    else:
        ratio = {"all_gather": (n, 1), "reduce_scatter": (1, n), "all_reduce": (1, 1)}.get(op)
        if ratio is not None and n > 0:
            wrong = {r: f"{i:,} → {o:,} elements" for r, (i, o) in known.items() if i * ratio[0] != o * ratio[1]}
    if not wrong:
        return None
    culprits = tuple(sorted(wrong)) if len(wrong) < len(seen) else ()
    return Divergence(group, seq, "size", culprits, wrong, min(times, default=None))


def _count(sizes: list[list[int]] | None) -> int | None:
    return sum(prod(s) for s in sizes) if sizes else None


def _minority(values: Mapping[int, Hashable]) -> tuple[int, ...]:
    """Ranks that differ from what most do; none when two kinds are equally frequent."""
    often = Counter(values.values()).most_common(2)
    if len(often) > 1 and often[0][1] == often[1][1]:
        return ()
    return tuple(sorted(r for r, v in values.items() if v != often[0][0]))

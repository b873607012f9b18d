"""Find the communication calls on the host: records, c10d operators, library annotations, and how they nest."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.label.groups import old_seq
from tracekit.label.records import kinds_of, own_numbers
from tracekit.label.vocabulary import nelems, pair
from tracekit.model import Call, HostCat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tracekit.label.groups import Groups
    from tracekit.label.vocabulary import C10dOp, Vocabulary
    from tracekit.model import CommArgs, RankTrace

RECORD = "record_param_comms"
NOTE = re.compile(r"^(?:nccl2?|rccl|xccl|hccl|ncclx|mccl|eccl):(?!:)")
FUNCTIONAL = re.compile(r"^_?c10d_functional(?:_autograd)?::")
NO_ROLE, IS_RECORD, IS_C10D, IS_NOTE, IS_GROUP_END, IS_WRAPPER, IS_FUNCTIONAL = range(7)
_ROOTED_ON_ONE_RANK = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}


class Roots(Struct):
    """Outermost spans of one kind, disjoint on each track; int64 arrays sorted by (track, ts)."""

    row: NDArray[np.int64]
    track: NDArray[np.int64]
    ts: NDArray[np.int64]
    end: NDArray[np.int64]

    def at(self, track: NDArray[np.int64], ts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Position of the root that encloses each point (inclusive), -1 for none."""
        out = self.before(track, ts)
        inside = out >= 0
        inside[inside] = self.end[out[inside]] >= ts[inside]
        return np.where(inside, out, -1)

    def before(self, track: NDArray[np.int64], ts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Position of the last root on the track that starts at or before each point, -1 for none."""
        if not len(self.row) or not len(ts):
            return np.full(len(ts), -1, np.int64)
        times = np.sort(self.ts)
        base = len(times) + 1
        key = self.track * base + np.searchsorted(times, self.ts)
        goal = track * base + np.searchsorted(times, ts, "right") - 1
        at = np.searchsorted(key, goal, "right") - 1
        good = at >= 0
        good[good] = self.track[at[good]] == track[good]
        return np.where(good, at, -1)


class HostCalls(Struct):
    """The calls of one rank as the host shows them.

    roots: one a call; `record`, `note`: host row of its record and annotation (-1); `wrappers`: operators of
    engines; `group_ends`: annotations of the end of a coalesced group; `roles`: per name index.
    """

    roots: Roots
    record: NDArray[np.int64]
    note: NDArray[np.int64]
    wrappers: Roots
    group_ends: Roots
    roles: NDArray[np.int8]


def name_roles(names: Sequence[str], words: Vocabulary) -> NDArray[np.int8]:
    """Role of each name in communication."""
    out = np.zeros(len(names), np.int8)
    for i, name in enumerate(names):
        if name == RECORD:
            out[i] = IS_RECORD
        elif name in words.c10d:
            out[i] = IS_C10D
        elif NOTE.match(name):
            op, moves = words.op(name)
            out[i] = IS_GROUP_END if op == "coalesced" else IS_NOTE if moves else NO_ROLE
        elif FUNCTIONAL.match(name):
            out[i] = IS_FUNCTIONAL
        elif "::" in name and words.wrapper(name):
            out[i] = IS_WRAPPER
    return out


def _roots(trace: RankTrace, rows: NDArray[np.int64]) -> tuple[Roots, NDArray[np.int64], NDArray[np.int64]]:
    """Outermost of `rows` on each track; also all rows in order, and the root number of each."""
    host = trace.host
    track, ts = host.track[rows].astype(np.int64), host.ts[rows]
    end = ts + host.dur[rows]
    order = np.lexsort((-end, ts, track))
    rows, track, ts, end = rows[order], track[order], ts[order], end[order]
    top = np.ones(len(rows), np.bool_)
    edges = [*np.flatnonzero(np.diff(track, prepend=-1)).tolist(), len(rows)]
    for lo, hi in pairwise(edges):
        reach = np.maximum.accumulate(end[lo:hi])
        top[lo + 1 : hi] = ts[lo + 1 : hi] >= reach[:-1]
        # A child of no length at its parent's very end is still its child.
        top[lo + 1 : hi] &= (ts[lo + 1 : hi] > reach[:-1]) | (end[lo + 1 : hi] > ts[lo + 1 : hi])
    return Roots(rows[top], track[top], ts[top], end[top]), rows, np.cumsum(top) - 1


def find_host_calls(trace: RankTrace, words: Vocabulary) -> HostCalls:
    """Cluster the communication rows of the host: one cluster, one call."""
    host = trace.host
    roles = name_roles(trace.names, words)
    role = roles[host.name]
    role[(host.cat == HostCat.PYTHON) | (host.cat == HostCat.RUNTIME)] = NO_ROLE
    rows = np.flatnonzero((role >= IS_RECORD) & (role <= IS_NOTE))
    rows = rows[~_no_traffic(trace, rows, role, words)]
    roots, rows, member = _roots(trace, rows)
    record = _first(rows, member, role[rows] == IS_RECORD, len(roots.row))
    note = _first(rows, member, role[rows] == IS_NOTE, len(roots.row))
    keep = (role[roots.row] != IS_RECORD) | (note >= 0) | _has_args(trace, record)
    roots = Roots(roots.row[keep], roots.track[keep], roots.ts[keep], roots.end[keep])
    wrappers, _, _ = _roots(trace, np.flatnonzero(role == IS_WRAPPER))
    ends, _, _ = _roots(trace, np.flatnonzero(role == IS_GROUP_END))
    return HostCalls(roots, record[keep], note[keep], wrappers, ends, roles)


def _first(rows: NDArray[np.int64], member: NDArray[np.int64], mask: NDArray[np.bool_], n: int) -> NDArray[np.int64]:
    out = np.full(n, -1, np.int64)
    at = np.flatnonzero(mask)[::-1]
    out[member[at]] = rows[at]  # reversed, so that the first of each cluster is written last
    return out


def _collective_is(
    trace: RankTrace, numbers: NDArray[np.int64], wanted: Callable[[str | None], bool]
) -> NDArray[np.bool_]:
    """Which of these records (-1 = none) name an operation that is wanted; the others are not looked at."""
    kinds, first, back = np.unique(kinds_of(trace.comm, numbers), return_index=True, return_inverse=True)
    examples = numbers[first].tolist()
    fits = [number >= 0 and wanted(trace.comm[number].collective) for number in examples]
    out: NDArray[np.bool_] = np.array(fits, np.bool_)[back.reshape(-1)] if len(kinds) else np.zeros(0, np.bool_)
    return out


def _has_args(trace: RankTrace, record: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Does the record of each call (-1 = none) name its operation?"""
    return _collective_is(trace, _numbers(trace, record), lambda name: name is not None)


def _numbers(trace: RankTrace, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of the record of each host row (-1 = none)."""
    return np.where(rows >= 0, trace.host.comm[rows], -1).astype(np.int64)


def _no_traffic(
    trace: RankTrace, rows: NDArray[np.int64], role: NDArray[np.int8], words: Vocabulary
) -> NDArray[np.bool_]:
    """Records of waiting, of initialisation, and of the end of a coalesced group."""
    comm = _numbers(trace, np.where(role[rows] == IS_RECORD, rows, -1))

    def idle(name: str | None) -> bool:
        if name is None:
            return False
        op, moves = words.op(name)
        return not moves or op == "coalesced"

    return _collective_is(trace, comm, idle)


_again: Callable[[Call], Call] = Call.__copy__  # type: ignore[attr-defined]  # what `copy.copy` calls, at once


class CallBuilder:
    """Turns host clusters into `Call`s."""

    def __init__(self, trace: RankTrace, words: Vocabulary, groups: Groups) -> None:
        self.trace, self.words, self.groups = trace, words, groups
        self._ops: dict[str, str] = {}

    def op(self, raw: str) -> str:
        """Normalised operation, cached."""
        found = self._ops.get(raw)
        if found is None:
            found = self._ops[raw] = self.words.op(raw)[0]
        return found

    def build(self, host: HostCalls) -> list[Call]:
        """One call for each root, in the order of the roots. Calls that are alike are worked out once."""
        r, h, comm = host.roots, self.trace.host, self.trace.comm
        own, recorded = _numbers(self.trace, r.row), _numbers(self.trace, host.record)
        noted = np.where(host.note >= 0, h.name[host.note], -1)
        seqs, ids = own_numbers(comm, recorded)
        alike = (h.name[r.row], kinds_of(comm, own), kinds_of(comm, recorded), noted)
        kinds = zip(*(c.tolist() for c in alike), strict=True)
        given = (c.tolist() for c in (own, recorded, r.ts, r.end, r.track))
        known: dict[tuple[int, ...], tuple[Call, int | None]] = {}
        out = []
        for key, outer, inner, ts, end, track, seq, comms_id in zip(kinds, *given, seqs, ids, strict=True):
            found = known.get(key)
            if found is None:
                args = comm[inner] if inner >= 0 else None
                found = known[key] = (self._one(key[0], outer, args, key[3]), old_seq(args))
            call = _again(found[0])
            call.call_ts, call.call_end, call.track = ts, end, track
            call.seq, call.comms_id = found[1] if seq is None else seq, comms_id
            out.append(call)
        return out

    def _one(self, name: int, own: int, args: CommArgs | None, noted: int) -> Call:
        """name, own: name and record of the outermost row; args: record inside; noted: name of the annotation."""
        trace = self.trace
        outer = trace.names[name]
        c10d = self.words.c10d.get(outer)
        note_text = trace.names[noted] if noted >= 0 else None
        raw = (args.collective if args else None) or (outer if c10d else None) or note_text or outer
        call = Call(op=c10d.op if c10d and raw is outer else self.op(raw), op_raw=raw)
        group = self.groups.resolve(args)
        call.group_name, call.group_desc = group.name, group.desc
        call.group_size, call.members = group.size, group.members
        if args is not None:
            self.take_args(call, args)
        outer_args = trace.comm[own] if c10d and own >= 0 else None
        if c10d and outer_args is not None:
            self._from_operator(call, c10d, outer_args)
        elif call.in_nelems is None and args is not None and args.dims:
            self.take_shape(call, args)
        call.rf_id = (args.rf_id if args is not None else None) or (outer_args.rf_id if outer_args else None)
        self._peer(call, args, c10d, outer_args, note_text)
        self.payload(call)
        return call

    def take_args(self, call: Call, args: CommArgs) -> None:
        """Copy what the arguments of a record or kernel say about the call itself."""
        call.seq, call.comms_id = args.seq, args.comms_id
        call.in_nelems, call.out_nelems = args.in_nelems, args.out_nelems
        call.src_rank, call.dst_rank = args.src_rank, args.dst_rank
        call.payload_bytes = args.payload_bytes
        found = self.words.dtype(args.dtype)
        call.dtype = found.name if found else args.dtype
        call.in_splits = args.in_splits if args.in_splits != "[]" else None
        call.out_splits = args.out_splits if args.out_splits != "[]" else None

    def take_shape(self, call: Call, args: CommArgs) -> None:
        """Size and type of a call whose first recorded input is what it moves."""
        call.in_nelems = call.out_nelems = elements(args, 0)
        self._dtype(call, args, 0)
        call.dims = _single(args.dims[0]) if args.dims else None
        self.payload(call)

    def _from_operator(self, call: Call, op: C10dOp, args: CommArgs) -> None:
        """Sizes, type and splits from the operator's recorded inputs, where the record has none."""
        dims = args.dims or []
        if op.input is not None and op.input < len(dims):
            call.dims = _single(dims[op.input])
        if call.in_nelems is None and call.out_nelems is None:
            call.in_nelems = elements(args, op.input)
            call.out_nelems = elements(args, op.output)
        if call.dtype is None and op.input is not None:
            self._dtype(call, args, op.input)
        values = args.concrete or []
        for name, position in (("in_splits", op.in_splits), ("out_splits", op.out_splits)):
            if position is not None and position < len(values) and getattr(call, name) is None:
                text = values[position]
                setattr(call, name, text if isinstance(text, str) and text not in ("", "[]") else None)

    def _dtype(self, call: Call, args: CommArgs, position: int) -> None:
        types = args.types or []
        if call.dtype is None and position < len(types) and isinstance(types[position], str):
            found = self.words.dtype(types[position])
            call.dtype = found.name if found else None

    def _peer(
        self, call: Call, args: CommArgs | None, op: C10dOp | None, outer: CommArgs | None, note: str | None
    ) -> None:
        """Global rank of the peer or root: as recorded, else its group rank looked up among the members."""
        side = {"send": "dst", "recv": "src"}.get(call.op) or _ROOTED_ON_ONE_RANK.get(call.op)
        if side is None or getattr(call, f"{side}_rank") is not None or call.members is None:
            return
        position = args.rank if args is not None else None
        values = outer.concrete if outer is not None else None
        if position is None and op is not None and op.peer is not None and values and op.peer < len(values):
            position = int(values[op.peer]) if str(values[op.peer]).isdigit() else None
        if position is None and note is not None and (found := pair(note)):
            position = found[1]
        if position is not None and 0 <= position < len(call.members):
            setattr(call, f"{side}_rank", call.members[position])

    def payload(self, call: Call) -> None:
        """payload = max(input, output elements) × size of the element type; None while one is unknown."""
        known = [n for n in (call.in_nelems, call.out_nelems) if n is not None]
        size = self.words.dtype(call.dtype)
        if known and size is not None:
            call.payload_bytes = max(known) * size.bytes


def elements(args: CommArgs, position: int | None) -> int | None:
    """Elements of one recorded argument; an empty shape is a scalar only where a tensor type is recorded."""
    dims, types = args.dims or [], args.types or []
    if position is None or position >= len(dims):
        return None
    kind = types[position] if position < len(types) else ""
    if dims[position] == [] and kind not in ("", "TensorList", "Scalar", "ScalarList"):
        return 1
    return nelems(dims[position])


def _single(dims: object) -> list[object] | None:
    """Dims of a list of one tensor are that tensor's."""
    if not isinstance(dims, list) or not dims:
        return None
    return dims[0] if len(dims) == 1 and isinstance(dims[0], list) else dims

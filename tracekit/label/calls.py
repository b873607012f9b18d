"""Host rows → communication calls: which rows are calls, what they say, what surrounds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.label.groups import Groups
from tracekit.label.ops import (
    C10D,
    RECORD,
    TITLE,
    OpTable,
    dtype_of,
    normal_record,
    payload_bytes,
    tensor_of,
)
from tracekit.model import Call, CommArgs, HostCat
from tracekit.parsers.links import scopes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.label.rules import OpRule, Rules
    from tracekit.model import RankTrace

_OWN = (RECORD, "c10d::")


@dataclass(slots=True)
class HostCalls:
    """Calls in call order; `of_row` maps every host row that belongs to a call to its position.

    `record_ext` maps `External id` of a record row to its call.
    """

    calls: list[Call] = field(default_factory=list)
    of_row: dict[int, int] = field(default_factory=dict)
    of_ext: dict[int, int] = field(default_factory=dict)
    row_of: list[int] = field(default_factory=list)


def skip_names(trace: RankTrace) -> set[int]:
    """Names of asynchronous worker spans: they do not nest, so they are no scopes."""
    return {i for i, n in enumerate(trace.names) if n.startswith("gloo:")}


def call_rows(trace: RankTrace, table: OpTable) -> NDArray[np.intp]:
    """Host rows that may be a call: records, `c10d::` operators, `nccl:` annotations."""
    wanted = [
        i
        for i, n in enumerate(trace.names)
        if n == RECORD or (not n.startswith("gloo:") and table.of_host_name(n) is not None)
    ]
    host = trace.host
    usable = host.cat != HostCat.RUNTIME
    return np.flatnonzero(usable & np.isin(host.name, np.array(wanted, np.int32)))


def host_calls(trace: RankTrace, rules: Rules, table: OpTable) -> HostCalls:
    """One call per outermost communication row; the record inside it gives the arguments."""
    host, names = trace.host, trace.names
    rows = call_rows(trace, table)
    chains = scopes(trace, host.track[rows], host.ts[rows], skip_names(trace))
    candidate = set(rows.tolist())
    inner: dict[int, list[int]] = {}
    outer_scopes: dict[int, tuple[str, ...]] = {}
    for row, chain in zip(rows.tolist(), chains, strict=True):
        around = [r for r in chain if r != row and not _same_span(trace, r, row, candidate)]
        owner = next((r for r in around if r in candidate), row)
        inner.setdefault(owner, []).append(row)
        if owner == row:
            outer_scopes[row] = tuple(names[r] for r in around)
    found = HostCalls()
    groups = Groups(trace.meta)
    for owner in sorted(inner, key=lambda r: (int(host.ts[r]), r)):
        call = _call(trace, owner, inner[owner], rules, table, groups)
        if call is None:
            continue
        call.scopes = outer_scopes.get(owner, ())
        position = len(found.calls)
        found.calls.append(call)
        found.row_of.append(owner)
        for row in inner[owner]:
            found.of_row[row] = position
            if host.ext[row] > 0:
                found.of_ext[int(host.ext[row])] = position
    return found


def _same_span(trace: RankTrace, a: int, b: int, candidate: set[int]) -> bool:
    """Two candidates with one and the same span: row order (as recorded) says which is outside."""
    host = trace.host
    return a in candidate and host.ts[a] == host.ts[b] and host.dur[a] == host.dur[b] and _depth(trace, a) > _depth(trace, b)


def _depth(trace: RankTrace, row: int) -> int:
    """Nesting order of the writer: operator, then record, then annotation."""
    name = trace.names[trace.host.name[row]]
    return 0 if C10D.fullmatch(name) else 1 if name == RECORD else 2


def _call(
    trace: RankTrace, owner: int, rows: list[int], rules: Rules, table: OpTable, groups: Groups
) -> Call | None:
    host, names = trace.host, trace.names
    name = names[host.name[owner]]
    ordered = sorted(rows, key=lambda r: (_depth(trace, r), int(host.ts[r])))
    records = [r for r in ordered if names[host.name[r]] == RECORD]
    titles = [r for r in ordered if TITLE.fullmatch(names[host.name[r]])]
    args = _args(trace, records[0]) if records else CommArgs()
    if args.collective in rules.no_transfer:
        return None
    op_rule = table.of_host_name(name)
    if op_rule is None and args.collective is None:
        op_rule = next((o for r in titles if (o := table.of_host_name(names[host.name[r]]))), None)
        if op_rule is None:
            return None  # an old record without arguments outside any operator: a wait
    op = op_rule.name if op_rule else normal_record(args.collective or name, table)
    op_raw = args.collective or (name if name != RECORD else names[host.name[titles[0]]])
    call = Call(
        op=op,
        op_raw=op_raw,
        call_ts=int(host.ts[owner]),
        call_end=int(host.ts[owner] + host.dur[owner]),
        track=int(host.track[owner]),
    )
    _identity(call, args, groups)
    _sizes(call, args, _args(trace, owner), op_rule, rules)
    _peers(call, args, _args(trace, owner), groups)
    return call


def _args(trace: RankTrace, row: int) -> CommArgs:
    position = int(trace.host.comm[row])
    return trace.comm[position] if position >= 0 else CommArgs()


def _identity(call: Call, args: CommArgs, groups: Groups) -> None:
    group = groups.named(args.pg_name) or (groups.only if args.pg_name is None and args.group_size is None else None)
    call.group_name = args.pg_name if args.pg_name is not None else (group.name if group else None)
    call.group_desc = args.pg_desc if args.pg_desc is not None else (group.desc if group else None)
    call.members = groups.members(args) if args.pg_name is not None or args.group_size is not None else None
    if call.members is None and group is not None:
        call.members = group.ranks
    size = args.group_size if args.group_size is not None else (group.size if group else None)
    call.group_size = size if size is not None else (len(call.members) if call.members else None)
    call.seq, call.comms_id = args.seq, args.comms_id


def _sizes(call: Call, args: CommArgs, op_args: CommArgs, op: OpRule | None, rules: Rules) -> None:
    call.in_nelems, call.out_nelems, call.dtype = args.in_nelems, args.out_nelems, args.dtype
    if op is not None and op_args.dims is not None:
        call.dims, in_count = tensor_of(op_args.dims, op.in_arg)
        _, out_count = tensor_of(op_args.dims, op.out_arg)
        call.in_nelems = in_count if call.in_nelems is None else call.in_nelems
        call.out_nelems = out_count if call.out_nelems is None else call.out_nelems
    call.dtype = call.dtype or dtype_of(op_args.types)
    call.in_splits, call.out_splits = args.in_splits, args.out_splits
    call.payload_bytes = payload_bytes(call.in_nelems, call.out_nelems, call.dtype, rules)


_ROOTED = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}


def _peers(call: Call, args: CommArgs, op_args: CommArgs, groups: Groups) -> None:
    """Global source/destination: recorded, else the group rank mapped through the members."""
    call.src_rank, call.dst_rank = args.src_rank, args.dst_rank
    side = {"send": "dst", "recv": "src"}.get(call.op) or _ROOTED.get(call.op)
    if side is None or call.src_rank is not None or call.dst_rank is not None:
        return
    position = args.rank
    if position is None and call.op in {"send", "recv"} and op_args.concrete and len(op_args.concrete) > 2:
        text = op_args.concrete[2]
        position = int(text) if isinstance(text, str) and text.isdigit() else None
    if position is None or call.members is None or not 0 <= position < len(call.members):
        return
    if side == "dst":
        call.dst_rank = call.members[position]
    else:
        call.src_rank = call.members[position]

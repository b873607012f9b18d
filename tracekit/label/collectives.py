"""Device work and host calls → the table of calls of a rank with device activity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.label.calls import HostCalls, host_calls, skip_names
from tracekit.label.groups import Groups
from tracekit.label.kernels import COPY_ENGINE, Classes, classify, family_code
from tracekit.label.ops import OpTable, normal_record, payload_bytes
from tracekit.model import NO_TIME, Activities, Call, Kind, LinkConfidence
from tracekit.parsers.links import Links, link, scopes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.label.rules import Rules
    from tracekit.model import RankTrace

_P2P_KERNEL_OPS = frozenset({"send", "recv", "all_to_all", "gather", "scatter"})


def device_calls(trace: RankTrace, rules: Rules) -> tuple[Activities, list[Call], Links]:
    """Classify device rows, build the calls and tie each communication activity to its call."""
    links, classes, table = link(trace), classify(trace, rules), OpTable.of(rules)
    found = host_calls(trace, rules, table)
    call_of = np.full(len(trace.device), -1, np.int32)
    builder = _Builder(trace, rules, table, links, classes, found, call_of)
    builder.peer_copies()
    builder.attach()
    builder.coalesced()
    builder.orphans()
    builder.times()
    order = sorted(range(len(found.calls)), key=lambda i: _call_order(found.calls[i]))
    calls = [found.calls[i] for i in order]
    position = np.empty(len(order) + 1, np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    position[-1] = -1
    for call in calls:
        if call.coalesced_into is not None:
            call.coalesced_into = int(position[call.coalesced_into])
    return builder.activities(position[call_of]), calls, links


def _call_order(call: Call) -> tuple[int, int, str]:
    known = [t for t in (call.call_ts, call.ts) if t is not None]
    return (known[0] if known else 0, call.ts or 0, call.op_raw)


class _Builder:
    """State of one rank while its calls are put together."""

    def __init__(
        self, trace: RankTrace, rules: Rules, table: OpTable, links: Links, classes: Classes,
        found: HostCalls, call_of: NDArray[np.int32],
    ) -> None:  # fmt: skip
        self.trace, self.rules, self.table, self.links = trace, rules, table, links
        self.classes, self.found, self.call_of = classes, found, call_of
        self.groups = Groups(trace.meta)
        self.chains: dict[int, tuple[int, ...]] = {}
        self._chase()

    def _chase(self) -> None:
        """Scopes of the launch of every activity that communicates or may do so (peer copies)."""
        device, host = self.trace.device, self.trace.host
        comm = (self.classes.kind == Kind.COMM) | (self.classes.kind == Kind.FUSED)
        peers = (self.classes.kind == Kind.COPY) & (device.peer == 1)
        rows = np.flatnonzero((comm | peers) & (self.links.launch >= 0))
        launches, first = np.unique(self.links.launch[rows], return_inverse=True)
        found = scopes(self.trace, host.track[launches], host.ts[launches], skip_names(self.trace))
        self.chains = {row: found[i] for row, i in zip(rows.tolist(), first.tolist(), strict=True)}

    def _call_around(self, row: int) -> int:
        """Call whose host row holds the launch of this device row, innermost first; -1 = none."""
        return next((p for r in reversed(self.chains.get(row, ())) if (p := self.found.of_row.get(r)) is not None), -1)

    def peer_copies(self) -> None:
        """Copies between devices launched inside a call are its transfer; host copies never are."""
        for row in self.chains:
            if self.classes.kind[row] == Kind.COPY:
                around = self._call_around(row)
                inside_symm = any("symm_mem::" in self.trace.names[self.trace.host.name[r]] for r in self.chains[row])
                if around >= 0 or inside_symm:
                    self.classes.kind[row] = Kind.COMM
                    self.classes.family[row] = family_code(self.classes.families, COPY_ENGINE)
                    self.call_of[row] = around

    def attach(self) -> None:
        """Tie communication kernels to the call around their launch, else to the record with their id."""
        device = self.trace.device
        for row in np.flatnonzero(self.classes.kind == Kind.COMM).tolist():
            position = self.call_of[row] if self.call_of[row] >= 0 else self._call_around(row)
            ext = int(device.ext[row])
            by_id = self.found.of_ext.get(ext, -1) if ext > 0 else -1
            if position < 0 and self.links.launch[row] < 0 and by_id >= 0 and self._plausible(row, by_id):
                position = by_id
            if position < 0:
                continue
            call = self.found.calls[position]
            self.call_of[row] = position
            sure = by_id == position
            call.link = max(call.link, LinkConfidence.ID if sure else LinkConfidence.CONTAINMENT)

    def _plausible(self, row: int, position: int) -> bool:
        """A join by id alone must not have the kernel before its call."""
        call_ts = self.found.calls[position].call_ts
        return call_ts is None or int(self.trace.device.ts[row]) >= call_ts - 10_000

    def coalesced(self) -> None:
        """A kernel launched outside any record closes a coalesced group: it carries the calls on its
        thread that were recorded since the previous communication launch and own no kernel."""
        host = self.trace.host
        owned = set(self.call_of[self.call_of >= 0].tolist())
        launches: dict[int, list[tuple[int, int]]] = {}
        for row in np.flatnonzero(self.classes.kind == Kind.COMM).tolist():
            if self.links.launch[row] >= 0:
                at = int(self.links.launch[row])
                launches.setdefault(int(host.track[at]), []).append((int(host.ts[at]), row))
        for track, events in launches.items():
            pending = [
                (c.call_ts, i) for i, c in enumerate(self.found.calls)
                if c.track == track and i not in owned and c.call_ts is not None and c.group_size != 1 and c.op != "barrier"
            ]  # fmt: skip
            self._close_groups(sorted(events), sorted(pending))

    def _close_groups(self, events: list[tuple[int, int]], pending: list[tuple[int, int]]) -> None:
        start = 0
        previous = NO_TIME
        for at, row in events:
            if self.call_of[row] < 0:
                name = self.trace.names[self.trace.device.name[row]]
                told = self.table.of_kernel(name, self._family(row))
                while start < len(pending) and pending[start][0] < previous:
                    start += 1
                members = []
                while start < len(pending) and pending[start][0] <= at:
                    members.append(pending[start][1])
                    start += 1
                self._claim(row, [m for m in members if self._fits(m, told, name)])
            previous = at

    def _fits(self, position: int, told: str | None, kernel: str) -> bool:
        op = self.found.calls[position].op
        if told is not None:
            return op == told
        return op in _P2P_KERNEL_OPS if "sendrecv" in kernel.lower() else True

    def _claim(self, row: int, members: list[int]) -> None:
        if not members:
            return
        self.call_of[row] = members[0]
        for position in members:
            call = self.found.calls[position]
            call.link = max(call.link, LinkConfidence.CONTAINMENT)
            if position != members[0]:
                call.coalesced_into = members[0]

    def orphans(self) -> None:
        """Communication kernels without a host call (pynccl, custom kernels, graph replay): one call each."""
        for row in np.flatnonzero((self.classes.kind == Kind.COMM) & (self.call_of < 0)).tolist():
            self.call_of[row] = len(self.found.calls)
            self.found.calls.append(self._orphan(row))

    def _orphan(self, row: int) -> Call:
        trace = self.trace
        name = trace.names[trace.device.name[row]]
        family = self._family(row)
        op = self.table.of_kernel(name, family) or "unknown"
        call = Call(op=op, op_raw=name)
        launch = int(self.links.launch[row])
        if launch >= 0:
            call.call_ts = int(trace.host.ts[launch])
            call.call_end = int(trace.host.ts[launch] + trace.host.dur[launch])
            call.track = int(trace.host.track[launch])
            call.link = LinkConfidence.ID
            call.scopes = tuple(trace.names[trace.host.name[r]] for r in self.chains.get(row, ()))
        if trace.device.comm[row] >= 0:
            self._from_kernel_args(call, row)
        return call

    def _from_kernel_args(self, call: Call, row: int) -> None:
        args = self.trace.comm[self.trace.device.comm[row]]
        call.op = normal_record(args.collective or call.op, self.table)
        call.op_raw = args.collective or call.op_raw
        call.group_name, call.group_desc, call.group_size = args.pg_name, args.pg_desc, args.group_size
        call.members = self.groups.members(args)
        call.seq, call.comms_id = args.seq, args.comms_id
        call.in_nelems, call.out_nelems, call.dtype = args.in_nelems, args.out_nelems, args.dtype
        call.in_splits, call.out_splits = args.in_splits, args.out_splits
        call.src_rank, call.dst_rank = args.src_rank, args.dst_rank
        call.payload_bytes = payload_bytes(call.in_nelems, call.out_nelems, call.dtype, self.rules)

    def _family(self, row: int) -> str | None:
        code = int(self.classes.family[row])
        return self.classes.families[code] if code >= 0 else None

    def times(self) -> None:
        """First start to last end of a call's activities; coalesced members share their owner's."""
        device, calls = self.trace.device, self.found.calls
        rows = np.flatnonzero(self.call_of >= 0)
        for row, position in zip(rows.tolist(), self.call_of[rows].tolist(), strict=True):
            call = calls[position]
            start, dur = int(device.ts[row]), int(device.dur[row])
            if call.ts is None or call.dur is None:
                call.ts, call.dur = start, dur
                call.device, call.stream = int(device.device[row]), int(device.stream[row])
                call.kernel = self.trace.names[device.name[row]]
                call.family = self._family(row)
            else:
                end = max(call.ts + call.dur, start + dur)
                call.ts = min(call.ts, start)
                call.dur = end - call.ts
            call.n_activities += 1
        for call in calls:
            if call.coalesced_into is not None:
                owner = calls[call.coalesced_into]
                call.ts, call.dur, call.device, call.stream = owner.ts, owner.dur, owner.device, owner.stream
                call.kernel, call.family = owner.kernel, owner.family

    def activities(self, call: NDArray[np.int32]) -> Activities:
        """The classified device rows, sorted by time as the parser left them."""
        trace = self.trace
        launch = self.links.launch
        launch_ts = np.where(launch >= 0, trace.host.ts[np.maximum(launch, 0)] if len(trace.host) else NO_TIME, NO_TIME)
        d = trace.device
        return Activities(
            names=trace.names, families=self.classes.families, ts=d.ts, dur=d.dur, kind=self.classes.kind,
            device=d.device, stream=d.stream, name=d.name, family=self.classes.family, corr=d.corr,
            call=call.astype(np.int32), launch_ts=launch_ts.astype(np.int64),
        )  # fmt: skip

"""One communication call: operator, record, annotation, launch and kernel, with NCCL's arguments."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tracekit.simulate.device import Gpu, Label, Meeting, Work
from tracekit.theory.specs import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.simulate.costs import Costs
    from tracekit.simulate.groups import Group, Groups

DTYPES = {"bf16": "BFloat16", "fp16": "Half", "fp32": "Float", "fp8": "Float8_e4m3fn", "int64": "Long"}
BYTES = {**DTYPE_BYTES, "int64": 8}
_KERNEL_TYPES = {"bf16": "bf16", "fp16": "f16", "fp32": "f32", "fp8": "u8", "int64": "i64"}
_INPUT_TYPES = {
    "bf16": "c10::BFloat16",
    "fp16": "c10::Half",
    "fp32": "float",
    "fp8": "c10::Float8_e4m3fn",
    "int64": "long int",
}
_ARGS = "(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True, slots=True)
class Api:
    """How torch names one way to call: operator, `Collective name`, annotation, kernel, operation."""

    operator: str
    collective: str
    title: str
    kernel: str
    op: str


APIS = {
    "all_reduce": Api("c10d::allreduce_", "allreduce", "nccl:all_reduce", "AllReduce_Sum_{}_RING_LL", "all_reduce"),
    "all_reduce_coalesced": Api(
        "c10d::allreduce_coalesced_",
        "allreduce_coalesced",
        "nccl:allreduce_coalesced",
        "AllReduce_Sum_{}_RING_LL",
        "all_reduce",
    ),
    "all_gather": Api(
        "c10d::_allgather_base_", "_allgather_base", "nccl:_all_gather_base", "AllGather_RING_LL", "all_gather"
    ),
    "all_gather_coalesced": Api(
        "c10d::allgather_into_tensor_coalesced_",
        "allgather_into_tensor_coalesced",
        "nccl:all_gather_into_tensor_coalesced",
        "AllGather_RING_LL",
        "all_gather",
    ),
    "reduce_scatter": Api(
        "c10d::_reduce_scatter_base_",
        "_reduce_scatter_base",
        "nccl:_reduce_scatter_base",
        "ReduceScatter_Sum_{}_RING_LL",
        "reduce_scatter",
    ),
    "reduce_scatter_coalesced": Api(
        "c10d::reduce_scatter_tensor_coalesced_",
        "reduce_scatter_tensor_coalesced",
        "nccl:reduce_scatter_tensor_coalesced",
        "ReduceScatter_Sum_{}_RING_LL",
        "reduce_scatter",
    ),
    "all_to_all": Api("c10d::alltoall_base_", "all_to_allv", "nccl:all_to_all", "SendRecv", "all_to_all"),
}
_SHAPE = '"registers per thread": 96, "shared memory": 103808, "grid": [{}, 1, 1], "block": [544, 1, 1]'


@dataclass(frozen=True, slots=True)
class Message:
    """One end of a point-to-point transfer; `key` names it on both sides."""

    send: bool
    peer: int
    payload_bytes: int
    key: tuple[object, ...]


class Wire:
    """Issues the calls of all ranks; what ranks have in common (meetings, identities) lives here."""

    def __init__(
        self, costs: Costs, groups: Groups, slow_link: Mapping[int, float] | None = None, latency_ns: int = 0
    ) -> None:
        self.costs, self.groups = costs, groups
        self._slow, self._latency = slow_link or {}, latency_ns
        self._meetings: dict[tuple[object, ...], Meeting] = {}
        self._streams: dict[object, int] = {}

    def forget(self) -> None:
        """Drop the meetings of a finished step."""
        self._meetings.clear()

    @property
    def streams(self) -> list[int]:
        """Streams in use by communication."""
        return sorted(self._streams.values())

    def _takes(self, op: str, payload: int, ranks: tuple[int, ...]) -> int:
        """ns of one transfer: what it costs, times the factor of the slowest link in it; latency of messages."""
        ns = self.costs.transfer(op, payload, ranks)
        if self._slow:
            ns = round(ns * max(self._slow.get(r, 1.0) for r in ranks))
        return ns + (self._latency if op == "send" else 0)

    def stream(self, key: object) -> int:
        """The stream of a communicator."""
        return self._streams.setdefault(key, 20 + 4 * len(self._streams))

    def collective(
        self, gpu: Gpu, api: str, role: str, payload: int, label: tuple[str, str], dtype: str, *, wait: bool = True,
        after: list[Work] | None = None, splits: list[int] | None = None, stream: str = "",
    ) -> Work:  # fmt: skip
        """One collective of `payload` bytes (full buffer); `after` instead of all that the compute stream has so far.

        `splits`: rows to each member of an all-to-all; `label`: strategy and purpose.
        """
        how, group = APIS[api], self.groups.of(role, gpu.rank)
        gpu.seq[group.name] += 1
        number = gpu.seq[group.name]
        out_bytes, in_bytes = payload, payload
        if how.op == "all_gather":
            in_bytes //= len(group.ranks)
        elif how.op == "reduce_scatter":
            out_bytes //= len(group.ranks)
        each = BYTES[dtype]
        shared = _shared(
            group,
            how.collective,
            in_bytes // each,
            out_bytes // each,
            dtype,
            number,
            _ident(group.name, number),
            splits,
        )
        gpu.open(how.operator)
        _record(gpu, group, shared, dtype)
        note = gpu.open(how.title, "user_annotation")
        call = gpu.call("cudaLaunchKernelExC", 430, 5_400)
        deps = gpu.tail() if after is None else [*after]
        meeting = self._meetings.setdefault(
            (group.name, number), Meeting(len(group.ranks), self._takes(how.op, payload, group.ranks))
        )
        work = Work(
            "comm", f"ncclDevKernel_{how.kernel.format(_KERNEL_TYPES[dtype])}{_ARGS}",
            self.stream(stream or role), call.ts, 0, gpu.step, call.corr, f"{_SHAPE.format(24)}, {shared}", call.ext,
            deps, (Label(*label, how.op, role, payload),), [meeting], how.title, note.ext,
        )  # fmt: skip
        gpu.close(3)
        gpu.enqueue(work)
        if wait:
            gpu.wait(work)
        return work

    def message(
        self, gpu: Gpu, role: str, message: Message, label: tuple[str, str], dtype: str, stream: object
    ) -> Work:
        """One isend or irecv on its own; nobody waits for it yet."""
        group = self.groups.of(role, gpu.rank)
        me, peer = group.ranks.index(gpu.rank), group.ranks.index(message.peer)
        title = f"nccl:send {me}->{peer}" if message.send else f"nccl:recv {me}<-{peer}"
        shared = self._point(gpu, group, message, dtype)
        gpu.open("c10d::send" if message.send else "c10d::recv_")
        _record(gpu, group, shared, dtype, message.peer)
        note = gpu.open(title, "user_annotation")
        call = gpu.call("cudaLaunchKernelExC", 430, 5_400)
        work = self._transfer(gpu, role, [message], label, stream, call.ts, call.corr)
        work.args, work.ext, work.title, work.title_ext = f"{work.args}, {shared}", call.ext, title, note.ext
        gpu.close(3)
        gpu.enqueue(work)
        return work

    def batch(self, gpu: Gpu, role: str, messages: list[Message], label: tuple[str, str], dtype: str) -> Work:
        """Messages of one batch_isend_irecv: one kernel without arguments; the next kernel waits for it."""
        group = self.groups.of(role, gpu.rank)
        for message in messages:
            gpu.open("c10d::send" if message.send else "c10d::recv_")
            _record(gpu, group, self._point(gpu, group, message, dtype), dtype, message.peer)
            gpu.close(2)
        note = gpu.open("nccl:coalesced", "user_annotation")
        call = gpu.call("cudaLaunchKernelExC", 430, 5_400)
        work = self._transfer(gpu, role, messages, label, role, call.ts, call.corr)
        work.title, work.title_ext = "nccl:coalesced", note.ext
        gpu.close()
        gpu.enqueue(work)
        gpu.wait(work)
        return work

    def _transfer(
        self, gpu: Gpu, role: str, messages: list[Message], label: tuple[str, str], stream: object, ts: int, corr: int
    ) -> Work:
        meetings = []
        for m in messages:
            ns = self._takes("send", m.payload_bytes, tuple(sorted((gpu.rank, m.peer))))
            meetings.append(self._meetings.setdefault(m.key, Meeting(2, ns)))
        labels = tuple(Label(*label, "send" if m.send else "recv", role, m.payload_bytes) for m in messages)
        return Work(
            "comm", f"ncclDevKernel_SendRecv{_ARGS}", self.stream(stream), ts, 0, gpu.step, corr, _SHAPE.format(8),
            None, gpu.tail(), labels, meetings,
        )  # fmt: skip

    def _point(self, gpu: Gpu, group: Group, message: Message, dtype: str) -> str:
        """Arguments of a send or receive; numbered apart from collectives."""
        gpu.seq[group.name, "p2p"] += 1
        pair = (gpu.rank, message.peer) if message.send else (message.peer, gpu.rank)
        gpu.seq[pair] += 1
        n = message.payload_bytes // BYTES[dtype]
        op, side = ("send", "Dst") if message.send else ("recv", "Src")
        ident = _ident(f"{group.name}:{pair[0]}>{pair[1]}", gpu.seq[pair])
        return _shared(
            group, op, n, n, dtype, gpu.seq[group.name, "p2p"], ident, None, f'"{side} Rank": {message.peer}, '
        )


def _shared(
    group: Group, name: str, n_in: int, n_out: int, dtype: str, seq: int, ident: int, splits: list[int] | None,
    peer: str = "",
) -> str:  # fmt: skip
    """NCCL metadata that host record and kernel share."""
    split = str(splits or [])
    return (
        f'"Collective name": "{name}", "In msg nelems": {n_in}, "Out msg nelems": {n_out}, '
        f'"Group size": {len(group.ranks)}, "dtype": "{DTYPES[dtype]}", "In split size": "{split}", '
        f'"Out split size": "{split}", "Process Group Name": "{group.name}", '
        f'"Process Group Description": "{group.desc}", "Process Group Ranks": "{list(group.ranks)}", {peer}'
        f'"Seq": {seq}, "Comms Id": {ident}'
    )


def _ident(text: str, number: int) -> int:
    """An identity of 64 bits, the same on all ranks."""
    base = 0xCBF29CE484222325
    for byte in text.encode():
        base = (base ^ byte) * 0x100000001B3 % 2**64
    return (base + number * 0xD6E8FEB86659FD93) % 2**64


def _record(gpu: Gpu, group: Group, shared: str, dtype: str, peer: int | None = None) -> None:
    """Open the `record_param_comms` of a call; its `Rank` is the own place in the group, or the peer's."""
    ranks = group.ranks
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 0
    if any(b - a != stride for a, b in pairwise(ranks)):
        stride = -1
    gpu.open(
        "record_param_comms",
        args=f'{shared}, "Global rank start": {ranks[0]}, "Global rank stride": {stride}, '
        f'"Rank": {ranks.index(gpu.rank if peer is None else peer)}, "Is asynchronized op": 1, '
        f'"Concrete Inputs": [""], "Input type": ["{_INPUT_TYPES[dtype]}"], ',
    )

"""Gradients of replicated parameters: reduced in buckets as the last backward finishes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tracekit.simulate.calls import BYTES
from tracekit.simulate.scopes import ACCUMULATE, node, within

if TYPE_CHECKING:
    from tracekit.simulate.rank import Rank

TORCH_BUCKET_BYTES = 25 << 20
MEGATRON_BUCKET = (40_000_000, 1_000_000)
"""Parameters of a bucket: the larger of the first and the second times the data ranks."""


class Gradients(Protocol):
    """Where gradients go. `open`: the backward that runs is the last of its stage."""

    open: bool

    def ready(self, parameters: int) -> None:
        """So many parameters of the layers all data ranks share have their gradient."""

    def ready_experts(self, parameters: int) -> None:
        """The same of experts."""

    def flush(self) -> None:
        """The last backward of a stage is over."""

    def gather(self) -> None:
        """The optimizer has made its step."""


class Replicated:
    """DDP, and the distributed optimizer (ZeRO-1), which scatters what DDP sums.

    `open` says that the backward that runs is the last of its stage; else gradients only accumulate.
    """

    def __init__(self, r: Rank) -> None:
        self.r = r
        self.open = False
        self.sharded = r.job.training.data_parallel == "zero1"
        self.roles = ("dp+cp", "edp") if r.megatron else ("dp_replicate", "efsdp")
        self.waiting = dict.fromkeys(self.roles, 0)
        self.sent: list[tuple[str, int]] = []
        self.grad_dtype = r.job.training.choice("grad_dtype")
        ranks = r.wire.groups.size(self.roles[0], r.gpu.rank)
        self.cap = TORCH_BUCKET_BYTES // BYTES[self.grad_dtype]
        if r.megatron:
            self.cap = max(MEGATRON_BUCKET[0], MEGATRON_BUCKET[1] * ranks)

    def ready(self, parameters: int) -> None:
        """Fill the bucket of dense parameters; a full one is sent."""
        self._ready(self.roles[0], parameters)

    def ready_experts(self, parameters: int) -> None:
        """Fill the bucket of experts."""
        self._ready(self.roles[1], parameters)

    def _ready(self, role: str, parameters: int) -> None:
        if self.open:
            self.waiting[role] += parameters
            if self.waiting[role] >= self.cap:
                self._send(role)

    def flush(self) -> None:
        """Send what is left at the end of a stage's last backward."""
        for role in self.roles:
            if self.waiting[role]:
                self._send(role)
        self.open = False

    def _send(self, role: str) -> None:
        r, count = self.r, self.waiting[role]
        self.waiting[role] = 0
        if r.wire.groups.size(role, r.gpu.rank) == 1:
            return
        api = "reduce_scatter_coalesced" if self.sharded else "all_reduce_coalesced" if r.megatron else "all_reduce"
        if self.sharded:
            count = padded(count, r.wire.groups.size(role, r.gpu.rank))
        with within(r.gpu, *node(ACCUMULATE)):
            r.call(
                api, role, count * BYTES[self.grad_dtype], "zero1" if self.sharded else "dp", "grad_reduce",
                dtype=self.grad_dtype, wait=False,
            )  # fmt: skip
        self.sent.append((role, count))

    def gather(self) -> None:
        """Updated parameters of a sharded optimizer, bucket by bucket, after its step."""
        dtype = self.r.job.training.param_dtype or self.r.dtype
        for role, count in reversed(self.sent) if self.sharded else ():
            self.r.call(
                "all_gather_coalesced", role, count * BYTES[dtype], "zero1", "param_gather", dtype=dtype, wait=False
            )
        self.sent.clear()


def padded(count: int, ranks: int) -> int:
    """The least multiple of the ranks that holds all."""
    return -(-count // ranks) * ranks

"""Micro-traces: a few composed events with the literals of one framework, labelled by the built-in rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from label_builder import TraceBuilder, record

from tracekit.label import label_rank, load_rules
from tracekit.label.vocabulary import squash
from tracekit.model import ProcessGroup

if TYPE_CHECKING:
    from tracekit.label.job import Job
    from tracekit.model import Call, Label

RULES = load_rules()
OPERATORS = {
    "allreduce": "c10d::allreduce_",
    "allreducecoalesced": "c10d::allreduce_coalesced_",
    "allgatherbase": "c10d::_allgather_base_",
    "allgather": "c10d::allgather_",
    "allgatherintotensorcoalesced": "c10d::allgather_into_tensor_coalesced_",
    "reducescatterbase": "c10d::_reduce_scatter_base_",
    "reducescattertensorcoalesced": "c10d::reduce_scatter_tensor_coalesced_",
    "alltoallv": "c10d::alltoall_base_",
    "alltoall": "c10d::alltoall_",
    "barrier": "c10d::barrier",
    "broadcast": "c10d::broadcast_",
    "reduce": "c10d::reduce_",
    "gather": "c10d::gather_",
    "send": "c10d::send",
    "recv": "c10d::recv_",
}
KERNELS = {"allgather": "AllGather", "reducescatter": "ReduceScatter", "allreduce": "AllReduce", "barrier": "AllReduce"}


def kernel_of(op: str) -> str:
    """A plausible NCCL kernel name of an operation as records spell it."""
    kind = next((k for word, k in KERNELS.items() if squash(op).startswith(word)), "SendRecv")
    return f"ncclDevKernel_{kind}(ncclDevKernelArgsStorage<4096ul>)"


@dataclass
class Micro:
    """Appends calls one after the other; `labels()` runs the rules.

    meta: fields of `TraceMeta` (rank, world_size, groups, extra, …).
    """

    meta: dict[str, Any] = field(default_factory=dict)
    at: float = 0.0
    corr: int = 1

    def __post_init__(self) -> None:
        self.b = TraceBuilder(**self.meta)

    def call(self, op: str, *, scopes: tuple[str, ...] = (), frames: tuple[str, ...] = (), n: int = 1 << 20,
             operator: str | None = None, kernel: str | None = None, thread: str = "main", stream: int = 20,
             shape: list[int] | None = None, **args: Any) -> Micro:  # fmt: skip
        """One recorded NCCL call: scopes > frames > operator > record > launch → kernel. args: `CommArgs` fields.

        shape: of the operator's tensors, where a test asks for their dimensions.
        """
        t, b = self.at, self.b
        for i, scope in enumerate(scopes):
            b.op(t + i, 900 - 2 * i, scope, thread=thread)
        for i, frame in enumerate(frames):
            b.span("python", t + 50 + i, 800 - 2 * i, frame, thread=thread)
        shapes = None if shape is None else {"dims": [shape, shape]}
        b.op(t + 100, 40, operator or OPERATORS[squash(op)], ext=self.corr, thread=thread, args=shapes)
        b.op(t + 102, 36, "record_param_comms", ext=self.corr + 1, args=record(op, n, **args), thread=thread)
        b.call(t + 110, 5, corr=self.corr, ext=self.corr + 1, thread=thread)
        b.kernel(t + 150, 20, kernel or kernel_of(op), corr=self.corr, ext=self.corr + 1, stream=stream)
        self.at += 1000
        self.corr += 2
        return self

    def bare(self, kernel: str, *, scopes: tuple[str, ...] = (), thread: str = "main", stream: int = 7) -> Micro:
        """A communication kernel without any record, launched inside `scopes` (an engine's operator, say)."""
        t, b = self.at, self.b
        for i, scope in enumerate(scopes):
            b.op(t + i, 900 - 2 * i, scope, ext=self.corr + i, thread=thread)
        b.call(t + 110, 5, corr=self.corr + 50, thread=thread)
        b.kernel(t + 150, 20, kernel, corr=self.corr + 50, stream=stream)
        self.at += 1000
        self.corr += 100
        return self

    def step(self, name: str, length: float) -> Micro:
        """A step marker from here on, `length` µs long (1000 µs a call)."""
        self.b.note(self.at, length, name)
        return self

    def calls(self, job: Job | None = None) -> list[Call]:
        """The labelled calls in order."""
        return label_rank(self.b.build(), RULES, job).calls

    def labels(self, job: Job | None = None) -> list[Label]:
        """Their labels."""
        return [c.label for c in self.calls(job)]


def one(op: str, **how: Any) -> Label:
    """Label of a single call."""
    [label] = Micro().call(op, **how).labels()
    return label


def group(name: str, desc: str | None, *ranks: int) -> ProcessGroup:
    """A process group as a file's metadata declares it."""
    return ProcessGroup(name, desc, len(ranks), ranks)

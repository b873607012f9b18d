"""Context parallelism: ring, gathered K and V, Ulysses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.theory import context
from tracekit.theory.checks import divides
from tracekit.theory.errors import OutsideDomain
from tracekit.theory.planning import stages
from tracekit.theory.planning.rows import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.theory.planning.rows import Job


def drafts(job: Job) -> Iterator[Draft]:
    """Rows of the context axis, none for one rank."""
    if job.layout.cp == 1:
        return
    method = job.training.choice("context_method")
    yield from {"ring": _ring, "all_gather": _gather, "ulysses": _ulysses}[method](job)


def _row(job: Job, phase: str, op: str, what: str, calls: int, **more: object) -> Draft:
    lay = job.layout
    base = partial(
        Draft, "cp", "kv_exchange", phase, op, "cp", what, lay.cp, lambda g: lay.placement(g, "cp"), per_layer=calls,
        per_micro_batch=partial(_each_layer, job, calls),
    )  # fmt: skip
    return base(**more)  # type: ignore[arg-type]


def _each_layer(job: Job, calls: int) -> tuple[int, ...]:
    return tuple(calls * len(held) for held in stages.layers(job))


def _widths(job: Job) -> tuple[int, int]:
    """(q, kv) width on one tensor rank."""
    t = job.layout.tp
    return divides(t, job.model.q_width, "query width by tensor ranks"), _kv(job, t)


def _kv(job: Job, t: int) -> int:
    divides(t, job.model.need("kv_heads")[0], "K/V heads by tensor ranks")
    return job.model.kv_width // t


def _ring(job: Job) -> Iterator[Draft]:
    def block() -> int:
        b, s = job.training.need("micro_batch", "sequence")
        return context.ring_block_bytes(s, job.layout.cp, b, _widths(job)[1], job.training.bytes_of("dtype"))

    def work() -> float:
        """Attention of one block: 4 c² q, half of it when causal and balanced."""
        c = stages.tokens_here(job)
        (b,) = job.training.need("micro_batch")
        return 4.0 * c * (c / b) * _widths(job)[0] * (0.5 if job.training.causal else 1.0)

    def backward() -> int:
        raise OutsideDomain("the backward of a ring moves about twice the forward; how is the implementation's choice")

    hops = job.layout.cp - 1
    yield _row(
        job, "forward", "send_recv", "one K and V block a hop", hops, payload=block, overlap="hideable",
        hidden_by="attention of the block before", hide_flops=work,
    )  # fmt: skip
    yield _row(
        job, "backward", "send_recv", "K and V blocks and their gradients", hops, payload=backward, overlap="hideable",
        hidden_by="attention backward of the block before",
    )  # fmt: skip


def _gather(job: Job) -> Iterator[Draft]:
    def payload() -> int:
        b, s = job.training.need("micro_batch", "sequence")
        return context.gathered_bytes(s, b, _widths(job)[1], job.training.bytes_of("dtype"))

    yield _row(job, "forward", "all_gather", "K and V of all ranks", 1, payload=payload)
    yield _row(job, "backward", "reduce_scatter", "gradients of K and V", 1, payload=payload)


def _ulysses(job: Job) -> Iterator[Draft]:
    def payload(index: int) -> int:
        return stages.tokens_here(job) * _widths(job)[index] * job.training.bytes_of("dtype")

    for phase in ("forward", "backward"):
        for what, index in (("queries and output", 0), ("keys and values", 1)):
            yield _row(job, phase, "all_to_all", what, 2, payload=partial(payload, index))

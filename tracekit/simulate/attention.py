"""Attention of one layer and the ways context ranks share it: ring, gathered K and V, Ulysses.

Counts and sizes are those of Transformer Engine: the ring moves K and V together cp - 1 times forward; cp times
backward, where the gradient of K and V travels along from the second exchange on and alone in the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.simulate.calls import Message
from tracekit.simulate.costs import ATTENTION_BACKWARD
from tracekit.simulate.scopes import CONTEXT, node, within
from tracekit.theory import context
from tracekit.theory.checks import divides

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.simulate.device import Work
    from tracekit.simulate.rank import Rank

LABEL = ("cp", "kv_exchange")


def forward(r: Rank) -> Iterator[None]:
    """Attention of one micro-batch; yields where other work could fill in."""
    yield from _attention(r, "attention", 1.0)


def backward(r: Rank) -> Iterator[None]:
    """Its gradient."""
    yield from _attention(r, "attention_backward", ATTENTION_BACKWARD)


def _attention(r: Rank, what: str, times: float) -> Iterator[None]:
    flops = times * r.costs.attention_flops
    if r.job.layout.cp == 1:
        with within(r.gpu, *r.scope(what)):
            r.compute(what, r.costs.gemm(flops))
        return
    method = r.job.training.choice("context_method")
    name = CONTEXT[method]
    around = (name,) if what == "attention" else node(name + "Backward")
    with within(r.gpu, *around):
        yield from {"ring": _ring, "all_gather": _gather, "ulysses": _ulysses}[method](r, what, flops)


def _kv_width(r: Rank) -> int:
    return divides(r.job.layout.tp, r.job.model.kv_width, "K/V width by tensor ranks")


def _ring(r: Rank, what: str, flops: float) -> Iterator[None]:
    """Exchange i + 1 travels while block i is computed."""
    n = r.job.layout.cp
    b, s = r.job.training.need("micro_batch", "sequence")
    block = context.ring_block_bytes(s, n, b, _kv_width(r), r.costs.e)
    sizes = [block] * (n - 1) if what == "attention" else [block, *([2 * block] * (n - 2)), block]
    pending: list[Work] = []
    for i in range(n):
        for work in pending:
            r.gpu.wait(work)
        pending = _exchange(r, sizes[i]) if i < n - 1 else []
        r.compute(what, r.costs.gemm(flops / n))
        yield
    if what != "attention":
        for work in _exchange(r, sizes[-1]):
            r.gpu.wait(work)


def _exchange(r: Rank, size: int) -> list[Work]:
    """Send to the next rank, receive from the one before; even ranks send first."""
    gpu, ranks = r.gpu, r.wire.groups.of("cp", r.gpu.rank).ranks
    at = ranks.index(gpu.rank)
    after, before = ranks[(at + 1) % len(ranks)], ranks[at - 1]
    gpu.seq["ring"] += 1
    out = Message(True, after, size, ("ring", gpu.rank, after, gpu.seq["ring"]))
    back = Message(False, before, size, ("ring", before, gpu.rank, gpu.seq["ring"]))
    both = (out, back) if at % 2 == 0 else (back, out)
    return [r.wire.message(gpu, "cp", m, LABEL, r.dtype, ("cp", "send" if m.send else "recv")) for m in both]


def _gather(r: Rank, what: str, flops: float) -> Iterator[None]:
    """K and V gathered apart, in the backward too; then their gradients scattered."""
    b, s = r.job.training.need("micro_batch", "sequence")
    one = context.gathered_bytes(s, b, _kv_width(r), r.costs.e) // 2
    for _ in "kv":
        r.call("all_gather", "cp", one, *LABEL)
        yield
    r.compute(what, r.costs.gemm(flops))
    if what != "attention":
        for _ in "kv":
            r.call("reduce_scatter", "cp", one, *LABEL)
            yield


def _ulysses(r: Rank, what: str, flops: float) -> Iterator[None]:
    """q, k, v to shards of heads and the output back; the gradients the other way."""
    query = r.costs.tokens * divides(r.job.layout.tp, r.job.model.q_width, "query width by tensor ranks") * r.costs.e
    kv = r.costs.tokens * _kv_width(r) * r.costs.e
    inside, outside = [query, kv, kv], [query]
    for size in inside if what == "attention" else outside:
        r.call("all_to_all", "cp", size, *LABEL)
        yield
    r.compute(what, r.costs.gemm(flops))
    for size in outside if what == "attention" else inside:
        r.call("all_to_all", "cp", size, *LABEL)
        yield

"""Routed experts of one layer: token counts, dispatch, experts, combine. Balanced routing, uneven between peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.simulate.scopes import within
from tracekit.theory import moe
from tracekit.theory.checks import divides

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.simulate.rank import Rank
    from tracekit.theory.transformer import Experts

DISPATCH, COMBINE = ("ep", "token_dispatch"), ("ep", "token_combine")


class Routing:
    """Tokens of one rank and micro-batch: `rows` copies of tokens leave, and as many come."""

    def __init__(self, r: Rank, experts: Experts) -> None:
        tokens = r.costs.tokens
        if r.sequence_parallel:
            tokens = divides(r.job.layout.tp, tokens, "tokens by tensor ranks")
        self.rows = tokens * experts.top_k
        (h,) = r.job.model.need("hidden")
        fp8 = r.job.training.fp8_dispatch
        self.out_bytes = moe.dispatch_bytes(tokens, experts.top_k, h, fp8=fp8, element_bytes=r.costs.e)
        self.back_bytes = moe.combine_bytes(tokens, experts.top_k, h, r.costs.e)
        self.splits = self._splits(r)

    def _splits(self, r: Rank) -> list[int]:
        """Rows to each peer: one in eight more or less, so that every rank sends and receives the same in sum."""
        group = r.wire.groups.of("ep", r.gpu.rank).ranks
        n, me = len(group), group.index(r.gpu.rank)
        base = divides(n, self.rows, "routed tokens by expert ranks")
        off = base // 8 if n % 2 == 0 else 0
        return [base + (off if (me + peer) % 2 else -off) for peer in range(n)]


def forward(r: Rank, experts: Experts, flops: tuple[float, float]) -> Iterator[None]:
    """The MLP of an expert layer; shared experts have been computed by the caller's flops too."""
    r.compute("permute", r.costs.touch(2 * r.costs.activation_bytes))
    if r.job.layout.ep > 1:
        routing = Routing(r, experts)
        _counts(r, experts)
        yield from _exchange(r, routing, "dispatch", DISPATCH, routing.out_bytes, probabilities=True)
    _products(r, flops, ("gemm",))
    if r.job.layout.ep > 1:
        yield from _exchange(r, routing, "dispatch", COMBINE, routing.back_bytes)
    r.compute("permute", r.costs.touch(2 * r.costs.activation_bytes))


def backward(r: Rank, experts: Experts, flops: tuple[float, float], parameters: int, part: str) -> Iterator[None]:
    """Its gradient: what a combine's gradient needs is a dispatch, and the other way round."""
    if part == "W":
        _products(r, flops, ("wgrad",))
        r.gradients.ready_experts(parameters)
        return
    if r.job.layout.ep > 1:
        routing = Routing(r, experts)
        yield from _exchange(r, routing, "dispatch_backward", COMBINE, routing.back_bytes)
    _products(r, flops, ("dgrad",) if part == "I" else ("dgrad", "wgrad"))
    if part == "B":
        r.gradients.ready_experts(parameters)
    if r.job.layout.ep > 1:
        yield from _exchange(r, routing, "dispatch_backward", DISPATCH, routing.back_bytes, probabilities=True)
    r.compute("permute", r.costs.touch(2 * r.costs.activation_bytes))


def _products(r: Rank, flops: tuple[float, float], kinds: tuple[str, ...]) -> None:
    with within(r.gpu, *r.scope("linear" if kinds == ("gemm",) else "linear_backward")):
        for kind in kinds:
            for one in flops:
                r.compute(kind, r.costs.gemm(one))


def _counts(r: Rank, experts: Experts) -> None:
    """How many tokens go where, as integers: gathered over etp · ep (Megatron) or exchanged (torch)."""
    with within(r.gpu, *r.scope("counts")):
        if r.megatron:
            ranks = r.wire.groups.size("etp+ep", r.gpu.rank)
            r.call("all_gather", "etp+ep", 8 * experts.count * ranks, *DISPATCH, dtype="int64")
        else:
            r.call("all_to_all", "ep", 8 * experts.count, *DISPATCH, dtype="int64")


def _exchange(
    r: Rank, routing: Routing, scope: str, label: tuple[str, str], size: int, *, probabilities: bool = False
) -> Iterator[None]:
    """All-to-all of tokens; Megatron sends the router's probabilities along as numbers of their own."""
    dtype = "fp8" if size == routing.out_bytes != routing.back_bytes else r.dtype
    sizes = [(size, dtype), *([(4 * routing.rows, "fp32")] if probabilities and r.megatron else [])]
    for one, kind in sizes:
        with within(r.gpu, *r.scope(scope)):
            r.call("all_to_all", "ep", one, *label, dtype=kind, splits=routing.splits)
        yield

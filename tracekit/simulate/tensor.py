"""Tensor and sequence parallelism around the linear layers of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.simulate.scopes import within

if TYPE_CHECKING:
    from tracekit.simulate.device import Work
    from tracekit.simulate.rank import Rank

ACTIVATION = "activation"


def _activation(r: Rank, api: str, *, wait: bool = True) -> Work | None:
    """One call that moves a whole activation; torch's own libraries use the functional, coalesced kind."""
    strategy = "tp" if api == "all_reduce" else "sp"
    name = api if r.megatron or api == "all_reduce" else f"{api}_coalesced"
    return r.call(name, "tp", r.costs.activation_bytes, strategy, ACTIVATION, wait=wait)


def column_forward(r: Rank, flops: float) -> None:
    """A product whose input every tensor rank needs whole."""
    gather = r.sequence_parallel
    if gather and not r.megatron:
        with within(r.gpu, *r.scope("gather")):
            _activation(r, "all_gather")
    with within(r.gpu, *r.scope("linear")):
        if gather and r.megatron:
            _activation(r, "all_gather")
        r.compute("gemm", r.costs.gemm(flops))


def row_forward(r: Rank, flops: float, *, reduce: bool = True) -> None:
    """A product that leaves partial sums on the tensor ranks, and their sum."""
    with within(r.gpu, *r.scope("linear")):
        r.compute("gemm", r.costs.gemm(flops))
    if reduce:
        reduce_forward(r)


def reduce_forward(r: Rank) -> None:
    """Sum over tensor ranks, whole or scattered along the sequence."""
    if r.job.layout.tp == 1:
        return
    with within(r.gpu, *r.scope("scatter" if r.sequence_parallel else "reduce")):
        _activation(r, "reduce_scatter" if r.sequence_parallel else "all_reduce")


def gather_backward(r: Rank) -> None:
    """Gradient of a scattered sum: gathered (of a whole sum nothing has to move)."""
    if r.sequence_parallel:
        with within(r.gpu, *r.scope("scatter_backward")):
            _activation(r, "all_gather")


def row_backward(r: Rank, flops: float, parameters: int, part: str) -> None:
    """Gradients of a row-parallel product; `part`: B both, I of the input, W of the weight."""
    if part != "W":
        gather_backward(r)
    with within(r.gpu, *r.scope("linear_backward")):
        if part != "W":
            r.compute("dgrad", r.costs.gemm(flops))
        if part != "I":
            r.compute("wgrad", r.costs.gemm(flops))
    if part != "I":
        r.gradients.ready(parameters)


def column_backward(r: Rank, flops: float, parameters: int, part: str) -> None:
    """Gradients of a column-parallel product. Megatron hides its calls under the product that does not need them."""
    if r.megatron:
        _column_backward_async(r, flops, part)
    else:
        with within(r.gpu, *r.scope("linear_backward")):
            if part != "W":
                r.compute("dgrad", r.costs.gemm(flops))
            if part != "I":
                r.compute("wgrad", r.costs.gemm(flops))
        if part != "W" and r.job.layout.tp > 1:
            with within(r.gpu, *r.scope("dgrad_scatter" if r.sequence_parallel else "dgrad_reduce")):
                _activation(r, "reduce_scatter" if r.sequence_parallel else "all_reduce")
    if part != "I":
        r.gradients.ready(parameters)


def _column_backward_async(r: Rank, flops: float, part: str) -> None:
    with within(r.gpu, *r.scope("linear_backward")):
        again = summed = None
        if r.sequence_parallel and part != "I":
            again = _activation(r, "all_gather", wait=part == "W")
        if part != "W":
            r.compute("dgrad", r.costs.gemm(flops))
            if r.job.layout.tp > 1:
                if part == "B":
                    r.gpu.wait(again)
                    again = None
                summed = _activation(r, "reduce_scatter" if r.sequence_parallel else "all_reduce", wait=False)
        if part != "I":
            r.gpu.wait(again)
            r.compute("wgrad", r.costs.gemm(flops))
        r.gpu.wait(summed)

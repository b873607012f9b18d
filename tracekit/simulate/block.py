"""Forward and backward of one transformer layer, of the embedding before the first and the head behind the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.simulate import attention, experts, tensor
from tracekit.simulate.scopes import EVALUATE, within
from tracekit.theory import volumes
from tracekit.theory.planning import stages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.simulate.rank import Rank


@dataclass(frozen=True, slots=True)
class Sizes:
    """Parameters of one layer on one rank by the piece whose gradient finishes them; `rest`: norms, biases, router."""

    qkv: int
    out: int
    up: int
    down: int
    rest: int
    expert: int


def sizes(r: Rank, *, moe: bool) -> Sizes:
    """How a layer's local parameters divide."""
    local, weights = stages.layer_local(r.job, moe=moe), 2 * r.costs.tokens
    qkv, out = round(r.costs.qkv_flops / weights), round(r.costs.out_flops / weights)
    up, down = (round(f / weights) for f in r.costs.mlp_flops(r.costs.widths(moe=moe)[0]))
    return Sizes(qkv, out, up, down, local.dense - qkv - out - up - down, local.expert)


def forward(r: Rank, layer: int) -> Iterator[None]:
    """One micro-batch through one layer."""
    moe, c = r.job.model.is_moe(layer), r.costs
    _norm(r, "norm")
    tensor.column_forward(r, c.qkv_flops)
    yield from attention.forward(r)
    tensor.row_forward(r, c.out_flops)
    yield
    _add(r)
    _norm(r, "norm")
    every, routed = c.widths(moe=moe)
    if every:
        up, down = c.mlp_flops(every)
        tensor.column_forward(r, up)
        r.compute("act", c.touch(3 * up / (2 * c.h) * c.e))
        tensor.row_forward(r, down)
        yield
    if moe and r.job.model.experts is not None:
        yield from experts.forward(r, r.job.model.experts, c.mlp_flops(routed))
    _add(r)


def backward(r: Rank, layer: int, part: str) -> Iterator[None]:
    """Gradients of one layer; `part`: B all, I of its inputs, W of its weights."""
    moe, c = r.job.model.is_moe(layer), r.costs
    size = sizes(r, moe=moe)
    if r.job.training.recompute == "full" and part != "W":
        with within(r.gpu, EVALUATE + "CheckpointFunctionBackward", "CheckpointFunctionBackward"):
            for _ in forward(r, layer):
                pass
    every, routed = c.widths(moe=moe)
    if moe and r.job.model.experts is not None:
        yield from experts.backward(r, r.job.model.experts, c.mlp_flops(routed)[::-1], size.expert, part)
    if every:
        up, down = c.mlp_flops(every)
        tensor.row_backward(r, down, size.down, part)
        if part != "W":
            with within(r.gpu, EVALUATE + "SiluBackward0", "SiluBackward0"):
                r.compute("act_backward", c.touch(5 * up / (2 * c.h) * c.e))
        tensor.column_backward(r, up, size.up, part)
        yield
    if part != "W":
        _norm(r, "norm_backward")
    tensor.row_backward(r, c.out_flops, size.out, part)
    if part != "W":
        yield from attention.backward(r)
    tensor.column_backward(r, c.qkv_flops, size.qkv, part)
    yield
    if part != "W":
        _norm(r, "norm_backward")
    if part != "I":
        r.gradients.ready(size.rest)


def _norm(r: Rank, what: str) -> None:
    share = r.job.layout.tp if r.sequence_parallel else 1
    with within(r.gpu, *r.scope(what)):
        r.compute(what, r.costs.touch((2 if what == "norm" else 3) * r.costs.activation_bytes / share))


def _add(r: Rank) -> None:
    share = r.job.layout.tp if r.sequence_parallel else 1
    r.compute("add", r.costs.touch(3 * r.costs.activation_bytes / share))


def embed(r: Rank) -> None:
    """Look-up of a micro-batch in a table whose rows tensor ranks share."""
    r.compute("lookup", r.costs.touch(2 * r.costs.activation_bytes))
    tensor.reduce_forward(r)


def embed_backward(r: Rank, part: str) -> None:
    """Gradient of the table."""
    if part == "I":
        return
    tensor.gather_backward(r)
    with within(r.gpu, EVALUATE + "EmbeddingBackward0", "EmbeddingBackward0"):
        r.compute("lookup_backward", r.costs.touch(3 * r.costs.activation_bytes))


def head(r: Rank) -> None:
    """Last norm, logits and loss; tensor ranks each have a part of the vocabulary."""
    _norm(r, "norm")
    tensor.column_forward(r, r.costs.head_flops)
    size = r.costs.tokens * 4
    b, s = r.job.training.need("micro_batch", "sequence")
    payload = volumes.cross_entropy_payload_bytes(b, s, r.job.layout.cp)
    for _ in range(volumes.CROSS_ENTROPY_CALLS):
        with within(r.gpu, *r.scope("loss")):
            r.compute("softmax", r.costs.touch(size * r.job.model.need("vocab")[0] / r.job.layout.tp / 2))
            r.call("all_reduce", "tp", payload, "tp", "activation", dtype="fp32")
    r.compute("add", r.costs.touch(size))


def head_backward(r: Rank, part: str) -> None:
    """Gradients of loss, head and last norm. The parameters are counted by the caller."""
    if part != "W":
        with within(r.gpu, *r.scope("loss_backward")):
            r.compute(
                "softmax_backward", r.costs.touch(r.costs.tokens * 4 * r.job.model.need("vocab")[0] / r.job.layout.tp)
            )
    tensor.column_backward(r, r.costs.head_flops, 0, part)
    if part != "W":
        _norm(r, "norm_backward")

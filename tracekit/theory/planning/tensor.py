"""Tensor and sequence parallelism: layers, embedding, head and loss."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.theory import volumes
from tracekit.theory.errors import MissingInput, OutsideDomain
from tracekit.theory.planning import stages
from tracekit.theory.planning.rows import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.theory.planning.rows import Job


def drafts(job: Job) -> Iterator[Draft]:
    """Rows of the tensor axis, none for one rank."""
    if job.layout.tp == 1:
        return
    sp = job.training.sequence_parallel
    if sp is None:
        raise MissingInput("training.sequence_parallel")
    yield from _layers(job, sp)
    yield from _ends(job, sp)


def _row(job: Job, phase: str, op: str, what: str, **more: object) -> Draft:
    lay = job.layout
    base = partial(
        Draft, "sp" if op != "all_reduce" else "tp", "activation", phase, op, "tp", what, lay.tp,
        lambda g: lay.placement(g, "tp"),
    )  # fmt: skip
    return base(**{"payload": partial(_payload, job), **more})  # type: ignore[arg-type]


def _payload(job: Job) -> int:
    b, s = job.training.need("micro_batch", "sequence")
    (h,) = job.model.need("hidden")
    return volumes.activation_bytes(b, s, h, job.training.bytes_of("dtype"), job.layout.cp)


def _blocks(job: Job) -> tuple[int, ...]:
    """Half-layers (attention, MLP) with tensor collectives, by stage; an expert layer's MLP only for shared ones."""
    if job.model.experts and job.layout.etp > 1:
        raise OutsideDomain("collectives of experts that are themselves divided (etp) are not modelled")
    shared = bool(job.model.experts and job.model.experts.shared)
    return tuple(2 * dense + moe * (2 if shared else 1) for dense, moe in stages.kinds(job))


_ALONE = "nothing, unless GEMM and call are split"
_HIDDEN = {
    ("backward", "all_reduce"): "weight-gradient GEMM of the same layer",
    ("backward", "reduce_scatter"): "weight-gradient GEMM of the same layer",
    ("again", "all_gather"): "input-gradient GEMM of the same layer",
}


def _layers(job: Job, sp: bool) -> Iterator[Draft]:
    recompute = job.training.choice("recompute")
    for calls in volumes.tensor_calls(sequence_parallel=sp, full_recompute=recompute == "full"):
        again = calls.backward - calls.forward
        counts = (("forward", calls.forward), ("backward", calls.forward), ("again", again))
        for kind, count in (*counts, ("recompute", calls.recompute)):
            if count:
                yield _layer(job, kind, calls.op, count)


def _layer(job: Job, kind: str, op: str, count: int) -> Draft:
    """One kind of call; `again` re-gathers an input for its weight gradient. Counts are of two half-layers."""
    hidden = _HIDDEN.get((kind, op))
    dense = not job.model.experts
    return _row(
        job, "backward" if kind == "again" else kind, op,
        "attention and MLP, input again" if kind == "again" else "attention and MLP",
        per_layer=count if dense else None, per_micro_batch=lambda: tuple(n * count // 2 for n in _blocks(job)),
        overlap="hideable" if hidden else "structural", hidden_by=hidden or _ALONE,
        hide_flops=partial(_weight_grad_flops, job, count) if hidden and dense else None,
    )  # fmt: skip


def _weight_grad_flops(job: Job, calls: int) -> float:
    """Weight-gradient (as many as input-gradient) FLOPs of a layer's column-parallel products, a call of the layer."""
    (h, ffn) = job.model.need("hidden", "ffn")
    width = job.model.q_width + 2 * job.model.kv_width + ffn * (2 if job.model.gated else 1)
    return 2.0 * stages.tokens_here(job) * h * width / job.layout.tp / calls


def _ends(job: Job, sp: bool) -> Iterator[Draft]:
    first, last = partial(stages.first_rank, job), partial(stages.last_rank, job)

    def at(rank: partial[int], calls: int) -> partial[tuple[int, ...]]:
        return partial(lambda: stages.on(job, rank(), calls))

    embed = "reduce_scatter" if sp else "all_reduce"
    yield _row(job, "forward", embed, "vocabulary-parallel embedding", per_micro_batch=at(first, 1))
    if sp:
        yield _row(job, "backward", "all_gather", "vocabulary-parallel embedding", per_micro_batch=at(first, 1))
        yield _row(job, "forward", "all_gather", "head", per_micro_batch=at(last, 1))
        yield _row(job, "backward", "all_gather", "head, input again", per_micro_batch=at(last, 1))
        yield _row(job, "backward", "reduce_scatter", "head", per_micro_batch=at(last, 1))
    else:
        yield _row(job, "backward", "all_reduce", "head", per_micro_batch=at(last, 1))
    yield _row(
        job, "forward", "all_reduce", "vocabulary-parallel loss", payload=partial(_loss_payload, job),
        per_micro_batch=at(last, volumes.CROSS_ENTROPY_CALLS), hidden_by="nothing; latency bound",
    )  # fmt: skip


def _loss_payload(job: Job) -> int:
    b, s = job.training.need("micro_batch", "sequence")
    return volumes.cross_entropy_payload_bytes(b, s, job.layout.cp)

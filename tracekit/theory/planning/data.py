"""Data parallelism: replicated (DDP), sharded optimizer (ZeRO-1, 2), fully sharded (ZeRO-3, FSDP), hybrid."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.theory.checks import divides
from tracekit.theory.errors import MissingInput, OutsideDomain
from tracekit.theory.planning import stages
from tracekit.theory.planning.rows import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.theory.machine import Placement
    from tracekit.theory.planning.rows import Job


def drafts(job: Job) -> Iterator[Draft]:
    """Rows of the data axes. Context ranks hold the same parameters, so dense gradients are reduced over dp · cp."""
    lay = job.layout
    kind = job.training.data_parallel if lay.dp * lay.cp > 1 or lay.edp > 1 else "ddp"
    if kind is None:
        raise MissingInput("training.data_parallel")
    if kind == "fsdp":
        yield from _fully_sharded(job)
        return
    axes = "dp+cp" if lay.cp > 1 else "dp"
    if lay.dp * lay.cp > 1:
        place = partial(lambda g: lay.placement(g, "dp", "cp"))
        yield from _once(job, kind, axes, lay.dp * lay.cp, place, expert=False)
    if job.model.experts and lay.edp > 1:
        yield from _once(job, kind, "edp", lay.edp, partial(lambda g: lay.placement(g, "edp")), expert=True)


def _local(job: Job, *, expert: bool) -> tuple[int, ...]:
    return tuple(p.expert if expert else p.dense for p in stages.local_parameters(job))


def _times(job: Job, name: str, *, expert: bool) -> tuple[int, ...]:
    e = job.training.bytes_of(name)
    return tuple(n * e for n in _local(job, expert=expert))


def _gradients(job: Job, kind: str, *, expert: bool) -> tuple[int, ...]:
    """Bytes of the gradients reduced in a step: once, or with ZeRO-2 every micro-batch unless told otherwise."""
    once = _times(job, "grad_dtype", expert=expert)
    if kind != "zero2" or job.training.reduce_once:
        return once
    (m,) = job.training.need("micro_batches")
    return tuple(m * n for n in once)


def _unknown_calls() -> int:
    raise MissingInput("the bucket size (buckets are the framework's choice)")


def _once(
    job: Job, kind: str, axes: str, size: int, place: Callable[[int], Placement], *, expert: bool
) -> Iterator[Draft]:
    """Gradients (and a sharded optimizer's parameters) once a step, in the framework's buckets."""
    what = "expert gradients" if expert else "gradients"
    base = partial(Draft, group_size=size, place=place, payload=_unknown_calls, axes=axes)
    grads = partial(_gradients, job, kind, expert=expert)
    backward = partial(_stage, job, 2.0)
    if kind == "ddp":
        yield base(
            strategy="dp", purpose="grad_reduce", phase="backward", op="all_reduce", what=what, total=grads,
            overlap="hideable", hidden_by="backward of the last micro-batch", hide_flops=backward,
        )  # fmt: skip
        return
    yield base(
        strategy=kind, purpose="grad_reduce", phase="backward", op="reduce_scatter", what=what, total=grads,
        overlap="hideable", hidden_by="backward of the last micro-batch", hide_flops=backward,
    )  # fmt: skip
    yield base(
        strategy=kind, purpose="param_gather", phase="optimizer", op="all_gather",
        what="expert parameters" if expert else "parameters", total=partial(_times, job, "param_dtype", expert=expert),
        overlap="hideable", hidden_by="forward of the next step's first micro-batch",
        hide_flops=partial(_stage, job, 1.0),
    )  # fmt: skip


def _stage(job: Job, times: float) -> float:
    return times * min(stages.stage_forward_flops(job))


def _fully_sharded(job: Job) -> Iterator[Draft]:
    """Parameters gathered and gradients scattered layer by layer, every micro-batch unless told otherwise."""
    lay, t = job.layout, job.training
    if job.model.experts:
        raise OutsideDomain("FSDP of expert layers depends on how experts are wrapped: not modelled")
    size = lay.shard_size
    hybrid = size < lay.dp * lay.cp
    gathers, reduces = 2 if t.reshard else 1, 1
    name = "hsdp" if hybrid else "zero3"
    axes = "dp_shard" if hybrid else ("dp+cp" if lay.cp > 1 else "dp")
    if size > 1:
        base = partial(
            Draft, name, axes=axes, group_size=size, place=lambda g: lay.data_placements(g)[0], overlap="hideable"
        )
        params, grads = partial(_layer, job, "param_dtype"), partial(_layer, job, "grad_dtype")
        for phase, behind in (("forward", "forward of the layer before"), ("backward", "backward of the layer after")):
            if phase == "backward" and gathers == 1:
                continue
            yield base(
                purpose="param_gather", phase=phase, op="all_gather", what="one layer's parameters", payload=params,
                per_layer=1, per_micro_batch=partial(_each_layer, job, 1), hidden_by=behind + "; the first is exposed",
                hide_flops=partial(_layer_work, job, 1.0 if phase == "forward" else 2.0),
            )  # fmt: skip
        yield base(
            purpose="grad_reduce", phase="backward", op="reduce_scatter", what="one layer's gradients", payload=grads,
            per_layer=reduces, per_micro_batch=None if t.reduce_once else partial(_each_layer, job, 1),
            per_step=partial(_each_layer, job, 1) if t.reduce_once else None,
            hidden_by="backward of the layer before; the last is exposed", hide_flops=partial(_layer_work, job, 2.0),
        )  # fmt: skip
    if hybrid:
        yield Draft(
            name, "grad_reduce", "backward", "all_reduce", "dp_replicate", "one layer's gradient shard",
            lay.dp * lay.cp // size, lambda g: lay.data_placements(g)[1], lambda: _shard(job),
            per_layer=1, per_micro_batch=None if t.reduce_once else partial(_each_layer, job, 1),
            per_step=partial(_each_layer, job, 1) if t.reduce_once else None,
            overlap="hideable", hidden_by="backward of the layer before; the last is exposed",
            hide_flops=partial(_layer_work, job, 2.0),
        )  # fmt: skip


def _layer(job: Job, name: str) -> int:
    return stages.layer_local(job, moe=False).dense * job.training.bytes_of(name)


def _shard(job: Job) -> int:
    return divides(job.layout.shard_size, _layer(job, "grad_dtype"), "a layer's gradients by shard")


def _each_layer(job: Job, calls: int) -> tuple[int, ...]:
    return tuple(calls * len(held) for held in stages.layers(job))


def _layer_work(job: Job, times: float) -> float:
    return times * stages.layer_flops(job, moe=False)

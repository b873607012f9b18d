"""What ends a step: tied weights, the gradient norm, the optimizer, and a sharded optimizer's parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.simulate.scopes import compute, note, within
from tracekit.theory import volumes
from tracekit.theory.planning import stages as planned

if TYPE_CHECKING:
    from tracekit.simulate.device import Work
    from tracekit.simulate.rank import Rank
    from tracekit.simulate.stages import Stages

METRIC = ("housekeeping", "metric")
ADAM_BYTES = 22
"""Bytes that Adam touches a parameter: gradient, two moments and master weight read, three written, weight written."""


def finish(r: Rank, stages: Stages, reduced: list[Work]) -> None:
    """Everything between the last backward and the end of the step; `reduced` are the calls that gradients wait for."""
    for work in reduced:
        r.gpu.wait(work)
    r.compute("add", r.costs.touch(4 * 1024 * 1024))
    _norm_gradients(r, stages)
    _tied(r, stages)
    _gradient_norm(r)
    r.gpu.kernel("Memset (Device)", 1_600, '"bytes": 4, "memory bandwidth (GB/s)": 0.0025', "set")
    r.gpu.copy("Memcpy DtoH (Device -> Pinned)", 1_300, '"bytes": 4, "memory bandwidth (GB/s)": 0.003')
    with note(r.gpu, "Optimizer.step#FusedAdam.step" if r.megatron else "Optimizer.step#AdamW.step"):
        compute(r.gpu, "adam", r.costs.touch(ADAM_BYTES * _owned(r, stages)))
    r.gradients.gather()
    if not r.megatron:
        with within(r.gpu, "_c10d_functional::all_reduce"):
            r.call("all_reduce", "loss", 4, *METRIC, dtype="fp32")


def _owned(r: Rank, stages: Stages) -> int:
    """Parameters that this rank updates."""
    dense, expert = _parameters(r, stages)
    size = r.wire.groups.size
    kind = r.job.training.data_parallel
    if kind == "ddp":
        return dense + expert
    roles = ("dp+cp", "edp") if kind == "zero1" else ("fsdp", "efsdp")
    return dense // size(roles[0], r.gpu.rank) + expert // size(roles[1], r.gpu.rank)


def _parameters(r: Rank, stages: Stages) -> tuple[int, int]:
    dense, expert = stages.outside(), 0
    for layers in stages.layers.values():
        for layer in layers:
            one = planned.layer_local(r.job, moe=r.job.model.is_moe(layer))
            dense, expert = dense + one.dense, expert + one.expert
    return dense, expert


def _norm_gradients(r: Rank, stages: Stages) -> None:
    """Under sequence parallelism every tensor rank saw a slice, so gradients of the norms are summed (Megatron)."""
    if not (r.megatron and r.sequence_parallel):
        return
    layers = sum(len(x) for x in stages.layers.values())
    count = 2 * layers * r.costs.h * (2 if r.job.model.layer_norm else 1)
    dtype = r.job.training.choice("grad_dtype")
    r.call("all_reduce", "tp", count * (4 if dtype == "fp32" else 2), "sp", "grad_reduce", dtype=dtype)


def _tied(r: Rank, stages: Stages) -> None:
    """First and last stage sum the gradient of the table they both have."""
    if not r.job.model.tied or r.job.layout.pp == 1 or stages.shared_table or not (stages.first or stages.last):
        return
    if not r.megatron:
        return  # torch's pipelining ties no weights over stages
    vocab, hidden = r.job.model.need("vocab", "hidden")
    dtype = r.job.training.choice("grad_dtype")
    payload = volumes.tied_embedding_bytes(vocab, hidden, r.job.layout.tp, r.job.training.bytes_of("grad_dtype"))
    r.call("all_reduce", "embedding", payload, "embedding", "tied_grad", dtype=dtype)


def _gradient_norm(r: Rank) -> None:
    """One number, over all ranks that hold different gradients."""
    r.compute("grad_norm", r.costs.touch(64 * 1024 * 1024))
    if r.megatron:
        sharded = r.job.training.data_parallel == "zero1"
        roles = ["optimizer"] if sharded else ["tp+pp", *(["etp+ep+pp"] if r.job.model.experts else [])]
        for role in roles:
            r.call("all_reduce", role, 4, *METRIC, dtype="fp32")
        return
    for role in ("fsdp", "tp", "pp"):
        with within(r.gpu, "aten::linalg_vector_norm", "_c10d_functional::all_reduce"):
            r.call("all_reduce", role, 4, *METRIC, dtype="fp32")

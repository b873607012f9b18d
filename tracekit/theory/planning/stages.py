"""Which layers a pipeline rank holds, and its parameters and FLOPs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.theory.bubbles import ONE_STAGE, V_SHAPED, schedule_name
from tracekit.theory.checks import divides
from tracekit.theory.errors import OutsideDomain
from tracekit.theory.flops import head_forward_flops, layer_forward_flops
from tracekit.theory.transformer import layer_parameters

if TYPE_CHECKING:
    from tracekit.theory.planning.rows import Job


def schedule(job: Job) -> str:
    """The schedule's name; a single stage needs none."""
    if job.layout.pp == 1 and job.training.schedule is None:
        return "1F1B"
    return schedule_name(job.training.choice("schedule"))


def virtual(job: Job) -> int:
    """Stages a rank: two in V shapes, else the given number."""
    name = schedule(job)
    if name in V_SHAPED:
        return 2
    if name in ONE_STAGE and job.training.virtual != 1:
        raise OutsideDomain(f"{name} has one stage a rank, not {job.training.virtual}")
    return job.training.virtual


def chunks(job: Job) -> tuple[tuple[int, ...], ...]:
    """Stages held by each pipeline rank."""
    p, name = job.layout.pp, schedule(job)
    if name == "DualPipe" and p > 1:
        raise OutsideDomain("DualPipe holds every stage twice: not modelled by rank")
    if name in V_SHAPED:
        return tuple((r, 2 * p - 1 - r) for r in range(p))
    return tuple(tuple(range(r, p * virtual(job), p)) for r in range(p))


def layers(job: Job) -> tuple[tuple[int, ...], ...]:
    """Layer numbers held by each pipeline rank, evenly divided. OutsideDomain where they do not divide."""
    if job.training.mtp:
        raise OutsideDomain("where multi-token prediction modules stand is not modelled")
    (count,) = job.model.need("layers")
    size = divides(job.layout.pp * virtual(job), count, "layers by stages")
    return tuple(tuple(i for c in held for i in range(c * size, (c + 1) * size)) for held in chunks(job))


def kinds(job: Job) -> tuple[tuple[int, int], ...]:
    """(dense, expert) layers of each pipeline rank."""
    held = layers(job)
    return tuple((sum(not job.model.is_moe(i) for i in h), sum(job.model.is_moe(i) for i in h)) for h in held)


def first_rank(_: Job) -> int:
    """Pipeline rank with the embedding."""
    return 0


def last_rank(job: Job) -> int:
    """Pipeline rank with the head: the last, or the first in V shapes."""
    return 0 if schedule(job) in V_SHAPED else job.layout.pp - 1


def on(job: Job, rank: int, calls: int = 1) -> tuple[int, ...]:
    """`calls` on one pipeline rank, none on the others."""
    return tuple(calls if r == rank else 0 for r in range(job.layout.pp))


@dataclass(frozen=True, slots=True)
class LocalParameters:
    """Parameters on one rank: those that all data ranks share, and experts."""

    dense: int
    expert: int


def layer_local(job: Job, *, moe: bool) -> LocalParameters:
    """Parameters of one layer on one rank."""
    lay = job.layout
    p = layer_parameters(job.model, moe=moe)
    if lay.tp > 1 and job.model.mla is None:
        divides(lay.tp, job.model.need("kv_heads")[0], "K/V heads by tensor ranks")
    if lay.tp > 1:
        divides(lay.tp, job.model.need("heads")[0], "heads by tensor ranks")
        if not moe:
            divides(lay.tp, job.model.need("ffn")[0], "MLP width by tensor ranks")
    dense = divides(lay.tp, p.column_row, "weights by tensor ranks") + p.replicated
    if moe and job.model.experts:
        divides(lay.ep, job.model.experts.count, "experts by expert ranks")
        divides(lay.etp, job.model.experts.ffn, "expert width by expert tensor ranks")
    return LocalParameters(dense, divides(lay.ep * lay.etp, p.expert, "experts by expert ranks"))


def local_parameters(job: Job) -> tuple[LocalParameters, ...]:
    """Parameters of each pipeline rank: its layers, the embedding on the first, norm and head on the last."""
    (h,) = job.model.need("hidden")
    table = divides(job.layout.tp, job.model.need("vocab")[0], "vocabulary by tensor ranks (give the padded size)") * h
    first, last = first_rank(job), last_rank(job)
    out = []
    for r, counts in enumerate(kinds(job)):
        dense = expert = 0
        for moe, count in zip((False, True), counts, strict=True):
            if count:
                one = layer_local(job, moe=moe)
                dense, expert = dense + count * one.dense, expert + count * one.expert
        dense += table + job.model.positions * h if r == first else 0
        if r == last:
            shared = job.model.tied and first == last
            dense += h * (2 if job.model.layer_norm else 1) + (0 if shared else table)
        out.append(LocalParameters(dense, expert))
    return tuple(out)


def tokens_here(job: Job) -> int:
    """Tokens of a micro-batch on one context rank: b s / cp."""
    b, s = job.training.need("micro_batch", "sequence")
    return b * divides(job.layout.cp, s, "sequence by context ranks")


def layer_flops(job: Job, *, moe: bool) -> float:
    """Forward FLOPs of one layer for one micro-batch on one rank."""
    (s,) = job.training.need("sequence")
    one = layer_forward_flops(job.model, s, moe=moe, causal=job.training.causal)
    return one * tokens_here(job) / job.layout.tp


def stage_forward_flops(job: Job) -> tuple[float, ...]:
    """Forward FLOPs of one micro-batch on a rank of each stage; the head counts on its own."""
    out = []
    for r, counts in enumerate(kinds(job)):
        total = sum(n * layer_flops(job, moe=moe) for moe, n in zip((False, True), counts, strict=True) if n)
        if r == last_rank(job):
            total += head_forward_flops(job.model) * tokens_here(job) / job.layout.tp
        out.append(total)
    return tuple(out)

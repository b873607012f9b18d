"""Pipeline parallelism: sends and receives between stages, and the tied embedding's gradient."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from tracekit.theory import volumes
from tracekit.theory.bubbles import V_SHAPED
from tracekit.theory.errors import MissingInput
from tracekit.theory.machine import Placement, place
from tracekit.theory.planning import stages
from tracekit.theory.planning.rows import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.theory.planning.rows import Job


def drafts(job: Job) -> Iterator[Draft]:
    """Rows of the pipeline axis, none for one stage."""
    lay = job.layout
    if lay.pp == 1:
        return
    for phase, index in (("forward", 0), ("backward", 1)):
        for op in ("send", "recv"):
            yield Draft(
                "pp", "stage_transfer", phase, op, "pp", "activations" if index == 0 else "their gradients", 2,
                partial(_neighbours, job), partial(_payload, job), per_step=partial(_calls, job, op, index),
                overlap="hideable", hidden_by="another micro-batch in steady state; nothing in warm-up and drain",
                hide_flops=partial(_stage_flops, job, index),
            )  # fmt: skip
    if job.model.tied and stages.first_rank(job) != stages.last_rank(job):
        yield Draft(
            "embedding", "tied_grad", "backward", "all_reduce", "embedding", "embedding shared by first and last stage",
            2, lambda g: _ends(job, g), partial(_tied, job), per_step=lambda: _first_and_last(job),
            hidden_by="nothing: after the last backward",
        )  # fmt: skip


def _payload(job: Job) -> int:
    lay = job.layout
    b, s = job.training.need("micro_batch", "sequence")
    (h,) = job.model.need("hidden")
    sp = job.training.sequence_parallel
    if sp is None and lay.tp > 1:
        raise MissingInput("training.sequence_parallel")
    return volumes.stage_transfer_bytes(
        b, s, h, job.training.bytes_of("dtype"), context=lay.cp, tensor=lay.tp, sequence_parallel=bool(sp)
    )


def _calls(job: Job, op: str, index: int) -> tuple[int, ...]:
    """Sends (or the peers' sends, received) of each pipeline rank in a step."""
    (m,) = job.training.need("micro_batches")
    name = stages.schedule(job)
    sent = volumes.pipeline_sends_by_rank(name, job.layout.pp, m, stages.virtual(job))
    # What one direction sends the other returns: a rank receives forward exactly as often as it sends backward.
    return tuple(s[index if op == "send" or name in V_SHAPED else 1 - index] for s in sent)


def _stage_flops(job: Job, index: int) -> float:
    """FLOPs of the same direction of one chunk on the least loaded stage."""
    return min(stages.stage_forward_flops(job)) * (1 + index) / stages.virtual(job)


def _neighbours(job: Job, gpus_per_node: int) -> Placement:
    """The worst hop between stages that follow each other."""
    found = set()
    for group in job.layout.groups("pp"):
        hops = list(pairwise(group))
        if stages.schedule(job) not in V_SHAPED and stages.virtual(job) > 1 and len(group) > 2:
            hops.append((group[-1], group[0]))
        found |= {place(h, gpus_per_node) for h in hops}
    return max(found, key=lambda p: p.nodes)


def _ends(job: Job, gpus_per_node: int) -> Placement:
    return max((place((g[0], g[-1]), gpus_per_node) for g in job.layout.groups("pp")), key=lambda p: p.nodes)


def _tied(job: Job) -> int:
    vocab, hidden = job.model.need("vocab", "hidden")
    return volumes.tied_embedding_bytes(vocab, hidden, job.layout.tp, job.training.bytes_of("grad_dtype"))


def _first_and_last(job: Job) -> tuple[int, ...]:
    ends = {stages.first_rank(job), stages.last_rank(job)}
    return tuple(int(r in ends) for r in range(job.layout.pp))

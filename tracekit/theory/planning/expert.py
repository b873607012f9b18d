"""Expert parallelism: dispatch and combine of tokens."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.theory import moe
from tracekit.theory.checks import divides
from tracekit.theory.errors import MissingInput, OutsideDomain
from tracekit.theory.planning import stages
from tracekit.theory.planning.rows import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.theory.planning.rows import Job


def drafts(job: Job) -> Iterator[Draft]:
    """Rows of the expert axis. The backward mirrors the forward: a combine's gradient travels like a dispatch."""
    lay, e = job.layout, job.model.experts
    if lay.ep == 1:
        return
    if e is None:
        raise MissingInput("model.experts (ep is above 1)")
    for phase in ("forward", "backward"):
        for purpose in ("token_dispatch", "token_combine"):
            fp8 = job.training.fp8_dispatch and (phase, purpose) == ("forward", "token_dispatch")
            yield Draft(
                "ep", purpose, phase, "all_to_all", "ep", "routed tokens, no de-duplication", lay.ep,
                lambda g: lay.placement(g, "ep"), partial(_payload, job, fp8=fp8),
                per_layer=1, per_micro_batch=lambda: tuple(n for _, n in stages.kinds(job)),
                hidden_by="only another micro-batch (DualPipe, two batches)",
            )  # fmt: skip


def _payload(job: Job, *, fp8: bool) -> int:
    """T k (h e) with T = b s / cp, divided among tensor ranks under sequence parallelism."""
    lay, e = job.layout, job.model.experts
    if e is None or lay.etp > 1:
        raise OutsideDomain("tokens of experts that are themselves divided (etp) are not modelled")
    tokens = stages.tokens_here(job)
    if lay.tp > 1:
        if not job.training.sequence_parallel:
            raise OutsideDomain("experts with tensor parallelism but without sequence parallelism are not modelled")
        tokens = divides(lay.tp, tokens, "tokens by tensor ranks")
    (h,) = job.model.need("hidden")
    return moe.dispatch_bytes(tokens, e.top_k, h, fp8=fp8, element_bytes=job.training.bytes_of("dtype"))

"""The whole plan of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.theory import bubbles, flops
from tracekit.theory.bubbles import Bubble, StageTimes
from tracekit.theory.errors import MissingInput, NoNumber, OutsideDomain
from tracekit.theory.planning import context, data, expert, pipeline, stages, tensor
from tracekit.theory.planning.rows import ExpectedCollective, Job, attempt, finish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.theory.planning.rows import Draft

STRATEGIES: dict[str, Callable[[Job], Iterator[Draft]]] = {
    "tp": tensor.drafts,
    "cp": context.drafts,
    "ep": expert.drafts,
    "pp": pipeline.drafts,
    "dp": data.drafts,
}
MAX_SIMULATED = 100_000
"""Stages times micro-batches up to which a schedule without a closed form is simulated."""
NOT_MODELLED = (
    "norms of gradients, losses averaged over ranks, barriers and other housekeeping",
    "gradients of norms that sequence parallelism leaves to be summed over tensor ranks",
    "FSDP's groups beside the layers (embedding, head, last norm)",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Expected collectives and bounds; null figures have a reason under their name.

    `model_flops`: of a step, all ranks, without recomputation. `ideal_ns`: those FLOPs at the dense peak of all ranks.
    `structural_ns`: communication that nothing hides at its least time, mean over stages; `exposed_if_unhidden_ns`: all
    at its expected time, on the worst stage. `mfu_upper_ratio`: compute at peak (recomputation included), bubble and
    `structural_ns`. `mfu_nothing_hidden_ratio`: GEMMs at their best measured rate, bubble, `exposed_if_unhidden_ns`; in
    both no other kernel costs anything. `bubble` is of equal stages computing at peak; without hardware only its ratios
    have a meaning, and `bubble_ns` is null.
    """

    job: Job
    rows: tuple[ExpectedCollective, ...]
    bubble: Bubble | None
    bubble_ns: float | None
    token_flops: float | None
    tokens_per_step: int | None
    model_flops: float | None
    ideal_ns: float | None
    structural_ns: float | None
    exposed_if_unhidden_ns: float | None
    mfu_upper_ratio: float | None
    mfu_nothing_hidden_ratio: float | None
    hfu_over_mfu: float | None
    reasons: dict[str, str]


def plan(job: Job) -> Plan:
    """Everything that follows from model, training, layout and hardware, without a trace."""
    reasons: dict[str, str] = {}
    rows: list[ExpectedCollective] = []
    for name, drafts in STRATEGIES.items():
        try:
            rows += [finish(d, job) for d in drafts(job)]
        except NoNumber as e:
            reasons[f"collectives.{name}"] = str(e)
    bubble = attempt("bubble", reasons, lambda: _bubble(job))
    token = attempt("token_flops", reasons, lambda: _token_flops(job))
    tokens = attempt("tokens_per_step", reasons, lambda: _tokens(job))
    total = None if token is None or tokens is None else token * tokens
    if total is None:
        reasons.setdefault("model_flops", reasons.get("token_flops") or reasons["tokens_per_step"])
    ideal = attempt("ideal_ns", reasons, lambda: _ideal_ns(job, total))
    structural = attempt("structural_ns", reasons, lambda: _exposed(rows, reasons, structural=True))
    exposed = attempt("exposed_if_unhidden_ns", reasons, lambda: _exposed(rows, reasons, structural=False))
    again = attempt("hfu_over_mfu", reasons, lambda: flops.hfu_over_mfu(job.training.choice("recompute")))
    upper = attempt("mfu_upper_ratio", reasons, lambda: _mfu(job, ideal, again, bubble, structural, 1.0))
    unhidden = attempt(
        "mfu_nothing_hidden_ratio", reasons, lambda: _mfu(job, ideal, again, bubble, exposed, _gemm(job))
    )
    return Plan(
        job,
        tuple(rows),
        bubble,
        attempt("bubble_ns", reasons, lambda: _bubble_ns(job, bubble)),
        token,
        tokens,
        total,
        ideal,
        structural,
        exposed,
        upper,
        unhidden,
        again,
        reasons,
    )


def _token_flops(job: Job) -> float:
    (s,) = job.training.need("sequence")
    return flops.token_flops(job.model, s, causal=job.training.causal, mtp=job.training.mtp)


def _tokens(job: Job) -> int:
    b, s, m = job.training.need("micro_batch", "sequence", "micro_batches")
    return b * s * m * job.layout.dp


def _ideal_ns(job: Job, total: float | None) -> float:
    if total is None:
        raise MissingInput("model_flops")
    return total / job.layout.world_size / _peak(job)


def _peak(job: Job) -> float:
    """FLOPs a ns at the dense peak."""
    if job.hardware is None:
        raise MissingInput("hardware")
    return job.hardware.peak(job.training.choice("dtype")) * 1e3


def _bubble_ns(job: Job, bubble: Bubble | None) -> float:
    if bubble is None:
        raise MissingInput("bubble")
    _peak(job)
    return bubble.bubble_ns


def _bubble(job: Job) -> Bubble:
    """For equal stages at the dense peak, times from FLOPs: by closed form, else (and not too large) simulated."""
    (m,) = job.training.need("micro_batches")
    name, p = stages.schedule(job), job.layout.pp
    if p == 1:
        return Bubble(name, 0.0, 1.0, "step", "exact", "one stage")
    (s,) = job.training.need("sequence")
    peak = _peak(job) if job.hardware else 1.0
    whole = sum(stages.stage_forward_flops(job)) / p / peak
    linear = whole * _linear_share(job, s)
    again = whole if job.training.choice("recompute") == "full" else 0.0
    times = StageTimes(whole, again + 2 * whole - linear, linear)
    v = stages.virtual(job)
    try:
        return bubbles.bubble(name, p, m, times, 1 if name in bubbles.V_SHAPED else v)
    except OutsideDomain:
        if p * v * m > MAX_SIMULATED:
            raise
        return bubbles.simulated_bubble(name, p, m, times, v)


def _linear_share(job: Job, sequence: int) -> float:
    """Share of the forward that has weights; the attention core has no weight gradient."""
    whole = flops.token_flops(job.model, sequence, causal=job.training.causal, mtp=False)
    return flops.token_flops(job.model, 0, mtp=False) / whole


def _exposed(rows: list[ExpectedCollective], reasons: dict[str, str], *, structural: bool) -> float:
    """Communication of a step: what nothing hides at its least time (mean of stages), or all as expected (worst)."""
    missing = [k for k in reasons if k.startswith("collectives.")]
    if missing:
        raise OutsideDomain("some collectives could not be listed: " + ", ".join(missing))
    wanted = [r for r in rows if r.overlap == "structural" or not structural]
    totals: list[float] = []
    for r in wanted:
        step = r.step_lower_bound_ns if structural else r.step_expected_ns
        if step is None:
            why = "; ".join(dict.fromkeys(r.reasons.values())) or "no time"
            raise OutsideDomain(f"no time of {r.strategy} {r.op} ({r.what}, {r.phase}): {why}")
        totals = [a + b for a, b in zip(totals, step, strict=True)] if totals else list(step)
    if not totals:
        return 0.0
    return sum(totals) / len(totals) if structural else max(totals)


def _gemm(job: Job) -> float:
    if job.hardware is None:
        raise MissingInput("hardware")
    return job.hardware.need("gemm_ratio")


def _mfu(
    job: Job, ideal: float | None, again: float | None, bubble: Bubble | None, exposed: float | None, efficiency: float
) -> float:
    """ideal / step, step = compute · (1 + bubble/ideal) + exposed."""
    missing = [n for n, v in (("ideal_ns", ideal), ("bubble", bubble), ("communication times", exposed)) if v is None]
    if ideal is None or bubble is None or exposed is None:
        raise MissingInput(*missing)
    if again is None:
        raise OutsideDomain(f"recompute={job.training.recompute!r}: its extra FLOPs depend on what is recomputed")
    return ideal / (ideal * again / efficiency * (1 + bubble.over_ideal_ratio) + exposed)

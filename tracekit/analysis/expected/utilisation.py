"""MFU and HFU of the measured steps, where the plan knows the FLOPs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.expected.calls import Recording
    from tracekit.analysis.expected.planned import Planned

Row = dict[str, Any]


def utilisation(found: Planned, recordings: Sequence[Recording]) -> Row:
    """{step_ns, model_flops, mfu_ratio, hfu_ratio, …}; empty without a plan, null figures with their `reasons`.

    step_ns: mean of complete steps found by markers; without markers a recording is no step.
    """
    if found.plan is None:
        return {}
    p = found.plan
    steps = [s for one in recordings for s in one.steps if s["step"] in one.counted_steps]
    marked = [s["dur_ns"] for s in steps if s["found_by"] != "whole-window"]
    step = sum(marked) / len(marked) if marked else None
    reasons: dict[str, str] = {n: p.reasons[n] for n in ("model_flops", "ideal_ns", "hfu_over_mfu") if n in p.reasons}
    if step is None:
        reasons["step_ns"] = "no step markers"
    mfu = p.ideal_ns / step if p.ideal_ns is not None and step else None
    return {
        "step_ns": None if step is None else round(step), "steps": len(marked), "model_flops": p.model_flops,
        "token_flops": p.token_flops, "tokens_per_step": p.tokens_per_step, "ideal_ns": p.ideal_ns,
        "attention": "causal" if p.job.training.causal else "not causal", "dtype": p.job.training.dtype,
        "mfu_ratio": mfu, "hfu_ratio": None if mfu is None or p.hfu_over_mfu is None else mfu * p.hfu_over_mfu,
        "mfu_upper_ratio": p.mfu_upper_ratio, "reasons": reasons,
    }  # fmt: skip

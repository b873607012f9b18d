"""What a collective, a step and a pipeline should cost: formulas and data, without any trace.

Numbers in, numbers out; names end in their unit (`_ns`, `_bytes`, `_gbps` = 10^9 bytes/s per direction, `_ratio`).
A number that cannot be given raises `NoNumber` with the reason: `MissingInput` or `OutsideDomain`.

    from tracekit import theory
    theory.token_flops(theory.model("llama3-8b"), 8192)
    theory.lower_bound_ns("all_reduce", 8, 1 << 30, 450.0)

The modules by subject: `collectives`, `alphabeta`, `nccl`, `expectation` (time and verdict), `volumes`, `context`,
`moe` (bytes and counts), `bubbles` and `schedules` (pipelines), `flops`, `memory`, `inference`, `overlap`; inputs are
`transformer`, `specs`, `machine`, by name from `catalogue`, from tables by `config`; `planning` puts all together.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.theory.alphabeta import alpha_beta_ns
    from tracekit.theory.bubbles import Bubble, StageTimes, bubble
    from tracekit.theory.catalogue import hardware, hardware_names, hardware_of_device, model, model_names
    from tracekit.theory.collectives import (
        algbw_gbps,
        bandwidth_to_hide_gbps,
        bus_factor,
        busbw_gbps,
        lower_bound_ns,
        payload_bytes,
        wire_bytes,
    )
    from tracekit.theory.config import job_of
    from tracekit.theory.errors import MissingInput, NoNumber, OutsideDomain
    from tracekit.theory.expectation import Expectation, Verdict, expect, verdict
    from tracekit.theory.flops import token_flops, utilisation_ratio
    from tracekit.theory.machine import Hardware, Placement, place
    from tracekit.theory.planning import ExpectedCollective, Job, Plan, plan
    from tracekit.theory.specs import LayoutSpec, TrainingSpec
    from tracekit.theory.transformer import Experts, LatentAttention, ModelSpec, active_parameters, parameters

__all__ = [
    "Bubble",
    "Expectation",
    "ExpectedCollective",
    "Experts",
    "Hardware",
    "Job",
    "LatentAttention",
    "LayoutSpec",
    "MissingInput",
    "ModelSpec",
    "NoNumber",
    "OutsideDomain",
    "Placement",
    "Plan",
    "StageTimes",
    "TrainingSpec",
    "Verdict",
    "active_parameters",
    "algbw_gbps",
    "alpha_beta_ns",
    "bandwidth_to_hide_gbps",
    "bubble",
    "bus_factor",
    "busbw_gbps",
    "expect",
    "hardware",
    "hardware_names",
    "hardware_of_device",
    "job_of",
    "lower_bound_ns",
    "model",
    "model_names",
    "parameters",
    "payload_bytes",
    "place",
    "plan",
    "token_flops",
    "utilisation_ratio",
    "verdict",
    "wire_bytes",
]

_HOME = {
    "Bubble": "tracekit.theory.bubbles",
    "Expectation": "tracekit.theory.expectation",
    "ExpectedCollective": "tracekit.theory.planning",
    "Experts": "tracekit.theory.transformer",
    "Hardware": "tracekit.theory.machine",
    "Job": "tracekit.theory.planning",
    "LatentAttention": "tracekit.theory.transformer",
    "LayoutSpec": "tracekit.theory.specs",
    "MissingInput": "tracekit.theory.errors",
    "ModelSpec": "tracekit.theory.transformer",
    "NoNumber": "tracekit.theory.errors",
    "OutsideDomain": "tracekit.theory.errors",
    "Placement": "tracekit.theory.machine",
    "Plan": "tracekit.theory.planning",
    "StageTimes": "tracekit.theory.bubbles",
    "TrainingSpec": "tracekit.theory.specs",
    "Verdict": "tracekit.theory.expectation",
    "active_parameters": "tracekit.theory.transformer",
    "algbw_gbps": "tracekit.theory.collectives",
    "alpha_beta_ns": "tracekit.theory.alphabeta",
    "bandwidth_to_hide_gbps": "tracekit.theory.collectives",
    "bubble": "tracekit.theory.bubbles",
    "bus_factor": "tracekit.theory.collectives",
    "busbw_gbps": "tracekit.theory.collectives",
    "expect": "tracekit.theory.expectation",
    "hardware": "tracekit.theory.catalogue",
    "hardware_names": "tracekit.theory.catalogue",
    "hardware_of_device": "tracekit.theory.catalogue",
    "job_of": "tracekit.theory.config",
    "lower_bound_ns": "tracekit.theory.collectives",
    "model": "tracekit.theory.catalogue",
    "model_names": "tracekit.theory.catalogue",
    "parameters": "tracekit.theory.transformer",
    "payload_bytes": "tracekit.theory.collectives",
    "place": "tracekit.theory.machine",
    "plan": "tracekit.theory.planning",
    "token_flops": "tracekit.theory.flops",
    "utilisation_ratio": "tracekit.theory.flops",
    "verdict": "tracekit.theory.expectation",
    "wire_bytes": "tracekit.theory.collectives",
}
"""Where each public name lives: an analysis that needs one formula shall not load them all."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])

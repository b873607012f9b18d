"""Jobs that the tests simulate: each strategy and each schedule at least once, as small as their shapes allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit import theory

if TYPE_CHECKING:
    from tracekit.theory import Job

DENSE = {"name": "llama3-8b", "layers": 4, "vocab": 32768}
TIED = {"hidden": 2048, "layers": 4, "heads": 16, "kv_heads": 16, "ffn": 8192, "vocab": 32768, "tied": True,
        "gated": False, "layer_norm": True}  # fmt: skip
MOE = {"name": "mixtral-8x7b", "layers": 2, "vocab": 32768}


def job(layout: str, model: dict[str, Any] | None = None, **training: Any) -> Job:
    """A job on H100s with 8 GPUs a node and a 400 Gb/s adapter each."""
    given = {"sequence": 4096, "micro_batch": 1, "micro_batches": 4, **training}
    tables = {
        "model": model or DENSE,
        "layout": layout,
        "training": given,
        "hardware": {"name": "h100", "network": "ndr"},
    }
    return theory.job_of(tables, defaults=True)


def _case(layout: str, model: dict[str, Any] | None = None, *, options: dict[str, Any] | None = None, **training: Any):  # type: ignore[no-untyped-def]
    return layout, model, training, options or {}


CASES: dict[str, Any] = {
    "tp pp dp 1F1B": _case("tp=2,pp=2,dp=2"),
    "tp pp dp 1F1B batched, slow rank": _case(
        "tp=2,pp=2,dp=2,order=tp-dp-pp", TIED, options={"batched": True, "slow": {5: 1.15}, "jitter_ratio": 0.02}
    ),
    "sp pp zero1 interleaved": _case(
        "tp=2,pp=2,dp=2", sequence_parallel=True, data_parallel="zero1", schedule="Interleaved1F1B", virtual=2
    ),
    "GPipe, recompute": _case("tp=2,pp=4", schedule="GPipe", recompute="full"),
    "LoopedBFS": _case("pp=4,dp=2", {**DENSE, "layers": 8}, schedule="LoopedBFS", virtual=2),
    "ZB-H1": _case("tp=2,pp=4", schedule="ZB-H1", sequence_parallel=True),
    "ZB-H2": _case("pp=4,dp=2", schedule="ZB-H2", data_parallel="zero1", micro_batches=8),
    "InterleavedZeroBubble torch": _case(
        "pp=4,dp=2", {**DENSE, "layers": 8}, schedule="InterleavedZeroBubble", virtual=2, data_parallel="fsdp"
    ),
    "ZBV torch": _case("pp=4,tp=2", {**DENSE, "layers": 8}, schedule="ZBVZeroBubble", options={"framework": "torch"}),
    "DualPipeV torch": _case("pp=2,dp=4", schedule="DualPipeV", options={"framework": "torch"}),
    "DualPipe ep": _case("pp=2,dp=4,ep=4", MOE, schedule="DualPipe"),
    "fsdp": _case("dp=8", {**DENSE, "layers": 3}, data_parallel="fsdp", micro_batches=2),
    "fsdp kept": _case("dp=8", data_parallel="fsdp", micro_batches=2, reshard=False, reduce_once=True),
    "hsdp tp": _case("tp=2,dp=4,shard=2", data_parallel="fsdp", micro_batches=1, sequence_parallel=True),
    "ddp torch": _case("dp=8", micro_batches=2, options={"framework": "torch"}),
    "ring": _case("tp=2,cp=4,dp=1", micro_batches=1, context_method="ring", sequence=16384),
    "gathered K and V": _case("cp=2,dp=4", micro_batches=1, context_method="all_gather", data_parallel="zero1"),
    "ulysses": _case("cp=4,dp=2", micro_batches=1, context_method="ulysses"),
    "ep megatron": _case("tp=2,dp=4,ep=4,etp=1", MOE, micro_batches=1, sequence_parallel=True, data_parallel="zero1"),
    "ep torch": _case("dp=8,ep=4", MOE, micro_batches=1, data_parallel="fsdp", fp8_dispatch=False),
    "64 ranks": _case("tp=4,pp=4,dp=4", micro_batches=2, sequence_parallel=True, data_parallel="zero1"),
    "32 ranks over nodes": _case("tp=8,cp=2,dp=2", micro_batches=1, context_method="ring"),
}

"""Sequence parallel, row by row; the inversion of plain and coalesced calls."""

from __future__ import annotations

from typing import Any

import pytest
from micro import Micro, one
from rows import Row, check, labelled

EVAL = "autograd::engine::evaluate_function: {0}"
MEGATRON = {"names": ("_CopyToModelParallelRegion",)}


def back(node: str) -> tuple[str, ...]:
    return (EVAL.format(f"{node}Backward"), f"{node}Backward")


def sp(name: str, op: str, tier: str = "A", **how: Any) -> Row:
    return Row(id=name, op=op, strategy="sp", tier=tier, axes="tp", purpose=how.pop("purpose", "activation"),
               variant=how.pop("variant", None), phase=how.pop("phase", None), how=how)  # fmt: skip


GATHER, SCATTER = "_allgather_base", "_reduce_scatter_base"
ROWS = [
    sp("Megatron: gather", GATHER, variant="megatron", phase="forward", scopes=("_GatherFromSequenceParallelRegion",)),
    sp(
        "Megatron: gather, backward scatters",
        SCATTER,
        phase="backward",
        scopes=back("_GatherFromSequenceParallelRegion"),
    ),
    sp("Megatron: scatter", SCATTER, variant="megatron", scopes=("_ReduceScatterToSequenceParallelRegion",)),
    sp("Megatron: scatter, backward gathers", GATHER, scopes=back("_ReduceScatterToSequenceParallelRegion")),
    sp("Megatron: split, backward gathers", GATHER, scopes=back("_ScatterToSequenceParallelRegion")),
    sp("Megatron: linear gathers its input", GATHER, scopes=("LinearWithGradAccumulationAndAsyncCommunication",)),
    sp("Megatron: linear, backward", SCATTER, scopes=back("LinearWithGradAccumulationAndAsyncCommunication")),
    sp("Megatron: the group alone, scatter", SCATTER, purpose=None, pg_desc="TENSOR_MODEL_PARALLEL_GROUP"),
    sp(
        "Megatron: gradients of the norms",
        "allreduce",
        "B",
        purpose="grad_reduce",
        frames=("megatron/core/distributed/finalize_model_grads.py(200): _allreduce_non_tensor_model_parallel_grads",),
    ),
    sp("TE: module gathers", GATHER, "B", variant="transformer-engine", scopes=("_LayerNormLinear",)),
    sp("TE: module scatters", SCATTER, "B", variant="transformer-engine", scopes=("_LayerNormMLP",)),
    sp("nanotron: gather", GATHER, variant="nanotron", scopes=("DifferentiableAllGather",)),
    sp("nanotron: scatter", SCATTER, variant="nanotron", scopes=("DifferentiableReduceScatterSum",)),
    sp(
        "ColossalAI: gather, matmul",
        GATHER,
        variant="colossalai",
        scopes=("_LinearWithGatherForwardReduceScatterBackward",),
    ),
    sp("ColossalAI: gather", GATHER, scopes=("_GatherForwardReduceScatterBackward",)),
    sp("ColossalAI: matmul, scatter", SCATTER, scopes=("_LinearWithReduceScatterForwardGatherBackward",)),
    sp("vLLM: scatter of the compiler pass", SCATTER, "C", scopes=("vllm::reduce_scatter",)),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.id)
def test_row(row: Row) -> None:
    check(labelled(row), row)


def pair(gather: str, scatter: str, scopes: tuple[str, ...], **how: Any) -> list[tuple[str, str | None]]:
    m = Micro().call(gather, scopes=scopes, **how).call(scatter, scopes=scopes, **how)
    return [(x.strategy, x.tier) for x in m.labels()]


@pytest.mark.parametrize(
    ("desc", "tiers"),
    [("mesh_tp", ["B", "A"]), ("default_pg", ["C", "C"])],
    ids=["DTensor: named mesh", "DTensor: whole job"],
)
def test_pairs_of_dtensor(desc: str, tiers: list[str]) -> None:
    ops = ("allgather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced")
    assert pair(*ops, ("Redistribute",), pg_desc=desc) == [("sp", tiers[0]), ("sp", tiers[1])]
    nested = (EVAL.format("RedistributeBackward"), "RedistributeBackward", "NestedRedistribute")
    assert pair(*ops, nested, pg_desc=desc) == [("sp", tiers[0]), ("sp", tiers[1])]


def test_pair_of_vllm() -> None:
    m = Micro().call(GATHER, scopes=("vllm::all_gather",)).call(SCATTER, scopes=("vllm::reduce_scatter",))
    assert [(x.strategy, x.tier) for x in m.labels()] == [("sp", "C")] * 2


def test_gradients_of_norms_in_the_optimizer_of_dtensor() -> None:
    m = Micro()
    m.call("reduce_scatter_tensor_coalesced", scopes=("Redistribute",), pg_desc="mesh_tp")
    m.call("allreduce", scopes=("Optimizer.step#AdamW.step", "aten::add_", "PythonSubclass", "_c10d_functional::all_reduce"),
           n=128, pg_desc="mesh_tp")  # fmt: skip
    label = m.labels()[1]
    assert (label.strategy, label.purpose, label.phase, label.tier) == ("sp", "grad_reduce", "optimizer", "B")


@pytest.mark.parametrize(
    ("framework", "scatter", "strategy"),
    [
        ("megatron", "_reduce_scatter_base", "sp"),
        ("megatron", "reduce_scatter_tensor_coalesced", "zero1"),
        ("torch", "_reduce_scatter_base", "zero3"),
        ("torch", "reduce_scatter_tensor_coalesced", "sp"),
    ],
)
def test_plain_and_coalesced_mean_the_opposite_elsewhere(framework: str, scatter: str, strategy: str) -> None:
    how: dict[tuple[str, str], dict[str, Any]] = {
        ("megatron", "_reduce_scatter_base"): {"scopes": ("_ReduceScatterToSequenceParallelRegion",)},
        ("megatron", "reduce_scatter_tensor_coalesced"): {"pg_desc": "DATA_PARALLEL_GROUP_WITH_CP"},
        ("torch", "_reduce_scatter_base"): {"scopes": ("FSDP::post_backward_reduce (layers.0)",)},
        ("torch", "reduce_scatter_tensor_coalesced"): {"scopes": ("Redistribute",), "pg_desc": "mesh_tp"},
    }
    assert one(scatter, **how[framework, scatter]).strategy == strategy


@pytest.mark.parametrize("op", [GATHER, SCATTER, "allgather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"])
def test_the_variant_alone_says_nothing(op: str) -> None:
    label = one(op, pg_desc="default_pg")
    assert label.strategy == "unknown"
    assert {"zero3", "sp"} <= {s for s, _ in label.alternatives}


def test_the_experts_group_of_the_same_nodes_is_not_sequence_parallel() -> None:
    label = one(GATHER, scopes=("_GatherFromSequenceParallelRegion",), pg_desc="EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP")
    assert label.strategy != "sp"

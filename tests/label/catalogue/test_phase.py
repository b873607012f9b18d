"""Phase of a call: forward, backward, recompute, optimizer."""

from __future__ import annotations

import pytest
from micro import Micro, one

EVAL = "autograd::engine::evaluate_function: {0}"
AR, AG, RS = "allreduce", "_allgather_base", "_reduce_scatter_base"


@pytest.mark.parametrize(
    ("op", "scopes", "phase"),
    [
        (AR, ("_ReduceFromModelParallelRegion",), "forward"),
        (AR, (EVAL.format("_CopyToModelParallelRegionBackward"), "_CopyToModelParallelRegionBackward"), "backward"),
        (AG, ("FSDP::pre_forward (l.0)", "FSDP::all_gather (l.0)"), "forward"),
        (AG, ("FSDP::pre_backward (l.1)", "FSDP::all_gather (l.0)"), "backward"),
        (RS, ("FSDP::root_post_backward_callback", "FSDP::post_backward_reduce (l.0)"), "backward"),
        (AG, ("FullyShardedDataParallel.forward", "FullyShardedDataParallel._pre_forward"), "forward"),
        (RS, (EVAL.format("torch::autograd::AccumulateGrad"), "FullyShardedDataParallel._post_backward_hook"), "backward"),
        ("broadcast", ("Optimizer.step#ZeroRedundancyOptimizer.step",), "optimizer"),
        ("send", ("PP:1SEND_F3",), "forward"),
        ("recv", ("PP:1RECV_B3",), "backward"),
        (AR, ("PP:0REDUCE_GRAD",), "backward"),
        # the forward once more, inside the backward
        (AG, (EVAL.format("CheckpointFunctionBackward"), "CheckpointFunctionBackward", "FSDP::pre_forward (l.0)",
              "FSDP::all_gather (l.0)"), "recompute"),
        (AG, (EVAL.format("MmBackward0"), "FSDP::pre_forward (l.0)", "FSDP::all_gather (l.0)"), "recompute"),
        (AG, (EVAL.format("MmBackward0"), "FullyShardedDataParallel._pre_forward"), "recompute"),
        (AR, (EVAL.format("CheckpointFunctionBackward"), "CheckpointFunctionBackward", "_ReduceFromModelParallelRegion"),
         "recompute"),
        (AR, (EVAL.format("CheckpointFunctionBackward"), "CheckpointFunctionBackward", "DifferentiableAllReduceSum"),
         "recompute"),
        (AR, (EVAL.format("CheckpointFunctionBackward"), "CheckpointFunctionBackward",
              EVAL.format("_CopyToModelParallelRegionBackward"), "_CopyToModelParallelRegionBackward"), "backward"),
        (AR, (EVAL.format("_CheckpointFunctionBackward"), "_CheckpointFunctionBackward", "_LayerNormLinear"), "recompute"),
        (AR, (EVAL.format("MmBackward0"), "Redistribute"), "recompute"),
        (AG, (EVAL.format("MmBackward0"), "_GatherFromSequenceParallelRegion"), "recompute"),
        # a backward that applies a function of the forward computes nothing anew
        ("all_to_allv", (EVAL.format("_SeqAllToAllBackward"), "_SeqAllToAllBackward", "_SeqAllToAll"), "backward"),
        (RS, (EVAL.format("DifferentiableAllGatherBackward"), "DifferentiableAllGatherBackward",
              "DifferentiableReduceScatterSum"), "backward"),
        # a name that contains Backward is not the backward
        ("all_to_allv", ("moe", "GeneratedBackwardFor__c10d_functional_all_to_all_single_default"), None),
    ],
)  # fmt: skip
def test_phase(op: str, scopes: tuple[str, ...], phase: str | None) -> None:
    found = one(op, scopes=scopes).phase
    assert found == phase if phase else found != "backward"


@pytest.mark.parametrize("function", ["unpack_hook", "recompute_fn"])
def test_recompute_by_frames(function: str) -> None:
    frames = (f"torch/utils/checkpoint.py(1100): {function}", "model.py(3): forward")
    label = one(AR, scopes=(EVAL.format("MmBackward0"), "vllm::all_reduce"), frames=frames)
    assert label.phase == "recompute"
    other = ("torch/utils/checkpoint.py(90): checkpoint",)
    assert one(AR, scopes=(EVAL.format("MmBackward0"),), frames=other).phase == "backward"


def test_before_the_backward_of_the_step_is_the_forward() -> None:
    m = Micro().call(AR, scopes=("Redistribute",), n=1)
    m.b.op(m.at, 50, EVAL.format("MmBackward0"))
    loss = m.labels()[0]
    assert (loss.purpose, loss.phase) == ("metric", "forward")
    norm = one(AR, scopes=("Redistribute",), n=1)
    assert (norm.purpose, norm.phase) == ("metric", None)


@pytest.mark.parametrize("scope", ["sync_gradients_across_dp", "all_gather_params", "clip_grad_norm"])
def test_duties_after_the_backward_are_not_forward(scope: str) -> None:
    assert one(AR, scopes=("train_batch_iter", scope)).phase is None


def test_without_any_scope_there_is_no_phase() -> None:
    assert one(AR).phase is None
    assert one("send", scopes=("Forward 1",), dst_rank=1).phase in (None, "forward")

"""Plain data parallel, row by row; and reductions that are none of it."""

from __future__ import annotations

from typing import Any

import pytest
from micro import Micro, one
from rows import Row, check, labelled

ACCUMULATE = ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "torch::autograd::AccumulateGrad")
DDP = ("DistributedDataParallel.forward",)
MEGATRON = "megatron/core/distributed/param_and_grad_buffer.py(400): {0}"


def dp(name: str, tier: str = "B", op: str = "allreduce", **how: Any) -> Row:
    return Row(id=name, op=op, strategy=how.pop("strategy", "dp"), tier=tier, axes=how.pop("axes", None),
               purpose=how.pop("purpose", "grad_reduce"), variant=how.pop("variant", None), phase=how.pop("phase", None),
               names=how.pop("names", ()), groups=how.pop("groups", ()), how=how)  # fmt: skip


ROWS = [
    dp("DDP: bucket", phase="backward", scopes=ACCUMULATE, names=DDP, pg_desc="default_pg"),
    dp("DDP: bucket on a mesh", axes="dp", scopes=ACCUMULATE, names=DDP, pg_desc="mesh_dp"),
    dp("DDP: buffers at the forward", "C", "broadcast", strategy="housekeeping", purpose="control", variant="ddp-buffers",
       scopes=DDP),
    dp("DDP: unused parameters", "A", strategy="housekeeping", purpose="control", variant="unused-parameters", dtype="Int",
       scopes=ACCUMULATE, names=DDP),
    dp("DDP: communication hook", variant="ddp-hook", pg_desc="default_pg",
       frames=("torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py(30): _allreduce_fut",)),
    dp("DDP: hook within a compiled backward", "C", pg_desc="default_pg", phase="backward",
       scopes=("autograd::engine::evaluate_function: CompiledFunctionBackward", "CompiledFunctionBackward")),
    dp("Megatron DDP: coalesced buckets", op="allreduce_coalesced", axes="dp+cp", variant="megatron",
       pg_desc="DATA_PARALLEL_GROUP_WITH_CP"),
    dp("Megatron DDP: experts", op="allreduce_coalesced", axes="edp", variant="megatron",
       pg_desc="EXPERT_DATA_PARALLEL_GROUP"),
    dp("Megatron DDP: by frames", variant="megatron", pg_desc="DATA_PARALLEL_GROUP_WITH_CP",
       frames=(MEGATRON.format("start_grad_sync"),)),
    dp("Megatron DDP: ready bucket, by frames", variant="megatron", pg_desc="undefined",
       frames=(MEGATRON.format("register_grad_ready"),)),
    dp("DeepSpeed stage 0", variant="deepspeed",
       frames=("deepspeed/runtime/engine.py(2000): allreduce_gradients",
               "deepspeed/runtime/engine.py(2600): buffered_allreduce_fallback")),
    dp("nanotron: annotation", "A", variant="nanotron", scopes=("sync_gradients_across_dp",)),
    dp("nanotron: accumulator", "A", variant="nanotron", scopes=("FP32GradientAccumulator.sync_gradients_across_dp",)),
    dp("replicas of torchtitan", axes="dp_replicate", scopes=ACCUMULATE, pg_desc="mesh_dp_replicate"),
    dp("pipeline of torch reduces its stages", scopes=("PP:0REDUCE_GRAD",), pg_desc="mesh_dp", phase="backward"),
    dp("AccumulateGrad on any group", scopes=ACCUMULATE, pg_desc="CONTEXT_PARALLEL_GROUP", axes="cp"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.id)
def test_row(row: Row) -> None:
    check(labelled(row), row)


def after_backward(op: str = "allreduce", **how: Any) -> Any:
    m = Micro()
    m.b.op(0, 50, "autograd::engine::evaluate_function: MmBackward0")
    m.at = 100.0
    m.call(op, **how)
    m.b.op(m.at + 100, 50, "Optimizer.step#SGD.step")
    return m.labels()[0]


def test_sums_between_backward_and_optimizer_are_gradients() -> None:
    label = after_backward(pg_desc="default_pg")
    assert (label.strategy, label.purpose, label.tier) == ("dp", "grad_reduce", "C")
    assert after_backward(pg_desc="SEQUENCE_PARALLEL_GROUP").strategy == "dp"
    assert after_backward(n=1, pg_desc="default_pg").strategy == "housekeeping"
    assert after_backward(pg_desc="EMBEDDING_GROUP").strategy == "embedding"


@pytest.mark.parametrize(
    ("why", "how"),
    [
        ("a forward that DDP wraps", {"scopes": DDP}),
        ("a forward of tensor parallel that DDP wraps", {"scopes": (*DDP, "_ReduceFromModelParallelRegion")}),
        ("one number on the data-parallel group", {"n": 1, "pg_desc": "DATA_PARALLEL_GROUP_WITH_CP"}),
        ("the data-parallel group alone", {"n": 256, "pg_desc": "DATA_PARALLEL_GROUP"}),
        ("a hybrid shard", {"scopes": (*ACCUMULATE, "FullyShardedDataParallel._post_backward_hook")}),
    ],
)
def test_is_not_plain_data_parallel_for_sure(why: str, how: dict[str, Any]) -> None:
    label = Micro().call("_reduce_scatter_base", scopes=("FullyShardedDataParallel._post_backward_hook",)).call(
        "allreduce", **how).labels()[1]  # fmt: skip
    assert label.strategy != "dp" or label.tier not in ("A", "B"), (why, label.rule)


def test_the_literal_alone_does_not_decide() -> None:
    assert one("allreduce", pg_desc="default_pg").strategy == "unknown"
    assert one("allreduce", pg_desc="DATA_PARALLEL_GROUP_WITH_CP", n=4).strategy != "dp"

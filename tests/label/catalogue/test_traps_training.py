"""Traps of training jobs, one each."""

from __future__ import annotations

from typing import Any

import pytest
from label_builder import TraceBuilder, record
from micro import Micro, group, kernel_of, one

from tracekit.label import label_rank, load_rules

EVAL = "autograd::engine::evaluate_function: {0}"
ACCUMULATE = EVAL.format("torch::autograd::AccumulateGrad")


def test_1_half_of_a_megatron_pipeline_runs_on_the_default_group() -> None:
    groups = (group("0", "default_pg", 0, 1), group("5", "PIPELINE_MODEL_PARALLEL_GROUP", 0, 1))
    m = Micro({"groups": groups, "rank": 0, "world_size": 2})
    m.call("send", pg_desc="PIPELINE_MODEL_PARALLEL_GROUP", pg_name="5", dst_rank=1)
    m.call("recv", pg_desc="default_pg", pg_name="0", src_rank=1)
    assert [x.strategy for x in m.labels()] == ["pp", "pp"]


def test_1_all_of_a_deepspeed_pipeline_does() -> None:
    frames = (
        "deepspeed/runtime/pipe/engine.py(900): _exec_send_activations",
        "deepspeed/runtime/pipe/p2p.py(50): send",
    )
    assert one("send", frames=frames, pg_desc="default_pg", dst_rank=1).strategy == "pp"


@pytest.mark.parametrize(
    ("scopes", "strategy"), [(("FSDP::pre_forward (l)", "FSDP::all_gather (l)"), "zero3"), (("Redistribute",), "tp")]
)
def test_2_a_mesh_over_the_world_has_no_name_of_its_own(scopes: tuple[str, ...], strategy: str) -> None:
    op = "_allgather_base" if strategy == "zero3" else "allreduce"
    assert one(op, scopes=scopes, pg_desc="default_pg").strategy == strategy


def test_3_deepspeed_sums_where_others_scatter() -> None:
    frames = ("deepspeed/runtime/zero/stage_1_and_2.py(1100): average_tensor",)
    assert one("allreduce", frames=frames, pg_desc="undefined").strategy == "zero1|zero2"


def test_3_without_frames_a_deepspeed_sum_is_undecided() -> None:
    m = Micro()
    m.b.op(0, 5, "DeepSpeedEngine.backward")
    m.at = 10.0
    label = m.call("allreduce", scopes=(ACCUMULATE,), pg_desc="undefined").labels()[0]
    assert label.strategy == "unknown"
    assert {"dp", "zero1|zero2"} <= {s for s, _ in label.alternatives}


@pytest.mark.parametrize(
    "how",
    [
        {"pg_desc": "DATA_PARALLEL_GROUP_WITH_CP"},
        {"frames": ("deepspeed/runtime/zero/stage3.py(1300): __avg_scatter_grads",)},
        {"scopes": (ACCUMULATE,)},
    ],
    ids=["Megatron, summed in fp32", "ZeRO++", "in a hook"],
)
def test_3_gradients_by_all_to_all_are_no_tokens(how: dict[str, Any]) -> None:
    label = one("all_to_allv", **how)
    assert label.purpose == "grad_reduce"
    assert label.strategy not in ("ep", "cp")


def test_8_an_uneven_gather_is_one_call_with_many_kernels() -> None:
    b = TraceBuilder()
    b.op(0, 90, "c10d::allgather_", ext=1).op(2, 80, "record_param_comms", ext=2,
        args=record("all_gather", pg_desc="DATA_PARALLEL_GROUP_WITH_CP"))  # fmt: skip
    for i in range(3):
        b.call(10 + 10 * i, 5, corr=10 + i, ext=2)
        b.kernel(200 + 30 * i, 20, "ncclDevKernel_Broadcast_RING_LL(int)", corr=10 + i, ext=2, stream=20)
    [call] = label_rank(b.build(), load_rules()).calls
    assert (call.op, call.n_activities) == ("all_gather", 3)


@pytest.mark.parametrize("desc", ["TENSOR_MODEL_PARALLEL_GROUP", "CONTEXT_PARALLEL_GROUP"])
def test_9_a_group_of_one_keeps_its_label_and_its_size(desc: str) -> None:
    [call] = Micro().call("allreduce", pg_desc=desc, group_size=1, ranks_text="[0]").calls()
    assert call.group_size == 1
    assert call.label.axes in ("tp", "cp")


def test_10_the_forward_that_ddp_wraps_is_not_data_parallel() -> None:
    inside = one("allreduce", scopes=("DistributedDataParallel.forward", "_ReduceFromModelParallelRegion"))
    bare = one("allreduce", scopes=("DistributedDataParallel.forward",))
    bucket = one("allreduce", scopes=(ACCUMULATE,))
    assert [x.strategy for x in (inside, bare, bucket)] == ["tp", "unknown", "dp"]


@pytest.mark.parametrize("stream", [7, 20, 99])
def test_11_the_stream_is_no_evidence(stream: int) -> None:
    for scopes in (("_ReduceFromModelParallelRegion",), (ACCUMULATE,)):
        assert one("allreduce", scopes=scopes, stream=stream) == one("allreduce", scopes=scopes)


@pytest.mark.parametrize(
    ("op", "desc", "strategy"),
    [
        ("reduceScatterSingleImpl", "TENSOR_MODEL_PARALLEL_GROUP", "sp"),
        ("allReduceImpl", "mesh_tp", "tp"),
        ("sendImpl", "mesh_pp", "pp"),
        ("recvImpl", "PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
    ],
)
def test_12_the_vocabulary_of_nccl2(op: str, desc: str, strategy: str) -> None:
    operator = {"s": "c10d::send", "r": "c10d::recv_"}.get(op[0], "c10d::allreduce_")
    operator = "c10d::_reduce_scatter_base_" if op.startswith("reduceScatter") else operator
    label = one(op, operator=operator, pg_desc=desc, rank_start=-1, rank_stride=-1, ranks_text=None)
    assert label.strategy == strategy


def test_12_old_names_of_kernels_and_groups() -> None:
    label = one("allreduce", pg_desc=None, scopes=("_ReduceFromModelParallelRegion",),
                kernel="ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)")  # fmt: skip
    assert label.strategy == "tp"
    assert kernel_of("allreduce").startswith("ncclDevKernel_")


@pytest.mark.parametrize("scope", ["## forward ##", "## backward ##", "dispatch(F)", "mlp(W)", "attn(B)", "3F4B"])
def test_13_scopes_of_a_user_decide_nothing(scope: str) -> None:
    for op in ("allreduce", "all_to_allv", "_allgather_base"):
        assert one(op, scopes=(scope,), pg_desc="default_pg").strategy == "unknown"

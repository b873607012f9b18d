"""Pipeline parallel, row by row; and transfers that are none between stages."""

from __future__ import annotations

from typing import Any

import pytest
from micro import Micro, one
from rows import Row, check, labelled

PP_GROUP = "PIPELINE_MODEL_PARALLEL_GROUP"
SCHEDULES = "torch/distributed/pipelining/schedules.py(700): _batch_p2p"


def pp(name: str, tier: str = "A", op: str = "send", **how: Any) -> Row:
    how.setdefault("dst_rank", 1)
    return Row(id=name, op=op, strategy=how.pop("strategy", "pp"), tier=tier, axes=how.pop("axes", None),
               purpose=how.pop("purpose", "stage_transfer"), variant=how.pop("variant", None), phase=how.pop("phase", None),
               names=how.pop("names", ()), groups=how.pop("groups", ()), how=how)  # fmt: skip


ROWS = [
    pp("Megatron 1F1B: batched on the pipeline group", axes="pp", pg_desc=PP_GROUP),
    pp("Megatron 1F1B: receive", op="recv", axes="pp", pg_desc=PP_GROUP, src_rank=1),
    pp("Megatron: by frames", "B", variant="megatron",
       frames=("megatron/core/pipeline_parallel/p2p_communication.py(300): _p2p_ops",)),
    pp("Megatron: shapes before the tensors", variant="metadata", pg_desc=PP_GROUP, n=3, dtype="Long"),
    pp("Megatron interleaved: the half on the default group", "B", variant="megatron", pg_desc="default_pg",
       groups=(PP_GROUP,)),
    pp("torch multi-stage: send forward", variant="pipelining", phase="forward", scopes=("PP:0SEND_F0",)),
    pp("torch multi-stage: receive backward", op="recv", variant="pipelining", phase="backward", scopes=("PP:2RECV_B1",)),
    pp("torch multi-stage: within an action", variant="pipelining", phase="forward", scopes=("PP:0F1",)),
    pp("torch multi-stage: overlapped pair", variant="pipelining", scopes=("PP:(0F3;3B1)OVERLAP_F_B",)),
    pp("torch Schedule1F1B: by frames", "B", variant="pipelining", frames=(SCHEDULES,)),
    pp("torch GPipe: forward", "B", variant="pipelining", scopes=("Forward 2",)),
    pp("torch GPipe: backward", "B", op="recv", variant="pipelining", phase="backward", scopes=("Backward 2",)),
    pp("torch: mesh dimension", axes="pp", pg_desc="mesh_pp"),
    pp("torch: group not recorded, mesh_pp in the job", "B", axes="pp", pg_name=None, pg_desc=None,
       groups=("default_pg", "mesh_pp", "mesh_dp")),
    pp("DeepSpeed: by frames", "B", variant="deepspeed", frames=("deepspeed/runtime/pipe/p2p.py(50): send",)),
    pp("DeepSpeed: on the default group", "B", variant="deepspeed", pg_desc="default_pg", names=("DeepSpeedEngine.step",)),
    pp("DeepSpeed: loss to all stages", "B", op="broadcast", strategy="housekeeping", purpose="metric", n=1,
       frames=("deepspeed/runtime/pipe/engine.py(580): _aggregate_total_loss",)),
    pp("nanotron: send", variant="nanotron", scopes=("SendTensorToPipelineBuffer",)),
    pp("nanotron: receive, backward", op="recv", variant="nanotron", scopes=("RecvTensorFromPipelineBufferBackward",)),
    pp("nanotron: by frames", "B", frames=("nanotron/parallel/pipeline_parallel/p2p.py(90): isend_tensors",)),
    pp("ColossalAI: pickled metadata", "B", dtype="Byte", n=300,
       frames=("colossalai/pipeline/p2p.py(200): _communicate",)),
    pp("ColossalAI: tensors", "B", variant="colossalai", frames=("colossalai/pipeline/p2p.py(200): _communicate",)),
    pp("vLLM: tensors of the dictionary", "B",
       frames=("vllm/distributed/parallel_state.py(800): isend_tensor_dict",)),
    pp("vLLM: slices gathered on tp", "B", op="_allgather_base", variant="gathered-slices",
       frames=("vllm/distributed/parallel_state.py(900): irecv_tensor_dict",)),
    pp("SGLang: proxies", variant="sglang", scopes=("send_proxy_dict_to_next_stage",)),
    pp("SGLang: results", op="recv", variant="sglang", scopes=("recv_res_dict_from_prev_stage",)),
    pp("SGLang: requests", variant="sglang", scopes=("send_reqs_to_next_stage",)),
    pp("SGLang: group", axes="pp", pg_desc="pp:device"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.id)
def test_row(row: Row) -> None:
    check(labelled(row), row)


@pytest.mark.parametrize("kernel", ["pp_send_impl", "pp_recv_impl"])
def test_kernels_of_deepep(kernel: str) -> None:
    m = Micro()
    m.b.op(0, 5, "deep_ep.ElasticBuffer")
    m.at = 10.0
    [label] = m.bare(f"void {kernel}<4, 7168>(void*)").labels()
    assert (label.strategy, label.purpose) == ("pp", "stage_transfer")


def transfers(
    peers: list[tuple[str, int]], rank: int, world: int, scopes: tuple[str, ...] = (), **meta: Any
) -> list[Any]:
    m = Micro({"rank": rank, "world_size": world, **meta})
    how: dict[str, Any] = {"pg_desc": "default_pg", "pg_name": "0", "group_size": world, "scopes": scopes,
                           "ranks_text": str(list(range(world)))}  # fmt: skip
    for op, peer in peers:
        m.call(op, **how, **({"dst_rank": peer} if op == "send" else {"src_rank": peer}))
    return [(x.strategy, x.tier, x.alternatives) for x in m.labels()]


def test_back_and_forth_between_neighbours_is_a_pipeline() -> None:
    middle = [("recv", 0), ("send", 2), ("recv", 2), ("send", 0)]
    assert {(s, t) for s, t, _ in transfers(middle, 1, 4)} == {("pp", "C")}
    assert {(s, t) for s, t, _ in transfers([("send", 1), ("recv", 1)], 0, 2)} == {("pp", "C")}


@pytest.mark.parametrize(
    ("peers", "scopes"),
    [
        ([("send", 2), ("recv", 0)], ()),
        ([("send", 2)], ()),
        ([("send", 2), ("recv", 2)], ("ring_attention",)),
        ([("send", 2), ("recv", 2)], ("autograd::engine::evaluate_function: RingBackward",)),
        ([("send", 3), ("recv", 3)], ()),
    ],
    ids=["one way round", "one way", "inside attention", "inside a backward node", "no neighbour"],
)
def test_other_transfers_stay_unknown(peers: list[tuple[str, int]], scopes: tuple[str, ...]) -> None:
    for strategy, _, others in transfers(peers, 1, 4, scopes):
        assert strategy in ("unknown", "cp")
        assert strategy == "cp" or "pp" in {s for s, _ in others}


def test_a_ring_in_the_job_makes_the_transfers_undecided() -> None:
    label = Micro().call("send", pg_name=None, pg_desc=None, dst_rank=1).labels()[0]
    assert label.strategy == "unknown"
    row = pp("two kinds of transfers", "C-", strategy="unknown", purpose=None, pg_name=None, pg_desc=None,
             groups=("mesh_pp", "mesh_cp"))  # fmt: skip
    assert labelled(row).strategy == "unknown"


def test_a_user_scope_that_looks_like_a_stage_is_no_evidence() -> None:
    assert one("send", scopes=("chunk 3F4B", "attn(F)"), dst_rank=1, pg_desc="undefined").strategy == "unknown"

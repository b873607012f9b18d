"""Tensor parallel, row by row; and what must not become tensor parallel."""

from __future__ import annotations

from typing import Any

import pytest
from micro import Micro, one
from rows import Row, check, labelled

EVAL = "autograd::engine::evaluate_function: {0}"
MEGATRON_TP = "TENSOR_MODEL_PARALLEL_GROUP"


def tp(name: str, tier: str = "A", op: str = "allreduce", **how: Any) -> Row:
    variant = how.pop("variant", None)
    names, groups = how.pop("names", ()), how.pop("groups", ())
    return Row(id=name, op=op, strategy="tp", tier=tier, axes="tp", variant=variant, names=names, groups=groups,
               purpose=how.pop("purpose", "activation"), phase=how.pop("phase", None), how=how)  # fmt: skip


def back(node: str) -> tuple[str, ...]:
    return (EVAL.format(f"{node}Backward"), f"{node}Backward")


ROWS = [
    tp(
        "Megatron: row-parallel output", variant="megatron", phase="forward", scopes=("_ReduceFromModelParallelRegion",)
    ),
    tp(
        "Megatron: gradient of the input",
        variant="megatron",
        phase="backward",
        scopes=back("_CopyToModelParallelRegion"),
    ),
    tp(
        "Megatron: linear with overlapped gradient",
        variant="megatron",
        phase="backward",
        scopes=back("LinearWithGradAccumulationAndAsyncCommunication"),
    ),
    tp("Megatron: frozen weight", variant="megatron", phase="backward", scopes=back("LinearWithFrozenWeight")),
    tp("Megatron: vocabulary-parallel loss", variant="megatron", n=4096, scopes=("_VocabParallelCrossEntropy",)),
    tp("Megatron: the group alone", purpose=None, pg_desc=MEGATRON_TP),
    tp(
        "Megatron: type unknown, size beyond any count",
        "B",
        variant="megatron",
        dtype=None,
        scopes=("_ReduceFromModelParallelRegion",),
    ),
    tp("TE: module", "B", variant="transformer-engine", scopes=("_LayerNormLinear",)),
    tp("TE: module, backward", "B", variant="transformer-engine", scopes=back("_LayerNormMLP")),
    tp("TE: module on Megatron's group", variant="transformer-engine", scopes=("_Linear",), pg_desc=MEGATRON_TP),
    tp("TE: fused operators", "B", scopes=("_OperationFuserAutogradFunction",)),
    tp(
        "DTensor: forward on a named mesh",
        variant="dtensor",
        phase="forward",
        pg_desc="mesh_tp",
        scopes=("Redistribute",),
    ),
    tp(
        "DTensor: gradient of a replicated input",
        variant="dtensor",
        phase="backward",
        pg_desc="mesh_tp",
        scopes=(EVAL.format("_FromTorchTensorBackward"), "_FromTorchTensorBackward"),
    ),
    tp(
        "DTensor: group not recorded, mesh_tp in the job",
        "B",
        variant="dtensor",
        scopes=("Redistribute",),
        pg_name=None,
        pg_desc=None,
        groups=("default_pg", "mesh_tp"),
    ),
    tp("DTensor: the whole job is one mesh", "C", variant="dtensor", scopes=("Redistribute",), pg_desc="default_pg"),
    tp(
        "DTensor: compiled, mesh_tp in the job",
        "B",
        variant="compiled",
        pg_desc=None,
        pg_name=None,
        shape=[2, 64, 128],
        groups=("mesh_tp",),
        scopes=("Torch-Compiled Region: 0/0", "## Call CompiledFxGraph fx3 ##"),
    ),
    tp(
        "DTensor: compiled, the whole job is one mesh",
        "C",
        variant="compiled",
        shape=[2, 64, 128],
        pg_desc="default_pg",
        scopes=(
            EVAL.format("CompiledFunctionBackward"),
            "CompiledFunctionBackward",
            "## Call CompiledFxGraph fx3 ##",
            "_c10d_functional::all_reduce_",
        ),
    ),
    tp("nanotron: sum", variant="nanotron", scopes=("DifferentiableAllReduceSum",)),
    tp("nanotron: identity, backward", variant="nanotron", scopes=back("DifferentiableIdentity")),
    tp("nanotron: column linear", variant="nanotron", scopes=back("_ColumnLinearAsyncCommunication")),
    tp("nanotron: row linear", variant="nanotron", scopes=("_RowLinearAsyncCommunication",)),
    tp("nanotron: sharded loss", variant="nanotron", scopes=("_ShardedCrossEntropy",)),
    tp("ColossalAI: reduce forward", variant="colossalai", scopes=("_ReduceForward",)),
    tp("ColossalAI: reduce backward", variant="colossalai", scopes=back("_ReduceBackward")),
    tp("ColossalAI: linear", variant="colossalai", scopes=back("LinearWithAsyncCommunication")),
    tp("ColossalAI: matmul", variant="colossalai", scopes=back("MatmulWithAsyncCommunication")),
    tp("DeepSpeed AutoTP: row", variant="deepspeed", scopes=("RowParallel",)),
    tp("DeepSpeed AutoTP: column, backward", variant="deepspeed", scopes=back("ColumnParallel")),
    tp("DeepSpeed AutoTP: asynchronous column", variant="deepspeed", scopes=back("AsyncColumnParallel")),
    tp(
        "DeepSpeed AutoTP: gather",
        op="_allgather_base",
        variant="deepspeed",
        scopes=("GatherFromTensorParallelRegion",),
    ),
    tp("DeepSpeed inference", variant="deepspeed", scopes=("inference_all_reduce",)),
    tp("vLLM: all-reduce on c10d", "B", scopes=("vllm::all_reduce",)),
    tp("vLLM: all-reduce on the tp group", "B", scopes=("vllm::all_reduce",), pg_desc="tp:device"),
    tp("vLLM: logits", "C", op="_allgather_base", scopes=("vllm::all_gather",)),
    tp("SGLang: in place", "B", scopes=("sglang::inplace_all_reduce",), pg_desc="tp:device"),
    tp("SGLang: registered gather", "C", op="_allgather_base", scopes=("sglang::reg_all_gather_into_tensor",)),
    tp("TRT-LLM: process group", "B", scopes=("trtllm::allreduce_pg",)),
    tp("TRT-LLM: tuned", "B", scopes=("trtllm::tunable_allreduce",)),
    tp("TRT-LLM: gather", "C", op="_allgather_base", scopes=("trtllm::allgather",)),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.id)
def test_row(row: Row) -> None:
    check(labelled(row), row)


@pytest.mark.parametrize(
    ("kernel", "scopes", "tier", "variant"),
    [
        ("void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<4>(int)", ("_Linear",), "A", None),
        ("void multimem_all_reduce_kernel<c10::BFloat16>(int)", ("vllm::all_reduce",), "B", None),
        ("void vllm::cross_device_reduce_2stage<__half, 8>(int)", ("vllm::all_reduce",), "B", None),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<0>(int)",
         ("sglang::flashinfer_allreduce",), "B", None),
    ],
)  # fmt: skip
def test_kernels_without_a_record(kernel: str, scopes: tuple[str, ...], tier: str, variant: str | None) -> None:
    [label] = Micro().bare(kernel, scopes=scopes).labels()
    assert label.strategy in ("tp", "sp"), label.rule
    assert label.axes == "tp"
    assert label.tier == tier


@pytest.mark.parametrize(
    ("why", "op", "how"),
    [
        ("a scalar under DTensor is a loss", "allreduce", {"scopes": ("Redistribute",), "n": 1}),
        ("a norm under DTensor", "allreduce", {"scopes": ("aten::linalg_vector_norm", "Redistribute"), "n": 2}),
        ("counts of tokens on tp-cp", "allreduce", {"scopes": ("_ReduceFromModelParallelRegion",), "dtype": "Long", "n": 8,
                                                    "pg_desc": "TENSOR_AND_CONTEXT_PARALLEL_GROUP"}),
        ("FP8 scales inside a module", "allreduce", {"scopes": ("_LayerNormLinear",), "n": 300}),
        ("one-dimensional sums of a compiled graph", "allreduce",
         {"scopes": ("CompiledFunctionBackward", "## Call CompiledFxGraph f ##", "_c10d_functional::all_reduce_"), "shape": [4096]}),
        ("an all-reduce without any name", "allreduce", {"pg_desc": "default_pg"}),
        ("a gather of a whole parameter", "allgather_into_tensor_coalesced", {"scopes": ("Redistribute",), "pg_desc": "default_pg"}),
    ],
)  # fmt: skip
def test_is_not_tensor_parallel_for_sure(why: str, op: str, how: dict[str, Any]) -> None:
    label = one(op, **how)
    assert label.strategy != "tp" or label.tier not in ("A", "B"), (why, label.rule)


def test_sums_of_activations_both_ways_need_no_name() -> None:
    how: dict[str, Any] = {"shape": [2, 64, 128], "pg_desc": "undefined"}
    labels = (
        Micro()
        .call("allreduce", scopes=("G",), **how)
        .call("allreduce", scopes=(EVAL.format("FBackward"), "FBackward"), **how)
        .labels()
    )
    assert [(x.strategy, x.tier) for x in labels] == [("tp", "C")] * 2
    alone = Micro().call("allreduce", scopes=("G",), **how).labels()[0]
    assert (alone.strategy, [s for s, _ in alone.alternatives]) == ("unknown", ["dp", "tp"])


def test_a_compiled_forward_that_sums_matrices_is_tensor_parallel() -> None:
    fx = ("## Call CompiledFxGraph f ##", "_c10d_functional::all_reduce_")
    how: dict[str, Any] = {"shape": [128, 128], "pg_desc": "default_pg"}
    backward = (EVAL.format("CompiledFunctionBackward"), *fx)
    labels = Micro().call("allreduce", scopes=fx, **how).call("allreduce", scopes=backward, **how).labels()
    assert [(x.strategy, x.phase, x.tier) for x in labels] == [("tp", "forward", "C"), ("tp", "backward", "C")]
    assert Micro().call("allreduce", scopes=backward, **how).labels()[0].strategy != "tp"

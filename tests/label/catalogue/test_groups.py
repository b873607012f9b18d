"""Descriptions of groups, row by row: Megatron's literals, torchtitan's and others' mesh dimensions, plain words."""

from __future__ import annotations

import pytest
from micro import Micro, group, one

MEGATRON = [
    ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
    ("CONTEXT_PARALLEL_GROUP", "cp"),
    ("HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0", "cp"),
    ("HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L1", "cp"),
    ("HYBRID_DP_CP_GROUP_4", "cp"),
    ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
    ("DATA_PARALLEL_GROUP", "dp"),
    ("DATA_PARALLEL_GROUP_WITH_CP", "dp+cp"),
    ("DATA_PARALLEL_GROUP_WITH_CP_AG", "dp+cp"),
    ("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", "dp+cp"),
    ("HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L0", "edp"),
    ("HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L1", "edp"),
    ("EXPERT_DATA_PARALLEL_GROUP", "edp"),
    ("EXPERT_DATA_PARALLEL_GROUP_AG", "edp"),
    ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
    ("EXPERT_TENSOR_PARALLEL_GROUP", "etp"),
    ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", "etp+ep"),
    ("EMBEDDING_GROUP", "embedding"),
    ("POSITION_EMBEDDING_GROUP", "embedding"),
    ("MODEL_PARALLEL_GROUP", "tp+pp"),
    ("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", "etp+ep+pp"),
    ("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP_WITH_EGTP", "etp+ep+pp"),
    ("INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", "tp+cp+dp+pp"),
    ("TENSOR_AND_DATA_PARALLEL_GROUP", "tp+dp"),
    ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", "tp+dp+cp"),
    ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", "tp+cp"),
    ("GTP_WEIGHT_REMAT_GROUP", "gtp"),
    ("EXPERT_GTP_WEIGHT_REMAT_GROUP", "gtp"),
]
MESH = [
    ("mesh_pp", "pp"),
    ("mesh_dp_replicate", "dp_replicate"),
    ("mesh_dp_shard", "dp_shard"),
    ("mesh_cp", "cp"),
    ("mesh_tp", "tp"),
    ("mesh_dp", "dp"),
    ("mesh_dp_shard_cp", "dp_shard+cp"),
    ("mesh_dp_cp", "dp+cp"),
    ("mesh_dp_shard_mod_ep", "edp"),
    ("mesh_dp_shard_in_ep", "dp_shard"),
    ("mesh_ep", "ep"),
    ("mesh_batch", "dp"),
    ("mesh_fsdp", "dp_shard"),
    ("mesh_efsdp", "edp"),
    ("mesh_etp", "etp"),
    ("mesh_loss_mesh", "dp+cp"),
    ("mesh_ddp", "dp"),
    ("mesh_infer_tp", "tp"),
    ("mesh_infer_pp", "pp"),
    ("mesh_data_parallel", "dp"),
    ("mesh_tensor_parallel", "tp"),
]
WORDS = [
    ("TP_GROUP", "tp"),
    ("tensor_parallel", "tp"),
    ("pipeline_parallel_group", "pp"),
    ("dp", "dp"),
    ("FSDP", "dp_shard"),
]


@pytest.mark.parametrize(("desc", "axes"), [*MEGATRON, *MESH, *WORDS])
def test_axes(desc: str, axes: str) -> None:
    assert one("_reduce_scatter_base", pg_desc=desc).axes == axes


@pytest.mark.parametrize(
    "desc", ["undefined", "default_pg", "mesh_default", "mesh_world", "mesh_dim_0", "resharding group"]
)
def test_no_axes(desc: str) -> None:
    label = one("gather", pg_desc=desc)
    assert (label.axes, label.strategy) == (None, "unknown")


@pytest.mark.parametrize(
    "desc", ["MODEL_PARALLEL_GROUP", "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", "TENSOR_AND_DATA_PARALLEL_GROUP",
             "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP"]
)  # fmt: skip
def test_groups_of_norms_and_scales_are_bookkeeping(desc: str) -> None:
    label = one("allreduce", pg_desc=desc, n=1)
    assert (label.strategy, label.purpose, label.tier) == ("housekeeping", "metric", "A")


@pytest.mark.parametrize(
    "desc", ["DATA_PARALLEL_GROUP_GLOO", "DATA_PARALLEL_GROUP_WITH_CP_GLOO", "TP_BOOTSTRAP_GROUP_MPI"]
)
def test_twins_are_bookkeeping(desc: str) -> None:
    assert one("broadcast", pg_desc=desc).strategy == "housekeeping"


def test_the_shard_dimension_of_torchtitan_holds_context_parallel() -> None:
    m = Micro({"groups": (group("4", "mesh_cp", 0, 2), group("3", "mesh_fsdp", 0, 1))})
    assert m.call("_allgather_base", pg_desc="mesh_fsdp").labels()[0].axes == "dp_shard+cp"


def test_the_data_parallel_group_of_megatron_is_not_its_gradient_group() -> None:
    label = one("allreduce", pg_desc="DATA_PARALLEL_GROUP", n=2)
    assert label.strategy in ("unknown", "housekeeping")

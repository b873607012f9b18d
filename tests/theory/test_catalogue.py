"""Models and hardware by name: parameter counts as published, device names as traces give them."""

from __future__ import annotations

import pytest

from tracekit import theory
from tracekit.theory import catalogue
from tracekit.theory.errors import OutsideDomain

# Sum over the tensors of the published checkpoints; GPT-3 from its paper in B, DeepSeek-V3 without the 256 routing
# biases of each of its 58 expert layers (671 026 419 200 with them) and without the multi-token module.
PARAMETERS = {
    "llama2-7b": 6_738_415_616, "llama2-13b": 13_015_864_320, "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248, "llama3-70b": 70_553_706_496, "llama3-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400, "llama3.2-3b": 3_212_749_824,
    "qwen3-0.6b": 596_049_920, "qwen3-1.7b": 1_720_574_976, "qwen3-4b": 4_022_468_096, "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200, "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624, "qwen3-235b-a22b": 235_093_634_560,
    "mixtral-8x7b": 46_702_792_704, "mixtral-8x22b": 140_620_634_112,
    "deepseek-v3": 671_026_419_200 - 58 * 256,
}  # fmt: skip
ACTIVE = {"qwen3-30b-a3b": 3.3, "qwen3-235b-a22b": 22, "mixtral-8x7b": 12.9, "mixtral-8x22b": 39, "deepseek-v3": 37}


@pytest.mark.parametrize("name", theory.model_names())
def test_parameters_as_published(name: str) -> None:
    if name == "gpt3-175b":
        assert theory.parameters(theory.model(name)) == pytest.approx(174.6e9, rel=1e-3)
    else:
        assert theory.parameters(theory.model(name)) == PARAMETERS[name]


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_as_published(name: str) -> None:
    assert theory.active_parameters(theory.model(name)) / 1e9 == pytest.approx(ACTIVE[name], rel=0.02)


@pytest.mark.parametrize(
    ("sequence", "name", "mtp", "gflop"),
    [
        (4096, "qwen3-30b-a3b", False, 23.02),
        (4096, "qwen3-235b-a22b", False, 147.9),
        (4096, "deepseek-v3", True, 260.0),
    ],
)
def test_flops_of_experts_as_published(sequence: int, name: str, mtp: bool, gflop: float) -> None:
    """Megatron-Bridge's tables: TFLOP/s over tokens/s."""
    assert theory.token_flops(theory.model(name), sequence, mtp=mtp) / 1e9 == pytest.approx(gflop, rel=1e-3)


@pytest.mark.parametrize(
    ("device", "part"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100", "h100"), ("NVIDIA H200", "h200"), ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"), ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("A100-SXM4-40GB", "a100-40"), ("Tesla V100-SXM2-16GB", "v100"), ("AMD Instinct MI300X", "mi300x"),
    ],
)  # fmt: skip
def test_device_names_of_traces(device: str, part: str) -> None:
    found = theory.hardware_of_device(device)
    assert found is not None
    assert found.id == part


@pytest.mark.parametrize(
    "device",
    ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-40GB", "Tesla V100-DGXS-32GB",
     "NVIDIA GeForce RTX 2080 Ti", "AMD Instinct MI308X", "AMD Instinct MI210", "Tesla V100-PCIE-16GB", ""],
)  # fmt: skip
def test_other_parts_are_not_mistaken(device: str) -> None:
    assert theory.hardware_of_device(device) is None


@pytest.mark.parametrize("name", theory.hardware_names())
def test_every_entry_is_whole(name: str) -> None:
    hw = theory.hardware(name)
    assert all(v > 0 for v in hw.peak_tflops.values())
    assert hw.need("link_gbps") > 0
    assert hw.ring_ceiling_gbps is None or hw.ring_ceiling_gbps < hw.need("link_gbps")
    assert hw.gpus_per_node is not None


def test_a_system_is_a_part_with_its_network() -> None:
    system, part = theory.hardware("dgx-h100"), theory.hardware("h100")
    assert (system.nic_gbps, part.nic_gbps) == (50.0, None)
    assert system.peak_tflops == part.peak_tflops


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(OutsideDomain, match="llama3-70b"):
        theory.model("llama9")
    with pytest.raises(OutsideDomain, match="dgx-h100"):
        theory.hardware("h99")
    with pytest.raises(OutsideDomain, match="ndr"):
        catalogue.network_gbps("token-ring")


def test_a_mesh_uses_the_links_to_the_peers() -> None:
    part = theory.hardware("mi300x")
    assert [part.node_link_gbps(n) for n in (1, 2, 4, 8, 16)] == [64, 64, 192, 448, 448]

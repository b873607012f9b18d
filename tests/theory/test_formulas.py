"""Each formula against a number worked out by hand, small enough to follow; needs nothing but this repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit import theory
from tracekit.theory import (
    alphabeta,
    bubbles,
    collectives,
    context,
    flops,
    inference,
    memory,
    moe,
    nccl,
    overlap,
    transformer,
    volumes,
)
from tracekit.theory.bubbles import StageTimes
from tracekit.theory.errors import OutsideDomain

if TYPE_CHECKING:
    from collections.abc import Callable

KIB = 1 << 10
TINY = theory.ModelSpec(hidden=8, layers=2, heads=4, kv_heads=2, ffn=16, vocab=10)  # q 8, kv 4, head 2
MOE = theory.ModelSpec(
    hidden=8, layers=3, heads=4, kv_heads=2, ffn=16, vocab=10,
    experts=theory.Experts(count=4, top_k=2, ffn=6, shared=1, dense_layers=1),
)  # fmt: skip
MLA = theory.ModelSpec(
    hidden=8, layers=1, heads=2, ffn=16, vocab=10,
    mla=theory.LatentAttention(kv_lora=3, nope_dim=4, rope_dim=2, v_dim=5, q_lora=6),
)  # fmt: skip
ONE_NODE = nccl.Fabric(4, bus_gbps=100.0)
TWO_NODES = nccl.Fabric(4, 2, bus_gbps=100.0, channels=2)
TIMES = StageTimes(10, 12, 8)  # F, Bin, W: S = 30

NUMBERS: dict[str, tuple[Callable[[], float | tuple[float, ...]], float | tuple[float, ...]]] = {
    # ---- collectives
    "payload of an all-gather": (lambda: theory.payload_bytes("all_gather", 4, 10, 2), 80),
    "payload of an all-reduce": (lambda: theory.payload_bytes("all_reduce", 4, 10, 2), 20),
    "payload of an uneven all-to-all": (lambda: theory.payload_bytes("all_to_allv", 4, 10, 2), 20),
    "payload of a hypercube": (lambda: theory.payload_bytes("hypercube", 4, 10, 2), 60),
    "wire of an all-reduce": (lambda: theory.wire_bytes("all_reduce", 4, 100), 150),
    "wire of an all-gather, rounded up": (lambda: theory.wire_bytes("all_gather", 3, 100), 67),
    "wire of a send": (lambda: theory.wire_bytes("send", 2, 100), 100),
    "wire alone": (lambda: theory.wire_bytes("all_reduce", 1, 100), 0),
    "wire stays exact beyond floats": (lambda: theory.wire_bytes("all_reduce", 2, (1 << 60) + 1), (1 << 60) + 1),
    "bytes by NVLS": (lambda: collectives.nvls_bytes(100), 100),
    "algbw": (lambda: theory.algbw_gbps(3000, 1500), 2.0),
    "busbw": (lambda: theory.busbw_gbps("all_reduce", 4, 3000, 1500), 3.0),
    "lower bound": (lambda: theory.lower_bound_ns("reduce_scatter", 4, 4000, 3.0), 1000.0),
    "NIC rate of busbw": (lambda: collectives.nic_gbps_of(310.0, 4, 32), 30.0),
    "bandwidth to hide": (lambda: theory.bandwidth_to_hide_gbps(3000, 100), 30.0),
    # ---- α-β, n = 4, S = 400, α = 10, B = 2
    "ring all-reduce": (lambda: theory.alpha_beta_ns("all_reduce", "ring", 4, 400, 10, 2), 60 + 300),
    "recursive doubling": (lambda: theory.alpha_beta_ns("all_reduce", "recursive_doubling", 4, 400, 10, 2), 2 * 210),
    "halving doubling": (lambda: theory.alpha_beta_ns("all_reduce", "halving_doubling", 4, 400, 10, 2), 40 + 300),
    "double tree": (lambda: theory.alpha_beta_ns("all_reduce", "double_tree", 4, 400, 10, 2), 40 + 400),
    "ring all-gather": (lambda: theory.alpha_beta_ns("all_gather", "ring", 4, 400, 10, 2), 30 + 150),
    "recursive all-gather": (lambda: theory.alpha_beta_ns("all_gather", "recursive_doubling", 4, 400, 10, 2), 20 + 150),
    "ring reduce-scatter": (lambda: theory.alpha_beta_ns("reduce_scatter", "ring", 4, 400, 10, 2), 30 + 150),
    "recursive halving": (lambda: theory.alpha_beta_ns("reduce_scatter", "recursive_halving", 4, 400, 10, 2), 170),
    "pairwise": (lambda: theory.alpha_beta_ns("all_to_all", "pairwise", 4, 400, 10, 2), 30 + 150),
    "Bruck": (lambda: theory.alpha_beta_ns("all_to_all", "bruck", 4, 400, 10, 2), 2 * 110),
    "binomial broadcast": (lambda: theory.alpha_beta_ns("broadcast", "binomial", 4, 400, 10, 2), 2 * 210),
    "pipelined broadcast": (lambda: alphabeta.pipelined_broadcast_ns(4, 400, 10, 10, 2), 12 * 30),
    "doubling wins": (lambda: alphabeta.recursive_doubling_wins(4, 100, 10, 2), True),  # 25 < 40
    "ring wins": (lambda: alphabeta.recursive_doubling_wins(4, 400, 10, 2), False),  # 100 > 40
    # ---- NCCL's model
    "NVLink ceiling": (lambda: nccl.nvlink_ceiling_gbps(*nccl.LINKS_GBPS["hopper"]), 370.8),
    "ring latency, a node": (lambda: nccl.ring_latency_ns("all_reduce", "LL", ONE_NODE), 6600 + 6 * 600),
    "ring latency, two nodes": (
        lambda: nccl.ring_latency_ns("all_gather", "Simple", TWO_NODES),
        8400 + 2 * 3400 + 14000,
    ),
    "ring latency, a rank a node": (
        lambda: nccl.ring_latency_ns("all_gather", "LL", nccl.Fabric(2, 2)),
        6600 + 5000,
    ),
    "ring latency, congested": (
        lambda: nccl.ring_latency_ns("all_reduce", "Simple", TWO_NODES, 512),
        (8400 + 4 * 3400 + 2 * 14000) * 1.4,
    ),
    "ring latency, not yet": (
        lambda: nccl.ring_latency_ns("all_reduce", "Simple", TWO_NODES, 511),
        8400 + 4 * 3400 + 2 * 14000,
    ),
    "ring latency, congested Volta": (
        lambda: nccl.ring_latency_ns("all_reduce", "Simple", nccl.Fabric(4, 2, channels=2, architecture="volta"), 512),
        (8400 + 4 * 3400 + 2 * 14000) * 1.9,
    ),
    "tree latency": (lambda: nccl.tree_latency_ns("LL128", TWO_NODES), 14000 + 2 * (1250 + 8500)),
    "tree latency, published": (lambda: nccl.tree_latency_ns("Simple", nccl.Fabric(64, 8)), 148_400),
    "hop latency": (lambda: nccl.hop_latency_ns(several_nodes=True), 22_400),
    "NVLS latency": (lambda: (nccl.nvls_latency_ns(ONE_NODE), nccl.nvls_latency_ns(TWO_NODES)), (25_000, 43_000)),
    "NVLSTree latency": (lambda: nccl.nvls_latency_ns(TWO_NODES, tree=True), 8400 + 25000 + 2 * 20900),
    "LL bandwidth": (lambda: nccl.ring_bus_gbps("LL", ONE_NODE), 50.0),
    "LL bandwidth, capped": (lambda: nccl.ring_bus_gbps("LL", TWO_NODES), 39.0),
    "LL128 bandwidth": (lambda: nccl.ring_bus_gbps("LL128", ONE_NODE), 92.0),
    "LL128 bandwidth, channels": (lambda: nccl.ring_bus_gbps("LL128", TWO_NODES), 73.4),
    "tree bandwidth": (lambda: nccl.tree_bus_gbps("LL", ONE_NODE), 92 / 3.8),
    "tree bandwidth, LL128": (lambda: nccl.tree_bus_gbps("LL128", ONE_NODE), 92 * 7 / 9),
    "tree bandwidth, channels": (lambda: nccl.tree_bus_gbps("Simple", TWO_NODES), 2 * 38.7),
    "NVLS bandwidth": (lambda: nccl.nvls_bus_gbps("all_reduce", TWO_NODES), 100 * 0.85 * 0.5 * 2),
    "NVLS bandwidth, gather": (lambda: nccl.nvls_bus_gbps("all_gather", TWO_NODES), 100 * 0.85 * 0.5 * 0.5),
    "ring time": (lambda: nccl.ring_ns("all_gather", "Simple", 3000, ONE_NODE), 8400 + 3 * 3400 + 3000 / (100 * 4 / 3)),
    "tree time": (lambda: nccl.tree_ns("Simple", 4600, ONE_NODE), 8400 + 2 * 3 * 4000 + 4600 / 46),
    # ---- volumes
    "activation": (lambda: volumes.activation_bytes(2, 12, 5, 2, context=3), 80),
    "tensor elements sent": (lambda: volumes.tensor_elements_sent(1, 4, 8, 4), 8 * 32 * 3 // 4),
    "sequence parallel wire": (lambda: volumes.sequence_parallel_wire_bytes(10, 64, 4), 480),
    "cross entropy": (lambda: volumes.cross_entropy_payload_bytes(2, 6, context=2), 24),
    "tied embedding": (lambda: volumes.tied_embedding_bytes(10, 8, 2), 160),
    "stage transfer": (lambda: volumes.stage_transfer_bytes(1, 8, 4, 2, tensor=2, sequence_parallel=True), 32),
    "sends of 1F1B": (lambda: volumes.pipeline_sends("1F1B", 4, 8), 48),
    "sends, interleaved": (lambda: volumes.pipeline_sends("Interleaved1F1B", 2, 4, 3), 40),
    "sends, V": (lambda: volumes.pipeline_sends("ZBV", 2, 4, 2), 16),
    "sends of one stage": (lambda: volumes.pipeline_sends("GPipe", 1, 4), 0),
    "DDP": (lambda: volumes.data_parallel_wire_bytes(100, 4), 300),
    "ZeRO-1": (lambda: volumes.sharded_optimizer_wire_bytes(100, 4), 450),
    "ZeRO volumes": (lambda: tuple(volumes.zero_volume_in_parameters(i) for i in range(4)), (2, 2, 2, 3)),
    "FSDP": (lambda: volumes.fully_sharded_wire_bytes(100, 4, 2, 4), 600),
    "HSDP": (lambda: volumes.hybrid_replica_wire_bytes(100, 4, 2), 50),
    "FSDP calls": (lambda: volumes.fully_sharded_calls(3, reshard_after_forward=False, reduce_once=True), (3, 1)),
    # ---- context
    "ring block": (lambda: context.ring_block_bytes(16, 4, 1, 3), 48),
    "ring forward": (lambda: context.ring_forward_bytes(16, 4, 1, 3), 144),
    "gathered K and V": (lambda: context.gathered_bytes(16, 1, 3), 192),
    "Ulysses": (lambda: context.ulysses_forward_bytes(16, 4, 1, 8, 4), 16 // 4 * 24 * 2 * 3 // 4),
    "Megatron's counterpart": (lambda: context.sequence_parallel_forward_bytes(16, 4, 8), 4 * 16 * 8 * 2 * 3 // 4),
    "zigzag": (lambda: tuple(context.zigzag_cost(3, i) for i in range(3)), (12, 12, 12)),
    "contiguous": (lambda: context.contiguous_imbalance_ratio(2), 1.5),
    "pass-KV share": (lambda: context.pass_kv_miss_ratio(2, 8), 0.5),
    "pass-KV hidden": (lambda: context.pass_kv_hidden_tokens(2, 1e12, 1, 4, 10.0), 50.0),
    "pass-Q hidden": (lambda: context.pass_q_hidden_tokens(2, 1e12, 10.0), 100.0),
    "pass-KV by tokens": (lambda: context.pass_kv(50, 10_000, 2, 1e12, 1, 4, 10.0), True),
    "pass-Q": (lambda: context.pass_kv(49, 10_000, 2, 1e12, 1, 4, 10.0), False),
    # ---- experts
    "token in FP8": (lambda: moe.token_bytes(256, fp8=True), 264),
    "dispatch": (lambda: moe.dispatch_bytes(3, 2, 128, fp8=True, extra_token_bytes=16), 888),
    "combine": (lambda: moe.combine_bytes(3, 2, 128), 1536),
    "FP8 over bf16": (moe.fp8_ratio, 0.515625),
    "node-limited": (lambda: moe.node_limited_bytes(3, 2, 128), 1536),
    "nodes hit": (lambda: moe.expected_nodes(2, 4, 2), 2 * (1 - 1 / 6)),
    "balancedness": (lambda: moe.balancedness([1, 3]), 2 / 3),
    # ---- bubbles, p = 4, m = 8
    "GPipe": (lambda: theory.bubble("GPipe", 4, 8, TIMES).bubble_ns, 90),
    "1F1B": (lambda: theory.bubble("1F1B", 4, 8, TIMES).bubble_ns, 90),
    "1F1B, over step": (lambda: theory.bubble("1F1B", 4, 8, TIMES).over_step_ratio, 3 / 11),
    "1F1B, over ideal": (lambda: theory.bubble("1F1B", 4, 8, TIMES).over_ideal_ratio, 3 / 8),
    "1F1B with latency": (
        lambda: theory.bubble("1F1B", 4, 8, StageTimes(10, 20, p2p_ns=1)).bubble_ns,
        90 + 2 * (6 + 2),
    ),
    "interleaved": (lambda: theory.bubble("Interleaved1F1B", 4, 8, TIMES, 2).bubble_ns, 45),
    "interleaved with latency": (
        lambda: theory.bubble("Interleaved1F1B", 4, 8, StageTimes(10, 20, p2p_ns=1), 2).bubble_ns,
        45 + 14,
    ),
    "LoopedBFS": (lambda: theory.bubble("LoopedBFS", 4, 8, TIMES, 2).bubble_ns, 45),
    "ZB-H1": (lambda: theory.bubble("ZB-H1", 4, 8, TIMES).bubble_ns, 42),
    "ZB-H1 with latency": (lambda: theory.bubble("ZB-H1", 4, 8, StageTimes(10, 12, 8, 1)).bubble_ns, 54),
    "ZB-H1, few micro-batches": (lambda: theory.bubble("ZB-H1", 4, 2, TIMES).total_ns, 5 * 22 + 8),
    "zero bubble, interleaved": (lambda: theory.bubble("InterleavedZeroBubble", 4, 8, TIMES, 2).bubble_ns, 21),
    "ZB-H2": (lambda: theory.bubble("ZB-H2", 4, 8, TIMES).bubble_ns, 18),
    "ZB-V": (lambda: theory.bubble("ZBV", 4, 8, StageTimes(10, 10, 10)).bubble_ns, 0),
    "ZB-V, step window": (lambda: bubbles.zb_v_step_bubble_ns(4, StageTimes(10, 10, 10)), 15),
    "DualPipe": (lambda: theory.bubble("DualPipe", 4, 8, StageTimes(10, 10, 10, overlapped_ns=24)).bubble_ns, 14),
    "DualPipeV": (lambda: theory.bubble("DualPipeV", 2, 8, StageTimes(10, 10, 10)).bubble_ns, 10),
    "Zero Bubble's interleaved": (
        lambda: bubbles.zb_paper_interleaved_bubble(4, 8, StageTimes(10, 12, 8, 1), 2).bubble_ns,
        45 + 10,
    ),
    "span idle": (lambda: bubbles.one_f_one_b_span_idle_ns(3, TIMES), (60, 30, 0)),
    "over step of over ideal": (lambda: bubbles.over_step_of(0.25), 0.2),
    "unequal stages": (lambda: bubbles.step_bounds_ns([4, 12], [6, 18], 4), (130, 130)),
    "imbalance": (lambda: bubbles.imbalance_ns([10, 30], 4), 40),
    "first micro-batch": (lambda: bubbles.first_micro_batch_ns(4, StageTimes(10, 12, 8, 1)), 94),
    "activations, 1F1B": (lambda: bubbles.activations_in_flight("1F1B", 4, 8), 4),
    "activations, interleaved": (lambda: bubbles.activations_in_flight("Interleaved1F1B", 4, 8, 2), 5.5),
    "activations, ZB-H2": (lambda: bubbles.activations_in_flight("ZB-H2", 4, 8), 7),
    # ---- parameters: attention 8·8·2 + 8·4·2 = 192, MLP 3·8·16 = 384, norms 16: 592 a layer
    "parameters": (lambda: theory.parameters(TINY), 2 * 592 + 2 * 80 + 8),
    "compute parameters": (lambda: transformer.compute_parameters(TINY), 2 * 592 + 80 + 8),
    # dense 592; expert layer 192 + 16 + router 32 + shared 144 + 4 experts of 144
    "parameters, experts": (lambda: theory.parameters(MOE), 592 + 2 * (384 + 576) + 168),
    "active parameters": (lambda: theory.active_parameters(MOE), 592 + 2 * (384 + 288) + 168),
    # q 8·6 + 6·2·6, kv 8·5 + 3·2·9, out 2·5·8: 294; norms 16 + 9
    "parameters, latent attention": (lambda: theory.parameters(MLA), 294 + 384 + 25 + 168),
    # ---- FLOPs, s = 5: core 2·8·2·5 = 160 a layer, half of it causal; head 160
    "token FLOPs": (lambda: theory.token_flops(TINY, 5), 3 * (2 * (2 * 576 + 80) + 160)),
    "token FLOPs, not causal": (lambda: theory.token_flops(TINY, 5, causal=False), 3 * (2 * (2 * 576 + 160) + 160)),
    # expert layer: 192 + 3 experts of 144
    "token FLOPs, experts": (lambda: theory.token_flops(MOE, 5), 3 * (2 * 576 + 80 + 2 * (2 * 624 + 80) + 160)),
    # core 2·2·(6+5)·5 / 2
    "token FLOPs, latent attention": (lambda: theory.token_flops(MLA, 5), 3 * (2 * (294 + 384) + 110 + 160)),
    "packed": (
        lambda: flops.packed_flops(TINY, [3, 5]),
        3 * theory.token_flops(TINY, 3) + 5 * theory.token_flops(TINY, 5),
    ),
    "PaLM": (lambda: flops.palm_token_flops(100, 2, 8, 5), 600 + 960),
    "6ND": (lambda: flops.six_nd(10, 100), 6000),
    "GPT parameters": (lambda: flops.gpt_parameters(2, 8, 10, 6), 2 * 12 * 64 + 2 * 13 * 8 + 16 * 8),
    "SC21": (lambda: flops.sc21_flops(1, 6, 2, 8, 16), 96 * 6 * 2 * 64 * (1 + 1 / 8 + 1 / 16)),
    "Korthikanti": (lambda: flops.korthikanti_flops(1, 6, 2, 8, 12), 72 * 6 * 2 * 64 * (1 + 1 / 8 + 1 / 16)),
    "Korthikanti, selective": (
        lambda: flops.korthikanti_flops(1, 6, 2, 8, 12, selective_recompute=True),
        72 * 6 * 2 * 64 * (1 + 1 / 4 + 1 / 16),
    ),
    "utilisation": (lambda: theory.utilisation_ratio(1e15, 2, 100, 10), 0.5),
    "HFU over MFU": (lambda: (flops.hfu_over_mfu("none"), flops.hfu_over_mfu("full")), (1, 4 / 3)),
    "achieved": (lambda: flops.achieved_tflops(1e9, 2000, 2), 1.0),
    "days": (lambda: flops.training_days(1e9, 1.08e9, 10, 10), 1.0),
    "tokens a step": (lambda: flops.tokens_per_step(864_000, 2), 20),
    # ---- memory, s b h = 4·1·8, a = 2: 5as/h = 5
    "activations": (lambda: memory.activation_bytes_per_layer(4, 1, 8, 2), 32 * 39),
    "activations, TP": (lambda: memory.activation_bytes_per_layer(4, 1, 8, 2, tensor=2), 32 * (10 + 12 + 2.5)),
    "activations, SP": (
        lambda: memory.activation_bytes_per_layer(4, 1, 8, 2, tensor=2, sequence_parallel=True),
        16 * 39,
    ),
    "activations, selective": (
        lambda: memory.activation_bytes_per_layer(4, 1, 8, 2, tensor=2, sequence_parallel=True, recompute="selective"),
        16 * 34,
    ),
    "activations, full": (lambda: memory.activation_bytes_per_layer(4, 1, 8, 2, recompute="full"), 64),
    "interleaving": (lambda: memory.interleaving_factor(4, 2), 1.375),
    "optimizer": (
        lambda: (
            memory.optimizer_bytes_per_parameter(distributed=False),
            memory.optimizer_bytes_per_parameter(4, distributed=True),
        ),
        (18, 9),
    ),
    # ---- inference
    "KV bytes": (lambda: inference.kv_bytes_per_token(TINY), 2 * 2 * 4 * 2),
    "KV bytes, latent attention": (lambda: inference.kv_bytes_per_token(MLA), 10),
    "critical batch": (lambda: inference.critical_batch(100, 2), 50),
    "decode floor": (lambda: inference.decode_floor_ns(2, 100, 800, 2, 5.0), 100),
    "decode, large batch": (lambda: inference.decode_large_batch_ns(2, 100, 1e3, 2, 5.0, 1.0), 20 + 2),
    "prefill": (lambda: inference.prefill_flops(100, 2, 8, 5), 1000 + 800),
    "tensor decode": (lambda: inference.tensor_decode_collectives(4, 8, 3), (64, 6)),
    "expert decode": (lambda: inference.expert_decode_layer_ns(4, 2, 10, 3.0), 80),
    "expert bound": (lambda: inference.expert_decode_bound(80, 5), (800, 1.25e6)),
    "KV transfer": (lambda: inference.prefill_transfer_ns(10, 100, 5.0), 200),
    "KV transfer hidden": (lambda: inference.prefill_transfer_hidden_gbps(1e6, 2000), 2.0),
    # ---- overlap
    "exposure": (lambda: overlap.exposure_ns([(0, 4), (2, 6), (9, 10)], [(5, 20)]), (7, 2, 5)),
    "overlap efficiency": (lambda: overlap.overlap_efficiency_ratio(30, 22, 20, 10), 0.8),
    "contention": (lambda: overlap.contended_ns(100, 90, 0.1, 0.5), 135),
    "waves": (lambda: overlap.wave_loss_ratio(100, 10, 1), 0.2),
    "DDP buckets": (lambda: overlap.ddp_exposed_ns([10, 10], [15, 5]), (30, 10)),
    "tokens for data parallel": (lambda: overlap.data_parallel_tokens(1e14, 1e11), 1000),
    "tokens for FSDP": (lambda: overlap.fully_sharded_tokens(4, 1e12, 10.0), 75),
    "FSDP layer": (lambda: overlap.fully_sharded_layer_ns(1000, 4, 10, 1e12, 10.0), (150, 20)),
    "tensor ranks": (lambda: overlap.tensor_parallel_ranks(8000, 1e14, 1e11), 8),
    "ring chunk": (lambda: overlap.ring_chunk_tokens(1e12, 8, 2, 10.0, zigzag=True), 50),
    "split GEMM": (lambda: overlap.split_exposed_ratio(4), 0.25),
    "two batches": (lambda: (overlap.two_batch_exposed_ns(10, 7), overlap.two_batch_exposed_ns(7, 10)), (3, 0)),
    "waste": (lambda: overlap.straggler_waste_ratio(1.25), 0.2),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_number(name: str) -> None:
    compute, wanted = NUMBERS[name]
    found = compute()
    assert found == pytest.approx(wanted, rel=1e-12)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "operation": (lambda: theory.bus_factor("gossip", 4), "gossip"),
    "group": (lambda: theory.bus_factor("all_reduce", 0), "group_size"),
    "link": (lambda: theory.lower_bound_ns("all_reduce", 4, 1, 0.0), "link_gbps"),
    "not a number": (lambda: theory.lower_bound_ns("all_reduce", 4, 1, float("nan")), "link_gbps"),
    "negative bytes": (lambda: theory.wire_bytes("all_reduce", 4, -1), "payload"),
    "power of two": (lambda: theory.alpha_beta_ns("all_reduce", "recursive_doubling", 6, 1, 1, 1), "power of two"),
    "algorithm": (lambda: theory.alpha_beta_ns("all_reduce", "magic", 4, 1, 1, 1), "magic"),
    "nodes above ranks": (lambda: nccl.Fabric(2, 3), "3 nodes"),
    "architecture": (lambda: nccl.Fabric(2, architecture="kepler"), "kepler"),
    "protocol": (lambda: nccl.ring_latency_ns("all_reduce", "LL256", ONE_NODE), "LL256"),
    "bandwidth": (lambda: nccl.ring_ns("all_reduce", "LL", 1, nccl.Fabric(2)), "bus_gbps"),
    "NVLS before Hopper": (
        lambda: nccl.nvls_bus_gbps("all_reduce", nccl.Fabric(2, bus_gbps=1.0, architecture="ampere")),
        "ampere",
    ),
    "no crossover": (lambda: nccl.crossover_bytes("all_reduce", "Simple", "LL", ONE_NODE), "never"),
    "sequence by ranks": (lambda: context.ring_block_bytes(10, 3, 1, 1), "10 is no multiple of 3"),
    "FP8 block": (lambda: moe.token_bytes(100, fp8=True), "FP8"),
    "top-k": (lambda: moe.expected_nodes(2, 4, 5), "top-5"),
    "schedule": (lambda: theory.bubble("2F2B", 4, 8, TIMES), "2F2B"),
    "W above Bin": (lambda: theory.bubble("ZB-H1", 4, 8, StageTimes(10, 5, 8)), "W ≤ min"),
    "W above F": (lambda: theory.bubble("ZB-H1", 4, 8, StageTimes(5, 10, 8)), "W ≤ min"),
    "m no multiple": (lambda: theory.bubble("1F1B", 4, 9, StageTimes(10, 20, p2p_ns=1)), "multiple"),
    "unequal ZB-V": (lambda: theory.bubble("ZBV", 4, 8, TIMES), "simulate"),
    "virtual": (lambda: theory.bubble("1F1B", 4, 8, TIMES, 2), "one stage"),
    "odd DualPipe": (lambda: theory.bubble("DualPipe", 3, 8, TIMES), "even"),
    "recompute": (lambda: flops.hfu_over_mfu("selective"), "selective"),
    "ZeRO stage": (lambda: volumes.zero_volume_in_parameters(4), "4"),
    "model size": (lambda: theory.token_flops(theory.ModelSpec(hidden=8), 5), "model.layers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_reason(name: str) -> None:
    compute, words = REFUSED[name]
    with pytest.raises(theory.NoNumber, match=words):
        compute()


def test_all_reduce_is_reduce_scatter_and_all_gather() -> None:
    for n in (2, 3, 8, 64):
        parts = theory.bus_factor("reduce_scatter", n) + theory.bus_factor("all_gather", n)
        assert theory.bus_factor("all_reduce", n) == pytest.approx(parts)


def test_best_is_the_cheapest() -> None:
    small, large = nccl.best("all_reduce", KIB, ONE_NODE), nccl.best("all_reduce", 1 << 30, ONE_NODE)
    assert (small.protocol, large.protocol, large.algorithm) == ("LL", "Simple", "ring")
    with pytest.raises(OutsideDomain):
        nccl.best("all_reduce", 1, nccl.Fabric(1, bus_gbps=1.0))


def test_missing_input_names_the_field() -> None:
    with pytest.raises(theory.MissingInput) as e:
        theory.parameters(theory.ModelSpec(hidden=8, layers=2))
    assert e.value.names == ("model.heads", "model.head_dim")

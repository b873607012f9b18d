"""Floating-point operations, MFU and HFU, each with its convention.

A matrix product of m×k by k×n is 2mnk. Training is three times the forward, four with full recomputation. `causal`
counts half of the attention scores (Megatron's num_floating_point_operations), else all of them (PaLM, torchtitan,
llm-foundry). Peaks are dense (no sparsity).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.theory.checks import not_negative, positive
from tracekit.theory.errors import OutsideDomain
from tracekit.theory.transformer import attention_matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.theory.transformer import ModelSpec

TRAIN_OVER_FORWARD = 3


def _core_width(model: ModelSpec) -> int:
    """Heads × (QK size + V size) that meet each other token: 2q, or latent attention's sizes."""
    if model.mla is None:
        return 2 * model.q_width
    (heads,) = model.need("heads")
    return heads * (model.mla.nope_dim + model.mla.rope_dim + model.mla.v_dim)


def _layer_matrix(model: ModelSpec, *, moe: bool) -> int:
    """Weights that one token multiplies in a layer: projections, and MLP or top-k plus shared experts (no router)."""
    (h,) = model.need("hidden")
    matrices = 3 if model.gated else 2
    attention = sum(attention_matrix(model))
    if moe and model.experts is not None:
        e = model.experts
        return attention + matrices * h * e.ffn * (e.top_k + e.shared)
    return attention + matrices * h * model.need("ffn")[0]


def layer_forward_flops(model: ModelSpec, sequence: float, *, moe: bool, causal: bool = True) -> float:
    """Forward FLOPs of one layer for one token at `sequence` tokens a sequence."""
    not_negative(sequence=sequence)
    core = 2 * _core_width(model) * sequence * (0.5 if causal else 1.0)
    return 2 * _layer_matrix(model, moe=moe) + core


def head_forward_flops(model: ModelSpec) -> float:
    """Forward FLOPs of the logits for one token: 2 h V."""
    h, vocab = model.need("hidden", "vocab")
    return 2.0 * h * vocab


def token_flops(model: ModelSpec, sequence: float, *, causal: bool = True, mtp: bool = True) -> float:
    """Model FLOPs of training one token (forward and backward, no recomputation).

    Dense: L[6h(2q+2kv) + 18 h ffn + a q s] + 6hV, a = 6 causal, 12 not; routed experts count top-k and shared. `mtp`
    adds each multi-token prediction module: a layer, its 2h² projection and another logits product.
    """
    (layers,) = model.need("layers")
    forward = head_forward_flops(model)
    for moe in (False, True):
        count = sum(model.is_moe(i) == moe for i in range(layers))
        if count:
            forward += count * layer_forward_flops(model, sequence, moe=moe, causal=causal)
    if mtp and model.mtp_layers:
        (h,) = model.need("hidden")
        one = layer_forward_flops(model, sequence, moe=model.experts is not None, causal=causal)
        forward += model.mtp_layers * (one + 4.0 * h * h + head_forward_flops(model))
    return TRAIN_OVER_FORWARD * forward


def packed_flops(model: ModelSpec, lengths: Sequence[int], *, causal: bool = True, mtp: bool = True) -> float:
    """Model FLOPs of sequences of several lengths: the part linear in tokens by Σ L, the attention core by Σ L²."""
    return sum(n * token_flops(model, n, causal=causal, mtp=mtp) for n in lengths)


def palm_token_flops(params: float, layers: int, width: int, sequence: int) -> float:
    """PaLM's 6N + 12 L H Q T for one token, attention not causal; `width` = heads × head size."""
    positive(params=params)
    return 6 * params + 12.0 * layers * width * sequence


def six_nd(params: float, tokens: float) -> float:
    """6 N D."""
    return 6 * params * tokens


def gpt_parameters(layers: int, hidden: int, vocab: int, sequence: int) -> float:
    """Parameters of a GPT: 12 l h² (1 + 13/(12h) + (V+s)/(12 l h)) (SC21 eq. 2)."""
    positive(layers=layers, hidden=hidden)
    return 12.0 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (vocab + sequence) / (12 * layers * hidden))


def sc21_flops(batch: int, sequence: int, layers: int, hidden: int, vocab: int) -> float:
    """Hardware FLOPs of a step with full recomputation: 96 B s l h² (1 + s/6h + V/16lh) (SC21 eq. 3)."""
    positive(layers=layers, hidden=hidden)
    inner = 1 + sequence / (6 * hidden) + vocab / (16 * layers * hidden)
    return 96.0 * batch * sequence * layers * hidden**2 * inner


def korthikanti_flops(
    batch: int, sequence: int, layers: int, hidden: int, vocab: int, *, selective_recompute: bool = False
) -> float:
    """Model FLOPs of a step, 72 B L s h² (1 + s/6h + V/12hL); with selective recomputation run, s/3h (2205.05198)."""
    positive(layers=layers, hidden=hidden)
    core = sequence / ((3 if selective_recompute else 6) * hidden)
    return 72.0 * batch * layers * sequence * hidden**2 * (1 + core + vocab / (12 * hidden * layers))


def utilisation_ratio(flops: float, gpus: int, peak_tflops: float, seconds: float) -> float:
    """Share of the dense peak: MFU of model FLOPs, HFU of the FLOPs run (recomputation included)."""
    positive(gpus=gpus, peak_tflops=peak_tflops, seconds=seconds)
    not_negative(flops=flops)
    return flops / (gpus * peak_tflops * 1e12 * seconds)


def hfu_over_mfu(recompute: str) -> float:
    """HFU/MFU: 1 without recomputation, 4/3 with full. Selective depends on sizes: OutsideDomain."""
    if recompute == "none":
        return 1.0
    if recompute == "full":
        return 4 / 3
    raise OutsideDomain(f"HFU/MFU of recompute={recompute!r} depends on what is recomputed")


def achieved_tflops(token: float, tokens_per_s: float, gpus: int = 1) -> float:
    """TFLOP/s of each GPU from FLOPs a token and tokens a second (of all `gpus`)."""
    positive(gpus=gpus)
    return token * tokens_per_s / gpus / 1e12


def training_days(tokens: float, params: float, gpus: int, tflops: float) -> float:
    """Days to train with full recomputation: 8 T P/(n X) (SC21 5.1)."""
    positive(gpus=gpus, tflops=tflops)
    return 8 * tokens * params / (gpus * tflops * 1e12) / 86_400


def tokens_per_step(tokens_per_day: float, step_s: float) -> float:
    """Tokens of a step from a day's tokens."""
    return tokens_per_day / 86_400 * step_s

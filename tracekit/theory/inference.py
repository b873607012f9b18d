"""Prefill and decode: KV bytes, critical batch, step floors, expert-parallel bound, transfer of prefilled KV."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from tracekit.theory.checks import not_negative, positive

if TYPE_CHECKING:
    from tracekit.theory.transformer import ModelSpec


def kv_bytes_per_token(model: ModelSpec, element_bytes: int = 2) -> int:
    """Cache of one token: 2 L n_kv d e, or L (kv_lora + rope) e with latent attention."""
    (layers,) = model.need("layers")
    if model.mla is not None:
        return layers * (model.mla.kv_lora + model.mla.rope_dim) * element_bytes
    return 2 * layers * model.kv_width * element_bytes


def critical_batch(peak_tflops: float, hbm_tbps: float) -> float:
    """Tokens from which bf16 linear layers are bound by compute: peak / memory bandwidth."""
    positive(peak_tflops=peak_tflops, hbm_tbps=hbm_tbps)
    return peak_tflops / hbm_tbps


def decode_floor_ns(batch: int, cache_bytes: float, weight_bytes: float, gpus: int, hbm_gbps: float) -> float:
    """Least decode step: (B · cache of a sequence + weights read) / (n · memory bandwidth), in ns."""
    positive(batch=batch, gpus=gpus, hbm_gbps=hbm_gbps)
    not_negative(cache_bytes=cache_bytes, weight_bytes=weight_bytes)
    return (batch * cache_bytes + weight_bytes) / (gpus * hbm_gbps)


def decode_large_batch_ns(
    batch: int, cache_bytes: float, params: float, gpus: int, hbm_gbps: float, tflops: float
) -> float:
    """Decode step bound by compute in its linear layers: B · cache/(n BW) + 2 B P/(n C), in ns."""
    positive(batch=batch, gpus=gpus, hbm_gbps=hbm_gbps, tflops=tflops)
    return batch * cache_bytes / (gpus * hbm_gbps) + 2 * batch * params / (gpus * tflops * 1e3)


def prefill_flops(active_params: float, layers: int, q_width: int, tokens: int) -> float:
    """2 N_active T + attention 2 L q T² (causal)."""
    return 2.0 * active_params * tokens + 2.0 * layers * q_width * tokens**2


def tensor_decode_collectives(batch: int, hidden: int, layers: int, element_bytes: int = 2) -> tuple[int, int]:
    """(bytes, count) of the all-reduces of one decoded token step: B h e, 2L."""
    positive(batch=batch, hidden=hidden, layers=layers)
    return batch * hidden * element_bytes, 2 * layers


def expert_decode_layer_ns(
    tokens: int, experts_met: int, hidden: int, link_gbps: float, dispatch_bytes: int = 1, combine_bytes: int = 2
) -> float:
    """Dispatch and combine of one layer on the wire: (1 + 2) T k h / B, in ns (DeepSeek ISCA'25)."""
    positive(tokens=tokens, experts_met=experts_met, hidden=hidden, link_gbps=link_gbps)
    return (dispatch_bytes + combine_bytes) * tokens * experts_met * hidden / link_gbps


def expert_decode_bound(layer_ns: float, layers: int, exchanges_per_layer: int = 2) -> tuple[float, float]:
    """(time of an output token in ns, tokens a second) when only the exchanges count."""
    positive(layer_ns=layer_ns, layers=layers)
    step = layers * exchanges_per_layer * layer_ns
    return step, 1e9 / step


def prefill_transfer_ns(prompt_tokens: int, token_bytes: int, link_gbps: float) -> float:
    """Time to hand the KV of a prompt from prefill to decode, in ns."""
    positive(link_gbps=link_gbps)
    return prompt_tokens * token_bytes / link_gbps


def prefill_transfer_hidden_gbps(tokens_per_s: float, token_bytes: int) -> float:
    """Bandwidth from which a layer-by-layer transfer of KV keeps up with prefill: rate × bytes a token."""
    not_negative(tokens_per_s=tokens_per_s)
    return tokens_per_s * token_bytes / 1e9 if tokens_per_s < inf else inf

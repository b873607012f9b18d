"""Activation memory of a layer (Korthikanti 2205.05198, Table 2) and bytes a parameter. s b h in elements, a heads."""

from __future__ import annotations

from tracekit.theory.checks import positive
from tracekit.theory.errors import OutsideDomain


def activation_bytes_per_layer(
    sequence: int, batch: int, hidden: int, heads: int, *, tensor: int = 1, sequence_parallel: bool = False,
    recompute: str = "none",
) -> float:  # fmt: skip
    """Bytes of a layer's activations, 16 bit: sbh(34 + 5as/h) and its parallel and recomputed forms.

    `recompute`: none, selective (the attention core, with sequence parallelism: 34sbh/t) or full (2sbh).
    """
    positive(sequence=sequence, batch=batch, hidden=hidden, heads=heads, tensor=tensor)
    sbh = float(sequence * batch * hidden)
    core = 5 * heads * sequence / hidden
    if recompute == "full":
        return 2 * sbh
    if recompute not in {"none", "selective"}:
        raise OutsideDomain(f"recompute is none, selective or full, not {recompute!r}")
    core = 0.0 if recompute == "selective" else core
    if sequence_parallel:
        return sbh / tensor * (34 + core)
    return sbh * (10 + 24 / tensor + core / tensor)


def interleaving_factor(stages: int, virtual: int) -> float:
    """Growth of activation memory by interleaving: 1 + (p−1)/(p v)."""
    positive(stages=stages, virtual=virtual)
    return 1 + (stages - 1) / (stages * virtual)


def optimizer_bytes_per_parameter(data: int = 1, *, distributed: bool) -> float:
    """bf16 parameters, fp32 gradients and Adam: 18 bytes, or 6 + 12/d with a distributed optimizer (Megatron docs)."""
    positive(data=data)
    return 6 + 12 / data if distributed else 18.0

"""What a transformer is, as far as volumes and FLOPs depend on it."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.theory.checks import divides
from tracekit.theory.errors import MissingInput, OutsideDomain


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Sizes of multi-head latent attention (DeepSeek-V2/V3); `q_lora` 0 where queries are not compressed."""

    kv_lora: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    q_lora: int = 0


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixture of experts: routed `count`, `top_k` of them a token, `ffn` their inner width, `shared` always-on ones.

    The first `dense_layers` layers have a plain MLP of the model's `ffn`.
    """

    count: int
    top_k: int
    ffn: int
    shared: int = 0
    dense_layers: int = 0


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A transformer decoder. None is not known; a formula that needs it says so.

    `gated`: three matrices in the MLP (SwiGLU) instead of two. `layer_norm`: norms with bias and linear layers with
    bias (GPT-3) instead of RMS norms without. `positions`: learned position embeddings. `mtp_layers`: multi-token
    prediction modules.
    """

    name: str | None = None
    hidden: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn: int | None = None
    vocab: int | None = None
    gated: bool = True
    layer_norm: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    tied: bool = False
    positions: int = 0
    experts: Experts | None = None
    mla: LatentAttention | None = None
    mtp_layers: int = 0

    def need(self, *names: str) -> tuple[int, ...]:
        """The named sizes; MissingInput lists those that are not known."""
        values = [self._value(n) for n in names]
        missing = [f"model.{n}" for n, v in zip(names, values, strict=True) if v is None]
        if missing:
            raise MissingInput(*missing)
        return tuple(v for v in values if v is not None)

    def _value(self, name: str) -> int | None:
        value = getattr(self, name)
        if value is None and name == "kv_heads":
            return self.heads
        if value is None and name == "head_dim" and self.hidden and self.heads:
            return self.hidden // self.heads if self.hidden % self.heads == 0 else None
        return value if value is None else int(value)

    @property
    def q_width(self) -> int:
        """heads × head size."""
        heads, dim = self.need("heads", "head_dim")
        return heads * dim

    @property
    def kv_width(self) -> int:
        """K/V heads × head size, of K alone. Latent attention has no such width: OutsideDomain."""
        if self.mla is not None:
            raise OutsideDomain("latent attention has no K/V heads to send")
        heads, dim = self.need("kv_heads", "head_dim")
        return heads * dim

    def is_moe(self, layer: int) -> bool:
        """True where layer number `layer` (from 0) routes to experts."""
        return self.experts is not None and layer >= self.experts.dense_layers


@dataclass(frozen=True, slots=True)
class LayerParameters:
    """Parameters of one layer by how tensor and expert parallelism treat them.

    `column_row` is divided among tensor ranks, `replicated` (norms, router, latent down-projections, biases of
    row-parallel layers) is not, `expert` is divided among expert ranks.
    """

    column_row: int
    replicated: int
    expert: int

    @property
    def total(self) -> int:
        """All parameters of the layer."""
        return self.column_row + self.replicated + self.expert


def attention_matrix(model: ModelSpec) -> tuple[int, int]:
    """(divided among tensor ranks, replicated) weights of a layer's attention projections."""
    (h,) = model.need("hidden")
    if model.mla is None:
        return 2 * h * model.q_width + 2 * h * model.kv_width, 0
    (heads,) = model.need("heads")
    m = model.mla
    qk = m.nope_dim + m.rope_dim
    query = m.q_lora * heads * qk if m.q_lora else h * heads * qk
    divided = query + m.kv_lora * heads * (m.nope_dim + m.v_dim) + heads * m.v_dim * h
    return divided, h * m.q_lora + h * (m.kv_lora + m.rope_dim)


def layer_parameters(model: ModelSpec, *, moe: bool) -> LayerParameters:
    """Parameters of one layer. MissingInput where a size is not known."""
    (h,) = model.need("hidden")
    divided, replicated = attention_matrix(model)
    norms = 2 * h * (2 if model.layer_norm else 1)
    if model.qk_norm:
        norms += 2 * model.need("head_dim")[0]
    if model.mla is not None:
        norms += model.mla.kv_lora + model.mla.q_lora
    bias_divided, bias_replicated = 0, 0
    if model.layer_norm or model.qkv_bias:
        bias_divided += model.q_width + 2 * model.kv_width
    matrices = 3 if model.gated else 2
    if moe and model.experts is not None:
        e = model.experts
        divided += matrices * h * e.ffn * e.shared
        replicated += h * e.count
        expert = matrices * h * e.ffn * e.count
    else:
        (ffn,) = model.need("ffn")
        divided, expert = divided + matrices * h * ffn, 0
        if model.layer_norm:
            bias_divided += ffn * (matrices - 1)
            bias_replicated += 2 * h
    return LayerParameters(divided + bias_divided, replicated + norms + bias_replicated, expert)


def embedding_parameters(model: ModelSpec) -> int:
    """V h of the input embedding."""
    vocab, h = model.need("vocab", "hidden")
    return vocab * h


def parameters(model: ModelSpec) -> int:
    """All parameters, multi-token prediction left out (as published model sizes do)."""
    (h,) = model.need("hidden")
    total = _layers(model, active=False) + embedding_parameters(model) * (1 if model.tied else 2)
    return total + h * (2 if model.layer_norm else 1) + model.positions * h


def active_parameters(model: ModelSpec) -> int:
    """Parameters a token meets: of the routed experts only top-k; embedding and head included."""
    (h,) = model.need("hidden")
    total = _layers(model, active=True) + embedding_parameters(model) * (1 if model.tied else 2)
    return total + h * (2 if model.layer_norm else 1) + model.positions * h


def compute_parameters(model: ModelSpec) -> int:
    """N of 6N: active parameters without the input embedding's look-up, the head kept."""
    lookup = 0 if model.tied else embedding_parameters(model)
    return active_parameters(model) - lookup - model.positions * model.need("hidden")[0]


def _layers(model: ModelSpec, *, active: bool) -> int:
    (count,) = model.need("layers")
    total = 0
    for moe in (False, True):
        layers = sum(model.is_moe(i) == moe for i in range(count))
        if layers:
            p = layer_parameters(model, moe=moe)
            expert = p.expert
            if moe and active and model.experts is not None:
                expert = divides(model.experts.count, expert, "expert weights by experts") * model.experts.top_k
            total += layers * (p.column_row + p.replicated + expert)
    return total

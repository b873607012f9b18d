"""How long kernels and transfers take on given hardware, in integer ns.

Products run at the hardware's best measured share of its dense peak, everything else at the rate of its memory; a
kernel takes at least 2 µs. Transfers take what `tracekit.theory.expectation` expects of them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tracekit.theory.errors import MissingInput
from tracekit.theory.expectation import expect
from tracekit.theory.flops import layer_forward_flops
from tracekit.theory.machine import place
from tracekit.theory.planning import stages
from tracekit.theory.transformer import attention_matrix

if TYPE_CHECKING:
    from tracekit.theory.planning import Job

LEAST_NS = 2_000
ATTENTION_BACKWARD = 2.5
"""Over the forward: scores once more, then five products where the forward has two."""


class Costs:
    """Durations of the pieces of one job's layers. Sizes are of one rank and one micro-batch."""

    def __init__(self, job: Job) -> None:
        if job.hardware is None:
            raise MissingInput("hardware")
        self.job, self.hw = job, job.hardware
        (self.h,) = job.model.need("hidden")
        self.e = job.training.bytes_of("dtype")
        self.tokens = stages.tokens_here(job)
        self.tp = job.layout.tp
        self._flops_a_ns = self.hw.peak(job.training.choice("dtype")) * 1e3 * self.hw.need("gemm_ratio")
        self._bytes_a_ns = self.hw.need("hbm_tbps") * 1e3
        self._known: dict[tuple[str, int, tuple[int, ...]], int] = {}

    def gemm(self, flops: float) -> int:
        """ns of a product."""
        return max(LEAST_NS, round(flops / self._flops_a_ns))

    def touch(self, size: float) -> int:
        """ns of a kernel that moves `size` bytes of memory."""
        return max(LEAST_NS, round(size / self._bytes_a_ns))

    def transfer(self, op: str, payload: int, ranks: tuple[int, ...]) -> int:
        """ns of one call once all ranks have come. MissingInput where the hardware's figures do not suffice."""
        key = (op, payload, ranks)
        if key not in self._known:
            found = expect(op, payload, place(ranks, int(self.hw.need("gpus_per_node"))), self.hw)
            if found.expected_ns is None:
                raise MissingInput(found.reason or f"what {op} should take")
            self._known[key] = max(LEAST_NS, round(found.expected_ns))
        return self._known[key]

    # ------------------------------------------------------------------ FLOPs of one layer's pieces

    @cached_property
    def qkv_flops(self) -> float:
        """Projections into attention."""
        divided, copied = attention_matrix(self.job.model)
        return 2.0 * self.tokens * (divided + copied - self._out_weights) / self.tp

    @cached_property
    def out_flops(self) -> float:
        """Projection out of attention."""
        return 2.0 * self.tokens * self._out_weights / self.tp

    @property
    def _out_weights(self) -> int:
        model = self.job.model
        if model.mla is None:
            return self.h * model.q_width
        return self.h * model.need("heads")[0] * model.mla.v_dim

    def mlp_flops(self, width: int) -> tuple[float, float]:
        """(into, out of) an MLP of inner width `width`, over all tensor ranks."""
        one = 2.0 * self.tokens * self.h * width / self.tp
        return one * (2 if self.job.model.gated else 1), one

    def widths(self, *, moe: bool) -> tuple[int, int]:
        """Inner widths of the MLP that every token passes, and of the experts that balanced routing gives it."""
        experts = self.job.model.experts
        if moe and experts is not None:
            return experts.ffn * experts.shared, experts.ffn * experts.top_k
        return self.job.model.need("ffn")[0], 0

    @cached_property
    def attention_flops(self) -> float:
        """Scores and their product with the values: what `layer_forward_flops` has beyond the weights."""
        job = self.job
        (s,) = job.training.need("sequence")
        moe = job.model.is_moe(job.model.need("layers")[0] - 1)
        whole = layer_forward_flops(job.model, s, moe=moe, causal=job.training.causal) * self.tokens / self.tp
        return whole - self.qkv_flops - self.out_flops - sum(self.mlp_flops(sum(self.widths(moe=moe))))

    @cached_property
    def head_flops(self) -> float:
        """Logits of a micro-batch."""
        return 2.0 * self.tokens * self.h * self.job.model.need("vocab")[0] / self.tp

    @cached_property
    def activation_bytes(self) -> int:
        """One activation of a micro-batch, whole on every tensor rank: T h e."""
        return self.tokens * self.h * self.e

"""What the pieces of a rank's program share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.simulate.scopes import SCOPES, compute

if TYPE_CHECKING:
    from tracekit.simulate.calls import Wire
    from tracekit.simulate.costs import Costs
    from tracekit.simulate.data import Gradients
    from tracekit.simulate.device import Gpu, Work
    from tracekit.theory.planning import Job


@dataclass
class Rank:
    """One rank at work: its GPU, the job, prices, wires, and where its gradients go."""

    gpu: Gpu
    job: Job
    costs: Costs
    wire: Wire
    framework: str
    gradients: Gradients = field(init=False)

    @property
    def sequence_parallel(self) -> bool:
        """Activations between layers are sharded over tensor ranks."""
        return bool(self.job.training.sequence_parallel) and self.job.layout.tp > 1

    @property
    def megatron(self) -> bool:
        """Megatron-Core with Transformer Engine; else PyTorch's own libraries."""
        return self.framework == "megatron"

    @property
    def dtype(self) -> str:
        """Element type of activations."""
        return self.job.training.choice("dtype")

    def scope(self, name: str) -> tuple[str, ...]:
        """The framework's names for a place."""
        return SCOPES[self.framework][name]

    def compute(self, what: str, ns: int) -> None:
        """One kernel."""
        compute(self.gpu, what, ns)

    def call(
        self, api: str, role: str, payload: int, strategy: str, purpose: str, *, dtype: str | None = None,
        wait: bool = True, **more: object,
    ) -> Work | None:  # fmt: skip
        """One collective, or nothing where the group has one rank."""
        if self.wire.groups.size(role, self.gpu.rank) == 1:
            return None
        return self.wire.collective(
            self.gpu, api, role, payload, (strategy, purpose), dtype or self.dtype, wait=wait, **more,  # type: ignore[arg-type]
        )  # fmt: skip

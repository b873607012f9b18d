"""Fully sharded parameters as FSDP2 handles them: gathered a layer ahead, gradients scattered behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.simulate.calls import BYTES
from tracekit.simulate.data import padded
from tracekit.simulate.device import COMPUTE
from tracekit.simulate.scopes import node, note, within
from tracekit.theory.planning import stages

if TYPE_CHECKING:
    from tracekit.simulate.device import Work
    from tracekit.simulate.rank import Rank


class FullySharded:
    """One rank's FSDP modules: its layers, and a root module with everything else.

    A gather waits only for the copy out of the one before, so it runs beside the layer computed meanwhile.
    """

    def __init__(self, r: Rank, root: int) -> None:
        self.r, self.root = r, root
        t = r.job.training
        self.dtype = t.param_dtype or r.dtype
        self.grad_dtype = t.choice("grad_dtype")
        self.reshard, self.open = t.reshard, False
        self.strategy = "zero3" if t.reshard else "zero2"
        self.gate: Work | None = None
        self.gathered: dict[str, list[Work]] = {}
        self.root_here = False

    def ready(self, parameters: int) -> None:
        """Gradients leave a module at a time."""

    def ready_experts(self, parameters: int) -> None:
        """Gradients leave a module at a time."""

    def _parts(self, layer: int | None) -> list[tuple[str, int]]:
        """(role, parameters) of a module: dense ones and experts have groups of their own."""
        if layer is None:
            return [("fsdp", self.root)]
        one = stages.layer_local(self.r.job, moe=self.r.job.model.is_moe(layer))
        return [("fsdp", one.dense), *([("efsdp", one.expert)] if one.expert else [])]

    def _gather(self, layer: int | None) -> None:
        name = _name(layer)
        after = [self.gate] if self.gate is not None else []
        works = []
        for i, (role, count) in enumerate(self._parts(layer)):
            with note(self.r.gpu, f"FSDP::all_gather ({name})" + (f" [pg={i}]" if i else "")):
                works.append(
                    self.r.call(
                        "all_gather",
                        role,
                        padded(count, self._ranks(role)) * BYTES[self.dtype],
                        self.strategy,
                        "param_gather",
                        dtype=self.dtype,
                        wait=False,
                        after=after,
                        stream="fsdp gather",
                    )
                )
        self.gathered[name] = [w for w in works if w is not None]

    def _ranks(self, role: str) -> int:
        return self.r.wire.groups.size(role, self.r.gpu.rank)

    def _use(self, layer: int | None) -> None:
        """Wait for the parameters and copy them out."""
        works = self.gathered.pop(_name(layer), [])
        for work in works:
            self.r.gpu.wait(work)
        if works:
            size = sum(count for _, count in self._parts(layer)) * BYTES[self.dtype]
            self.r.compute("copy_out", self.r.costs.touch(2 * size))
            self.gate = self.r.gpu.last[COMPUTE]

    def before_root(self) -> None:
        """The root's parameters stay from the first forward to the next reduction."""
        if self.root and not self.root_here:
            self._unshard(None)
            self.root_here = True

    def before_forward(self, layer: int) -> None:
        """Parameters of a layer for its forward."""
        self._unshard(layer)

    def _unshard(self, layer: int | None) -> None:
        with note(self.r.gpu, f"FSDP::pre_forward ({_name(layer)})"):
            self._gather(layer)
            self._use(layer)

    def before_backward(self, layer: int, following: int | None) -> None:
        """Parameters for the backward, and ahead of it those of the layer that comes next."""
        if not self.reshard:
            return
        with note(self.r.gpu, f"FSDP::pre_backward ({_name(layer)})"):
            if _name(layer) not in self.gathered:
                self._gather(layer)
            self._use(layer)
            if following is not None:
                with note(self.r.gpu, f"FSDP::backward_prefetch for {_name(following)}"):
                    self._gather(following)

    def after_backward(self, layer: int) -> None:
        """Scatter a layer's gradients; replicas of a hybrid job sum their shards."""
        if self.open or not self.r.job.training.reduce_once:
            with within(self.r.gpu, *node("RegisterPostBackwardFunctionBackward")):
                self._reduce(layer)

    def after_root(self) -> None:
        """The root's gradients, at the very end of a backward."""
        if self.root and (self.open or not self.r.job.training.reduce_once):
            with note(self.r.gpu, "FSDP::root_post_backward_callback"):
                self._reduce(None)
            self.root_here = False

    def _reduce(self, layer: int | None) -> None:
        r = self.r
        for i, (role, count) in enumerate(self._parts(layer)):
            size = padded(count, self._ranks(role)) * BYTES[self.grad_dtype]
            with note(r.gpu, f"FSDP::post_backward_reduce ({_name(layer)})" + (f" [pg={i}]" if i else "")):
                done = r.call(
                    "reduce_scatter", role, size, self.strategy, "grad_reduce", dtype=self.grad_dtype, wait=False,
                    stream="fsdp scatter",
                )  # fmt: skip
                if role == "fsdp" and self._ranks("dp_replicate") > 1:
                    after = [done] if done is not None else None
                    r.call(
                        "all_reduce", "dp_replicate", size // self._ranks(role), "hsdp", "grad_reduce",
                        dtype=self.grad_dtype, wait=False, after=after, stream="hsdp",
                    )  # fmt: skip

    def flush(self) -> None:
        """Nothing is kept back."""
        self.open = False

    def gather(self) -> None:
        """Parameters are gathered when a layer needs them."""


def _name(layer: int | None) -> str:
    return "root" if layer is None else f"layers.{layer}"

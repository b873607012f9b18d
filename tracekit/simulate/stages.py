"""What one pipeline rank holds, and how it computes one action of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.simulate import block
from tracekit.simulate.scopes import note
from tracekit.simulate.sharded import FullySharded
from tracekit.theory.checks import divides
from tracekit.theory.schedules import Kind, parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.simulate.rank import Rank
    from tracekit.theory.planning import Job
    from tracekit.theory.schedules import Action, Schedule


class Stages:
    """Stages of pipeline rank `place`: layers, and whether the embedding or the head is here."""

    def __init__(self, job: Job, schedule: Schedule, place: int) -> None:
        self.job, self.parts = job, schedule.stages
        size = divides(schedule.stages, job.model.need("layers")[0], "layers by stages")
        mine = [s for s, home in enumerate(schedule.stage_rank) if home == place]
        self.part = {s: schedule.model_stage[s] for s in mine}
        self.layers = {s: range(part * size, (part + 1) * size) for s, part in self.part.items()}
        h, vocab = job.model.need("hidden", "vocab")
        self.table = divides(job.layout.tp, vocab, "vocabulary by tensor ranks (give the padded size)") * h
        self.first = any(p == 0 for p in self.part.values())
        self.last = any(p == self.parts - 1 for p in self.part.values())
        # The last weight gradient of each stage is when its gradients can be reduced.
        finals: dict[int, Action] = {}
        for step in schedule.orders[place]:
            finals.update({a.stage: a for a in parts(step) if a.kind in (Kind.BACKWARD, Kind.BACKWARD_WEIGHT)})
        self.finals = set(finals.values())

    @property
    def shared_table(self) -> bool:
        """Embedding and head are one table on this rank."""
        return self.job.model.tied and self.first and self.last

    def embedding_parameters(self) -> int:
        """Table and learned positions."""
        return self.table + self.job.model.positions * self.job.model.need("hidden")[0]

    def head_parameters(self) -> int:
        """Last norm, and the head's table where it is not the embedding's."""
        norm = self.job.model.need("hidden")[0] * (2 if self.job.model.layer_norm else 1)
        return norm + (0 if self.shared_table else self.table)

    def outside(self) -> int:
        """Parameters beside the layers."""
        return self.first * self.embedding_parameters() + self.last * self.head_parameters()

    def run(self, r: Rank, action: Action) -> Iterator[None]:
        """One action; yields where an overlapped partner may take its turn."""
        if action.kind is Kind.FORWARD:
            yield from self._forward(r, action)
        else:
            yield from self._backward(r, action)

    def _forward(self, r: Rank, action: Action) -> Iterator[None]:
        part, data = self.part[action.stage], r.gradients
        plain = r.job.training.data_parallel == "ddp" and r.job.layout.dp > 1
        title = "forward_step" if r.megatron else "DistributedDataParallel.forward" if plain else "forward"
        with note(r.gpu, title):
            if part in (0, self.parts - 1):
                size = r.costs.tokens * 8
                r.gpu.copy(
                    "Memcpy HtoD (Pinned -> Device)",
                    2_900,
                    f'"bytes": {size}, "memory bandwidth (GB/s)": {size / 2_900:.4f}',
                )
            if isinstance(data, FullySharded) and self.outside():
                data.before_root()
            if part == 0:
                block.embed(r)
            for layer in self.layers[action.stage]:
                if isinstance(data, FullySharded):
                    data.before_forward(layer)
                yield from block.forward(r, layer)
            if part == self.parts - 1:
                block.head(r)
                self._loss(r)

    def _loss(self, r: Rank) -> None:
        """Megatron averages the loss of every micro-batch over data ranks."""
        if r.megatron:
            r.call("all_reduce", "dp+cp", 4, "housekeeping", "metric", dtype="fp32")

    def _backward(self, r: Rank, action: Action) -> Iterator[None]:
        part, data = self.part[action.stage], r.gradients
        which = {Kind.BACKWARD: "B", Kind.BACKWARD_INPUT: "I", Kind.BACKWARD_WEIGHT: "W"}[action.kind]
        data.open = action in self.finals
        if part == self.parts - 1:
            block.head_backward(r, which)
            if which != "I":
                data.ready(self.head_parameters())
        yield from self._layers_backward(r, action, which)
        if part == 0:
            block.embed_backward(r, which)
            if which != "I":
                data.ready(self.embedding_parameters())
        if isinstance(data, FullySharded) and which != "I" and (part in (0, self.parts - 1)):
            self._root_backward(data, action)
        if action in self.finals:
            r.gradients.flush()

    def _root_backward(self, data: FullySharded, action: Action) -> None:
        """The root's module is done when the last of its pieces is: the earliest stage here that has one."""
        ends = [s for s, part in self.part.items() if part in (0, self.parts - 1)]
        if action.stage == min(ends, key=lambda s: self.part[s]):
            data.after_root()

    def _layers_backward(self, r: Rank, action: Action, which: str) -> Iterator[None]:
        layers, data = list(reversed(self.layers[action.stage])), r.gradients
        for i, layer in enumerate(layers):
            if isinstance(data, FullySharded) and which != "W":
                data.before_backward(layer, layers[i + 1] if i + 1 < len(layers) else None)
            yield from block.backward(r, layer, which)
            if isinstance(data, FullySharded) and which != "I":
                data.after_backward(layer)

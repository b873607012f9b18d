"""The pipeline of one rank: its actions in the order of the schedule, and what travels between stages."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.simulate.calls import Message
from tracekit.simulate.scopes import note
from tracekit.theory import volumes
from tracekit.theory.schedules import Kind, parts

if TYPE_CHECKING:
    from tracekit.simulate.device import Work
    from tracekit.simulate.rank import Rank
    from tracekit.simulate.stages import Stages
    from tracekit.theory.schedules import Schedule, Step

LABEL = ("pp", "stage_transfer")


@dataclass(frozen=True, slots=True)
class Transfer:
    """One result that travels between pipeline ranks."""

    key: int
    source: int
    target: int
    name: str
    """As torch's annotation ends: `F3`, `B0`."""
    stages: tuple[int, int]


@dataclass(slots=True)
class Ran:
    """One action as it ran: from when its inputs are there and the rank is free until its results are.

    The first action of a step has no `inputs`; it begins with its `first` device work.
    """

    inputs: list[Work] | None
    first: int
    results: list[Work] = field(default_factory=list)


class Pipeline:
    """Transfers of a schedule by rank: `receives[rank][i]` and `sends[rank][i]` of entry i.

    `posts[rank][i]`: what a rank has to ask for before entry i at the latest. Between two ranks the n-th receive takes
    the n-th send, whatever it carries (NCCL and gloo tell messages of a pair apart by nothing else); where work uses
    results in another order than they are made, a receive is posted early, as torch's runtime does.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.receives: list[list[list[Transfer]]] = [[[] for _ in order] for order in schedule.orders]
        self.sends: list[list[list[Transfer]]] = [[[] for _ in order] for order in schedule.orders]
        makers, m = schedule.wiring.makers(), schedule.micro_batches
        for target, needs in enumerate(schedule.wiring.needs):
            for entry, keys in enumerate(needs):
                for key in keys:
                    source, made = makers[key]
                    if source == target:
                        continue
                    result, k = divmod(key, m)
                    stage, gradient = divmod(result, 2)
                    other = schedule.neighbours[stage][0 if gradient else 1]
                    one = Transfer(key, source, target, f"{'B' if gradient else 'F'}{k}", (stage, other))
                    self.receives[target][entry].append(one)
                    self.sends[source][made].append(one)
        self.posts = [self._in_order_of_sends(rank) for rank in range(schedule.ranks)]

    def _in_order_of_sends(self, rank: int) -> list[list[Transfer]]:
        sent = [deque(t for made in row for t in made if t.target == rank) for row in self.sends]
        posted: set[int] = set()
        out: list[list[Transfer]] = []
        for needed in self.receives[rank]:
            out.append([])
            for transfer in needed:
                while transfer.key not in posted:
                    out[-1].append(sent[transfer.source].popleft())
                    posted.add(out[-1][-1].key)
        return out


class Runner:
    """Issues one rank's actions. `overlapped`: receives are posted one action ahead and nobody waits for a send.

    Otherwise, as Megatron's plain 1F1B does, an exchange with a neighbour is one batch that both wait for.
    """

    def __init__(self, r: Rank, pipeline: Pipeline, stages: Stages, place: int, *, overlapped: bool) -> None:
        self.r, self.pipeline, self.stages, self.place = r, pipeline, stages, place
        self.overlapped = overlapped
        self.order = pipeline.schedule.orders[place]
        b, s = r.job.training.need("micro_batch", "sequence")
        lay, (h,) = r.job.layout, r.job.model.need("hidden")
        self.size = volumes.stage_transfer_bytes(
            b, s, h, r.costs.e, context=lay.cp, tensor=lay.tp, sequence_parallel=r.sequence_parallel
        )
        multi = len(set(pipeline.schedule.stage_rank)) < len(pipeline.schedule.stage_rank) or self._split()
        self.annotated = not r.megatron and lay.pp > 1 and multi
        self.ran: list[Ran] = []
        self.posted: dict[int, Work] = {}
        """Receive of each result that the rank has asked for in this step."""
        self.long: dict[int, float] = {}
        """Micro-batch → factor on its compute."""

    def _split(self) -> bool:
        return any(a.kind in (Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT) for s in self.order for a in parts(s))

    def step(self) -> list[Ran]:
        """All actions of a step; how each of them ran."""
        self.ran, self.posted = [], {}
        if self.overlapped:
            self._overlapped()
        else:
            self._batched()
        return self.ran

    def _overlapped(self) -> None:
        posts, receives = self.pipeline.posts[self.place], self.pipeline.receives[self.place]
        self._post(posts[0])
        for i, step in enumerate(self.order):
            if i + 1 < len(posts):
                self._post(posts[i + 1])
            self._run(step, [self.posted[t.key] for t in receives[i]])
            for transfer in self.pipeline.sends[self.place][i]:
                self._message(transfer, send=True)

    def _post(self, transfers: list[Transfer]) -> None:
        self.posted |= {t.key: self._message(t, send=False) for t in transfers}

    def _batched(self) -> None:
        self._exchange([], self.pipeline.receives[self.place][0])
        for i, step in enumerate(self.order):
            self._run(step, [])
            following = self.pipeline.receives[self.place][i + 1] if i + 1 < len(self.order) else []
            self._exchange(self.pipeline.sends[self.place][i], following)

    def _exchange(self, sends: list[Transfer], receives: list[Transfer]) -> None:
        """Both in one batch if they are with the same neighbour."""
        out, back = [self._end(t, send=True) for t in sends], [self._end(t, send=False) for t in receives]
        together = {m.peer for m in out} == {m.peer for m in back}
        for messages in [[*out, *back]] if together else [out, back]:
            if messages:
                self.r.wire.batch(self.r.gpu, "pp", messages, LABEL, self.r.dtype)

    def _end(self, t: Transfer, *, send: bool) -> Message:
        ranks = self.r.wire.groups.of("pp", self.r.gpu.rank).ranks
        key = ("pp", ranks[t.source], ranks[t.target], t.key)
        return Message(send, ranks[t.target if send else t.source], self.size, key)

    def _message(self, t: Transfer, *, send: bool) -> Work:
        """One message on a stream for its boundary and direction."""
        name = f"PP:{t.stages[0]}SEND_{t.name}" if send else f"PP:{t.stages[1]}RECV_{t.name}"
        stream = ("pp", send, t.stages)
        with note(self.r.gpu, *([name] if self.annotated else [])):
            return self.r.wire.message(self.r.gpu, "pp", self._end(t, send=send), LABEL, self.r.dtype, stream)

    def _run(self, step: Step, received: list[Work]) -> None:
        """One entry; the parts of an overlapped pair take turns at each call that could wait."""
        gpu = self.r.gpu
        ran = Ran([*gpu.tail(), *received] if self.ran or received else None, len(gpu.device))
        gpu.main.waits += received
        waits = gpu.main.waits
        lanes = {a: gpu.main if a.kind is Kind.FORWARD else gpu.autograd for a in parts(step)}
        gpu.main.waits, gpu.autograd.waits = [], []
        for lane in lanes.values():
            lane.waits = [*waits]
        title = f"PP:{step}"
        with note(gpu, *([title] if self.annotated else [])):
            turns = [
                (lane, self.stages.run(self.r, action), self.long.get(action.micro_batch, 1.0))
                for action, lane in lanes.items()
            ]
            while turns:
                for turn in list(turns):
                    gpu.lane, gpu.load = turn[0], turn[2]
                    if next(turn[1], turn) is turn:
                        turns.remove(turn)
            gpu.lane, gpu.load = gpu.main, 1.0
        if gpu.autograd.waits:
            gpu.main.waits, gpu.autograd.waits = [*gpu.main.waits, *gpu.autograd.waits], []
        ran.results = gpu.tail()
        self.ran.append(ran)

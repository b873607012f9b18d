"""What one rank tells of its pipeline: small rows that a worker hands to the step over all ranks."""

from __future__ import annotations

from msgspec import Struct, field

Mark = tuple[str, int | None, int | None]
"""(kind F, B, I or W; stage; micro-batch) of one action, None = not told."""


class Chunk(Struct):
    """Work of one entry of a rank's order: its actions (two that run as one), [ts, ts + dur) ns on the device.

    compute: ns with compute active in it. before, after: positions of the messages received or asked for just before,
    and sent just after it (only without annotations). source: annotation | operators | kernels. launch, until: first
    and last launch on the host, or the annotation's ends, ns. repeats: (ts, dur, compute) of the shorter runs of
    kernels it consists of, where it is so long that it may be several entries; alike: they are one run over and over,
    perhaps the layers of one entry.
    """

    actions: tuple[Mark, ...]
    step: int
    ts: int
    dur: int
    compute: int
    source: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    launch: int = 0
    until: int = 0
    repeats: tuple[tuple[int, int, int], ...] = ()
    alike: bool = False

    @property
    def kinds(self) -> str:
        """Kinds of its actions in one word."""
        return self.actions[0][0] if len(self.actions) == 1 else "".join(kind for kind, _, _ in self.actions)


class Message(Struct):
    """A point-to-point call of the pipeline. `call` = its row in `collectives`; ns as in there, None = unknown.

    mark: the action whose result it carries, where an annotation tells: kind F = activations, B = gradients; the stage
    is that of the rank itself. blocked: [start, end) ns in which the call held its rank up.
    """

    call: int
    send: bool
    peer: int | None
    step: int | None
    call_ts: int | None
    ts: int | None
    dur: int | None
    mark: Mark | None = None
    blocked: tuple[tuple[int, int], ...] = ()


class RankPipeline(Struct):
    """Chunks and messages of one rank, in its order; times from the recording's origin.

    groups: members of the groups its messages go through, where known. comm: [start, end) ns between chunks in which
    other communication than that of pipelines was active. pace: of `pace_of`, without the optimizer's kernels.
    """

    chunks: list[Chunk] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    groups: tuple[tuple[int, ...], ...] = ()
    comm: list[tuple[int, int]] = field(default_factory=list)
    pace: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)

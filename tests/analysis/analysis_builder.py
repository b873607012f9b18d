"""Small labelled ranks, written as plain tuples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model import (
    NO_TIME,
    Activities,
    Call,
    HealthEntry,
    Kind,
    Label,
    LabelledRank,
    Marker,
    TraceMeta,
)


@dataclass(frozen=True)
class Act:
    """One device activity; `call` is the position of its call, -1 = none; `launch` None = not in the file."""

    start: int
    end: int
    kind: Kind = Kind.COMPUTE
    call: int = -1
    launch: int | None = None
    device: int = 0
    stream: int = 7
    name: str = "kernel"


def activities(acts: list[Act], *, sort: bool = True) -> Activities:
    """Columns of the activities, in order of start as the label stage yields them."""
    if sort:
        acts = sorted(acts, key=lambda a: (a.start, a.device, a.stream, a.end))
    names = sorted({a.name for a in acts})

    def column(values: list[int], dtype: type[np.generic]) -> np.ndarray:
        return np.array(values, dtype)

    return Activities(
        names=names,
        families=["nccl"],
        ts=column([a.start for a in acts], np.int64),
        dur=column([a.end - a.start for a in acts], np.int64),
        kind=column([a.kind for a in acts], np.int8),
        device=column([a.device for a in acts], np.int32),
        stream=column([a.stream for a in acts], np.int64),
        name=column([names.index(a.name) for a in acts], np.int32),
        family=column([0 if a.kind == Kind.COMM else -1 for a in acts], np.int32),
        corr=column([-1] * len(acts), np.int64),
        call=column([a.call for a in acts], np.int32),
        launch_ts=column([NO_TIME if a.launch is None else a.launch for a in acts], np.int64),
    )


def call(strategy: str = "unknown", purpose: str | None = None, phase: str | None = None, **fields: object) -> Call:
    """A call with a label; other fields by name."""
    tier = fields.pop("tier", None)
    label = Label(strategy=strategy, purpose=purpose, phase=phase, tier=tier)  # type: ignore[arg-type]
    return Call(**({"op": "all_reduce", "op_raw": "allreduce", "label": label} | fields))  # type: ignore[arg-type]


def marker(step: int, start: int, end: int) -> Marker:
    return Marker(step, f"ProfilerStep#{step}", start, end, "torch.profiler")


def rank(
    acts: list[Act],
    calls: list[Call] | None = None,
    markers: list[Marker] | None = None,
    *,
    sort: bool = True,
    health: list[HealthEntry] | None = None,
    meta: TraceMeta | None = None,
    number: int | None = 3,
) -> LabelledRank:
    """A labelled rank with these activities; its window spans them."""
    columns = activities(acts, sort=sort)
    window = (min((a.start for a in acts), default=0), max((a.end for a in acts), default=0))
    return LabelledRank(
        meta=meta or TraceMeta("rank3.json"),
        rank=number,
        activities=columns,
        calls=calls or [],
        markers=markers or [],
        event_counts={"X:kernel": len(acts)},
        health=health or [],
        window_ns=window,
    )

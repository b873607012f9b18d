"""The table `pipeline`: what each stage did when, and its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tracekit.analysis.pipeline.messages import carried
from tracekit.analysis.tables import build
from tracekit.model import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from tracekit.analysis.pipeline.lines import Line
    from tracekit.analysis.pipeline.parts import Chunk, Mark, Message
    from tracekit.analysis.pipeline.plans import Plan

Column = list[Any]


class StepWork(Protocol):
    """One step of one pipeline: chunks and messages of each rank of the line, ns to the common clock (None = none)."""

    line: Line
    step: int
    chunks: list[list[Chunk]]
    messages: list[list[Message]]
    offsets: list[int | None]


def gantt(steps: Iterable[tuple[StepWork, str, Plan | None]], shifts: Mapping[int, int]) -> pa.Table:
    """The table of steps, each with the name of its pipeline and the plan of the order that ran, where it is known.

    shifts: rank → ns from its own times to the run's axis, of the ranks that were recorded.
    """
    out: dict[str, Column] = {c.name: [] for c in TABLES["pipeline"].columns}
    for s, name, plan in steps:
        marks = carried(s.line.ranks, s.messages, plan)
        for place, rank in enumerate(s.line.ranks):
            if rank in shifts:
                known = {"pipeline": name, "rank": rank, "step": s.step}
                work = _work(s.chunks[place], plan, place, shifts[rank])
                _add(out, known, work, s.offsets[place])
                _add(out, known, _messages(s.messages[place], marks, plan, place, shifts[rank]), s.offsets[place])
    return build("pipeline", out)


def _add(out: dict[str, Column], known: Mapping[str, Any], columns: Mapping[str, Column], offset: int | None) -> None:
    """Add rows; `known` has one value for all, what neither names is null."""
    starts = columns["ts_ns"]
    aligned = [None if offset is None or ts is None else ts + offset for ts in starts]
    for name, column in out.items():
        if name in columns:
            column += columns[name]
        elif name == "aligned_ns":
            column += aligned
        else:
            column += [known.get(name)] * len(starts)


def _work(chunks: Sequence[Chunk], plan: Plan | None, place: int, shift: int) -> dict[str, Column]:
    """One row an action; of several in a chunk each has its times."""
    marks = [c.actions for c in chunks] if plan is None else plan.marks[place][: len(chunks)]
    actions = [mark for entry in marks for mark in entry]
    if len(actions) > len(chunks):
        chunks = [c for c, entry in zip(chunks, marks, strict=True) for _ in entry]
    pairs = [len(entry) > 1 for entry in marks for _ in entry]
    return {
        **_named(actions, plan, place),
        "op": [kind for kind, _, _ in actions], "ts_ns": [c.ts + shift for c in chunks],
        "dur_ns": [c.dur for c in chunks], "compute_ns": [c.compute for c in chunks], "paired": pairs,
        "source": [c.source for c in chunks],
    }  # fmt: skip


def _named(marks: Sequence[Mark], plan: Plan | None, place: int) -> dict[str, Column]:
    """Stage, micro-batch, and which of the rank's stages it is."""
    chunk_of = plan.chunk_of[place] if plan is not None else {}
    stages = [stage for _, stage, _ in marks]
    return {
        "stage": stages, "chunk": [chunk_of.get(stage) for stage in stages], "micro_batch": [mb for _, _, mb in marks],
    }  # fmt: skip


def _messages(
    messages: Sequence[Message], marks: Mapping[tuple[int, int], Mark], plan: Plan | None, place: int, shift: int
) -> dict[str, Column]:
    found = [marks.get((place, i)) for i in range(len(messages))]
    sources = ["annotation" if m.mark is not None else "order" if mark is not None else "calls"
               for m, mark in zip(messages, found, strict=True)]  # fmt: skip
    return {
        **_named([mark or _UNTOLD for mark in found], plan, place),
        "op": ["send" if m.send else "recv" for m in messages],
        "carries": [None if mark is None else "activation" if mark[0] == "F" else "gradient" for mark in found],
        "peer": [m.peer for m in messages], "ts_ns": [None if m.ts is None else m.ts + shift for m in messages],
        "dur_ns": [m.dur for m in messages], "paired": [False] * len(messages), "call_id": [m.call for m in messages],
        "source": sources,
    }  # fmt: skip


_UNTOLD: Mark = ("", None, None)

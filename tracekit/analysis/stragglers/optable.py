"""Operations of a job on a grid: node (stage, operation, number) × step × data-parallel rank.

All steps and data-parallel ranks of a job run the same operations, so one dependency graph serves all of them
and a replay is a few numpy operations a node. What does not fit the grid is left out and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.stragglers.optypes import COMPUTE, KNOWN
from tracekit.model import NO_TIME, OpRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SPARSE = 8
"""A grid with more cells a row than this is refused: the workers have too little in common."""


class NotReplayableError(ValueError):
    """The what-if cannot be asked of this table; `code` is the stable reason, the text the details."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Node(Struct, frozen=True):
    """One operation of a stage: its type, its number among its type, chunk, global chunk and micro-batch (-1)."""

    stage: int
    op: str
    seq: int
    chunk: int = -1
    global_chunk: int = -1
    micro_batch: int = -1

    def __str__(self) -> str:
        return f"{self.op} {self.seq} of stage {self.stage}"


class OpGrid(Struct):
    """n nodes; start, dur: int64 ns [n, steps, dp], start counted from its step's first start.

    steps: int64 step numbers; ranks: int32 global rank [stages, dp] (-1 unknown); dropped: (reason, rows, example).
    """

    nodes: list[Node]
    steps: NDArray[np.int64]
    ranks: NDArray[np.int32]
    start: NDArray[np.int64]
    dur: NDArray[np.int64]
    dropped: list[tuple[str, int, str]] = field(default_factory=list)

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return int(self.ranks.shape[0])

    @property
    def dp(self) -> int:
        """Data-parallel ranks."""
        return int(self.ranks.shape[1])

    @property
    def end(self) -> NDArray[np.int64]:
        """Ends, ns [n, steps, dp]."""
        return self.start + self.dur

    def step_ns(self) -> NDArray[np.int64]:
        """Measured length of each step: latest end - earliest start over all workers, ns [steps]."""
        length: NDArray[np.int64] = self.end.max(axis=(0, 2)) - self.start.min(axis=(0, 2))
        return length


def grid_of(rows: OpRows) -> OpGrid:
    """Place the operations of all workers on one grid.

    Kept are the steps with the set of operations that most steps have, complete on every worker, computed in the
    same order. Raises NotReplayableError: `empty`, `incomplete-grid`, `irregular`.
    """
    dropped: list[tuple[str, int, str]] = []
    keep = _known(rows, dropped)
    if not keep.any():
        raise NotReplayableError("empty", "no operation of a known type in the table")
    stage, dp = rows.stage[keep], rows.dp_rank[keep]
    stages, width = int(stage.max()) + 1, int(dp.max()) + 1
    pairs = len(np.unique(stage.astype(np.int64) * width + dp))
    if pairs != stages * width:
        raise NotReplayableError(
            "incomplete-grid",
            f"{pairs} of {stages} × {width} workers (stage × dp_rank) are in the table: all are needed",
        )
    # One number for (stage, operation, number): each part is below 2^31 divided by nothing that could overflow.
    kind = (stage.astype(np.int64) * len(rows.ops) + rows.op[keep]) * (1 + int(rows.seq[keep].max())) + rows.seq[keep]
    kinds, node = np.unique(kind, return_inverse=True)
    steps, step = np.unique(rows.step[keep], return_inverse=True)
    shape = (len(kinds), len(steps), width)
    if int(np.prod(shape, dtype=np.float64)) > _SPARSE * len(stage) + 1000:
        raise NotReplayableError("irregular", "the workers' operations differ too much from step to step")
    at = np.ravel_multi_index((node, step, dp), shape)
    good_nodes, good_steps = _common(np.bincount(at, minlength=int(np.prod(shape))).reshape(shape), steps, dropped)
    where = np.full(int(np.prod(shape)), -1, np.int64)
    where[at] = np.flatnonzero(keep)
    row = where.reshape(shape)[np.ix_(good_nodes, good_steps, np.arange(width))]
    grid = _filled(rows, row, steps[good_steps], _ranks(rows, keep, (stages, width)))
    grid.dropped = dropped
    return _same_order(grid)


def _known(rows: OpRows, dropped: list[tuple[str, int, str]]) -> NDArray[np.bool_]:
    """Rows of operation types whose dependencies are known."""
    known = np.array([name in KNOWN for name in rows.ops], np.bool_)
    keep: NDArray[np.bool_] = known[rows.op] if len(rows) else np.zeros(0, np.bool_)
    for code in np.unique(rows.op[~keep]).tolist():
        count = int((rows.op == code).sum())
        dropped.append(("operations of a type with unknown dependencies left out of the replay", count, rows.ops[code]))
    return keep


def _common(
    counts: NDArray[np.int64], steps: NDArray[np.int64], dropped: list[tuple[str, int, str]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(nodes, steps) of the most common set of operations; counts [n, steps, dp]."""
    whole = (counts <= 1).all(axis=(0, 2)) & (counts == counts[:, :, :1]).all(axis=(0, 2))
    sets: dict[bytes, list[int]] = {}
    for i in np.flatnonzero(whole).tolist():
        sets.setdefault(counts[:, i, 0].tobytes(), []).append(i)
    if not sets:
        raise NotReplayableError("irregular", "in no step do all data-parallel ranks run the same operations once each")
    best = max(sets.values(), key=lambda found: (len(found), -found[0]))
    lost = sorted(set(range(len(steps))) - set(best))
    if lost:
        count = int(counts[:, lost].sum())
        dropped.append(("steps whose operations differ from those of most steps", count, f"step {steps[lost[0]]}"))
    return np.flatnonzero(counts[:, best[0], 0] == 1), np.array(best, np.int64)


def _ranks(rows: OpRows, keep: NDArray[np.bool_], shape: tuple[int, int]) -> NDArray[np.int32]:
    ranks = np.full(shape, -1, np.int32)
    ranks[rows.stage[keep], rows.dp_rank[keep]] = rows.rank[keep]
    return ranks


def _filled(rows: OpRows, row: NDArray[np.int64], steps: NDArray[np.int64], ranks: NDArray[np.int32]) -> OpGrid:
    first = row[:, 0, 0].tolist()
    nodes = [
        Node(
            int(rows.stage[i]), rows.ops[rows.op[i]], int(rows.seq[i]),
            int(rows.chunk[i]), int(rows.global_chunk[i]), int(rows.micro_batch[i]),
        )
        for i in first
    ]  # fmt: skip
    start = rows.start[row]
    return OpGrid(nodes, steps, ranks, start - start.min(axis=(0, 2), keepdims=True), rows.dur[row])


def _same_order(grid: OpGrid) -> OpGrid:
    """Drop steps in which a worker computes in another order than most (a step with another schedule)."""
    good = np.ones(len(grid.steps), np.bool_)
    for stage in range(grid.stages):
        mine = [i for i, n in enumerate(grid.nodes) if n.stage == stage and n.op in COMPUTE]
        if mine:
            order = np.argsort(grid.start[mine], axis=0, kind="stable").astype(np.int32)
            lanes = order.transpose(1, 2, 0).reshape(-1, len(mine))
            seen, inverse, count = np.unique(lanes, axis=0, return_inverse=True, return_counts=True)
            if len(seen) > 1:
                good &= (inverse.reshape(len(grid.steps), grid.dp) == int(count.argmax())).all(axis=1)
    if good.all():
        return grid
    if 2 * int(good.sum()) < len(good):
        raise NotReplayableError("irregular", "workers compute in different orders in more than half of the steps")
    lost = int(len(grid.nodes) * grid.dp * (~good).sum())
    example = f"step {grid.steps[~good][0]}"
    dropped = [*grid.dropped, ("steps whose workers compute in another order than most", lost, example)]
    return OpGrid(grid.nodes, grid.steps[good], grid.ranks, grid.start[:, good], grid.dur[:, good], dropped)


class Spans(Struct):
    """Operations found in traces, n in any order. op: names, int64 index into `ops`; other numbers int64 (n).

    start, dur: ns, starts of one step on one clock. chunk (of its stage), global_chunk (of the model), micro_batch:
    `NO_TIME` = not known.
    """

    ops: list[str]
    op: NDArray[np.int64]
    rank: NDArray[np.int64]
    stage: NDArray[np.int64]
    dp_rank: NDArray[np.int64]
    step: NDArray[np.int64]
    start: NDArray[np.int64]
    dur: NDArray[np.int64]
    chunk: NDArray[np.int64]
    global_chunk: NDArray[np.int64]
    micro_batch: NDArray[np.int64]


def rows_of(spans: Spans, source: str) -> OpRows:
    """Operations found in traces → `OpRows`, numbered by their starts within (worker, step, type).

    A chunk whose number in the whole model is not known is numbered as where chunks go round the stages.
    """
    names = sorted({spans.ops[i] for i in np.unique(spans.op).tolist()})
    number = np.array([names.index(name) if name in names else -1 for name in spans.ops], np.int64)
    op = number[spans.op]
    by = np.lexsort((spans.start, op, spans.step, spans.stage, spans.dp_rank))
    new = np.ones(len(by), np.bool_)
    new[1:] = False
    for values in (spans.dp_rank, spans.stage, spans.step, op):
        new[1:] |= values[by[1:]] != values[by[:-1]]
    first = np.flatnonzero(new)
    seq = np.arange(len(by)) - np.repeat(first, np.diff(np.append(first, len(by))))
    chunk, told, stage = spans.chunk[by], spans.global_chunk[by], spans.stage[by]
    stages = 1 + int(stage.max(initial=-1))
    round_ = np.where(chunk == NO_TIME, -1, chunk * stages + stage)

    def column(values: NDArray[np.int64]) -> NDArray[np.int32]:
        return np.where(values == NO_TIME, -1, values).astype(np.int32)

    return OpRows(
        source, names, column(spans.dp_rank[by]), column(stage), column(spans.rank[by]), spans.step[by],
        column(op[by]), spans.start[by], spans.dur[by], column(seq), column(chunk), column(spans.micro_batch[by]),
        column(np.where(told == NO_TIME, round_, told)),
    )  # fmt: skip

"""Operations of a traced pipeline job → spans of an operation table: what the what-if replay asks for.

A worker is one pipeline place of one data-parallel replica; of its tensor- and context-parallel ranks, which wait for
one another, the one that computes longest stands for it. Computes are whole forwards and backwards, with the
communication inside them; messages are as recorded. Of the data-parallel communication counts what is left when the
last backward is done (one `grads-reduce-scatter`, whatever the framework calls), and what comes before the first
forward (one `params-all-gather`); what compute hides delays nobody. Optimizer steps are no part of a pipeline.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.arrays import codes_of, flags_of, numbers_of
from tracekit.analysis.stragglers.optable import NotReplayableError, Spans
from tracekit.analysis.stragglers.optypes import BACKWARD, FORWARD, GRADS_SCATTER, PARAMS_GATHER
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

Row = dict[str, Any]
Place = tuple[int, int]
"""(data-parallel rank, pipeline place)."""
COMPUTES = {"F": FORWARD, "B": BACKWARD}
AS_LONG = 0.98
"""Compute that is this near the longest is as long."""
_NUMBERS = ("rank", "step", "stage", "chunk", "micro_batch", "aligned_ns", "dur_ns")
_DIRECTION = {"activation": "forward", "gradient": "backward"}


def spans_of(
    pipeline: pa.Table, bubble: Iterable[Row], collectives: Sequence[Row], replicas: Mapping[str, int]
) -> Spans:
    """Spans for `rows_of`, times on the ranks' common clock.

    pipeline: that table; bubble: rows of it; collectives: data-parallel calls (rank, step, purpose, ts_ns, dur_ns);
    replicas: pipeline → data-parallel rank. Raises NotReplayableError.
    """
    places = _workers(bubble, replicas)
    found = _spans(pipeline, places)
    return _with(found, _data_parallel(found, collectives), places)


def _workers(bubble: Iterable[Row], replicas: Mapping[str, int]) -> dict[int, Place]:
    """The ranks that stand for a worker: of those at one place the lowest that computes as long as any."""
    compute: dict[Place, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in bubble:
        if row["pipeline"] in replicas:
            if row["window_ns"] is None:
                why = row["reason"] or "no-time"
                raise NotReplayableError(why, f"the pipeline of ranks {row['pipeline']} has no bubble: {why}")
            compute[replicas[row["pipeline"]], row["position"]][row["rank"]] += row["compute_ns"]
    return {
        min(rank for rank, ns in found.items() if ns >= AS_LONG * max(found.values())): place
        for place, found in compute.items()
    }


def _spans(pipeline: pa.Table, places: Mapping[int, Place]) -> Spans:
    """Rows of the table on ranks that stand for a worker."""
    ranks = numbers_of(pipeline.column("rank"))
    here = np.flatnonzero(np.isin(ranks, [*places]))
    if not len(here):
        raise NotReplayableError("no-compute", "no pipeline was found in the traces")
    number = {name: numbers_of(pipeline.column(name))[here] for name in _NUMBERS}
    op, ops = _words(pipeline, "op", here)
    carries, carried = _words(pipeline, "carries", here)
    _check(number, [ops[i] for i in op.tolist()], carries < 0, flags_of(pipeline.column("paired"))[here])
    names = [COMPUTES.get(o) or f"{_DIRECTION[c]}-{o}" for o in ops for c in carried or _DIRECTION]
    at = np.array([places[rank] for rank in number["rank"].tolist()], np.int64)
    return Spans(
        names, op * len(carried or _DIRECTION) + np.maximum(carries, 0), number["rank"], at[:, 1], at[:, 0],
        number["step"], number["aligned_ns"], number["dur_ns"], number["chunk"], number["stage"],
        number["micro_batch"],
    )  # fmt: skip


def _words(table: pa.Table, name: str, rows: NDArray[np.intp]) -> tuple[NDArray[np.int64], list[str]]:
    codes, words = codes_of(table.column(name))
    return codes[rows].astype(np.int64), words


def _check(
    number: Mapping[str, NDArray[np.int64]], op: Sequence[str], nothing: NDArray[np.bool_], paired: NDArray[np.bool_]
) -> None:
    """Raise NotReplayableError for the first row of which no operation can be made. nothing: it carries nothing."""
    split, compute = (np.array([o in kinds for o in op], np.bool_) for kinds in ("IW", COMPUTES))
    timeless = (number["aligned_ns"] == NO_TIME) | (number["dur_ns"] == NO_TIME)
    wrong = split | paired | timeless | (nothing & ~compute)
    if not wrong.any():
        return
    i = int(wrong.argmax())
    rank, step, mb = (int(number[name][i]) for name in ("rank", "step", "micro_batch"))
    where = f"{op[i]} of micro-batch {None if mb == NO_TIME else mb} on rank {rank} in step {step}"
    if split[i]:
        raise NotReplayableError("split-backward", "backwards are split into input and weight gradients")
    if paired[i]:
        raise NotReplayableError("overlapped-pairs", f"{where} runs as one with another")
    if timeless[i]:
        raise NotReplayableError("no-time", f"{where} has no time on a common clock")
    raise NotReplayableError("unpaired", f"nothing tells what the {op[i]} of rank {rank} carries")


def _data_parallel(spans: Spans, collectives: Sequence[Row]) -> list[tuple[int, int, str, int, int]]:
    """One (rank, step, operation, start, end) for the gathers before the first forward, and one for the reductions
    after the last backward.
    """
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    rows = np.flatnonzero(np.array([o in COMPUTES.values() for o in spans.ops], np.bool_)[spans.op])
    columns = (spans.rank, spans.step, spans.start, spans.start + spans.dur)
    for rank, step, start, end in zip(*(c[rows].tolist() for c in columns), strict=True):
        key = (rank, step)
        first[key] = min(first.get(key, start), start)
        last[key] = max(last.get(key, 0), end)
    edges: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for c in collectives:
        key = (c["rank"], c["step"])
        if key not in first:
            continue
        begin, end = c["ts_ns"], c["ts_ns"] + c["dur_ns"]
        if c["purpose"] == "grad_reduce" and end > last[key]:
            edges[*key, GRADS_SCATTER] += [max(begin, last[key]), end]
        elif c["purpose"] == "param_gather" and end <= first[key]:
            edges[*key, PARAMS_GATHER] += [begin, end]
    return [(*key, min(times), max(times)) for key, times in sorted(edges.items())]


def _with(spans: Spans, more: Sequence[tuple[int, int, str, int, int]], places: Mapping[int, Place]) -> Spans:
    """The spans and those of data parallelism."""
    if not more:
        return spans
    rank, step, op, start, end = zip(*more, strict=True)
    at = np.array([places[r] for r in rank], np.int64)
    names = [*dict.fromkeys(op)]
    code = len(spans.ops) + np.array([names.index(o) for o in op], np.int64)
    unknown = np.full(len(more), NO_TIME, np.int64)
    added = (code, rank, at[:, 1], at[:, 0], step, start, np.subtract(end, start), unknown, unknown, unknown)
    own = (getattr(spans, name) for name in spans.__struct_fields__[1:])
    return Spans([*spans.ops, *names], *(np.append(a, np.array(b, np.int64)) for a, b in zip(own, added, strict=True)))

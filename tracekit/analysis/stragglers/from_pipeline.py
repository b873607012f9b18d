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

from tracekit.analysis.stragglers.optable import NotReplayableError
from tracekit.analysis.stragglers.optypes import BACKWARD, FORWARD, GRADS_SCATTER, PARAMS_GATHER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Row = dict[str, Any]
Place = tuple[int, int]
"""(data-parallel rank, pipeline place)."""
COMPUTES = {"F": FORWARD, "B": BACKWARD}
AS_LONG = 0.98
"""Compute that is this near the longest is as long."""
_DIRECTION = {"activation": "forward", "gradient": "backward"}


def spans_of(
    pipeline: Iterable[Row], bubble: Iterable[Row], collectives: Sequence[Row], replicas: Mapping[str, int]
) -> list[Row]:
    """Spans for `rows_of`, times on the ranks' common clock.

    pipeline, bubble: rows of those tables; collectives: data-parallel calls (rank, step, purpose, ts_ns, dur_ns);
    replicas: pipeline → data-parallel rank. Raises NotReplayableError.
    """
    places = _workers(bubble, replicas)
    spans = [_span(row, places[row["rank"]]) for row in pipeline if row["rank"] in places]
    if not spans:
        raise NotReplayableError("no-compute", "no pipeline was found in the traces")
    return spans + _data_parallel(spans, collectives, places)


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


def _span(row: Row, place: Place) -> Row:
    dp, position = place
    where = f"{row['op']} of micro-batch {row['micro_batch']} on rank {row['rank']} in step {row['step']}"
    if row["op"] in ("I", "W"):
        raise NotReplayableError("split-backward", "backwards are split into input and weight gradients")
    if row["paired"]:
        raise NotReplayableError("overlapped-pairs", f"{where} runs as one with another")
    if row["aligned_ns"] is None or row["dur_ns"] is None:
        raise NotReplayableError("no-time", f"{where} has no time on a common clock")
    if row["op"] in COMPUTES:
        op = COMPUTES[row["op"]]
    elif row["carries"] is None:
        raise NotReplayableError("unpaired", f"nothing tells what the {row['op']} of rank {row['rank']} carries")
    else:
        op = f"{_DIRECTION[row['carries']]}-{row['op']}"
    return {
        "rank": row["rank"], "stage": position, "dp_rank": dp, "step": row["step"], "op": op,
        "ts_ns": row["aligned_ns"], "dur_ns": row["dur_ns"], "chunk": row["chunk"], "global_chunk": row["stage"],
        "micro_batch": row["micro_batch"],
    }  # fmt: skip


def _data_parallel(spans: Sequence[Row], collectives: Sequence[Row], places: Mapping[int, Place]) -> list[Row]:
    """One span for the gathers before the first forward, and one for the reductions after the last backward."""
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    for s in spans:
        if s["op"] in (FORWARD, BACKWARD):
            key = (s["rank"], s["step"])
            first[key] = min(first.get(key, s["ts_ns"]), s["ts_ns"])
            last[key] = max(last.get(key, 0), s["ts_ns"] + s["dur_ns"])
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
    return [
        {
            "rank": rank, "stage": places[rank][1], "dp_rank": places[rank][0], "step": step, "op": op,
            "ts_ns": min(times), "dur_ns": max(times) - min(times),
        }
        for (rank, step, op), times in sorted(edges.items())
    ]  # fmt: skip

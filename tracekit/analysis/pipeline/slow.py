"""Pipeline stages that compute longer than the others: slow ones, and ones with more to do."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tracekit.analysis.pipeline.pace import ratio, reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.analysis.pipeline.lines import Line
    from tracekit.analysis.pipeline.parts import RankPipeline

Row = dict[str, Any]
SLOW = 1.05
"""A stage is slow when on each of its ranks the same kernels take so many times as long as on the other stages."""
MORE, COSTLY = 1.1, 0.03
"""A stage has more to do from this multiple of the others' compute on; said where equal stages save this share."""


class LongStage(Struct, frozen=True):
    """A place in pipelines of `places` ranks, all of whose ranks compute longer than is typical of the other places.

    compute, others: ns a micro-batch, of its fastest rank and the median of the other places; pace: how many times as
    long its kernels take as the same ones elsewhere, None where the kernels do not say that it is slow.
    """

    place: int
    places: int
    ranks: tuple[int, ...]
    compute: float
    others: float
    pace: float | None


def long_stages(
    lines: Iterable[Line], parts: Mapping[int, RankPipeline], loads: Mapping[int, float]
) -> list[LongStage]:
    """Stages of which every rank is slow or has more to do; `loads`: rank → ns of compute a micro-batch.

    Whatever only some ranks of a stage show is no matter of the stage. Where a stage has one rank, nothing tells them
    apart.
    """
    at: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line.reason is None and all(r in loads for r in line.ranks):
            for place, rank in enumerate(line.ranks):
                at[len(line.ranks)][place].append(rank)
    out = []
    for places, ranks_at in sorted(at.items()):
        for place, ranks in sorted(ranks_at.items()):
            rest = [found for other, found in ranks_at.items() if other != place]
            others = statistics.median([statistics.median([loads[r] for r in found]) for found in rest])
            own = min(loads[r] for r in ranks)
            pace = _pace(ranks, rest, parts)
            if pace is not None or own > MORE * others:
                out.append(LongStage(place, places, tuple(sorted(ranks)), own, others, pace))
    return out


def _pace(ranks: Sequence[int], rest: Sequence[Sequence[int]], parts: Mapping[int, RankPipeline]) -> float | None:
    """How many times as long the kernels of a stage take, where every rank of it shows that; else None."""
    typical = reference([[parts[r].pace for r in found] for found in rest])
    found = [ratio(parts[r].pace, typical) for r in ranks]
    known = [pair for pair in found if pair is not None]
    if len(known) < len(found) or min(low for low, _ in known) < SLOW:
        return None
    return min(about for _, about in known)


def stage_findings(stages: Iterable[LongStage], what_if: Sequence[Row], lengths: Mapping[str, int]) -> list[Row]:
    """A finding for each slow stage, and for one with more to do where equal stages would save much.

    what_if: rows of that table; lengths: pipeline → its ranks.
    """
    out = []
    for s in stages:
        mine = [w for w in what_if if w["saved_ns"] is not None and lengths[w["pipeline"]] == s.places]
        if s.pace is not None:
            rows = [w for w in mine if (w["what"], w["subject"]) == ("no-slow-stage", f"stage {s.place}")]
            out.append(_slow(s, *_mean(rows)))
        else:
            saved, window = _mean([w for w in mine if w["what"] == "balanced-stages"])
            if saved is not None and saved >= COSTLY * window:
                out.append(_more(s, saved, window))
    return out


def _mean(rows: Sequence[Row]) -> tuple[int | None, int]:
    """Mean (saved, window) over pipelines and steps, ns."""
    if not rows:
        return None, 0
    saved, window = (sum(w[k] for w in rows) / len(rows) for k in ("saved_ns", "replayed_ns"))
    return round(saved), round(window)


def _who(s: LongStage) -> str:
    named = ", ".join(map(str, s.ranks[:8])) + (", …" if len(s.ranks) > 8 else "")
    compute = f"{s.compute / 1e6:,.3f} ms of compute a micro-batch, median of the other stages {s.others / 1e6:,.3f}"
    return f"pipeline stage {s.place} of {s.places} (rank{'s' if len(s.ranks) > 1 else ''} {named}; {compute})"


def _cost(saved: int, window: int) -> str:
    return f"would take {100 * saved / window:.1f} % less ({saved / 1e6:,.1f} of {window / 1e6:,.1f} ms)"


def _slow(s: LongStage, saved: int | None, window: int) -> Row:
    alone = "; with one rank a stage, a slow rank and a slow stage look alike" if len(s.ranks) == 1 else ""
    cost = f"; as fast as they, the pipeline {_cost(saved, window)}" if saved is not None else ""
    return {
        "severity": "warning", "code": "slow-stage", "rank": s.ranks[0] if len(s.ranks) == 1 else None,
        "message": f"{_who(s)} is slow: the same kernels take {s.pace:.2f} times as long as elsewhere{cost}{alone}",
        "cost_ns": saved, "avoidable_ns": saved, "where": f"stage {s.place}", "measured": s.compute,
        "expected": s.others, "unit": "ns", "evidence": "durations of the same kernels on all ranks of all stages",
        "advice": "compare clock rates, temperatures and neighbours of the stage's devices with those of the others",
    }  # fmt: skip


def _more(s: LongStage, saved: int, window: int) -> Row:
    end = s.place in (0, s.places - 1)
    why = "an end of the model has embedding, head and loss besides its layers: structural" if end else "more layers?"
    return {
        "severity": "info", "code": "stage-imbalance", "rank": None,
        "message": f"{_who(s)} has more to do, its kernels are not slow ({why}); with equal stages the pipeline "
                   f"{_cost(saved, window)}",
        "cost_ns": saved, "avoidable_ns": None, "where": f"stage {s.place}", "measured": s.compute,
        "expected": s.others, "unit": "ns", "evidence": "compute a micro-batch; replay with equal stages",
        "advice": "give the stage fewer layers, or spread the ends of the model over more stages",
    }  # fmt: skip

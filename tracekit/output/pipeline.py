"""The pipeline part of the report: the bubble of each stage and what it consists of."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tracekit.output.text import Grid, clean, ms, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.ingest.run import RunTables

Row = dict[str, Any]
DEFINITION = (
    "bubble = no stage work, in the window from the first stage work of all ranks of a pipeline to the last; its "
    "causes come from replays that add one at a time, and add up (docs/pipeline.md)"
)
_CAUSES = ("schedule", "order", "imbalance", "straggler", "p2p", "comm", "launch", "unexplained")
MOST_PLACES = 16


def grids(run: RunTables) -> list[Grid]:
    """Mean over steps and replicas of each place in the pipeline, and one line on the schedule."""
    rows = [r for r in run.tables.get("bubble", []) if r["bubble_ns"] is not None]
    by_shape: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    size = {(r["pipeline"], r["step"]): 0 for r in rows}
    for r in rows:
        size[r["pipeline"], r["step"]] += 1
    for r in rows:
        by_shape[r["schedule"], size[r["pipeline"], r["step"]], r["stages"], r["micro_batches"]].append(r)
    return [_grid(shape, by_shape[shape]) for shape in sorted(by_shape, key=str)]


def _grid(shape: tuple[Any, ...], rows: Sequence[Row]) -> Grid:
    schedule, ranks, stages, micro_batches = shape
    parts = [clean(schedule or "unknown schedule"), f"{ranks} ranks"]
    parts += [f"{stages} stages"] if stages not in (None, ranks) else []
    parts += [f"{micro_batches} micro-batches"] if micro_batches else []
    grid = Grid(
        f"pipeline: {', '.join(parts)} (ms, mean of a step)",
        ("place", "window", "busy", "bubble", "of window", "warm-up", "steady", "drain", *_CAUSES),
    )
    places: dict[int, list[Row]] = defaultdict(list)
    for r in rows:
        places[r["position"]].append(r)
    for place in sorted(places)[:MOST_PLACES]:
        mean = _mean_of(places[place])
        names = ("warmup_ns", "steady_ns", "drain_ns", *(f"{c}_ns" for c in _CAUSES))
        grid.rows.append(
            (str(place), ms(mean("window_ns")), ms(mean("busy_ns")), ms(mean("bubble_ns")),
             percent(mean("bubble_ns") or 0, mean("window_ns") or 0), *(ms(mean(n)) for n in names))
        )  # fmt: skip
    if len(places) > MOST_PLACES:
        grid.notes.append(f"{len(places) - MOST_PLACES} more places: --json lists all")
    grid.notes += _notes(rows)
    return grid


def _mean_of(rows: Sequence[Row]) -> Callable[[str], float | None]:
    def mean(name: str) -> float | None:
        known = [r[name] for r in rows if r[name] is not None]
        return statistics.fmean(known) if known else None

    return mean


def _notes(rows: Sequence[Row]) -> list[str]:
    """Formula, simulation and measurement side by side; deviations from the schedule."""
    mean = _mean_of(rows)
    out = []
    if mean("simulated_ns") is not None:
        formula = mean("closed_form_ns")
        text = "–" if formula is None else f"{ms(formula)} ms"
        out.append(
            f"bubble by formula {text}, by simulation of equal stages {ms(mean('schedule_ns'))} ms, measured "
            f"{ms(mean('bubble_ns'))} ms; window with the measured work alone {ms(mean('simulated_ns'))} ms of "
            f"{ms(mean('window_ns'))} ms"
        )
    off = [r for r in rows if r["deviations"]]
    if off:
        worst = max(off, key=lambda r: (r["deviations"], -r["rank"]))
        out.append(
            f"{sum(r['deviations'] for r in off)} actions out of the schedule's order; rank {worst['rank']}, step "
            f"{worst['step']}: {clean(worst['deviation'] or '')}"
        )
    return out

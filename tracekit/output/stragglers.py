"""The straggler section of the reports, from the rows of `stragglers`."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from tracekit.output.text import Grid, clean, ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.output.summary import Summary

Row = dict[str, Any]
MAX_WORKERS = 5
DEFINITIONS = (
    "slowdown of a job S = T / T_ideal (replays without launch delays); of x = T(all ideal but x) / T_ideal",
    "recovered = (T - T(x ideal)) / (T - T_ideal): M_W for the top 3 % of workers, M_S for the last stage",
)


def add(summary: Summary, rows: Sequence[Row], *, alone: bool, all_ranks: bool = False, steps: bool = False) -> None:
    """Add the section to a report; alone: there are no traces beside the operation tables, so it is the report."""
    tables = [r for r in rows if r["scope"] == "job"]
    if alone:
        summary.header, summary.verdict, summary.definitions = header(rows), verdict(rows), DEFINITIONS
        summary.data[0] = f"{len(tables)} operation table{'s' if len(tables) != 1 else ''}, no trace"
    else:
        summary.header += f" · {header(rows)}"
        summary.verdict += f"\n{verdict(rows)}"
        summary.definitions += DEFINITIONS
    summary.grids += grids(rows, all_ranks=all_ranks, steps=steps)


def jobs(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows by source, in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["source"], []).append(row)
    return list(found.values())


def header(rows: Sequence[Row]) -> str:
    """One line: which operation tables."""
    return " · ".join(f"{_title(r)}: {_size(r)}" for r in rows if r["scope"] == "job")


def _title(row: Row) -> str:
    return clean(PurePath(row["source"]).name)


def _size(row: Row) -> str:
    if row["workers"] is None:
        return "operation table"
    return f"{row['workers']} workers, {row['steps']} steps (operation table)"


def verdict(rows: Sequence[Row]) -> str:
    """One sentence a job: how much stragglers cost, with the error of the replay."""
    return "\n".join(_verdict(job[0]) for job in jobs(rows))


def _verdict(job: Row) -> str:
    if job["slowdown"] is None:
        return f"{_title(job)}: no slowdown is given ({job['reason']}). See the findings below."
    lost = f"{ms(job['replayed_ns'])} ms a step, ideally {ms(job['ideal_ns'])}"
    error = f"replay error {100 * job['replay_error_ratio']:.1f} %"
    if job["slowdown"] < 1.1:
        calm = f"slowdown by stragglers {job['slowdown']:.3f}, below 1.1: not a straggling job"
        return f"{_title(job)}: {calm} ({lost}; {error})."
    return (
        f"{_title(job)}: {100 * job['waste_ratio']:.1f} % of the time is lost to stragglers: "
        f"slowdown {job['slowdown']:.3f} ({lost}; {error})."
    )


def grids(rows: Sequence[Row], *, all_ranks: bool = False, steps: bool = False) -> list[Grid]:
    """The tables of every job; those without a row are left out."""
    found = []
    for job in jobs(rows):
        name = f"{_title(job[0])}: " if len(jobs(rows)) > 1 else ""
        found += [_fixes(job, name), _op_types(job, name), _workers(job, name, all_ranks)]
        found += [_steps(job, name)] if steps else []
    return [g for g in found if g.rows]


def _of(job: Sequence[Row], *scopes: str) -> list[Row]:
    return [r for r in job if r["scope"] in scopes]


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _fixes(job: Sequence[Row], name: str) -> Grid:
    grid = Grid(f"{name}what fixing it would recover", ("where", "slowdown", "recovered", "added"))
    for r in _of(job, "top_workers", "last_stage", "stage"):
        where = {
            "top_workers": f"top {r['workers']} of the workers (M_W)",
            "last_stage": "last stage (M_S)",
        }.get(r["scope"], f"stage {r['stage']}")
        grid.rows.append((where, _times(r["slowdown"]), _share(r["recovered_ratio"]), _share(r["added_ratio"])))
    if any(r["reason"] == "no-slowdown" for r in job):
        grid.notes.append("the slowdown is too small (below 1.03) to be shared out")
    return grid


def _op_types(job: Sequence[Row], name: str) -> Grid:
    grid = Grid(f"{name}by operation", ("operation", "slowdown", "recovered", "total ms", "waiting"))
    for r in _of(job, "op_type"):
        cells = (_times(r["slowdown"]), _share(r["recovered_ratio"]), ms(r["total_ns"]), _share(r["wait_ratio"]))
        grid.rows.append((clean(r["op"]), *cells))
    return grid


def _workers(job: Sequence[Row], name: str, all_ranks: bool) -> Grid:
    columns = ("rank", "stage", "dp rank", "slowdown", "compute", "comm", "launch", "slow steps", "waiting")
    grid = Grid(f"{name}workers by slowdown", columns)
    found = _of(job, "worker")
    for r in found if all_ranks else found[:MAX_WORKERS]:
        rank = "?" if r["rank"] is None else str(r["rank"])
        parts = ("slowdown", "compute_slowdown", "communication_slowdown", "launch_slowdown")
        cells = (*(_times(r[p]) for p in parts), _share(r["straggling_steps_ratio"]), _share(r["wait_ratio"]))
        grid.rows.append((rank, str(r["stage"]), str(r["dp_rank"]), *cells))
    if len(found) > MAX_WORKERS and not all_ranks:
        grid.notes.append(f"{MAX_WORKERS} of {len(found)} workers; --ranks lists them")
    return grid


def _steps(job: Sequence[Row], name: str) -> Grid:
    grid = Grid(f"{name}steps", ("step", "measured ms", "replayed ms", "ideal ms", "slowdown"))
    for r in _of(job, "step"):
        cells = (ms(r["step_ns"]), ms(r["replayed_ns"]), ms(r["ideal_ns"]), _times(r["slowdown"]))
        grid.rows.append((str(r["step"]), *cells))
    return grid

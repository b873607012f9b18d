"""A run: files → worker processes → identities → the published tables."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from tracekit.ingest.critical import add_critical
from tracekit.ingest.crossing import add_cross_rank
from tracekit.ingest.discover import discover
from tracekit.ingest.expecting import add_expected
from tracekit.ingest.files import file_rows
from tracekit.ingest.identity import resolve
from tracekit.ingest.layout import layout_row
from tracekit.ingest.pipeline import add_pipelines, pipelines_of, shows_pipelines
from tracekit.ingest.pool import Aside, Workers
from tracekit.ingest.reading import read_again, read_all
from tracekit.ingest.rows import (
    coverage_of,
    delta,
    finding_rows,
    group_rows,
    health_rows,
    in_order,
    placed,
    rank_order,
    rank_row,
)
from tracekit.ingest.usermap import user_ranks
from tracekit.ingest.witnesses import FLIGHT_RECORDER, contradictions, health
from tracekit.ingest.worker import rules_of
from tracekit.label.learn import learn, merged
from tracekit.parsers.memory import reuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import pyarrow as pa

    from tracekit.analysis.crossrank.columns import CallColumns
    from tracekit.ingest.identity import Decision
    from tracekit.ingest.reading import Progress, Reading
    from tracekit.ingest.witnesses import Ref
    from tracekit.ingest.worker import Options
    from tracekit.label.job import Job
    from tracekit.label.layout import JobGroup, Solution

Row = dict[str, Any]


class RunTables(Struct):
    """Rows of every small published table; `details` = (rank, arrow files, ns to add to their times).

    `columns`: small tables of many rows, as Arrow; `rows` gives the rows of these, too.
    `added`: what the cross-rank step adds to the calls of each of `details`, or why it cannot; `expected`: what theory
    adds to them, with the inputs it had and what it lacks in `theory_inputs`.
    hang: the post-mortem of the flight recorder dumps (`tracekit.analysis.hang`), None without any.
    witnesses: rank → files with other accounts of its calls, that were joined with its trace; refs: all such accounts,
    while the run's folder for them lasts.
    `origin_ns` is the run's origin; `absolute` tells whether it is Unix time. workers: what may run at a time.
    """

    origin_ns: int
    absolute: bool
    world_size: int | None
    workers: int = 1
    tables: dict[str, list[Row]] = field(default_factory=dict)
    columns: dict[str, pa.Table] = field(default_factory=dict)
    data_parallel: list[Row] = field(default_factory=list)
    details: list[tuple[int | None, dict[str, str], int]] = field(default_factory=list)
    added: list[CallColumns | str] = field(default_factory=list)
    expected: list[CallColumns] = field(default_factory=list)
    theory_inputs: Row = field(default_factory=lambda: {"inputs": [], "missing": [], "utilisation": {}})
    coverage: Row = field(default_factory=dict)
    sites: list[Row] = field(default_factory=list)
    devices: tuple[str, ...] = ()
    frameworks: dict[str, str] = field(default_factory=dict)  # id → title
    hang: Row | None = None
    witnesses: dict[int, list[str]] = field(default_factory=dict)
    refs: tuple[Ref, ...] = ()
    layout: Row = field(default_factory=lambda: {"declared": None, "inferred": None})
    job: Job | None = None
    solution: Solution | None = None
    job_groups: tuple[JobGroup, ...] = ()

    def rows(self, table: str) -> list[Row]:
        """Rows of a small table; none where the run has no such table."""
        from tracekit.analysis.tables import to_rows

        return to_rows(self.columns[table]) if table in self.columns else self.tables.get(table) or []


def run(
    paths: Iterable[str | Path],
    options: Options,
    *,
    workers: int | None = None,
    rank_regex: str | None = None,
    rank_map: str | Path | None = None,
    progress: Progress | None = None,
) -> RunTables:
    """Analyse all traces below `paths`. The result does not depend on the order of the files.

    Raises UnusableInput when nothing can be used, or under strict reading when any file is damaged.
    """
    with TemporaryDirectory(prefix="tracekit-") as folder:
        options = options if options.spill else replace(options, spill=folder)
        return _run(paths, options, workers, user_ranks(rank_regex, rank_map), progress)


def _run(
    paths: Iterable[str | Path],
    options: Options,
    workers: int | None,
    user: Callable[[str], int | None] | None,
    progress: Progress | None,
) -> RunTables:
    with Workers(workers) as pool:
        read = read_all(discover(paths, op_tables=True, witnesses=True), options, pool, user, progress)
        decision = resolve(read.parts, user)
        seen = [r.observed for r, _ in read.used]
        job, solution = learn(seen, options.declared, rules_of(options).layouts)
        read_again(read, job, pool, progress)
    if progress and len(read.results) > 1:
        progress(0, 0, f"matching {len(read.results)} ranks")
    out = _collect(read, decision, solution, pool.count)
    out.job_groups = merged(seen)
    _add_witnesses(out, read, job)
    return _with_layout(out, options, job, solution)


def _add_witnesses(out: RunTables, read: Reading, job: Job) -> None:
    """What other accounts than the profilers' add to a run, and the table of all files."""
    witnesses = read.witnesses
    out.refs = read.options.witnesses
    used = [(r, p.rank) for r, p in read.used]
    joined = {one for r, _ in used for one in r.joined}
    out.witnesses = {rank: [path for path, _ in r.joined] for r, rank in used if rank is not None and r.joined}
    out.tables["health"] += health(witnesses, joined, alone=read.alone)
    out.tables["findings"] = in_order([*out.tables["findings"], *contradictions(out.tables["health"])])
    if witnesses.ranks(FLIGHT_RECORDER):
        from tracekit.ingest.hanging import add_hang

        add_hang(out, witnesses, read.options, job)
    dumps = (ref.path for ref in witnesses.ranks(FLIGHT_RECORDER).values())
    out.tables["files"] = file_rows(read.found, list(zip(read.results, read.parts, strict=True)), read.failures, dumps)


def _with_layout(out: RunTables, options: Options, job: Job, solution: Solution) -> RunTables:
    """Add what was found about the layout; findings that concern the whole job come first of their severity."""
    out.layout = layout_row(options.declared.layout, solution)
    out.job, out.solution = job, solution
    out.frameworks = {f.id: f.title for f in rules_of(options).frameworks if f.id in job.frameworks}
    out.tables["findings"] = in_order([*out.tables["findings"], *solution.findings])
    return out


def _collect(read: Reading, decision: Decision, solution: Solution, workers: int) -> RunTables:
    used = read.used
    used.sort(key=lambda rp: (rp[1].rank is None, rp[1].rank or 0, rp[0].meta.path, rp[0].meta.part))
    timed = [(r, p) for r, p in used if p.events or r.meta.witness is None] or used  # an empty dump has no time
    origin = min((r.origin_ns for r, _ in timed), default=0)
    absolute = all(p.window is not None for _, p in timed)
    out = RunTables(origin, absolute, decision.world_size, workers)
    out.tables["ranks"] = [
        rank_row(r, p) for r, p in sorted(zip(read.results, read.parts, strict=True), key=rank_order)
    ]
    for name in ("steps", "exposure", "breakdown", "totals"):
        out.tables[name] = [placed(row, r, p, origin, absolute) for r, p in used for row in getattr(r.tables, name)]
    out.tables["groups"] = group_rows(used)
    out.tables["health"] = health_rows(read)
    out.tables["findings"] = finding_rows(used, decision, read.failures)
    reuse()
    added, clocks = add_cross_rank(out, used)
    shifts = [delta(r, origin, absolute) for r, _ in used]
    found = None
    if shows_pipelines(used):
        found = Aside(workers, pipelines_of, used, shifts, clocks, out.data_parallel, solution)
    theory = add_expected(out, used, added, read.options, solution)
    add_critical(out, used, added, clocks, theory, solution)
    add_pipelines(out, found.result() if found else None, read.stragglers)
    read.stragglers.into(out.tables)
    out.tables["by_strategy"] = [
        {"rank": t["rank"], "device": t["device"], "strategy": name} | row
        for t in out.tables["totals"]
        for name, row in t["by_strategy"].items()
    ]
    out.details = [(p.rank, r.detail, d) for (r, p), d in zip(used, shifts, strict=True) if "activities" in r.detail]
    out.coverage = coverage_of(used)
    out.sites = [s | {"rank": p.rank} for r, p in used for s in r.tables.sites]
    out.devices = tuple(sorted({str(d.get("name")) for r, _ in used for d in r.meta.devices[:1] if d.get("name")}))
    return out

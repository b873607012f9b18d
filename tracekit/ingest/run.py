"""A run: files → worker processes → identities → the published tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from tracekit.analysis.consistency import minorities
from tracekit.errors import UnusableInput, UsageError
from tracekit.ingest.critical import add_critical
from tracekit.ingest.crossing import add_cross_rank
from tracekit.ingest.discover import Found, discover
from tracekit.ingest.expecting import add_expected
from tracekit.ingest.files import file_rows
from tracekit.ingest.identity import Decision, Part, resolve
from tracekit.ingest.layout import layout_row
from tracekit.ingest.optables import read_op_tables
from tracekit.ingest.pipeline import add_pipelines, pipelines_of, shows_pipelines
from tracekit.ingest.pool import Aside, Workers
from tracekit.ingest.usermap import user_ranks
from tracekit.ingest.witnesses import FLIGHT_RECORDER, Examined, Witnesses, contradictions, examine, gather, health
from tracekit.ingest.worker import Failure, Options, PartResult, learns_more, rules_of, work
from tracekit.label.learn import learn, merged
from tracekit.model import on_unix_clock
from tracekit.parsers.memory import reuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from tracekit.analysis.crossrank.columns import CallColumns
    from tracekit.ingest.optables import OpTableResults
    from tracekit.ingest.witnesses import Ref
    from tracekit.label.job import Job
    from tracekit.label.layout import JobGroup, Solution

_SMALL_BYTES = 8 << 20
Progress = Callable[[int, int, str], None]
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


class _Read(Struct):
    """What all files say, before anything is put together: `parts` are the ranks of `results`."""

    found: Found
    options: Options
    witnesses: Witnesses
    alone: bool  # witnesses stand for themselves: no profiler looked
    stragglers: OpTableResults
    results: list[PartResult] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    @property
    def used(self) -> list[tuple[PartResult, Part]]:
        """The recordings that count."""
        return [(r, p) for r, p in zip(self.results, self.parts, strict=True) if p.used]


def _run(
    paths: Iterable[str | Path],
    options: Options,
    workers: int | None,
    user: Callable[[str], int | None] | None,
    progress: Progress | None,
) -> RunTables:
    with Workers(workers) as pool:
        read = _read(discover(paths, op_tables=True, witnesses=True), options, pool, user, progress)
        decision = resolve(read.parts, user)
        seen = [r.observed for r, _ in read.used]
        job, solution = learn(seen, options.declared, rules_of(options).layouts)
        _read_again(read, job, pool, progress)
    if progress and len(read.results) > 1:
        progress(0, 0, f"matching {len(read.results)} ranks")
    out = _collect(read, decision, solution, pool.count)
    out.job_groups = merged(seen)
    _add_witnesses(out, read, job)
    return _with_layout(out, options, job, solution)


def _read(
    found: Found, options: Options, pool: Workers, user: Callable[[str], int | None] | None, progress: Progress | None
) -> _Read:
    """Read every file. UnusableInput when nothing can be used, or under strict reading when any file is damaged."""
    alone = not found.files
    witnesses = _gather(found, options, pool, user)
    given = {str(f): rank for f in found.files if user is not None and (rank := user(str(f))) is not None}
    options = replace(options, witnesses=tuple(witnesses.refs), given=given)
    if alone:
        primary = {ref.path for ref in witnesses.refs if ref.primary}
        found.files = [p for p in found.witnesses if str(p) in primary]
    everything = [*found.files, *found.witnesses]
    if user and everything and all(user(str(f)) is None for f in everything):
        raise UsageError(f"--rank-regex / --rank-map: none of the {len(everything)} files matches; ranks are untold")
    results, failures = _work(found, options, pool, progress)
    stragglers = read_op_tables(found.op_tables, strict=options.strict)
    failures += [*stragglers.failures, *witnesses.failures]
    if failures and (options.strict or not (results or stragglers.rows)):
        raise UnusableInput("\n".join(f.message for f in failures[:5]))
    results.sort(key=lambda r: (r.meta.path, r.meta.part))
    digests = {(ref.path, ref.part): ref.digest for ref in witnesses.refs}
    parts = [_part(r, digests.get((r.meta.path, r.meta.part))) for r in results]
    return _Read(found, options, witnesses, alone, stragglers, results, failures, parts)


def _read_again(read: _Read, job: Job, pool: Workers, progress: Progress | None) -> None:
    """The second look at ranks, whose labels the others make better, is a step of its own."""
    again = {r.meta.path for r, _ in read.used if learns_more(r, job)}
    if not again:
        return
    if progress:
        progress(0, 0, "labelling again")
    more, _ = _work(read.found, replace(read.options, job=job), pool, progress, again)
    fresh = {(r.meta.path, r.meta.part): r for r in more}
    read.results = [fresh.get((r.meta.path, r.meta.part), r) for r in read.results]


def _add_witnesses(out: RunTables, read: _Read, job: Job) -> None:
    """What other accounts than the profilers' add to a run, and the table of all files."""
    witnesses = read.witnesses
    out.refs = read.options.witnesses
    used = [(r, p.rank) for r, p in read.used]
    joined = {one for r, _ in used for one in r.joined}
    out.witnesses = {rank: [path for path, _ in r.joined] for r, rank in used if rank is not None and r.joined}
    out.tables["health"] += health(witnesses, joined, alone=read.alone)
    out.tables["findings"] = _in_order([*out.tables["findings"], *contradictions(out.tables["health"])])
    if witnesses.ranks(FLIGHT_RECORDER):
        from tracekit.ingest.hanging import add_hang

        add_hang(out, witnesses, read.options, job)
    dumps = (ref.path for ref in witnesses.ranks(FLIGHT_RECORDER).values())
    out.tables["files"] = file_rows(read.found, list(zip(read.results, read.parts, strict=True)), read.failures, dumps)


def _gather(found: Found, options: Options, pool: Workers, user: Callable[[str], int | None] | None) -> Witnesses:
    """The witnesses among the files; small ones are read here, since starting processes would take longer."""
    folder = str(options.spill)

    def each(paths: list[Path]) -> Iterator[list[Examined] | Failure]:
        jobs, sizes = _jobs(paths, range(len(paths)), options)
        return (pool if sum(sizes) >= _SMALL_BYTES else Workers(1)).each(examine, jobs, sizes)

    return gather(found.witnesses, folder, options, user=user, each=each)


def _with_layout(out: RunTables, options: Options, job: Job, solution: Solution) -> RunTables:
    """Add what was found about the layout; findings that concern the whole job come first of their severity."""
    out.layout = layout_row(options.declared.layout, solution)
    out.job, out.solution = job, solution
    out.frameworks = {f.id: f.title for f in rules_of(options).frameworks if f.id in job.frameworks}
    out.tables["findings"] = _in_order([*out.tables["findings"], *solution.findings])
    return out


def _part(r: PartResult, digest: str | None = None) -> Part:
    """Equal content gives an equal digest, whatever the file's name or compression. digest: a witness' own."""
    digest = digest or f"{r.meta.rank}|{r.window}|{sorted(r.event_counts.items())}"
    absolute = on_unix_clock(r.meta, r.window[0])
    return Part(r.meta, r.window if absolute else None, sum(r.event_counts.values()), digest)


def _work(
    found: Found,
    options: Options,
    pool: Workers,
    progress: Progress | None,
    only: Collection[str] | None = None,
) -> tuple[list[PartResult], list[Failure]]:
    """Analyse the files (or the paths in `only`); their numbers stay the same, so that spilled tables are replaced."""
    results: list[PartResult] = []
    failures: list[Failure] = []
    numbers = [i for i, f in enumerate(found.files) if only is None or str(f) in only]
    jobs, sizes = _jobs(found.files, numbers, options)
    names: list[str] = []

    def told() -> None:
        if progress:
            progress(len(names), len(numbers), names[-1] if names else "")

    for number, got in zip(numbers, pool.each(work, jobs, sizes, told), strict=True):
        names.append(str(found.files[number]))
        if isinstance(got, Failure):
            failures.append(got)
        else:
            results += got
        told()
    return results, failures


def _jobs(
    files: Sequence[Path], numbers: Iterable[int], options: Options
) -> tuple[list[tuple[int, str, Options]], list[int]]:
    """What a worker is asked for each of some files, and the files' sizes."""
    jobs = [(i, str(files[i]), options) for i in numbers]
    return jobs, [files[i].stat().st_size for i, _, _ in jobs]


def _collect(read: _Read, decision: Decision, solution: Solution, workers: int) -> RunTables:
    used = read.used
    used.sort(key=lambda rp: (rp[1].rank is None, rp[1].rank or 0, rp[0].meta.path, rp[0].meta.part))
    timed = [(r, p) for r, p in used if p.events or r.meta.witness is None] or used  # an empty dump has no time
    origin = min((r.origin_ns for r, _ in timed), default=0)
    absolute = all(p.window is not None for _, p in timed)
    out = RunTables(origin, absolute, decision.world_size, workers)
    out.tables["ranks"] = [
        _rank_row(r, p) for r, p in sorted(zip(read.results, read.parts, strict=True), key=_rank_order)
    ]
    for name in ("steps", "exposure", "breakdown", "totals"):
        out.tables[name] = [_placed(row, r, p, origin, absolute) for r, p in used for row in getattr(r.tables, name)]
    out.tables["groups"] = _groups(used)
    out.tables["health"] = _health(read)
    out.tables["findings"] = _findings(used, decision, read.failures)
    reuse()
    added, clocks = add_cross_rank(out, used)
    shifts = [_delta(r, origin, absolute) for r, _ in used]
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
    out.coverage = _coverage(used)
    out.sites = [s | {"rank": p.rank} for r, p in used for s in r.tables.sites]
    out.devices = tuple(sorted({str(d.get("name")) for r, _ in used for d in r.meta.devices[:1] if d.get("name")}))
    return out


def _rank_order(rp: tuple[PartResult, Part]) -> tuple[bool, int, str, int]:
    return (rp[1].rank is None, rp[1].rank or 0, rp[0].meta.path, rp[0].meta.part)


def _delta(r: PartResult, origin: int, absolute: bool) -> int:
    """ns to add to a trace's own times; traces without a common clock keep their own origin."""
    return r.origin_ns - origin if absolute else 0


def _placed(row: Row, r: PartResult, p: Part, origin: int, absolute: bool) -> Row:
    out = row | {"rank": p.rank}
    if "ts_ns" in out:
        out["ts_ns"] += _delta(r, origin, absolute)
    return out


def _rank_row(r: PartResult, p: Part) -> Row:
    names = [str(d.get("name")) for d in r.meta.devices if d.get("name")]
    return {
        "rank": p.rank, "source": r.meta.path, "part": r.meta.part, "used": p.used, "reason": p.reason,
        "identity": p.identity, "world_size": r.meta.world_size, "host": r.meta.host_name,
        "device_name": names[0] if names else None, "era": r.meta.era, "origin_ns": r.origin_ns,
        "window_ns": r.window[1] - r.window[0], "events": sum(r.event_counts.values()),
    }  # fmt: skip


def _groups(used: list[tuple[PartResult, Part]]) -> list[Row]:
    known: dict[tuple[tuple[int, ...], str], Row] = {}
    for r, _ in used:
        for g in r.tables.groups:
            known.setdefault((tuple(g["members"]), g["group_name"] or ""), g)
    rows = []
    for (members, _), g in sorted(known.items()):
        for position, rank in enumerate(members):
            head = {k: g[k] for k in ("group_id", "group_name", "group_desc")}
            rows.append(head | {"rank": rank, "position": position})
    return rows


def _health(read: _Read) -> list[Row]:
    def row(rank: int | None, source: str, severity: str, reason: str, count: int = 1, example: str = "") -> Row:
        return {
            "rank": rank,
            "source": source,
            "severity": severity,
            "reason": reason,
            "count": count,
            "example": example or None,
        }

    rows = [
        row(p.rank, r.meta.path, h.severity, h.reason, h.count, h.example)
        for r, p in zip(read.results, read.parts, strict=True)
        for h in r.health
    ]
    rows += [
        row(None, str(f), "info", f"not a trace, passed over: {w.title}", 1, w.advice) for f, w in read.found.others
    ]
    rows += [row(None, f.path, "lost", "file could not be used", 1, f.message) for f in read.failures]
    return rows


_SEVERITY = {"error": 0, "warning": 1, "info": 2}


def _findings(used: list[tuple[PartResult, Part]], decision: Decision, failures: list[Failure]) -> list[Row]:
    rows = list(decision.findings)
    rows += [{"severity": "warning", "code": "unusable-file", "rank": None, "message": f.message} for f in failures]
    rows += [f | {"rank": p.rank} for r, p in used for f in r.tables.findings]
    rows += minorities([(p.rank, r.tables.votes) for r, p in used])
    return _in_order(rows)


def _in_order(findings: Iterable[Row]) -> list[Row]:
    return sorted(
        findings,
        key=lambda f: (
            _SEVERITY[f["severity"]],
            -(f.get("cost_ns") or 0),
            f["code"],
            f["rank"] is not None,
            f["rank"] or 0,
            f["message"],
        ),
    )


_SUMS = ("comm_ns", "labelled_ns", "bytes", "labelled_bytes", "calls", "labelled_calls")


def _coverage(used: list[tuple[PartResult, Part]]) -> Row:
    """Sums over ranks; `unlabelled`: call sites without a label, the longest first."""
    parts = [r.tables.coverage for r, _ in used]
    out: Row = {name: sum(c.get(name, 0) for c in parts) for name in _SUMS}
    for name in ("tiers", "tier_bytes"):
        sums: dict[str, int] = {}
        for c in parts:
            for tier, n in c.get(name, {}).items():
                sums[tier] = sums.get(tier, 0) + n
        out[name] = dict(sorted(sums.items()))
    return out | {"unlabelled": _unlabelled(used)}


def _unlabelled(used: list[tuple[PartResult, Part]]) -> list[Row]:
    """Call sites without a label, summed over ranks; `example` = RANK:ID (or ID) of a call there."""
    merged: dict[str, Row] = {}
    for r, p in used:
        for site in r.tables.unlabelled:
            own = {k: v for k, v in site.items() if k not in _COUNTED}
            row = merged.get(repr(own))
            if row is None:
                example = site["example"] if p.rank is None else f"{p.rank}:{site['example']}"
                merged[repr(own)] = site | {"ranks": 1, "example": str(example)}
                continue
            row["ranks"] += 1
            for name in ("count", "total_ns", "bytes"):
                row[name] += site[name]
    return sorted(merged.values(), key=lambda s: (-s["total_ns"], -s["bytes"], -s["count"], s["op"]))[:_SHOWN_SITES]


_COUNTED = frozenset({"count", "total_ns", "bytes", "example", "kernel"})
_SHOWN_SITES = 20

"""The unit of work: one file → parsed, labelled and analysed traces, with only small tables left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tracekit.errors import UnusableInput
from tracekit.label.learn import Declared, view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.analysis import RankTables
    from tracekit.ingest.witnesses import Ref
    from tracekit.label import Rules
    from tracekit.label.job import Job
    from tracekit.label.learn import View
    from tracekit.label.observe import Observed
    from tracekit.model import HealthEntry, LabelledRank, RankTrace, TraceMeta, Witness


class Options(Struct, frozen=True):
    """What a run was asked to do; picklable, so that workers get it whole.

    detail: folder for what each trace leaves on disk (Arrow files), or None for nothing, and so no cross-rank step.
    activities: leave the table of device activities there, too.
    declared: what the user says of layout and groups; job: what all ranks together show, once that is known.
    witnesses: accounts of communication from another side (flight recorder, NCCL's log, …), with the processes or
    ranks they belong to; spill: folder that holds them. given: path → rank, as the user states it.
    """

    strict: bool = False
    rules: tuple[str, ...] = ()
    step_pattern: str | None = None
    detail: str | None = None
    activities: bool = True
    declared: Declared = field(default_factory=Declared)
    job: Job | None = None
    witnesses: tuple[Ref, ...] = ()
    spill: str | None = None
    given: Mapping[str, int] = field(default_factory=dict)


class PartResult(Struct):
    """One trace, without its rank yet: rows hold rank None and times from `origin_ns`. joined: (path, part) of the
    other accounts that were tied to it.
    """

    meta: TraceMeta
    window: tuple[int, int]
    event_counts: dict[str, int]
    health: list[HealthEntry]
    tables: RankTables
    origin_ns: int
    observed: Observed
    used_view: View
    joined: tuple[tuple[str, int], ...] = ()
    detail: dict[str, str] = field(default_factory=dict)


class Failure(Struct):
    """A file that could not be used, and why."""

    path: str
    message: str


_rules_cache: dict[tuple[tuple[str, ...], str | None], Rules] = {}


def rules_of(options: Options) -> Rules:
    """The rules in force, loaded once a process."""
    from tracekit.label import load_rules

    key = (options.rules, options.step_pattern)
    if key not in _rules_cache:
        _rules_cache[key] = load_rules(options.rules, options.step_pattern)
    return _rules_cache[key]


def declared(layout: str | None, group_map: str | None, config: str | None) -> Declared:
    """What the user declares in options and in run.toml; an option goes before the file. Raises UsageError."""
    from tracekit.label.layout import parse_layout, read_map, read_run_toml

    told = read_run_toml(config) if config is not None else None
    if told is not None and {"model", "training", "hardware"} & set(told.tables):
        from tracekit.analysis.expected.planned import check_tables

        check_tables(told.tables)  # a mistake shows before any trace is read
    roles = read_map(group_map) if group_map is not None else ()
    return Declared(
        parse_layout(layout) if layout is not None else told.layout if told else None,
        (*roles, *(told.groups if told else ())),
        dict(told.tables) if told else {},
    )


def learns_more(result: PartResult, job: Job) -> bool:
    """Whether the knowledge of all ranks would label this one otherwise than it labelled itself."""
    if view(job, result.observed) != result.used_view:
        return True
    undecided = result.tables.coverage["labelled_calls"] < result.tables.coverage["calls"]
    return undecided and not job.frameworks <= result.observed.frameworks


def read(path: str, rules: Rules, options: Options) -> list[RankTrace | Witness]:
    """Parse one file, a profiler's trace or a witness' account. Raises UnusableInput and its kin."""
    from tracekit.parsers import identify, parse, parse_witness

    if identify(Path(path)).witness:
        if mine := [ref for ref in options.witnesses if ref.path == path]:
            from tracekit.ingest.witnesses import load

            return [load(ref) for ref in mine if ref.primary]
        return [*parse_witness(path, strict=options.strict)]
    return [*parse(path, strict=options.strict, frames=rules.frames, frame_names=rules.frame_names)]


def labelled_parts(path: str, options: Options) -> list[LabelledRank]:
    """Parse and label one file. Raises UnusableInput and its kin."""
    rules = rules_of(options)
    traces = read(path, rules, options)
    return [label(trace, rules, options)[0] for trace in traces]


def label(trace: RankTrace | Witness, rules: Rules, options: Options) -> tuple[LabelledRank, Observed, Job]:
    """Label one trace with what is known of the job; a job not known yet is what this trace alone shows."""
    from tracekit.label.apply import Labeller
    from tracekit.label.job import Job
    from tracekit.label.learn import learn
    from tracekit.label.observe import observe
    from tracekit.label.rank import describe_rank
    from tracekit.model import Witness

    if isinstance(trace, Witness):
        from tracekit.label.witness import describe_witness

        labelled = describe_witness(trace, rules)
        own = next((r for r in options.witnesses if (r.path, r.part) == (trace.meta.path, trace.meta.part)), None)
        pids = frozenset({own.pid}) if own is not None and own.pid is not None else frozenset()
        _join(labelled, rules, options, pids, [r for r in options.witnesses if r.source != trace.source])
    else:
        labelled = describe_rank(trace, rules)
        pids = frozenset(int(t.pid) for t in trace.tracks if t.pid.isdecimal())
        _join(labelled, rules, options, pids, options.witnesses)
    labeller = Labeller(labelled, rules)
    labeller.label(options.job or Job())
    observed = observe(labelled, rules, labeller.traffic)
    if options.job is not None:
        return labelled, observed, options.job
    job, _ = learn([observed], options.declared, rules.layouts)
    if any(job.claims.get(g.key) for g in observed.groups):
        labeller.label(job)
    return labelled, observed, job


def _join(
    labelled: LabelledRank, rules: Rules, options: Options, pids: frozenset[int], witnesses: Sequence[Ref]
) -> None:
    """Take what the other accounts of this process know more; the user, the trace or its name tell its rank.

    Joined are, in this order: what knows groups and frames, then what knows NCCL's choices and times.
    """
    if not witnesses:
        return
    from tracekit.ingest.names import rank_in_name
    from tracekit.ingest.witnesses import load, of_process
    from tracekit.label.join import join

    meta = labelled.meta
    told = meta.rank if meta.rank is not None else rank_in_name(meta.path)
    rank = options.given.get(meta.path, told)
    labelled.rank = rank
    for ref in of_process(witnesses, rank=rank, pids=pids, host=meta.host_name, folder=Path(meta.path).parent):
        join(labelled, load(ref), rules)
        labelled.joined += ((ref.path, ref.part),)
    labelled.rank = meta.rank


def work(number: int, path: str, options: Options) -> list[PartResult] | Failure:
    """Analyse one file; never raises for bad input.

    The cycle collector stays off for labels and tables as it does for the parse.
    """
    from tracekit.parsers.memory import without_gc

    try:
        with without_gc():
            return _work(number, path, options)
    except UnusableInput as e:
        return Failure(path, str(e))


def _work(number: int, path: str, options: Options) -> list[PartResult]:
    from tracekit.parsers.memory import give_back

    rules = rules_of(options)
    traces = read(path, rules, options)
    give_back()
    out: list[PartResult] = []
    while traces:
        trace = traces.pop(0)
        labelled, observed, job = label(trace, rules, options)
        del trace  # the parsed rows are not needed any more: keep the peak at one trace
        give_back()
        out.append(_analyse(labelled, observed, job, f"{number:06d}-{len(out)}", options))
        del labelled
        give_back()
    return out


def _analyse(labelled: LabelledRank, observed: Observed, job: Job, name: str, options: Options) -> PartResult:
    import pyarrow as pa

    from tracekit.analysis import analyze_rank

    origin = labelled.window_ns[0]
    tables = analyze_rank(labelled, origin_ns=origin)
    detail = _spill(labelled, tables, name, options) if options.detail else {}
    # A slice would keep all rows alive, `empty_table` would import pandas.
    tables.activities = pa.Table.from_batches([], tables.activities.schema)
    tables.collectives = pa.Table.from_batches([], tables.collectives.schema)
    return PartResult(
        meta=labelled.meta,
        window=labelled.window_ns,
        event_counts=labelled.event_counts,
        health=labelled.health,
        tables=tables,
        origin_ns=origin,
        observed=observed,
        used_view=view(job, observed),
        joined=labelled.joined,
        detail=detail,
    )


def _spill(labelled: LabelledRank, tables: RankTables, name: str, options: Options) -> dict[str, str]:
    """Write what is too big to hand over as Arrow files: the run goes on with them once ranks and origin are known."""
    from tracekit.analysis.arrays import spill
    from tracekit.analysis.crossrank.busy import busy_table

    paths = {}
    big: dict[str, Any] = {
        "collectives": tables.collectives, "busy": busy_table(labelled, labelled.window_ns[0]),
    }  # fmt: skip
    if options.activities:
        big["activities"] = tables.activities
    for table, data in big.items():
        path = str(Path(str(options.detail)) / f"{table}-{name}.arrow")
        spill(data, path)
        paths[table] = path
    return paths

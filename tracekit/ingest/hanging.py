"""The post-mortem of a hang from the flight recorder dumps of a run."""

from __future__ import annotations

from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tracekit.errors import UnusableInput
from tracekit.ingest.discover import survey
from tracekit.ingest.usermap import user_ranks
from tracekit.ingest.witnesses import FLIGHT_RECORDER, examine, gather, load
from tracekit.ingest.worker import Options, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tracekit.ingest.reading import Progress
    from tracekit.ingest.run import RunTables
    from tracekit.ingest.witnesses import Examined, Witnesses
    from tracekit.ingest.worker import Failure
    from tracekit.label.job import Job
    from tracekit.model import LabelledRank, Witness

Row = dict[str, Any]


def hang(found: Witnesses, options: Options, job: Job | None = None) -> Row:
    """The post-mortem of `tracekit.analysis.hang`, with labels. job: what the run knows; else the dumps speak alone."""
    from tracekit.analysis.hang import RankDump, post_mortem
    from tracekit.label.witness import issued

    words = rules_of(options).vocabulary
    dumped = {rank: load(ref) for rank, ref in found.ranks(FLIGHT_RECORDER).items()}
    labelled = label_all(dumped, options, job)
    dumps = [
        RankDump(rank, one, dict(zip(issued(one, words), labelled[rank].calls, strict=True)))
        for rank, one in dumped.items()
    ]
    return post_mortem(dumps, found.world_size)


def post_mortem(
    paths: Iterable[str | Path],
    *,
    strict: bool = False,
    rules: Iterable[str | Path] = (),
    world_size: int | None = None,
    rank_regex: str | None = None,
    rank_map: str | Path | None = None,
    progress: Progress | None = None,
) -> Row:
    """`hang` of the dumps below `paths`, with `sources` and `notes` (what could not be used, or is odd).

    progress is called with (dumps read, dumps, name), then with (0, 0, the step that begins).

    Raises UnusableInput when there is no dump with a rank, or under strict reading when any is damaged.
    """
    files = survey(paths, witnesses=True)
    if not files.witnesses:
        seen = [(p, "a profiler's trace") for p in files.files] + [(p, what.title) for p, what in files.others]
        shown = "".join(f"\n  {p}: {title}" for p, title in seen[:5])
        raise UnusableInput(
            f"no flight recorder dump among {len(seen)} files; torch writes them when its watchdog times out, if "
            f"TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 were set{shown}"
        )
    how = Options(strict=strict, rules=tuple(str(r) for r in rules))
    with TemporaryDirectory(prefix="tracekit-") as folder:
        found = gather(
            files.witnesses, folder, how, user=user_ranks(rank_regex, rank_map), sources=frozenset({FLIGHT_RECORDER}),
            each=partial(_each, options=replace(how, spill=folder), progress=progress),
        )  # fmt: skip
        if found.failures and (strict or not found.refs):
            raise UnusableInput("\n".join(f.message for f in found.failures[:5]))
        known = found.ranks(FLIGHT_RECORDER)
        if not known:
            raise UnusableInput(_no_dump_with_a_rank(found, files.witnesses))
        found.world_size = world_size or found.world_size
        if progress is not None:
            progress(0, 0, "who waits for whom")
        out = hang(found, how)
    notes = [*found.notes, *(f.message for f in found.failures)]
    notes += [
        f"{ref.path}: its rank is not known, so it is left out; give --rank-regex or --rank-map"
        for ref in found.refs
        if ref.rank is None
    ]
    notes += [f"rank {row['rank']}: {row['reason']}; it counts as if there were no dump" for row in out["useless"]]
    return out | {"sources": sorted(ref.path for ref in known.values()), "notes": notes}


def _each(paths: list[Path], options: Options, progress: Progress | None) -> Iterator[list[Examined] | Failure]:
    """What each dump holds, one after the other."""
    for number, path in enumerate(paths):
        yield examine(number, str(path), options)
        if progress is not None:
            progress(number + 1, len(paths), path.name)


def _no_dump_with_a_rank(found: Witnesses, files: list[Path]) -> str:
    if found.refs:
        return (
            f"{found.refs[0].path}: neither its groups nor its name tell the rank of this dump; give --rank-regex or "
            "--rank-map"
        )
    return (
        f"{files[0]}: no flight recorder dump; a log of NCCL alone does not tell how far a call came; torch writes "
        "dumps when its watchdog times out, if TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 were set"
    )


def add_hang(out: RunTables, found: Witnesses, options: Options, job: Job) -> None:
    """Add the post-mortem of the dumps among a run's files, and a finding for each suspect.

    A dump of a job that still ran may show a circle or a transfer under way: that is no finding.
    """
    if not found.ranks(FLIGHT_RECORDER):
        return
    found.world_size = found.world_size or out.world_size
    out.hang = hang(found, options, job)
    for s in out.hang["suspects"]:
        if s["kind"] != "circle":
            message = f"hang: rank {s['rank']} is a suspect (confidence {s['confidence']:.2f}): {s['reason']}"
            row = {"severity": "warning", "code": f"hang-{s['kind']}", "rank": s["rank"], "message": message}
            out.tables["findings"].append(row)


def label_all(dumped: dict[int, Witness], options: Options, job: Job | None = None) -> dict[int, LabelledRank]:
    """Every rank labelled with what all of them show; transfers stay single, since each may be what is stuck."""
    from tracekit.label.apply import Labeller
    from tracekit.label.job import Job
    from tracekit.label.learn import learn
    from tracekit.label.observe import observe
    from tracekit.label.witness import describe_witness

    rules = rules_of(options)
    out = {rank: describe_witness(one, rules, fold=False) for rank, one in sorted(dumped.items())}
    labellers = {rank: Labeller(one, rules) for rank, one in out.items()}
    if job is None:
        for labeller in labellers.values():
            labeller.label(Job())
        seen = [observe(out[r], rules, labeller.traffic) for r, labeller in labellers.items()]
        job, _ = learn(seen, options.declared, rules.layouts)
    for labeller in labellers.values():
        labeller.label(job)
    return out

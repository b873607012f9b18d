"""Files → what each says: the first half of a run, in worker processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from tracekit.errors import UnusableInput, UsageError
from tracekit.ingest.identity import Part
from tracekit.ingest.optables import OpTableResults, read_op_tables
from tracekit.ingest.pool import Workers
from tracekit.ingest.witnesses import Witnesses, examine, gather
from tracekit.ingest.worker import Failure, Options, PartResult, learns_more, work
from tracekit.model import on_unix_clock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from tracekit.ingest.discover import Found
    from tracekit.ingest.witnesses import Examined
    from tracekit.label.job import Job

Progress = Callable[[int, int, str], None]
_SMALL_BYTES = 8 << 20


class Reading(Struct):
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


def read_all(
    found: Found, options: Options, pool: Workers, user: Callable[[str], int | None] | None, progress: Progress | None
) -> Reading:
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
    return Reading(found, options, witnesses, alone, stragglers, results, failures, parts)


def read_again(read: Reading, job: Job, pool: Workers, progress: Progress | None) -> None:
    """The second look at ranks, whose labels the others make better, is a step of its own."""
    again = {r.meta.path for r, _ in read.used if learns_more(r, job)}
    if not again:
        return
    if progress:
        progress(0, 0, "labelling again")
    more, _ = _work(read.found, replace(read.options, job=job), pool, progress, again)
    fresh = {(r.meta.path, r.meta.part): r for r in more}
    read.results = [fresh.get((r.meta.path, r.meta.part), r) for r in read.results]


def _gather(found: Found, options: Options, pool: Workers, user: Callable[[str], int | None] | None) -> Witnesses:
    """The witnesses among the files; small ones are read here, since starting processes would take longer."""
    folder = str(options.spill)

    def each(paths: list[Path]) -> Iterator[list[Examined] | Failure]:
        jobs, sizes = _jobs(paths, range(len(paths)), options)
        return (pool if sum(sizes) >= _SMALL_BYTES else Workers(1)).each(examine, jobs, sizes)

    return gather(found.witnesses, folder, options, user=user, each=each)


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

"""The witnesses of a run: which rank each is, one a rank, and what they tell of a hang."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.errors import UnusableInput
from tracekit.ingest.discover import survey
from tracekit.ingest.names import rank_at_end, rank_in_name
from tracekit.ingest.usermap import user_ranks
from tracekit.ingest.worker import Failure, Options, rules_of
from tracekit.parsers import identify, parse_witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tracekit.ingest.run import RunTables
    from tracekit.label.job import Job
    from tracekit.model import LabelledRank, Witness

Row = dict[str, Any]
FLIGHT_RECORDER = "flight-recorder"


@dataclass(slots=True)
class Witnesses:
    """`ranks`: the fullest witness of each rank; `notes`: what is odd; `unknown`: paths without a rank; `others`:
    files of other formats.
    """

    ranks: dict[int, Witness] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    world_size: int | None = None


def gather(
    paths: Iterable[Path],
    *,
    strict: bool = False,
    user: Callable[[str], int | None] | None = None,
    sources: tuple[str, ...] = (FLIGHT_RECORDER,),
) -> Witnesses:
    """Read witnesses of some formats and tell their ranks: the user's word, else the content, else the name (digits
    at its end).
    """
    out = Witnesses()
    worlds: list[int] = []
    for path in sorted(paths):
        if identify(path).name not in sources:
            out.others.append(path)
            continue
        try:
            found = parse_witness(path, strict=strict)
        except UnusableInput as e:
            out.failures.append(Failure(str(path), str(e)))
            continue
        for one in found:
            _add(out, one, user)
            if one.meta.world_size:
                worlds.append(one.meta.world_size)
    out.world_size = max(worlds, key=lambda w: (worlds.count(w), w), default=None)
    return out


def _add(out: Witnesses, one: Witness, user: Callable[[str], int | None] | None) -> None:
    path = one.meta.path
    named = rank_in_name(path)
    named = rank_at_end(path) if named is None else named
    given = user(path) if user else None
    content = one.meta.rank
    if content is not None and named is not None and content != named and given is None:
        out.notes.append(f"{path}: its name says rank {named}, its groups rank {content}: the content counts")
    rank = next((r for r in (given, content, named) if r is not None), None)
    if rank is None:
        out.unknown.append(path)
        return
    one.meta.rank = rank
    other = out.ranks.get(rank)
    if other is not None and _fullness(other) >= _fullness(one):
        return
    out.ranks[rank] = one


def _fullness(one: Witness) -> tuple[int, int]:
    """The later recording counts, and of one recording the form with frames."""
    last = max((c.created_ns or 0 for c in one.calls), default=0)
    return last, sum(len(c.frames) for c in one.calls)


def hang(found: Witnesses, options: Options, job: Job | None = None) -> Row:
    """The post-mortem of `tracekit.analysis.hang`, with labels. job: what the run knows; else the dumps speak alone."""
    from tracekit.analysis.hang import RankDump, post_mortem
    from tracekit.label.witness import issued

    words = rules_of(options).vocabulary
    labelled = label_all(found, options, job)
    dumps = [
        RankDump(rank, one, dict(zip(issued(one, words), labelled[rank].calls, strict=True)))
        for rank, one in found.ranks.items()
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
) -> Row:
    """`hang` of the dumps below `paths`, with `sources` and `notes` (what could not be used, or is odd).

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
    found = gather(files.witnesses, strict=strict, user=user_ranks(rank_regex, rank_map))
    if found.failures and (strict or not found.ranks):
        raise UnusableInput("\n".join(f.message for f in found.failures[:5]))
    if not found.ranks:
        raise UnusableInput(
            f"{found.unknown[0]}: neither its groups nor its name tell the rank of this dump; give --rank-regex or "
            "--rank-map"
        )
    found.world_size = world_size or found.world_size
    notes = [*found.notes, *(f.message for f in found.failures)]
    notes += [f"{p}: its rank is not known, so it is left out; give --rank-regex or --rank-map" for p in found.unknown]
    how = Options(strict=strict, rules=tuple(str(r) for r in rules))
    return hang(found, how) | {"sources": sorted(w.meta.path for w in found.ranks.values()), "notes": notes}


def health(found: Witnesses, *, alone: bool) -> list[Row]:
    """What `health` says of witnesses. alone: there is no profiler's trace, so that all of them were analysed."""
    rows: list[tuple[str | None, str, str]] = [(None, "witness of doubtful identity", note) for note in found.notes]
    if not alone:
        rows += [
            (path, "witness without a rank, not joined", "give --rank-regex or --rank-map") for path in found.unknown
        ]
        rows += [
            (str(path), f"not joined with the traces: {identify(path).title}", "analyse it alone")
            for path in found.others
        ]
    return [
        {"rank": None, "source": source or "", "severity": "info", "reason": reason, "count": 1, "example": example}
        for source, reason, example in rows
    ]


def add_hang(out: RunTables, found: Witnesses, options: Options, job: Job) -> None:
    """Add the post-mortem of the dumps among a run's files, and a finding for each suspect.

    A dump of a job that still ran may show a circle or a transfer under way: that is no finding.
    """
    if not found.ranks:
        return
    found.world_size = found.world_size or out.world_size
    out.hang = hang(found, options, job)
    for s in out.hang["suspects"]:
        if s["kind"] != "circle":
            message = f"hang: rank {s['rank']} is a suspect (confidence {s['confidence']:.2f}): {s['reason']}"
            row = {"severity": "warning", "code": f"hang-{s['kind']}", "rank": s["rank"], "message": message}
            out.tables["findings"].append(row)


def label_all(found: Witnesses, options: Options, job: Job | None = None) -> dict[int, LabelledRank]:
    """Every rank labelled with what all of them show."""
    from tracekit.label.apply import Labeller
    from tracekit.label.job import Job
    from tracekit.label.learn import learn
    from tracekit.label.observe import observe
    from tracekit.label.witness import describe_witness

    rules = rules_of(options)
    out = {rank: describe_witness(one, rules) for rank, one in sorted(found.ranks.items())}
    labellers = {rank: Labeller(one, rules) for rank, one in out.items()}
    if job is None:
        for labeller in labellers.values():
            labeller.label(Job())
        seen = [observe(out[r], rules, labeller.traffic) for r, labeller in labellers.items()]
        job, _ = learn(seen, options.declared, rules.layouts)
    for labeller in labellers.values():
        labeller.label(job)
    return out

"""The witnesses of a run: accounts of communication beside or instead of a profiler's trace, and which rank each is.

Every file is read once, in workers; the calls of each process go to a file of ours and come back where they are needed.
What only several files together tell (ranks, members of communicators) is worked out between the two.
"""

from __future__ import annotations

import hashlib
import pickle
from collections import defaultdict
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from tracekit.errors import UnusableInput
from tracekit.ingest import packed
from tracekit.ingest.names import rank_at_end, rank_in_name
from tracekit.ingest.worker import Failure
from tracekit.model import columns_of
from tracekit.parsers import identify, parse_witness
from tracekit.parsers.nccl_common import resolve_jobs
from tracekit.parsers.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tracekit.ingest.worker import Options
    from tracekit.model import Witness

Row = dict[str, Any]
Choices = dict[tuple[Any, ...], tuple[Any, ...] | None]
FLIGHT_RECORDER = "flight-recorder"
NCCL = frozenset({"nccl-log", "nccl-inspector", "nccl-profiler"})
_FULLEST = (FLIGHT_RECORDER, "execution-trace", "nccl-log", "nccl-profiler", "nccl-inspector")
"""Of several accounts of one rank without a trace, the first stands for the rank and the others are joined to it."""
CONTRADICTION = " contradict each other: "
_CHOICE = ("algorithm", "protocol", "channels")
_MAX_CHOICES = 1 << 14
_READ = 1 << 20


class Ref(Struct):
    """One process' account, small enough to be handed round.

    given: the user stated its rank. host, pid: the process, where the source tells it. spill: file with the account.
    calls, last_ns, frames: how much it tells. primary: it stands for its rank where no profiler looked.
    digest: equal for copies only. apart: it is a dump of another hang than the one that is told of.
    """

    path: str
    part: int
    source: str
    spill: str
    rank: int | None = None
    given: bool = False
    host: str | None = None
    pid: int | None = None
    calls: int = 0
    last_ns: int = 0
    frames: int = 0
    primary: bool = False
    digest: str = ""
    apart: bool = False

    @property
    def fullness(self) -> tuple[int, int, int]:
        """The later recording counts, and of one recording the form with frames."""
        return self.last_ns, self.frames, self.calls


class Examined(Struct):
    """What reading one account leaves behind: its reference, the account without calls, choices that NCCL made."""

    ref: Ref
    stub: Witness
    choices: Choices


class Witnesses(Struct):
    """`refs`: every account, in order of path; `notes`: what is odd; `others`: files of other formats."""

    refs: list[Ref] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    world_size: int | None = None

    def ranks(self, source: str) -> dict[int, Ref]:
        """The fullest account of each rank by one source."""
        out: dict[int, Ref] = {}
        for ref in self.refs:
            if ref.source == source and ref.rank is not None and not ref.apart:
                best = out.get(ref.rank)
                if best is None or ref.fullness > best.fullness:
                    out[ref.rank] = ref
        return dict(sorted(out.items()))


def gather(
    paths: Iterable[Path],
    folder: str,
    options: Options,
    *,
    user: Callable[[str], int | None] | None = None,
    sources: frozenset[str] | None = None,
    each: Callable[[list[Path]], Iterator[list[Examined] | Failure]] | None = None,
) -> Witnesses:
    """Read witnesses and tell their ranks: the user's word, else the content of all of them, else the name.

    folder: for the accounts, to be read again with `load` while it lasts. sources: formats wanted (None = all).
    each: reads the files, perhaps in several processes.
    """
    out = Witnesses()
    wanted: list[Path] = []
    for path in sorted(paths):
        known = sources is None or identify(path).name in sources
        (wanted if known else out.others).append(path)
    if each is None:
        results = iter([examine(i, str(p), replace(options, spill=folder)) for i, p in enumerate(wanted)])
    else:
        results = each(wanted)
    found: list[Examined] = []
    for got in results:
        if isinstance(got, Failure):
            out.failures.append(got)
        else:
            found += got
    _identify(found, user, out)
    _share_choices(found)
    for one in found:
        one.ref.host, one.ref.pid = one.stub.meta.host_name, _pid(one.stub)
        with Path(one.ref.spill + ".meta").open("wb") as sink:
            pickle.dump((one.stub, one.choices), sink, protocol=5)
    out.refs = [one.ref for one in found]
    _choose(out)
    _set_apart(out)
    worlds = [w for one in found if (w := one.stub.meta.world_size)]
    out.world_size = max(worlds, key=lambda w: (worlds.count(w), w), default=None)
    return out


def examine(number: int, path: str, options: Options) -> list[Examined] | Failure:
    """Read one file; its accounts go to files of ours in `options.spill`. Never raises for bad input."""
    try:
        witnesses = parse_witness(path, strict=options.strict)
    except UnusableInput as e:
        return Failure(path, str(e))
    out = []
    for witness in witnesses:
        spill = str(Path(str(options.spill)) / f"witness-{number:06d}-{witness.meta.part}")
        n, columns = len(witness.calls), columns_of(witness.calls)
        with Path(spill).open("wb") as sink:
            packed.dump(n, columns, sink)
        witness.calls = []
        ref = Ref(
            path, witness.meta.part, witness.source, spill, calls=n,
            last_ns=max((t or 0 for t in columns.get("created_ns", ())), default=0),
            frames=sum(map(len, columns.get("frames", ()))), digest=_digest(witness, spill),
        )  # fmt: skip
        out.append(Examined(ref, witness, _choices(witness, n, columns)))
    return out


def _digest(stub: Witness, spill: str) -> str:
    """Ranks of one job may do the very same: what does not name its process is a copy only if the whole file is one."""
    with Path(spill).open("rb") as calls:
        out = hashlib.file_digest(calls, "blake2b")
    meta = stub.meta
    out.update(repr((stub.source, meta.rank, meta.part, meta.extra, stub.groups, stub.lost)).encode())
    if "process" not in meta.extra:
        source = Source(Path(meta.path))
        try:
            while data := source.read(_READ):
                out.update(data)
        finally:
            source.close()
    return out.hexdigest()


def load(ref: Ref) -> Witness:
    """The account behind a reference, with what the others told of it. Its file is ours, written by this very run."""
    with Path(ref.spill + ".meta").open("rb") as source:
        stub, choices = pickle.load(source)  # noqa: S301
    with Path(ref.spill).open("rb") as source:
        calls = packed.load(source)
    witness: Witness = replace(stub, calls=calls)
    hashes: dict[str | None, str | None] = {g.key: g.comm_hash for g in witness.groups}
    if choices:
        for call in calls:
            choice = choices.get((hashes.get(call.group), call.op_raw, call.in_nelems, call.dtype))
            if choice is not None and "algorithm" not in call.extra:
                call.extra = call.extra | {k: v for k, v in zip(_CHOICE, choice, strict=True) if v is not None}
    return witness


def _choices(witness: Witness, n: int, columns: Mapping[str, list[Any]]) -> Choices:
    """NCCL's choice for each kind of call of a communicator; None where it chose differently from time to time.

    Only the first rank of a communicator prints them, but they hold for all: ranks have to agree.
    """
    hashes = {g.key: g.comm_hash for g in witness.groups}
    out: Choices = {}
    fields = (columns.get(field, repeat(None, n)) for field in ("extra", "group", "op_raw", "in_nelems", "dtype"))
    for extra, group, *kind in zip(*fields, strict=True):
        if "algorithm" not in extra or (name := hashes.get(group or "")) is None:
            continue
        choice = tuple(extra.get(n) for n in _CHOICE)
        key = name, *kind
        if out.setdefault(key, choice) != choice:
            out[key] = None
        if len(out) >= _MAX_CHOICES:
            break
    return out


def _share_choices(found: Sequence[Examined]) -> None:
    every: dict[Any, Choices] = defaultdict(dict)
    for one in found:
        for key, choice in one.choices.items():
            known = every[key[0]]
            known[key] = choice if known.get(key, choice) == choice else None
    for one in found:
        one.choices = {}
        for name in {g.comm_hash for g in one.stub.groups} & every.keys():
            one.choices |= every[name]


def _identify(found: Sequence[Examined], user: Callable[[str], int | None] | None, out: Witnesses) -> None:
    parts: dict[str, int] = defaultdict(int)
    for one in found:
        parts[one.ref.path] += 1
    for one in found:
        given = user(one.ref.path) if user is not None and parts[one.ref.path] == 1 else None
        if given is not None:
            content = one.stub.meta.rank
            if content is not None and content != given:
                out.notes.append(f"{one.ref.path}: its content says rank {content}; the user's {given} counts")
            one.ref.given, one.ref.rank = True, given
            one.stub.meta.rank = given
    _resolve(found)
    for one in found:
        if one.ref.given:
            continue
        content, named = one.stub.meta.rank, None
        if parts[one.ref.path] == 1:
            named = rank_in_name(one.ref.path)
            if named is None and one.ref.source == FLIGHT_RECORDER:
                named = rank_at_end(one.ref.path)
        if content is not None and named is not None and content != named:
            out.notes.append(
                f"{one.ref.path}: its name says rank {named}, its groups rank {content}: the content counts"
            )
        one.ref.rank = content if content is not None else named


def _resolve(found: Sequence[Examined]) -> None:
    """Ranks from communicators. A copy would take its original's seat, so it is told what the original learns."""
    first: dict[tuple[str, int | None], Examined] = {}
    copies = []
    for one in found:
        if one.ref.source in NCCL:
            original = first.setdefault((one.ref.digest, one.stub.meta.rank), one)
            if original is not one:
                copies.append((one.stub, original.stub))
    resolve_jobs([one.stub for one in first.values()])
    for copy, original_stub in copies:
        copy.groups = original_stub.groups
        copy.meta.rank, copy.meta.world_size = original_stub.meta.rank, original_stub.meta.world_size


def _choose(out: Witnesses) -> None:
    """The fullest source of each rank, or of each process without one, stands for it; of several accounts by that
    source identity takes one.
    """
    same: dict[object, list[Ref]] = defaultdict(list)
    for i, ref in enumerate(out.refs):
        process = (ref.host, ref.pid) if ref.pid is not None else i
        same[process if ref.rank is None else ref.rank].append(ref)
    for refs in same.values():
        best = max(refs, key=_worth)
        for ref in refs:
            ref.primary = ref.source == best.source
            if ref.source == FLIGHT_RECORDER and ref is not best and ref.rank is not None and ref.primary:
                out.notes.append(f"{ref.path}: rank {ref.rank} told twice; the later and fuller {best.path} counts")


def _set_apart(out: Witnesses) -> None:
    """Folders that tell of the same ranks at different times are different hangs: the latest counts, whole."""
    folders: dict[Path, dict[int, Ref]] = defaultdict(dict)
    for ref in out.refs:
        if ref.source == FLIGHT_RECORDER and ref.rank is not None:
            mine = folders[Path(ref.path).parent]
            mine[ref.rank] = max(mine.get(ref.rank, ref), ref, key=lambda r: r.fullness)
    taken: dict[int, Ref] = {}
    for folder, mine in sorted(folders.items(), key=lambda f: max(r.fullness for r in f[1].values()), reverse=True):
        if all(taken[r].last_ns == mine[r].last_ns for r in mine.keys() & taken.keys()):
            taken = mine | taken
            continue
        for ref in out.refs:
            if ref.source == FLIGHT_RECORDER and Path(ref.path).parent == folder:
                ref.apart = True
        if alone := sorted(mine.keys() - taken.keys()):
            out.notes.append(
                f"{folder}: dumps of another time, among them rank {alone[0]}'s, which the later set lacks; left out "
                "of the post-mortem, look at each set apart"
            )


def _worth(ref: Ref) -> tuple[bool, int, tuple[int, int, int]]:
    order = -_FULLEST.index(ref.source) if ref.source in _FULLEST else -len(_FULLEST)
    return ref.calls > 0, order, ref.fullness


def _pid(stub: Witness) -> int | None:
    """NCCL's sources tell the process as "host:pid" or "pid"."""
    number = str(stub.meta.extra.get("process", "")).rpartition(":")[2]
    return int(number) if number.isdecimal() else None


def of_process(
    refs: Iterable[Ref],
    *,
    rank: int | None,
    pids: frozenset[int] = frozenset(),
    host: str | None = None,
    folder: Path | None = None,
) -> list[Ref]:
    """The accounts of one process, one a source: by the process' number where both tell it, else by rank.

    pids: process numbers that the trace shows; the same number on two hosts is told apart by host and rank. folder:
    where the trace lies; of several accounts (containers number their processes alike) those beside it come first.
    """
    by_source: dict[str, list[Ref]] = defaultdict(list)
    for ref in refs:
        if _is_of(ref, rank, pids, host):
            by_source[ref.source].append(ref)

    def worth(ref: Ref) -> tuple[bool, bool, tuple[int, int, int]]:
        return ref.rank == rank, folder is not None and Path(ref.path).parent == folder, ref.fullness

    return [max(same, key=worth) for _, same in sorted(by_source.items())]


def _is_of(ref: Ref, rank: int | None, pids: frozenset[int], host: str | None) -> bool:
    if ref.given or ref.pid is None or not pids:
        return rank is not None and ref.rank == rank
    if ref.pid not in pids:
        return False
    return not (ref.host and host) or ref.host.split(".")[0] == host.split(".")[0]


def contradictions(rows: Iterable[Row]) -> list[Row]:
    """A finding for each rank and source whose account contradicts the trace. rows: of the table `health`."""
    out = []
    for row in rows:
        if CONTRADICTION in row["reason"]:
            message = f"{row['reason']}: {row['count']} times ({row['example']})"
            out.append(
                {"severity": "warning", "code": "witness-contradiction", "rank": row["rank"], "message": message}
            )
    return out


def health(found: Witnesses, joined: Iterable[tuple[str, int]], *, alone: bool) -> list[Row]:
    """What `health` says of witnesses. joined: (path, part) of those that were tied to a recording; alone: there is no
    profiler's trace, so that the others were analysed.
    """
    rows: list[tuple[str | None, str, str]] = [(None, "witness of doubtful identity", note) for note in found.notes]
    used = set(joined)
    counts: dict[tuple[str, str | None, int | None], str] = {
        (r.source, r.host, r.pid): r.path for r in found.refs if r.pid is not None and (r.path, r.part) in used
    }
    for ref in found.refs:
        if (ref.path, ref.part) in used or (alone and (ref.primary or ref.source == FLIGHT_RECORDER)):
            continue
        if (other := counts.get((ref.source, ref.host, ref.pid))) is not None:
            rows.append((ref.path, f"another {ref.source} of a process, not joined", f"{other} counts"))
            continue
        who = f"process {ref.host or ''}:{ref.pid}" if ref.pid is not None else "no process"
        rank = "no rank" if ref.rank is None else f"rank {ref.rank}"
        rows.append((ref.path, f"{ref.source} of no trace here, not joined", f"it tells {who} and {rank}"))
    return [
        {"rank": None, "source": source or "", "severity": "info", "reason": reason, "count": 1, "example": example}
        for source, reason, example in rows
    ]

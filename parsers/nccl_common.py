"""What the outputs of NCCL share: element types, sizes of each call on its ranks, identity of communicators."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tracekit.errors import LimitExceeded
from tracekit.model import HealthEntry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tracekit.model import Witness
    from tracekit.parsers.source import Source

    Seats = dict[str, dict[int, list[Witness]]]


class DataType(NamedTuple):
    """An element type: the name used by c10 and its bytes."""

    name: str
    bytes: int


DATATYPES = tuple(
    DataType(*pair)
    for pair in (
        ("Char", 1), ("Byte", 1), ("Int", 4), ("UInt32", 4), ("Long", 8), ("UInt64", 8), ("Half", 2), ("Float", 4),
        ("Double", 8), ("BFloat16", 2), ("Float8_e4m3fn", 1), ("Float8_e5m2", 1),
    )
)  # fmt: skip
"""By number of the enumeration `ncclDataType_t`."""
_SPELLED = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
    "float8e4m3", "float8e5m2",
)  # fmt: skip
_BY_NAME = dict(zip(_SPELLED, DATATYPES, strict=True)) | {"char": DATATYPES[0], "int": DATATYPES[2],
    "half": DATATYPES[6], "float": DATATYPES[7], "double": DATATYPES[8]}  # fmt: skip
REDUCTIONS = ("sum", "prod", "max", "min", "avg")
"""By number of `ncclRedOp_t`; larger numbers are user-defined."""
P2P = frozenset({"Send", "Recv"})
_UNNAMED = "unnamed "
BLOCK = 1 << 20
MAX_PROCESSES = 1 << 14
"""Processes of one file; the outputs of NCCL are meant to be one file a process."""


def check_processes(path: Path, n: int) -> None:
    """Raise LimitExceeded for a file that holds more than `MAX_PROCESSES` processes."""
    if n > MAX_PROCESSES:
        raise LimitExceeded(f"{path}: more than {MAX_PROCESSES:,} processes in one file; keep one file a process")


def datatype(spelling: str | int) -> DataType | None:
    """Element type of an enumeration number or of a name such as "ncclBfloat16"; None for one that is not known."""
    if isinstance(spelling, str) and not spelling.isdigit():
        return _BY_NAME.get(spelling.lower().removeprefix("nccl"))
    number = int(spelling)
    return DATATYPES[number] if 0 <= number < len(DATATYPES) else None


def elements(op: str, count: int, nranks: int | None) -> tuple[int | None, int | None]:
    """(input, output) elements on one rank of a call that NCCL was given `count` for; None = needs the group's size.

    `count` is what one rank contributes to AllGather and Gather, what one rank receives of ReduceScatter and Scatter,
    and what goes to each peer in AlltoAll (NCCL's API reference).
    """
    total = None if nranks is None else count * nranks
    if op in ("AllGather", "Gather"):
        return count, total
    if op in ("ReduceScatter", "Scatter"):
        return total, count
    if op == "AlltoAll":
        return total, total
    return count, count


def comm_hash(value: int) -> str:
    """One spelling of a communicator's 64-bit identity, whatever the source wrote (signed, decimal, hex)."""
    return f"0x{value % (1 << 64):x}"


class Lines:
    """Whole lines of a source, a block at a time; a line longer than a block is left out, counted in `too_long`.

    `unfinished`: the last line has no end (it is still given).
    """

    def __init__(self, source: Source, block: int = BLOCK) -> None:
        self.source, self.block = source, block
        self.too_long = 0
        self.unfinished = False

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        skipping = False
        while data := self.source.read(self.block):
            end = data.rfind(b"\n") + 1
            if skipping:
                first = data.find(b"\n") + 1
                if not first:
                    continue
                whole, skipping = data[first:end], False
            else:
                whole = rest + data[:end] if end else b""
            rest = data[end:] if end else rest + data
            if whole:
                yield whole
            if len(rest) > self.block:
                self.too_long += 1
                rest, skipping = b"", True
        self.unfinished = bool(rest.strip())
        if self.unfinished:
            yield rest


def resolve_ranks(witnesses: list[Witness]) -> None:
    """Global ranks from communicators alone: of the world, and from it of the members of every communicator.

    The world is the largest communicator, if it holds every process seen and no communicator has a rank that was not
    seen: else there are processes elsewhere, and no global rank can be told. Ranks that a source states (`meta.rank`)
    are kept; a contradiction is a finding. Works over the witnesses of one file and over those of many.
    """
    seats: Seats = defaultdict(lambda: defaultdict(list))
    sizes: dict[str, int] = {}
    for witness in witnesses:
        unnamed = 0
        for group in witness.groups:
            if group.own is None or not group.size:
                continue
            name = group.comm_hash
            if name is None:  # until NCCL 2.16: the n-th communicator of each process, if they fit together
                name = f"{_UNNAMED}{unnamed} of {group.size}"
                unnamed += 1
            seats[name][group.own].append(witness)
            sizes[name] = group.size
    _world(witnesses, seats, sizes)
    members: dict[str, tuple[int, ...]] = {}
    for name, seated in seats.items():
        if len(seated) != sizes[name] or not _single(seated):  # a file may state any size: only what sits is walked
            continue
        ranks = [r for p in sorted(seated) if (r := seated[p][0].meta.rank) is not None]
        if len(ranks) == sizes[name] == len(set(ranks)):
            members[name] = tuple(ranks)
    for witness in witnesses:
        for group in witness.groups:
            if group.ranks is None and group.comm_hash is not None:
                group.ranks = members.get(group.comm_hash)
            if group.ranks is None and group.size is not None and group.size == witness.meta.world_size:
                group.ranks = tuple(range(group.size)) if group.own == witness.meta.rank else None


def resolve_jobs(witnesses: list[Witness]) -> None:
    """`resolve_ranks` over the accounts of any number of files, jobs and sources.

    A job is what communicators tie together; each source of a job is looked at by itself (two accounts of one process
    would take each other's seats), and what one learns is told to the others by the communicators' identity.
    """
    for job in _jobs(witnesses):
        sources: dict[str, list[Witness]] = defaultdict(list)
        for witness in job:
            sources[witness.source].append(witness)
        for same in sources.values():
            resolve_ranks(same)
        members = {g.comm_hash: g.ranks for w in job for g in w.groups if g.comm_hash is not None and g.ranks}
        worlds = {w.meta.world_size for w in job} - {None}
        for witness in job:
            for group in witness.groups:
                if group.ranks is None and group.comm_hash is not None:
                    group.ranks = members.get(group.comm_hash)
            told = {g.ranks[g.own] for g in witness.groups if g.ranks and g.own is not None and g.own < len(g.ranks)}
            if witness.meta.rank is None and len(told) == 1:
                witness.meta.rank = told.pop()
            if witness.meta.world_size is None and len(worlds) == 1:
                witness.meta.world_size = next(iter(worlds))


def _jobs(witnesses: list[Witness]) -> list[list[Witness]]:
    """Witnesses that communicators or a process have in common, directly or through others. Communicators without an
    identity (until NCCL 2.16) may be anybody's.
    """
    parent = list(range(len(witnesses)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[str, int] = {}
    for i, witness in enumerate(witnesses):
        names = {g.comm_hash or _UNNAMED for g in witness.groups}
        process = str(witness.meta.extra.get("process", ""))
        for name in sorted({*names, process} - {""}):
            parent[root(i)] = root(first.setdefault(name, i))
    jobs: dict[int, list[Witness]] = defaultdict(list)
    for i, witness in enumerate(witnesses):
        jobs[root(i)].append(witness)
    return list(jobs.values())


def _world(witnesses: list[Witness], seats: Seats, sizes: dict[str, int]) -> None:
    full = {name for name, size in sizes.items() if len(seats[name]) == size and _single(seats[name])}
    if len(full) < len(sizes):
        return
    largest = [name for name in sorted(full) if sizes[name] == len(witnesses)]
    if not largest:
        return
    name = next((n for n in largest if not n.startswith(_UNNAMED)), largest[0])
    for position, (witness, *_) in seats[name].items():
        stated = witness.meta.rank
        if stated is None:
            witness.meta.rank = position
        elif stated != position:
            reason = "rank as stated is not the rank in the communicator of all processes (the stated one counts)"
            witness.health.append(HealthEntry(reason, 1, "info", f"{stated} and {position}"))
        witness.meta.world_size = sizes[name]


def _single(seated: dict[int, list[Witness]]) -> bool:
    return all(len(w) == 1 for w in seated.values())

"""Logs of NCCL and RCCL (NCCL_DEBUG=INFO or TRACE), several processes in one file → one `Witness` a device.

A call's line has no time, so calls have an order and sizes but no durations. Made for long logs: lines of calls are
cut at fixed words, what repeats (process, operation, type, communicator, stream) is parsed once and then looked up.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import BrokenInput, LimitExceeded, UnusableInput
from tracekit.model import HealthEntry, TraceMeta, Witness, WitnessCall, WitnessGroup
from tracekit.parsers import nccl_log_table
from tracekit.parsers.memory import without_gc
from tracekit.parsers.nccl_common import P2P, REDUCTIONS, DataType, Lines, datatype, elements, resolve_ranks
from tracekit.parsers.nccl_log_comms import Comm, Comms, Process
from tracekit.parsers.nccl_log_ring import Ring
from tracekit.parsers.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    Recent = deque[tuple[int, int, int]]

MAX_CALLS = 200_000
"""Calls kept of one file: the last ones, as a ring buffer would (they tell where a job hung); the rest is counted."""
_MAX_SHAPES = 1 << 18
_MAX_BUFFERS = 1 << 17
_RECENT = 64
_MAX_WARNINGS = 50

BLOCK = 4 << 20
_I63 = 1 << 63
_CALL = b": opCount "
_PREFIX = re.compile(
    rb"(?:\[(\d{4}-\d\d-\d\d[^\]]*)\] )?([^\s:\[\]]+):(\d+):(\d+) (?:\[(-?\d+)\] )?"
    rb"(?:(?:[\d.]+ )?(\S+:\d+)(?: \([^)]*\))? )?NCCL (INFO|WARN|TRACE|CALL) "
)
_HEAD = re.compile(rb"([A-Za-z]+)$")
_LAUNCHER = re.compile(rb"\[rank(\d+)\]:?|^\s*(\d+): ")
_FIXED = re.compile(
    rb"datatype (\d+) op (-?\d+) root (-?\d+) comm (0x[0-9a-fA-F]+) \[nranks=(\d+)\] stream (0x[0-9a-fA-F]+|\(nil\))"
    rb"(?: task (\d+))?(?: globalrank (\d+))?\s*$"
)
_BUFFERS = re.compile(rb"sendbuff (\S+) recvbuff (\S+)(?: acc (\S+))?$")
_VERSION = re.compile(rb"(NCCL|RCCL) version ?:? ?(\S+)")
_TUNED = re.compile(
    rb"(?:(\w+)(?: \[(Symmetric|Copy Engine)\])?: )?(\d+) Bytes -> (?:Algo (\S+) proto (\S+)(?: time ([\d.]+))?"
    rb"(?: channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?|Kernel (\S+)(?: nchannels (\d+))?|(cudaMemcpy\S*))"
)
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
"""By number, as versions before 2.25 print them."""
_TOTALS = frozenset({"AllGather", "ReduceScatter"})
_FIX = "log again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING,GRAPH"


@dataclass(slots=True)
class _Shape:
    """What is equal in many lines: everything but opCount, count, buffers and time."""

    comm: Comm
    op: str
    dtype: DataType | None
    datatype: int
    fields: dict[str, Any]
    peer: int | None
    root: int | None
    thread: int
    recent: Recent | None = None


class NcclLogReader:
    """Reads one log; `parse` returns a witness for each (process, device) in order of appearance."""

    def __init__(self, path: Path, *, strict: bool = False) -> None:
        self.path, self.strict = path, strict
        self.source = Source(path)
        self.comms = Comms()
        self.shapes: dict[tuple[bytes, bytes], int] = {}
        self.known: list[_Shape] = []
        self.buffers: dict[bytes, int] = {}
        self.stamps: list[str] = []
        self.ring = Ring(MAX_CALLS)
        self.tuned: dict[int, tuple[Any, ...]] = {}
        self.choices: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.recent: dict[tuple[Process, int], Recent] = defaultdict(lambda: deque(maxlen=_RECENT))
        self.damaged: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.warnings: dict[Process, Counter[str]] = defaultdict(Counter)
        self.launched: dict[Process, int] = {}
        self.api: Counter[str] = Counter()
        self.hosts: set[bytes] = set()
        self.version: str | None = None
        self.untuned = 0

    def parse(self) -> list[Witness]:
        """All witnesses; raises UnusableInput when the log tells of no communicator and no call."""
        lines = Lines(self.source, BLOCK)
        with without_gc():
            try:
                for block in lines:
                    self._block(block)
            finally:
                self.source.close()
            return self._finish(lines)

    def _finish(self, lines: Lines) -> list[Witness]:
        if lines.too_long:
            self._damage("line of more than 1 MiB", b"", lines.too_long)
        if self.source.damage:
            self._damage(self.source.damage.split(" (")[0], self.source.damage.encode())
        if not self.comms.all:
            raise UnusableInput(f"{self.path}: the NCCL log names no communicator and no call; {_FIX}")
        witnesses = self._witnesses()
        resolve_ranks(witnesses)
        return witnesses

    # ------------------------------------------------------------------ lines

    def _block(self, block: bytes) -> None:
        """One block of whole lines."""
        if nccl_log_table.is_pure(block):
            rows = nccl_log_table.read(block, self._shape_number, self._buffer)
            if rows is not None:
                self._recent(self.ring.add(*rows, np.full(len(rows.shape), -1, np.int32)), rows)
                return
        self._lines(block.split(b"\n"))

    def _lines(self, lines: list[bytes]) -> None:
        """Line by line: a call costs a few cuts, two look-ups and five appends."""
        columns: tuple[list[int], ...] = ([], [], [], [], [])
        shape_of, counts, numbers, buffer_of, stamp_of = columns
        start = self.ring.total
        for line in lines:
            at = line.find(_CALL)
            if at < 0:
                if b"CCL" in line:
                    self._other(line)
                continue
            number, _, rest = line[at + 10 :].partition(b" ")
            cut = rest.find(b" count ")
            count, _, fixed = rest[cut + 7 :].partition(b" ")
            head = line[:at]
            stamp = -1
            if head[:2] == b"[2":
                head, stamp = self._stamped(head)
            try:
                op_count, elements_, where = int(number, 16), int(count), self._buffer(rest[:cut])
                if not 0 <= op_count < _I63 > elements_ >= 0:
                    raise ValueError
                shape = self._shape_number(head, fixed)
            except ValueError:
                self._damage("line of a call that is not whole", line)
                continue
            recent = self.known[shape].recent
            if recent is not None:
                recent.append((start + len(shape_of), shape, elements_))
            shape_of.append(shape)
            counts.append(elements_)
            numbers.append(op_count)
            buffer_of.append(where)
            stamp_of.append(stamp)
        if shape_of:
            types = np.int32, np.int64, np.int64, np.int32, np.int32
            self.ring.add(*(np.array(c, t) for c, t in zip(columns, types, strict=True)))

    def _shape_number(self, head: bytes, fixed: bytes) -> int:
        found = self.shapes.get((head, fixed))
        return self._shape(head, fixed) if found is None else found

    def _buffer(self, text: bytes) -> int:
        """Number of the buffers' text, -1 beyond the most that are kept; raises ValueError for other text: two lines
        in one.
        """
        found = self.buffers.get(text, -1)
        if found < 0:
            if _BUFFERS.match(text) is None:
                raise ValueError
            if len(self.buffers) < _MAX_BUFFERS:
                found = self.buffers[text] = len(self.buffers)
        return found

    def _recent(self, start: int, rows: nccl_log_table.Rows) -> None:
        """The last calls of a block may be tuned by lines of the next."""
        for i in range(max(0, len(rows.shape) - _RECENT), len(rows.shape)):
            recent = self.known[shape := int(rows.shape[i])].recent
            if recent is not None:
                recent.append((start + i, shape, int(rows.counts[i])))

    def _stamped(self, head: bytes) -> tuple[bytes, int]:
        """A call's head without its time, and the number of the time."""
        stamp, found, rest = head[1:].partition(b"] ")
        if not found:
            return head, -1
        text = stamp.decode("utf-8", "replace")
        if not self.stamps or self.stamps[-1] != text:
            if len(self.stamps) >= MAX_CALLS:
                return rest, -1
            self.stamps.append(text)
        return rest, len(self.stamps) - 1

    def _shape(self, head: bytes, fixed: bytes) -> int:
        """Parse and remember what a new kind of line says; raises ValueError for a line that is not whole."""
        prefix, op = self._prefix(head), _HEAD.search(head)
        found = _FIXED.match(fixed)
        if prefix is None or op is None or found is None:
            raise ValueError
        if len(self.known) >= _MAX_SHAPES:
            raise LimitExceeded(
                f"{self.path}: more than {_MAX_SHAPES:,} kinds of calls; log one file a process (NCCL_DEBUG_FILE=%h.%p)"
            )
        process, thread, device = prefix
        name = op[1].decode()
        comm = self.comms.of(process, found[4].decode(), device, int(found[5]))
        root = int(found[3])
        rooted = name in ("Broadcast", "Reduce", "Gather", "Scatter")
        reduction = int(found[2])
        reduces = name in ("AllReduce", "Reduce", "ReduceScatter")
        more: dict[str, Any] = {"stream": found[6].decode()}
        if reduces:
            more["reduction"] = REDUCTIONS[reduction] if 0 <= reduction < len(REDUCTIONS) else str(reduction)
        more |= {k: int(v) for k, v in (("task", found[7]), ("globalrank", found[8])) if v is not None}
        tells = comm.rank in (0, None)  # the choice of algorithm is only printed by rank 0
        self.known.append(
            _Shape(
                comm, name, datatype(found[1].decode()), int(found[1]), more, root if name in P2P else None,
                root if rooted else None, thread, self.recent[process, thread] if tells else None,
            )
        )  # fmt: skip
        self.shapes[head, fixed] = len(self.known) - 1
        if found[8] is not None:
            self.launched.setdefault(process, int(found[8]))
        return len(self.known) - 1

    def _prefix(self, head: bytes) -> tuple[Process, int, int | None] | None:
        """(process, thread, device) of a call's head. Writers cut into each other's lines: the last prefix counts,
        if its host was seen with a line of its own (what was cut stands right before it).
        """
        every = list(_PREFIX.finditer(head))
        if not every:
            return None
        last = every[-1]
        host = last[2]
        if len(every) > 1 and host not in self.hosts:
            host = next((h for h in sorted(self.hosts, key=len, reverse=True) if host.endswith(h)), b"")
            if not host:
                return None
        if len(every) == 1:
            self.hosts.add(host)
            self._launcher(head[: last.start()], (host.decode("utf-8", "replace"), int(last[3])))
        return (host.decode("utf-8", "replace"), int(last[3])), int(last[4]), None if last[5] is None else int(last[5])

    def _launcher(self, before: bytes, process: Process) -> None:
        found = _LAUNCHER.search(before) if before else None
        if found is not None:
            self.launched.setdefault(process, int(found[1] or found[2]))

    def _other(self, line: bytes) -> None:
        """A line that is no call: initialisation, graph, tuning, warning, version."""
        found = _PREFIX.search(line)
        if found is None:
            version = _VERSION.search(line)
            if version is not None and self.version is None:
                self.version = version[2].decode("utf-8", "replace")[:60]
            return
        self.hosts.add(found[2])
        process = found[2].decode("utf-8", "replace"), int(found[3])
        self._launcher(line[: found.start()], process)
        level, text = found[7], line[found.end() :]
        if level == b"WARN":
            self._warn(process, found[6], text)
        elif level == b"CALL":
            self.api[text.split(b"(")[0].decode("utf-8", "replace")[:60]] += 1
        elif b" Bytes -> " in text:
            self._tuning((process, int(found[4])), text)
        else:
            comm = self.comms.line(process, int(found[4]), text)
            if comm is not None:
                self._forget(comm)

    def _warn(self, process: Process, place: bytes | None, text: bytes) -> None:
        seen = self.warnings[process]
        message = text.strip().decode("utf-8", "replace")[:200] + (
            f" ({place.decode('utf-8', 'replace')[:60]})" if place else ""
        )
        if message in seen or len(seen) < _MAX_WARNINGS:
            seen[message] += 1

    def _forget(self, comm: Comm) -> None:
        """A pointer means another communicator from now on: its lines are parsed anew."""
        pointer = f"comm {comm.pointer} ".encode()
        name = f"{comm.process[0]}:{comm.process[1]}:".encode()
        for key in [k for k in self.shapes if pointer in k[1] and name in k[0]]:
            del self.shapes[key]
        if comm.ended:
            self.comms.current.pop((comm.process, comm.pointer), None)

    def _tuning(self, thread: tuple[Process, int], text: bytes) -> None:
        """Give algorithm and protocol to the oldest recent call of the thread with that operation and size."""
        found = _TUNED.search(text)
        recent = self.recent.get(thread)
        if found is None or recent is None:
            self.untuned += 1
            return
        name, nbytes = (found[1] or b"").decode(), int(found[3])
        for entry in recent:
            row, number, count = entry
            shape = self.known[number]
            size = (shape.dtype.bytes if shape.dtype else 0) * count
            if not name and shape.op in _TOTALS:  # versions that do not name the operation print its total
                size *= shape.comm.nranks or 1
            if nbytes == size and name in ("", shape.op):
                recent.remove(entry)
                self._tuned(row, found.groups())
                return
        self.untuned += 1

    def _tuned(self, row: int, choice: tuple[Any, ...]) -> None:
        self.tuned[row] = self.choices.setdefault(choice, choice)
        if len(self.tuned) > 2 * MAX_CALLS:
            self.tuned = {r: c for r, c in self.tuned.items() if r >= self.ring.total - MAX_CALLS}

    def _damage(self, reason: str, example: bytes, count: int = 1) -> None:
        if self.strict:
            raise BrokenInput(
                f"{self.path}: {reason}, near byte {self.source.read_bytes:,} ({example[:160]!r}); "
                "read without --strict to leave it out"
            )
        self.damaged[reason] += count
        self.examples.setdefault(reason, example[:160].decode("utf-8", "replace"))

    # ------------------------------------------------------------------ result

    def _witnesses(self) -> list[Witness]:
        out: dict[tuple[Process, int | None], Witness] = {}
        number: dict[str, Witness] = {}
        for comm in self.comms.all:
            place = comm.process, comm.device
            witness = out.get(place)
            if witness is None:
                witness = out[place] = self._witness(comm, len(out))
            number[comm.key] = witness
            witness.groups.append(
                WitnessGroup(comm.key, size=comm.nranks, own=comm.rank, comm_hash=comm.hash, backend="nccl")
            )
            witness.meta.extra["communicators"][comm.key] = comm.graph
        self._calls(number)
        for shape, count in sorted(self.ring.dropped.items()):
            witness = number[self.known[shape].comm.key]
            witness.lost = (witness.lost or 0) + count
        for witness in out.values():
            witness.lost = witness.lost or 0
            if witness.lost:
                reason = f"calls before the last {MAX_CALLS:,} of the file"
                witness.health.append(HealthEntry(reason, witness.lost, "lost"))
        first = next(iter(out.values()))
        for reason, count in sorted(self.damaged.items()):
            first.health.append(HealthEntry(reason, count, "lost", self.examples[reason]))
        if self.untuned:
            reason = "choice of algorithm that no call matches"
            first.health.append(HealthEntry(reason, self.untuned, "info"))
        return list(out.values())

    def _witness(self, comm: Comm, part: int) -> Witness:
        source = self.source
        extra: dict[str, Any] = {"communicators": {}, "process": f"{comm.process[0]}:{comm.process[1]}"}
        if comm.device is not None:
            extra["device"] = comm.device
        if self.api:
            extra["api_calls"] = dict(self.api)
        meta = TraceMeta(
            str(self.path), part, source.file_bytes, source.read_bytes, compression=source.compression,
            rank=self._stated(comm), backend="nccl", nccl_version=self.version, host_name=comm.process[0], extra=extra,
        )  # fmt: skip
        witness = Witness(meta, "nccl-log", version=self.version)
        for message, count in sorted(self.warnings.get(comm.process, Counter()).items()):
            witness.health.append(HealthEntry("NCCL warning", count, "info", message))
        return witness

    def _stated(self, comm: Comm) -> int | None:
        """The rank that the launcher or RCCL wrote before or into the lines, where it is that of one process alone."""
        rank = self.launched.get(comm.process)
        devices = {c.device for c in self.comms.all if c.process == comm.process}
        alone = list(self.launched.values()).count(rank) == 1 if rank is not None else False
        return rank if alone and len(devices) == 1 else None

    def _calls(self, witness_of: dict[str, Witness]) -> None:
        buffers = [_pointers(b) for b in self.buffers]
        shared: dict[tuple[int, int, int, tuple[Any, ...] | None], dict[str, Any]] = {}
        first, columns = self.ring.columns()
        for row, (number, count, op_count, where, stamp) in enumerate(zip(*columns, strict=True), first):
            shape = self.known[number]
            key = number, where, stamp, self.tuned.get(row)
            extra = shared.get(key)
            if extra is None:
                extra = shared[key] = shape.fields | (buffers[where] if where >= 0 else {}) | _choice(key[3])
                if stamp >= 0:
                    extra["local_time"] = self.stamps[stamp]
            taken, given = elements(shape.op, count, shape.comm.nranks)
            p2p = shape.op in P2P
            witness_of[shape.comm.key].calls.append(
                WitnessCall(
                    shape.op, shape.comm.key, None if p2p else op_count, op_count if p2p else None, op_count, row, p2p,
                    in_nelems=taken, out_nelems=given, dtype=shape.dtype.name if shape.dtype else str(shape.datatype),
                    peer=shape.peer, root=shape.root, thread=str(shape.thread), extra=extra,
                )
            )  # fmt: skip


def _pointers(text: bytes) -> dict[str, Any]:
    found = _BUFFERS.match(text)
    if found is None:
        return {}
    names = ("sendbuff", "recvbuff", "acc")
    return {k: v.decode("utf-8", "replace") for k, v in zip(names, found.groups(), strict=True) if v is not None}


def _choice(groups: tuple[Any, ...] | None) -> dict[str, Any]:
    """Algorithm, protocol, channels and NCCL's own estimate (µs), as far as the line has them."""
    if groups is None:
        return {}
    _, kind, _, algorithm, protocol, time, low, high, kernel, channels, copy = groups
    out: dict[str, Any] = {}
    if algorithm is not None:
        out["algorithm"] = _spelled(algorithm.decode(), _ALGORITHMS)
        out["protocol"] = _spelled(protocol.decode(), _PROTOCOLS)
    elif kernel is not None:
        out |= {"algorithm": "SYMMETRIC", "kernel": kernel.decode("utf-8", "replace")}
    else:
        out |= {"algorithm": "COPY_ENGINE", "kernel": copy.decode("utf-8", "replace")}
    if time is not None:
        out["estimate_us"] = float(time)
    if low is not None:
        out["channels"] = int(high) - int(low) + 1
    elif channels is not None:
        out["channels"] = int(channels)
    return out if kind or out else {}


def _spelled(text: str, names: tuple[str, ...]) -> str:
    return names[int(text)] if text.isdigit() and int(text) < len(names) else text


def parse(path: Path, *, strict: bool = False) -> list[Witness]:
    """Read one log. strict: refuse lines that are cut instead of counting them.

    Raises UnusableInput when it tells nothing, BrokenInput (strict), LimitExceeded.
    """
    return NcclLogReader(path, strict=strict).parse()

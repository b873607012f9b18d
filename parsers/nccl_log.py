"""Logs of NCCL and RCCL (NCCL_DEBUG=INFO or TRACE), several processes in one file → one `Witness` a device.

A call's line has no time, so calls have an order and sizes but no durations. Made for long logs: lines of calls are
cut at fixed words, what repeats (process, operation, type, communicator, stream) is parsed once and then looked up.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tracekit.errors import BrokenInput, LimitExceeded, UnusableInput
from tracekit.model import HealthEntry, TraceMeta, Witness, WitnessGroup
from tracekit.parsers.memory import without_gc
from tracekit.parsers.nccl_common import P2P, REDUCTIONS, Lines, check_processes, datatype, resolve_ranks
from tracekit.parsers.nccl_log_block import Block, Calls
from tracekit.parsers.nccl_log_calls import BUFFERS, Extras, Shape, calls_of, pointers
from tracekit.parsers.nccl_log_comms import Comm, Comms, Process
from tracekit.parsers.nccl_log_core import BREAKS, SAYS, LogCore, in_use
from tracekit.parsers.nccl_log_ring import Ring
from tracekit.parsers.nccl_log_tuning import NO_TEXT, TUNES, Tunings
from tracekit.parsers.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from tracekit.parsers.nccl_log_block import Spans
    from tracekit.parsers.nccl_log_core import Lines as Scanned

    Columns = tuple[NDArray[Any], ...]

MAX_CALLS = 200_000
"""Calls kept of one file: the last ones, as a ring buffer would (they tell where a job hung); the rest is counted."""
_MAX_SHAPES = 1 << 18
_MAX_BUFFERS = 1 << 17
_MAX_BREAKS = 200
"""Lines of a block before which all calls have to be known; with more of them the block is read line by line."""
_MAX_WARNINGS = 50

BLOCK = 1 << 19
"""Small enough for the columns of a block to stay in the processor's cache."""
_I63 = 1 << 63
_BROKEN, _NOTHING = -2, -5
_TIME = len("2026-01-31 12:00:00")
_NOT_WHOLE = "line of a call that is not whole"
_CALL = b": opCount "
_PREFIX = re.compile(
    rb"(?:\[(\d{4}-\d\d-\d\d[^\]]{0,60})\] )?(?<![^\s:\[\]])([^\s:\[\]]+):(\d+):(\d+) (?:\[(-?\d+)\] )?"
    rb"(?:(?:[\d.]+ )?(\S+:\d+)(?: \([^)]{0,400}\))? )?NCCL (INFO|WARN|TRACE|CALL) "
)
"""A host begins where a word does: tried at each letter, a long line without blanks takes for ever."""
_HEAD = re.compile(rb"(?<![A-Za-z])([A-Za-z]+)$")
_LAUNCHER = re.compile(rb"\[rank(\d+)\]:?|^\s*(\d+): ")
_FIXED = re.compile(
    rb"datatype (\d+) op (-?\d+) root (-?\d+) comm (0x[0-9a-fA-F]+) \[nranks=(\d+)\] stream (0x[0-9a-fA-F]+|\(nil\))"
    rb"(?: task (\d+))?(?: globalrank (\d+))?\s*$"
)
_VERSION = re.compile(rb"(NCCL|RCCL) version ?:? ?(\S+)")
_FIX = "log again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING,GRAPH"


class _Found(Struct):
    """A block of lines. calls: how many; of each other line the calls `before` it, where it begins and ends, what it is
    (BREAKS, SAYS, or the number of a text that tells a choice); columns(rows): what the ring takes of calls that no
    line parts; line(row): text of a call; fresh(): calls that are the first of their shape.
    """

    calls: int
    before: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    kind: NDArray[np.int32]
    columns: Callable[[slice], Columns]
    line: Callable[[int], bytes]
    fresh: Callable[[], list[int]]

    def parts(self, breaks: list[int], fresh: list[int]) -> list[tuple[int, int, bool]]:
        """(call, line) up to which all may be taken together, and whether that line breaks them: what lines say goes
        before the calls that are new.
        """
        ends = [(int(self.before[i]), i, True) for i in breaks]
        ends += [(row, int(np.searchsorted(self.before, row, side="right")), False) for row in fresh]
        return [*sorted(ends), (self.calls, len(self.kind), False)]


class NcclLogReader:
    """Reads one log; `parse` returns a witness for each (process, device) in order of appearance."""

    def __init__(self, path: Path, *, strict: bool = False) -> None:
        self.path, self.strict = path, strict
        self.source = Source(path)
        self.comms = Comms()
        self.shapes: dict[tuple[bytes, bytes], int] = {}
        self.shapes_of: dict[tuple[Process, str], list[tuple[bytes, bytes]]] = defaultdict(list)
        self.known: list[Shape] = []
        self.buffers: dict[bytes, int] = {}
        self.stamps: list[str] = []
        self.ring = Ring(MAX_CALLS)
        self.tunings = Tunings(2 * MAX_CALLS)
        self.damaged: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.warnings: dict[Process, Counter[str]] = defaultdict(Counter)
        self.launched: dict[Process, int] = {}
        self.api: Counter[str] = Counter()
        self.hosts: set[bytes] = set()
        self.version: str | None = None
        self.core = LogCore(self._split, self._buffer, self.tunings.number) if in_use() else None

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
            self._damage(f"line of more than {BLOCK:,} bytes", b"", lines.too_long)
        if self.source.damage:
            self._damage(self.source.damage.split(" (")[0], self.source.damage.encode())
        if not self.comms.all:
            raise UnusableInput(f"{self.path}: the NCCL log names no communicator and no call; {_FIX}")
        witnesses = self._witnesses()
        resolve_ranks(witnesses)
        return witnesses

    # ------------------------------------------------------------------ lines

    def _block(self, text: bytes) -> None:
        """One block of whole lines: calls of the usual form all at once, all others in their place between."""
        found = self._cut(text) if self.core is None else self._scanned(self.core, text)
        breaks = [] if found is None else np.flatnonzero(found.kind == BREAKS).tolist()
        fresh = found.fresh() if found is not None and (found.kind == SAYS).any() else []
        if found is None or len(breaks) + len(fresh) > _MAX_BREAKS:
            self._lines(text.split(b"\n"))
            return
        done = row = 0
        for upto, i, breaks_here in found.parts(breaks, fresh):
            number = self._keep(found, slice(row, upto))
            part = found.kind[done:i]
            told = np.flatnonzero(part >= NO_TEXT)
            self.tunings.add(number[found.before[done:i][told] - row], part[told])
            for at in np.flatnonzero(part == SAYS).tolist():
                self._other(text[found.begins[done + at] : found.ends[done + at]])
            done, row = i, upto
            if breaks_here:
                self._lines([text[found.begins[i] : found.ends[i]]])
                done = i + 1

    def _keep(self, found: _Found, rows: slice) -> NDArray[np.int64]:
        """Keep calls that no line between them can change; the number of the next call before and after each."""
        columns = found.columns(rows)
        shape, where = columns[0], columns[3]
        good = (shape != _BROKEN) & (where != _BROKEN)
        for row in np.flatnonzero(~good).tolist():
            self._damage(_NOT_WHOLE, found.line(rows.start + row))
        start = self.ring.total
        if good.any():
            self.ring.add(*(c if good.all() else c[good] for c in columns))
        out: NDArray[np.int64] = start + np.concatenate([np.zeros(1, np.int64), np.cumsum(good)])
        return out

    # ------------------------------------------------------------------ by the compiled scanner

    def _scanned(self, core: LogCore, text: bytes) -> _Found:
        """A block as the compiled scanner sees it."""
        lines = core.scan(text)
        kind = lines.kind.copy()
        told = kind >= 0
        kind[told] = core.choices(kind[told])

        def columns(rows: slice) -> Columns:
            where = core.buffers(lines.buffers[rows])
            shape = core.shapes(lines.shape[rows])
            return shape, lines.count[rows], lines.op_count[rows], where, self._times(text, lines, rows)

        def line(row: int) -> bytes:
            begin = int(lines.begin[row])
            return text[begin : text.find(b"\n", begin) % (len(text) + 1)]

        def fresh() -> list[int]:
            return core.fresh(lines.shape)

        return _Found(len(lines.shape), lines.before, lines.begins, lines.ends, kind, columns, line, fresh)

    def _times(self, text: bytes, lines: Scanned, rows: slice) -> NDArray[np.int32]:
        """Number of the time before each call, -1 for none."""
        stamp = lines.stamp[rows]
        if not len(lines.stamps) or not len(stamp):
            return stamp
        numbers = np.full(len(lines.stamps) + 1, -1, np.int32)  # the last for none
        for i in dict.fromkeys(stamp[np.flatnonzero(np.diff(stamp, prepend=-1))].tolist()):
            if i >= 0:
                begin = int(lines.stamps[i])
                numbers[i] = self._time(text[begin : begin + _TIME])
        return numbers.take(stamp, mode="wrap")

    # ------------------------------------------------------------------ by the blanks of all lines

    def _cut(self, text: bytes) -> _Found | None:
        """A block cut at its blanks; None where it has too few lines for that."""
        block = Block(text)
        calls = block.calls()
        if calls is None:
            return None
        begins, ends = block.begins[calls.others], block.ends[calls.others]
        before = np.searchsorted(calls.line, calls.others)

        def line(row: int) -> bytes:
            number = int(calls.line[row])
            return text[block.begins[number] : block.ends[number]]

        def fresh() -> list[int]:
            first = np.unique(block.distinct(calls.head, calls.fixed)[1]).tolist()
            return [i for i in first if (block.cut(calls.head, i), block.cut(calls.fixed, i)) not in self.shapes]

        return _Found(
            len(calls.line), before, begins, ends, self._kinds(block, (begins, ends)),
            lambda rows: self._columns(block, calls, rows), line, fresh,
        )  # fmt: skip

    def _kinds(self, block: Block, lines: Spans) -> NDArray[np.int32]:
        """What each line is: BREAKS (calls before and after it are not alike), SAYS, `_NOTHING`, or the number of a
        text that tells a choice of algorithm.
        """

        def kind(line: bytes) -> int:
            if _CALL in line:
                return BREAKS
            if TUNES in line:
                return self.tunings.number(line)
            if b"comm 0x" in line and b"CCL" in line:
                return BREAKS
            return SAYS if b"CCL" in line else _NOTHING

        return self._numbers(block, (lines,), kind)

    def _columns(self, block: Block, calls: Calls, rows: slice) -> Columns:
        parts = [(part[0][rows], part[1][rows]) for part in (calls.head, calls.fixed, calls.buffers)]
        where = self._numbers(block, (parts[2],), self._buffer)
        shape = self._numbers(block, (parts[0], parts[1]), self._shape_number)
        return shape, calls.count[rows], calls.op_count[rows], where, self._stamps(block, calls.stamp[rows])

    def _numbers(self, block: Block, parts: tuple[Spans, ...], number: Callable[..., int]) -> NDArray[np.int32]:
        """Number of each call's texts, in order of appearance; `_BROKEN` for one that is not whole."""
        codes, first = block.distinct(*parts)
        found = np.empty(len(first), np.int32)
        order = np.argsort(first)
        rows = first[order]
        spans = [(start[rows].tolist(), end[rows].tolist()) for start, end in parts]
        for at, i in enumerate(order.tolist()):
            try:
                found[i] = number(*[block.text[start[at] : end[at]] for start, end in spans])
            except ValueError:
                found[i] = _BROKEN
        out = found[codes]
        for row in np.flatnonzero(codes < 0).tolist():
            out[row] = self._tried(block, parts, row, number)
        return out

    @staticmethod
    def _tried(block: Block, parts: tuple[Spans, ...], row: int, number: Callable[..., int]) -> int:
        try:
            return number(*(block.cut(part, row) for part in parts))
        except ValueError:
            return _BROKEN

    def _stamps(self, block: Block, starts: NDArray[np.int64]) -> NDArray[np.int32]:
        """Number of the time before each call, -1 for none."""
        out = np.full(len(starts), -1, np.int32)
        timed = np.flatnonzero(starts >= 0)
        if len(timed):
            spans = starts[timed], starts[timed] + _TIME
            edges = np.flatnonzero(np.diff(block.distinct(spans)[0], prepend=-2))
            numbers = [self._time(block.cut(spans, i)) for i in edges.tolist()]
            out[timed] = np.repeat(np.array(numbers, np.int32), np.diff(edges, append=len(timed)))
        return out

    def _lines(self, lines: list[bytes]) -> None:
        """Line by line: a call costs a few cuts, two look-ups and five appends."""
        columns: tuple[list[int], ...] = ([], [], [], [], [])
        shape_of, counts, numbers, buffer_of, stamp_of = columns
        start = self.ring.total
        for line in lines:
            at = line.find(_CALL)
            if at < 0:
                if TUNES in line:
                    self.tunings.add_one(start + len(shape_of), line)
                elif b"CCL" in line:
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
                self._damage(_NOT_WHOLE, line)
                continue
            shape_of.append(shape)
            counts.append(elements_)
            numbers.append(op_count)
            buffer_of.append(where)
            stamp_of.append(stamp)
        if shape_of:
            types = np.int32, np.int64, np.int64, np.int32, np.int32
            self.ring.add(*(np.array(c, t) for c, t in zip(columns, types, strict=True)))

    def _split(self, both: bytes) -> int:
        """`_shape_number` of a head and a fixed part on a line each."""
        head, _, fixed = both.partition(b"\n")
        return self._shape_number(head, fixed)

    def _shape_number(self, head: bytes, fixed: bytes) -> int:
        found = self.shapes.get((head, fixed))
        return self._shape(head, fixed) if found is None else found

    def _buffer(self, text: bytes) -> int:
        """Number of the buffers' text, -1 beyond the most that are kept; raises ValueError for other text: two lines
        in one.
        """
        found = self.buffers.get(text, -1)
        if found < 0:
            if BUFFERS.match(text) is None:
                raise ValueError
            if len(self.buffers) < _MAX_BUFFERS:
                found = self.buffers[text] = len(self.buffers)
        return found

    def _stamped(self, head: bytes) -> tuple[bytes, int]:
        """A call's head without its time, and the number of the time."""
        stamp, found, rest = head[1:].partition(b"] ")
        if not found:
            return head, -1
        return rest, self._time(stamp)

    def _time(self, stamp: bytes) -> int:
        """Number of a time, -1 beyond the most that are kept."""
        text = stamp.decode("utf-8", "replace")
        if not self.stamps or self.stamps[-1] != text:
            if len(self.stamps) >= MAX_CALLS:
                return -1
            self.stamps.append(text)
        return len(self.stamps) - 1

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
        kind = datatype(found[1].decode())
        more: dict[str, Any] = {"stream": found[6].decode()}
        if reduces:
            more["reduction"] = REDUCTIONS[reduction] if 0 <= reduction < len(REDUCTIONS) else str(reduction)
        more |= {k: int(v) for k, v in (("task", found[7]), ("globalrank", found[8])) if v is not None}
        self.known.append(
            Shape(
                comm, name, kind, kind.name if kind else str(int(found[1])), more, root if name in P2P else None,
                root if rooted else None, thread, str(thread), comm.rank in (0, None),
            )
        )  # fmt: skip
        self.shapes[head, fixed] = len(self.known) - 1
        self.shapes_of[process, comm.pointer].append((head, fixed))
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
        for key in self.shapes_of.pop((comm.process, comm.pointer), ()):
            self.shapes.pop(key, None)
        if self.core is not None:
            self.core.forget()
        if comm.ended:
            self.comms.current.pop((comm.process, comm.pointer), None)

    def _thread_of(self, line: bytes) -> tuple[Process, int] | None:
        found = _PREFIX.search(line)
        return None if found is None else ((found[2].decode("utf-8", "replace"), int(found[3])), int(found[4]))

    def _candidate(self, number: int, count: int) -> tuple[tuple[Process, int], str, int, int] | None:
        """Thread, operation, and bytes as newer and as older versions print them; only rank 0 tells its choices."""
        shape = self.known[number]
        if not shape.tells:
            return None
        own = (shape.dtype.bytes if shape.dtype else 0) * count
        total = own * (shape.comm.nranks or 1) if shape.op in ("AllGather", "ReduceScatter") else own
        return (shape.comm.process, shape.thread), shape.op, own, total

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
        stated = self._stated()
        number: dict[str, Witness] = {}
        for comm in self.comms.all:
            place = comm.process, comm.device
            witness = out.get(place)
            if witness is None:
                witness = out[place] = self._witness(comm, len(out), stated)
                check_processes(self.path, len(out))
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
        if self.tunings.untied:
            reason = "choice of algorithm that no call matches"
            first.health.append(HealthEntry(reason, self.tunings.untied, "info"))
        return list(out.values())

    def _witness(self, comm: Comm, part: int, stated: dict[Process, int]) -> Witness:
        source = self.source
        extra: dict[str, Any] = {"communicators": {}, "process": f"{comm.process[0]}:{comm.process[1]}"}
        if comm.device is not None:
            extra["device"] = comm.device
        if self.api:
            extra["api_calls"] = dict(self.api)
        meta = TraceMeta(
            str(self.path), part, source.file_bytes, source.read_bytes, compression=source.compression,
            rank=stated.get(comm.process), backend="nccl", nccl_version=self.version, host_name=comm.process[0],
            extra=extra,
        )  # fmt: skip
        witness = Witness(meta, "nccl-log", version=self.version)
        for message, count in sorted(self.warnings.get(comm.process, Counter()).items()):
            witness.health.append(HealthEntry("NCCL warning", count, "info", message))
        return witness

    def _stated(self) -> dict[Process, int]:
        """The rank that the launcher or RCCL wrote before or into the lines of a process, where it is that of one
        process alone, and of one device.
        """
        devices: dict[Process, set[int | None]] = defaultdict(set)
        for comm in self.comms.all:
            devices[comm.process].add(comm.device)
        processes = Counter(self.launched.values())
        return {p: rank for p, rank in self.launched.items() if processes[rank] == 1 and len(devices[p]) == 1}

    def _calls(self, witness_of: dict[str, Witness]) -> None:
        """Give each witness its calls, as columns."""
        first, columns = self.ring.columns()
        shape, count = columns[:2]
        tuned = self.tunings.choices(first, shape.tolist(), count.tolist(), self._thread_of, self._candidate)
        witnesses = list({id(w): w for w in witness_of.values()}.values())
        number = {id(w): i for i, w in enumerate(witnesses)}
        owner = np.array([number[id(witness_of[s.comm.key])] for s in self.known], np.int64).take(shape)
        extras = Extras(self.known, [pointers(b) for b in self.buffers], self.stamps)
        for i, witness in enumerate(witnesses):
            rows = np.flatnonzero(owner == i)
            witness.calls = calls_of(self.known, extras, tuned, first + rows, [c.take(rows) for c in columns])


def parse(path: Path, *, strict: bool = False) -> list[Witness]:
    """Read one log. strict: refuse lines that are cut instead of counting them.

    Raises UnusableInput when it tells nothing, BrokenInput (strict), LimitExceeded.
    """
    return NcclLogReader(path, strict=strict).parse()

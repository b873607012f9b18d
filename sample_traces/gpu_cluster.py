"""A tiny simulator of GPU ranks: host clocks, streams, collectives that start when the last member arrives.

A rank's program is a generator that yields while it waits for another rank. All times are int ns.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

COMPUTE, COPY = 7, 13
MAIN, AUTOGRAD = 0, 1  # host threads
LAUNCH_LATENCY = 5_200


@dataclass(slots=True)
class Work:
    """One device activity; `end` is None until every rank it depends on has come."""

    kind: str  # compute | comm | copy | set
    name: str
    stream: int
    start: int
    step: int
    corr: int
    args: str
    ext: int | None = None
    end: int | None = None
    strategy: str | None = None
    calls: int = 0
    title: str | None = None
    title_ext: int = 0


@dataclass(slots=True)
class HostRow:
    """One host span."""

    thread: int
    cat: str
    name: str
    ts: int
    args: str
    ext: int
    dur: int = 0


@dataclass(slots=True)
class RuntimeRow:
    """One runtime call and whether an arrow leaves it."""

    thread: int
    name: str
    ts: int
    dur: int
    cbid: int
    corr: int
    ext: int | None
    flow: bool


@dataclass(slots=True)
class Meeting:
    """A collective in progress: ends `transfer` ns after its last member has started."""

    size: int
    transfer: int
    members: list[Work] = field(default_factory=list)

    def join(self, work: Work) -> None:
        """Add one rank's kernel; the last one in fixes the end of all."""
        self.members.append(work)
        if len(self.members) == self.size:
            last = max(w.start for w in self.members)
            for position, member in enumerate(self.members):
                member.end = last + self.transfer + 37 * position


@dataclass
class Gpu:
    """One rank: its clocks, ids and everything it has recorded."""

    rank: int
    slow: float
    meetings: dict[tuple[object, ...], Meeting]
    cpu: int
    thread: int = MAIN
    step: int = 0
    corr: int = 1_000
    ext: int = 0
    host: list[HostRow] = field(default_factory=list)
    runtime: list[RuntimeRow] = field(default_factory=list)
    device: list[Work] = field(default_factory=list)
    last: dict[int, Work] = field(default_factory=dict)
    waits: list[Work] = field(default_factory=list)
    seq: Counter[str] = field(default_factory=Counter)
    stack: list[HostRow] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Seed the noise of this rank."""
        self.noise = 88_172_645 + 104_729 * self.rank

    def jitter(self, ns: int) -> int:
        """`ns` times 0.98 to 1.02, the same in every run."""
        x = self.noise
        x ^= (x << 13) & 0xFFFFFFFF
        x ^= x >> 17
        x ^= (x << 5) & 0xFFFFFFFF
        self.noise = x
        return ns * (9_800 + x % 401) // 10_000

    # ---------------------------------------------------------------- host

    def open(self, name: str, cat: str = "cpu_op", args: str = "") -> HostRow:
        """Begin a host span inside the ones still open."""
        self.cpu += self.jitter(620)
        self.ext += 1
        row = HostRow(self.thread, cat, name, self.cpu, args, self.ext)
        self.host.append(row)
        self.stack.append(row)
        return row

    def close(self, count: int = 1) -> None:
        """End the innermost `count` spans."""
        for _ in range(count):
            self.cpu += self.jitter(310)
            row = self.stack.pop()
            row.dur = self.cpu - row.ts

    def innermost(self) -> int | None:
        """External id of the innermost operator; annotations do not count."""
        for row in reversed(self.stack):
            if row.cat == "cpu_op":
                return row.ext
        return None

    def call(self, name: str, cbid: int, took: int, *, flow: bool = True) -> RuntimeRow:
        """One runtime call."""
        self.cpu += self.jitter(900)
        self.corr += 1
        row = RuntimeRow(self.thread, name, self.cpu, self.jitter(took), cbid, self.corr, self.innermost(), flow)
        self.runtime.append(row)
        self.cpu += row.dur
        return row

    # -------------------------------------------------------------- device

    def _place(self, work: Work, deps: Iterable[Work]) -> Generator[None, None, None]:
        """Start `work` when its stream and everything it waits for are done."""
        needed = [*deps]
        if work.stream in self.last:
            needed.append(self.last[work.stream])
        ready = work.start
        for dep in needed:
            while dep.end is None:
                yield
            ready = max(ready, dep.end)
        work.start = ready + self.jitter(850)
        self.last[work.stream] = work
        self.device.append(work)

    def kernel(self, name: str, ns: int, args: str, kind: str = "compute") -> Generator[None, None, None]:
        """Launch `ns` of work on the compute stream (`kind` set: a memset)."""
        api, cbid = ("cudaMemsetAsync", 51) if kind == "set" else ("cudaLaunchKernel", 211)
        call = self.call(api, cbid, 4_300)
        work = Work(kind, name, COMPUTE, call.ts + LAUNCH_LATENCY, self.step, call.corr, args, call.ext)
        deps, self.waits = self.waits, []
        yield from self._place(work, deps)
        work.end = work.start + self.jitter(int(ns * self.slow))

    def copy(self, name: str, ns: int, args: str) -> Generator[None, None, None]:
        """One asynchronous copy between host and device on the copy stream."""
        call = self.call("cudaMemcpyAsync", 41, 6_800)
        work = Work("copy", name, COPY, call.ts + LAUNCH_LATENCY, self.step, call.corr, args, call.ext)
        yield from self._place(work, [self.last[COMPUTE]] if "DtoH" in name else [])
        work.end = work.start + self.jitter(ns)

    def communicate(self, key: tuple[object, ...], size: int, transfer: int, work: Work) -> Generator[None, None, None]:
        """Enqueue one rank's part of the collective `key` behind what the compute stream has so far."""
        deps = [*self.waits]
        if COMPUTE in self.last:
            deps.append(self.last[COMPUTE])
        yield from self._place(work, deps)
        self.meetings.setdefault(key, Meeting(size, transfer)).join(work)

    def wait(self, work: Work) -> None:
        """The next kernel of the compute stream starts after `work`."""
        self.waits.append(work)

    def synchronize(self, api: str = "cudaDeviceSynchronize", cbid: int = 165) -> Generator[None, None, None]:
        """The host waits for everything on the device."""
        for work in self.last.values():
            while work.end is None:
                yield
        row = self.call(api, cbid, 2_000, flow=False)
        done = max((w.end or 0) for w in self.last.values()) + 3_000
        row.dur = max(row.dur, done - row.ts)
        self.cpu = row.ts + row.dur


def run(programs: Iterable[Generator[None, None, None]]) -> None:
    """Advance all ranks in turn until every program has ended."""
    waiting = list(programs)
    while waiting:
        still = []
        for program in waiting:
            try:
                next(program)
            except StopIteration:
                continue
            still.append(program)
        waiting = still

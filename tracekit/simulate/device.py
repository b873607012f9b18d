"""One simulated GPU: what its host issues, and the device work that follows from it. Times are integer ns.

The host never waits for the device inside a step, so a step is issued whole before any of its device times are known
(`resolve` finds them); only the synchronisation that ends a step makes the host wait.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

COMPUTE, COPY = 7, 13
"""Streams."""
MAIN, AUTOGRAD = 0, 1
"""Host threads."""
LAUNCH_LATENCY_NS = 5_200
GAP_NS = 850
"""From the moment a piece of device work could start to its start."""
OPEN_NS, CLOSE_NS, CALL_NS = 620, 310, 900
"""Host time of entering and leaving an operator, and of reaching a runtime call."""


@dataclass(frozen=True, slots=True)
class Label:
    """What one communication call is, as the simulator knows it; `payload_bytes` is the larger of in- and output."""

    strategy: str
    purpose: str
    op: str
    axis: str
    payload_bytes: int


@dataclass(slots=True, eq=False)
class Work:
    """One device activity. `deps` must end before it starts; `meetings` tie communication to that of other ranks."""

    kind: str  # compute | comm | copy | set
    name: str
    stream: int
    launched: int
    ns: int
    step: int
    corr: int
    args: str
    ext: int | None
    deps: list[Work]
    labels: tuple[Label, ...] = ()
    meetings: list[Meeting] = field(default_factory=list)
    title: str | None = None
    title_ext: int = 0
    start: int = -1
    end: int = -1
    skew: int = 0
    """How much later than the first to see it this rank sees a transfer end."""


@dataclass(slots=True, eq=False)
class Meeting:
    """One transfer of `size` ranks: it takes `ns` from the start of the last of them."""

    size: int
    ns: int
    members: list[Work] = field(default_factory=list)


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
class Lane:
    """A host thread with its open spans and what the next kernel that it launches has to wait for."""

    thread: int
    stack: list[HostRow] = field(default_factory=list)
    waits: list[Work] = field(default_factory=list)


class Gpu:
    """One rank: its clocks, ids and everything it has recorded."""

    def __init__(
        self, rank: int, clock_ns: int, slow_ratio: float = 1.0, jitter_ratio: float = 0.0, seed: int = 0
    ) -> None:
        self.rank, self.cpu, self.slow = rank, clock_ns, slow_ratio
        self.spread = round(jitter_ratio * 10_000)
        self.noise = 88_172_645 + 104_729 * rank + 7_368_787 * seed
        self.load, self.end_skew, self.late = 1.0, 0, 0
        self.step, self.corr, self.ext = 0, 1_000, 0
        self.host: list[HostRow] = []
        self.runtime: list[RuntimeRow] = []
        self.device: list[Work] = []
        self.last: dict[int, Work] = {}
        self.seq: Counter[object] = Counter()
        self.main, self.autograd = Lane(MAIN), Lane(AUTOGRAD)
        self.lane = self.main

    def jitter(self, ns: int) -> int:
        """`ns`, spread evenly by the jitter; the same in every run."""
        if not self.spread:
            return ns
        return ns * (10_000 - self.spread + self._random() % (2 * self.spread + 1)) // 10_000

    def _random(self) -> int:
        """The next of a fixed sequence of numbers (xorshift)."""
        x = self.noise
        x ^= (x << 13) & 0xFFFFFFFF
        x ^= x >> 17
        x ^= (x << 5) & 0xFFFFFFFF
        self.noise = x
        return x

    def open(self, name: str, cat: str = "cpu_op", args: str = "") -> HostRow:
        """Begin a host span inside the ones still open on this thread."""
        self.cpu += OPEN_NS
        self.ext += 1
        row = HostRow(self.lane.thread, cat, name, self.cpu, args, self.ext)
        self.host.append(row)
        self.lane.stack.append(row)
        return row

    def close(self, count: int = 1) -> None:
        """End the innermost `count` spans."""
        for _ in range(count):
            self.cpu += CLOSE_NS
            row = self.lane.stack.pop()
            row.dur = self.cpu - row.ts

    def call(self, name: str, cbid: int, took: int, *, flow: bool = True) -> RuntimeRow:
        """One runtime call of `took` ns."""
        self.cpu += CALL_NS
        self.corr += 1
        operator = next((r.ext for r in reversed(self.lane.stack) if r.cat == "cpu_op"), None)
        row = RuntimeRow(self.lane.thread, name, self.cpu, took, cbid, self.corr, operator, flow)
        self.runtime.append(row)
        self.cpu += took
        return row

    def kernel(self, name: str, ns: int, args: str, kind: str = "compute") -> Work:
        """Launch `ns` of work, times the factors of rank and micro-batch, on the compute stream; `set`: a memset."""
        api, cbid = ("cudaMemsetAsync", 51) if kind == "set" else ("cudaLaunchKernel", 211)
        call = self.call(api, cbid, 4_300)
        took = self.jitter(int(ns * self.slow * self.load))
        work = Work(kind, name, COMPUTE, call.ts, took, self.step, call.corr, args, call.ext, self.lane.waits)
        self.lane.waits = []
        return self.enqueue(work)

    def copy(self, name: str, ns: int, args: str) -> Work:
        """One asynchronous copy between host and device on the copy stream."""
        call = self.call("cudaMemcpyAsync", 41, 6_800)
        deps = [self.last[COMPUTE]] if "DtoH" in name else []
        work = Work("copy", name, COPY, call.ts, self.jitter(ns), self.step, call.corr, args, call.ext, deps)
        return self.enqueue(work)

    def enqueue(self, work: Work) -> Work:
        """Put work on its stream, behind what is there."""
        if work.stream in self.last:
            work.deps.append(self.last[work.stream])
        if work.meetings and self.end_skew:
            work.skew = self._random() % self.end_skew
        self.last[work.stream] = work
        self.device.append(work)
        return work

    def wait(self, work: Work | None) -> None:
        """The next kernel of this thread starts after `work`."""
        if work is not None:
            self.lane.waits.append(work)

    def tail(self) -> list[Work]:
        """What has to end before anything issued from now on can depend on results."""
        return [*self.lane.waits, *([self.last[COMPUTE]] if COMPUTE in self.last else [])]

    def synchronize(self, api: str = "cudaDeviceSynchronize", cbid: int = 165) -> None:
        """The host waits for everything on the device; call it once times are known."""
        row = self.call(api, cbid, 2_000, flow=False)
        done = max((w.end for w in self.last.values()), default=row.ts) + 3_000
        row.dur = max(row.dur, done - row.ts)
        self.cpu = row.ts + row.dur

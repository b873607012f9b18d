"""Training jobs made by a plain recursive simulation, as operation tables: what a replay must find again.

Nothing here is of the package under test but the container of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from tracekit.model import OpRows

Op = tuple[str, int, int]  # (type, number, stage)


@dataclass
class Job:
    """takes(op, step, dp) → ns of work; delay(op, step, dp) → ns from ready to start. chunks: per stage."""

    stages: int = 2
    dp: int = 2
    batches: int = 4
    steps: int = 2
    chunks: int = 1
    takes: Any = None
    delay: Any = field(default=lambda op, step, dp: 0)
    overlap: bool = False

    def order(self, stage: int) -> list[tuple[str, int, int]]:
        """(direction, chunk, micro-batch) in the order of computing: 1F1B, or breadth first with chunks."""
        m = self.batches
        if self.chunks > 1:
            forward = [("forward", c, b) for c in range(self.chunks) for b in range(m)]
            return forward + [("backward", c, b) for c in reversed(range(self.chunks)) for b in range(m)]
        warm = min(self.stages - stage - 1, m)
        out = [("forward", 0, b) for b in range(warm)]
        for b in range(m - warm):
            out += [("forward", 0, warm + b), ("backward", 0, b)]
        return out + [("backward", 0, b) for b in range(m - warm, m)]


def simulate(job: Job) -> dict[tuple[Op, int, int], tuple[int, int]]:
    """(start, end) of every operation: a direct recursion over what it waits for."""
    plan = _Plan(job)
    return {(op, k, d): plan.span(op, k, d) for op in plan.ops() for k in range(job.steps) for d in range(job.dp)}


class _Plan:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.begin, self.finish = cache(self._begin), cache(self._finish)
        self.orders = [job.order(s) for s in range(job.stages)]
        self.number: dict[tuple[int, str, int, int], int] = {}
        for s, order in enumerate(self.orders):
            for way in ("forward", "backward"):
                for k, (_, c, b) in enumerate(o for o in order if o[0] == way):
                    self.number[s, way, c, b] = k

    def ops(self) -> list[Op]:
        out: list[Op] = []
        for s, order in enumerate(self.orders):
            for way, c, b in order:
                k = self.number[s, way, c, b]
                out.append((f"{way}-compute", k, s))
                out += [(f"{way}-{end}", k, s) for end in ("send", "recv") if self.peer(way, end, s, c, b)]
            out += [("params-all-gather", 0, s), ("grads-reduce-scatter", 0, s), ("gc", 0, s)]
            out += [("layernorm-grads-all-reduce", 0, s), ("optimizer-clip-main-grad", 0, s), ("optimizer", 0, s)]
            out += [("embedding-grads-all-reduce", 0, s)] if s in (0, self.job.stages - 1) else []
            out += [("separate-grads-all-reduce", 0, s)] if self.job.overlap else []
        return out

    def peer(self, way: str, end: str, s: int, c: int, b: int) -> Op | None:
        """The other end of a transfer, by chunk of the whole model and micro-batch."""
        p = self.job.stages
        chunk = c * p + s + (1 if (way == "forward") == (end == "send") else -1)
        if not 0 <= chunk < p * self.job.chunks:
            return None
        other = "recv" if end == "send" else "send"
        return (f"{way}-{other}", self.number[chunk % p, way, chunk // p, b], chunk % p)

    def compute(self, op: Op) -> tuple[str, int, int]:
        """(direction, chunk, micro-batch) of a compute or transfer."""
        way = op[0].split("-")[0]
        return next((w, c, b) for (s, w, c, b), k in self.number.items() if (s, w, k) == (op[2], way, op[1]))

    def before(self, op: Op) -> list[Op]:
        """What an operation waits for."""
        name, k, s = op
        order = self.orders[s]
        last = (f"{order[-1][0]}-compute", self.number[s, *order[-1]], s)
        if name.endswith("-compute"):
            way, c, b = self.compute(op)
            at = order.index((way, c, b))
            out = [(f"{order[at - 1][0]}-compute", self.number[s, *order[at - 1]], s)] if at else []
            out += [(f"{way}-recv", k, s)] if self.peer(way, "recv", s, c, b) else []
            return out + ([("params-all-gather", 0, s)] if (way, k) == ("forward", 0) else [])
        if name.endswith(("-send", "-recv")):
            return self._transfer(op)
        if name == "params-all-gather":
            return []
        if name == "grads-reduce-scatter" and self.job.overlap:
            return [("params-all-gather", 0, s), last]
        chain = [("gc", 0, s), ("layernorm-grads-all-reduce", 0, s)]
        chain += [("embedding-grads-all-reduce", 0, s)] if s in (0, self.job.stages - 1) else []
        chain += [("separate-grads-all-reduce" if self.job.overlap else "grads-reduce-scatter", 0, s)]
        chain += [("optimizer-clip-main-grad", 0, s), ("optimizer", 0, s)]
        at = chain.index(op)
        extra = [("grads-reduce-scatter", 0, s)] if self.job.overlap and at == 1 else []
        return [chain[at - 1] if at else last, *extra]

    def _transfer(self, op: Op) -> list[Op]:
        name, k, s = op
        way, end = name.split("-")
        numbers = sorted(
            self.number[s, w, c, b] for w, c, b in self.orders[s] if w == way and self.peer(way, end, s, c, b)
        )
        earlier = [n for n in numbers if n < k]
        out: list[Op] = [(name, earlier[-1], s)] if earlier else []
        if end == "send":
            out.append((f"{way}-compute", k, s))
        elif k:
            out.append((f"{way}-compute", k - 1, s))
        first = next(i for i, o in enumerate(self.orders[s]) if o[0] == "backward")
        if way == "backward" and not earlier and first >= 2:
            w, c, b = self.orders[s][first - 2]
            out.append((f"{w}-compute", self.number[s, w, c, b], s))
        return out

    def group(self, op: Op, d: int) -> list[tuple[Op, int]]:
        """(operation, dp) of all members; alone for what has no group."""
        name, k, s = op
        ranks, stages = range(self.job.dp), range(self.job.stages)
        if name.endswith(("-send", "-recv")):
            way, c, b = self.compute(op)
            other = self.peer(way, name.split("-")[1], s, c, b)
            assert other is not None
            return [(op, d), (other, d)]
        if name in ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"):
            return [(op, r) for r in ranks]
        if name == "embedding-grads-all-reduce":
            return [((name, k, e), d) for e in sorted({0, self.job.stages - 1})]
        if name == "optimizer-clip-main-grad":
            return [((name, k, e), r) for e in stages for r in ranks]
        return [(op, d)]

    def _begin(self, op: Op, step: int, d: int) -> int:
        ready = max((self.finish(o, step, d) for o in self.before(op)), default=0)
        return ready + int(self.job.delay(op, step, d))

    def _finish(self, op: Op, step: int, d: int) -> int:
        return max(self.begin(o, step, r) for o, r in self.group(op, d)) + int(self.job.takes(op, step, d))

    def span(self, op: Op, step: int, d: int) -> tuple[int, int]:
        return self.begin(op, step, d), self.finish(op, step, d)


def step_times(job: Job) -> list[int]:
    """ns of each step: latest end."""
    spans = simulate(job)
    return [max(end for (_, k, _), (_, end) in spans.items() if k == step) for step in range(job.steps)]


def table(job: Job, *, shuffle: int | None = None) -> OpRows:
    """The job as its operation table; shuffle: seed of an order of the rows."""
    plan = _Plan(job)
    rows = []
    for (op, k, d), (start, end) in simulate(job).items():
        name, seq, s = op
        chunk, batch = plan.compute(op)[1:] if name.endswith("-compute") else (-1, -1)
        whole = chunk * job.stages + s if chunk >= 0 else -1
        rows.append((d, s, s * job.dp + d, 100 + k, name, start, end - start, seq, chunk, batch, whole))
    rows = _numbered(rows)
    if shuffle is not None:
        rows = [rows[i] for i in np.random.default_rng(shuffle).permutation(len(rows))]
    return from_rows(rows)


def _numbered(rows: list[Any]) -> list[Any]:
    """Numbers run from 0 within (worker, step, type), as writers count what they see."""
    seen: dict[Any, int] = {}
    out = []
    for row in sorted(rows, key=lambda r: r[7]):
        key = (row[0], row[1], row[3], row[4])
        seen[key] = seen.get(key, -1) + 1
        out.append((*row[:7], seen[key], *row[8:]))
    return out


def from_rows(rows: list[Any], path: str = "job.parquet") -> OpRows:
    """Rows (dp, stage, rank, step, type, start, dur, seq, chunk, batch, global chunk) → OpRows."""
    names = sorted({r[4] for r in rows})
    c = list(zip(*rows, strict=True))
    ints = [np.array(x, np.int32) for x in (c[0], c[1], c[2])]
    return OpRows(
        path, names, *ints, np.array(c[3], np.int64), np.array([names.index(n) for n in c[4]], np.int32),
        np.array(c[5], np.int64), np.array(c[6], np.int64), *(np.array(x, np.int32) for x in c[7:]),
    )  # fmt: skip


def to_rows(ops: OpRows) -> list[Any]:
    """The inverse of `from_rows`."""
    columns = (ops.dp_rank, ops.stage, ops.rank, ops.step, ops.op, ops.start, ops.dur, ops.seq, ops.chunk,
               ops.micro_batch, ops.global_chunk)  # fmt: skip
    rows = zip(*(c.tolist() for c in columns), strict=True)
    return [(*r[:4], ops.ops[r[4]], *r[5:]) for r in rows]


BASE = {
    "forward-compute": 100_000_000, "backward-compute": 200_000_000, "params-all-gather": 30_000_000,
    "grads-reduce-scatter": 40_000_000, "separate-grads-all-reduce": 5_000_000, "gc": 0,
    "layernorm-grads-all-reduce": 1_000_000, "embedding-grads-all-reduce": 9_000_000,
    "optimizer-clip-main-grad": 2_000_000, "optimizer": 20_000_000,
}  # fmt: skip


def even(op: Op, step: int, dp: int) -> int:
    """Everybody takes the same."""
    return BASE.get(op[0], 1_000_000)


def slow(stage: int, dp: int | None, factor: float) -> Any:
    """One worker (or a whole stage, dp None) computes slower by `factor`."""

    def takes(op: Op, step: int, d: int) -> int:
        hit = op[2] == stage and dp in (None, d) and op[0].endswith("-compute")
        return int(even(op, step, d) * (factor if hit else 1.0))

    return takes


def noisy(seed: int, low: float = 0.5, high: float = 1.5) -> Any:
    """Every operation takes its own random time, the same for every simulation of the seed."""

    def takes(op: Op, step: int, d: int) -> int:
        key = f"{seed} {op} {step} {d}".encode()
        share = int.from_bytes(blake2b(key, digest_size=4).digest()) / 2**32
        return int(even(op, step, d) * (low + (high - low) * share))

    return takes

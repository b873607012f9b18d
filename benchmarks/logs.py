#!/usr/bin/env python3
"""Measure tracekit on generated NCCL logs, as ratios to reading their lines. Never fails a build.

    python benchmarks/logs.py --mb 200
    python benchmarks/logs.py --mb 50 --kind mixed --write big.log      only write one

Each figure is the CPU time of a whole process (its start included), the minimum of interleaved repeats. `lines`
iterates over the lines in Python and counts those of calls, `read` only counts newlines a block at a time (as `wc -l`).
"""

from __future__ import annotations

import argparse
import compileall
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from run import Job, Sample, analyze, measure

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
KINDS = ("calls", "mixed")
RANKS, COMMS, BUFFERS = 8, 4, 64
LINES = "import sys; print(sum(b': opCount ' in line for line in open(sys.argv[1], 'rb')))"
READ = """
import sys
n, f = 0, open(sys.argv[1], "rb")
while block := f.read(1 << 20):
    n += block.count(b"\\n")
print(n)
"""
OPS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Send")


def prefix(rank: int, level: str = "INFO") -> str:
    return f"node-{rank // 8:02}:{41000 + rank}:{41000 + rank} [{rank % 8}] NCCL {level} "


def pointer(rank: int, comm: int) -> str:
    return f"0x55d0c{rank:03x}{comm:03x}0"


def link(rank: int, step: int, via: str) -> str:
    other = (rank + step) % RANKS
    return f"{prefix(rank)}Channel 00/0 : {rank}[{rank}] -> {other}[{other}] {via}"


def init(rank: int, comm: int) -> Iterator[str]:
    about = f"comm {pointer(rank, comm)} rank {rank} nranks {RANKS} cudaDev {rank % 8} nvmlDev {rank % 8} busId 1b000"
    name = f"{prefix(rank)}ncclCommInitRankConfig {about} commId 0xabcdef{comm:04x}"
    yield f"{name} - Init START"
    yield f"{prefix(rank)}Using network IB"
    for _ in range(16):
        yield link(rank, 1, "via P2P/CUMEM")
    channels = "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels"
    yield f"{prefix(rank)}{channels}, 4 p2p channels per peer"
    yield f"{name} - Init COMPLETE"


def between(rng: random.Random, rank: int, op: str, count: int, seconds: int) -> Iterator[str]:
    """What stands between the calls of a mixed log."""
    if rank == 0 and op not in ("Send", "Recv"):
        algorithm, protocol = rng.choice(("RING", "TREE")), rng.choice(("LL", "LL128", "SIMPLE"))
        chosen = f"Algo {algorithm} proto {protocol} channel{{Lo..Hi}}={{0..{rng.randrange(24)}}}"
        yield f"{prefix(0)}{op}: {2 * count} Bytes -> {chosen}"
    draw = rng.random()
    if draw < 0.001:
        yield link(rank, 3, "[send] via NET/IB/0/GDRDMA")
    elif draw < 0.02:
        yield f"iteration {seconds:8} | consumed samples: {seconds * 64:12} | lm loss: {rng.random():.6f}"
    elif draw < 0.0201:
        stamp = f"[2026-01-31 {seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}] "
        where = prefix(rank, "WARN").replace(" NCCL", " net_ib.cc:1234 (ncclIbTest) NCCL")
        yield f"{stamp}{where}Call to ibv_poll failed"


def lines(kind: str, seed: int) -> Iterator[str]:
    """All ranks issue the same calls, in the order of their communicators; their lines come in any order."""
    rng = random.Random(seed)
    yield f"{prefix(0)}NCCL version 2.26.2+cuda12.8"
    for comm in range(COMMS):
        for rank in range(RANKS):
            yield from init(rank, comm)
    number = [0] * COMMS
    ranks = list(range(RANKS))
    while True:
        comm, buffer, count = rng.randrange(COMMS), rng.randrange(BUFFERS), 4096 << rng.randrange(10)
        op = OPS[rng.randrange(len(OPS))]
        number[comm] += 1
        rng.shuffle(ranks)
        for rank in ranks:
            name, root = (("Send", "Recv")[rank % 2], rank ^ 1) if op == "Send" else (op, 0)
            yield (
                f"{prefix(rank)}{name}: opCount {number[comm]:x} sendbuff 0x7f3a{buffer:04x}0000 "
                f"recvbuff 0x7f3b{buffer:04x}0000 count {count} datatype 9 op 0 root {root} "
                f"comm {pointer(rank, comm)} [nranks={RANKS}] stream 0x55e0{rank * COMMS + comm:06x}"
            )
            if kind == "mixed":
                yield from between(rng, rank, name, count, sum(number) // 60)


def write(path: Path, mb: float, kind: str, seed: int = 1) -> Path:
    left = mb * 1e6
    with path.open("w") as out:
        for line in lines(kind, seed):
            out.write(line + "\n")
            left -= len(line) + 1
            if left < 0:
                return path
    return path


def show(kind: str, mb: float, ours: Sample, by_lines: Sample, read: Sample) -> None:
    if ours.failed:
        print(f"{kind:<8}failed: {ours.failed}")
        return
    ratios = f"{ours.cpu / by_lines.cpu:>13.2f}{ours.cpu / read.cpu:>12.1f}"
    print(f"{kind:<8}{mb:>6.0f}{ratios}{mb / ours.cpu:>14.0f}{ours.rss / 1e6:>9.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", type=Path, help="only write the log to this file")
    given = parser.parse_args()
    kinds = given.kind or list(KINDS)
    if given.write:
        write(given.write, given.mb, kinds[0])
        return
    compileall.compile_dir(HERE.parent / "parsers", quiet=1)
    compileall.compile_dir(HERE.parent / "tracekit", quiet=1)
    print(f"{'log':<8}{'MB':>6}{'CPU / lines':>13}{'CPU / read':>12}{'MB per CPU s':>14}{'peak MB':>9}")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for kind in kinds:
            path = write(scratch / f"{kind}.log", given.mb, kind)
            jobs = [
                Job("ours", analyze([path], scratch), given.repeats),
                Job("lines", [sys.executable, "-c", LINES, str(path)], given.repeats),
                Job("read", [sys.executable, "-c", READ, str(path)], given.repeats),
            ]
            for _ in range(given.repeats):
                for job in jobs:
                    measure(job, scratch)
            show(kind, path.stat().st_size / 1e6, *(job.sample for job in jobs))
            path.unlink()


if __name__ == "__main__":
    main()

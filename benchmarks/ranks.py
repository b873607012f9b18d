#!/usr/bin/env python3
"""Many ranks: the share of what all ranks need together, and memory by ranks. Simulated traces; prints ratios.

    python benchmarks/ranks.py [--ranks 64] [--layers 16] [--micro-batches 8] [--steps 4] [--stacks]

Matching, clocks, waiting, theory, pipelines, critical path and the stragglers' what-if, over the whole analysis: CPU
time with one worker, so that it is that of one process, and wall time with two. Memory: peak of the process for all
ranks over that for a quarter.
The default writes files of 6.5 MB (before gzip); `--micro-batches 24` of 20 MB, with a call for each 10 kB. Recorded
traces have fewer: 17 kB to 340 kB a call in public sets of many ranks, most of it operators and Python frames.
`--stacks` adds frames as `with_stack=True` records them, two fifths of all events; with `--micro-batches 16` that
is 20 MB a rank and a call for each 16 kB, as dense as the densest recordings.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHILD = """
import json, re, sys, time
import tracekit as tk
import tracekit.ingest.run as run
from tracekit.ingest import pool
marks, parts = {}, {}
pool.claim()  # as the command does
def timed(name):
    inner = getattr(run, name)
    def outer(*args):
        begin = time.process_time()
        try:
            return inner(*args)
        finally:
            parts[name] = time.process_time() - begin
    setattr(run, name, outer)
for name in ("add_cross_rank", "add_expected", "pipelines_of", "add_critical"):
    timed(name)
def progress(done, total, what):
    if what.startswith("matching"):
        marks["cpu"], marks["wall"] = time.process_time(), time.perf_counter()
begin = time.perf_counter()
tk.analyze(sys.argv[2:], detail=False, workers=int(sys.argv[1]), progress=progress)
now, end = time.process_time(), time.perf_counter()
print(json.dumps({"cpu": now, "together": now - marks["cpu"], "parts": parts,
                  "wall": end - begin, "wall_together": end - marks["wall"],
                  "rss": 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])}))
"""


FRAMES = (
    "torch/nn/modules/module.py(1787): _call_impl",
    "nn.Module: ColumnParallelLinear_3",
    "torch/_ops.py(1158): __call__",
    "megatron/core/transformer/transformer_layer.py(361): forward",
    "<built-in method apply of FunctionMeta object at 0x55d0c8a3f0e0>",
    "torch/autograd/graph.py(824): _engine_run_backward",
)
OPERATOR = re.compile(
    r'  \{\s+"ph": "X",\s+"cat": "cpu_op",\s+"name": "[^"]*",\s+'
    r'("pid": \d+,\s+"tid": \d+,\s+"ts": [\d.]+,\s+"dur": [\d.]+)'
)
FRAME = """  {{
    "ph": "X",
    "cat": "python_function",
    "name": "{name}",
    {place}
    ,
    "args": {{
      "Python parent id": {parent}, "Python id": {id}, "Ev Idx": {id}
    }}
  }},
"""


def with_stacks(path: Path) -> None:
    """Puts a frame or two of Python around each operator of a trace."""
    ids, names, more = itertools.count(1), itertools.cycle(FRAMES), itertools.cycle((1, 2))

    def framed(found: re.Match[str]) -> str:
        frames = (
            FRAME.format(name=next(names), place=found[1], parent=i - 1 or "null", id=i)
            for i in itertools.islice(ids, next(more))
        )
        return "".join(frames) + found[0]

    with gzip.open(path, "rt", encoding="utf-8") as source:
        text = OPERATOR.sub(framed, source.read())
    with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as out:
        out.write(text)


def made(folder: Path, options: argparse.Namespace) -> list[Path]:
    """The files, made when absent."""
    if not (folder / "truth.json").exists():
        from tracekit import simulate, theory

        print(f"writing {options.ranks} ranks into {folder} …", file=sys.stderr)
        job = theory.job_of(
            {"model": {"name": "llama3-8b", "layers": options.layers},
             "layout": f"tp=4,pp=4,dp={options.ranks // 16},order=tp-dp-pp",
             "training": {"sequence": 4096, "micro_batch": 1, "micro_batches": options.micro_batches},
             "hardware": {"name": "h100", "network": "ndr"}},
            defaults=True,
        )  # fmt: skip
        faults = {"steps": options.steps, "jitter_ratio": 0.02, "slow": {"5": 1.2}}
        simulate.write(simulate.simulate(job, simulate.options_of(faults)), folder, level=1)
        for path in folder.glob("rank*.json.gz") if options.stacks else ():
            with_stacks(path)
    return sorted(folder.glob("rank*.json.gz"), key=lambda p: int(p.name[4:].split(".")[0]))


def measured(files: list[Path], workers: int = 1) -> dict[str, Any]:
    """CPU and wall seconds, those of the part over all ranks and of its steps, and peak memory of one analysis."""
    command = [sys.executable, "-P", "-c", CHILD, str(workers), *map(str, files)]
    single = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}  # as the command does
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **single})
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64, help="a multiple of 32 (default 64)")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--stacks", action="store_true", help="with frames of Python around the operators")
    parser.add_argument("--data", type=Path, default=HERE / "data")
    options = parser.parse_args()
    name = f"ranks{options.ranks}-{options.layers}-{options.micro_batches}-{options.steps}{'-stacks' * options.stacks}"
    files = made(options.data.resolve() / name, options)
    whole, quarter = measured(files), measured(files[: len(files) // 4])
    size = sum(f.stat().st_size for f in files) / 1e6
    share, grown = whole["together"] / whole["cpu"], whole["rss"] / quarter["rss"]
    print(f"{len(files)} ranks, {size:.0f} MB of gzip, {whole['cpu']:.0f} s of CPU")
    print(f"CPU for all ranks together / whole analysis   {share:6.2f}   goal ≤ 0.2")
    for name, seconds in whole["parts"].items():
        print(f"    {name.removeprefix('add_').removesuffix('_of'):43} {seconds / whole['cpu']:.3f}")
    both = measured(files, 2)
    late = both["wall_together"] / both["wall"]
    print(f"wall time with two workers, the same           {late:6.2f}, {both['wall']:.1f} s")
    print(f"peak RSS, {len(files)} ranks / {len(files) // 4} ranks   {grown:15.2f}, {whole['rss'] / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

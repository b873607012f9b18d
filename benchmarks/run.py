#!/usr/bin/env python3
"""Measure tracekit on generated traces and print ratios against their goals. Never fails a build.

    make bench                    all that is at hand
    python benchmarks/run.py --mb 50 --repeats 5

Every figure is the CPU time or peak memory of a whole process as the kernel accounts it (children included), the
minimum of interleaved repeats; only ratios are compared. Peers run when a Python that has them is named:
`--hta PYTHON` or BENCH_HTA (HolisticTraceAnalysis), `--tracelens PYTHON` or BENCH_TRACELENS.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import generate

HERE = Path(__file__).resolve().parent
TRACEKIT = [sys.executable, "-c", "from tracekit.commands import main; main()"]
ORJSON = "import orjson, sys; orjson.loads(open(sys.argv[1], 'rb').read())"
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
t = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
t.get_comm_comp_overlap(visualize=False)
t.get_temporal_breakdown(visualize=False)
"""
TRACELENS = """
import sys
from TraceLens import TreePerfAnalyzer
TreePerfAnalyzer.from_file(sys.argv[1]).get_df_gpu_timeline()
"""
KERNELS = 5_000_000
PAIRS = (("pair", "plain", "peer"), ("half pair", "half0", "half1"))
"""Two ranks of a job: name, file of each."""


@dataclass(slots=True)
class Sample:
    """Least CPU and wall seconds and peak memory (bytes) of one command over its repeats."""

    cpu: float = float("inf")
    wall: float = float("inf")
    rss: float = float("inf")
    failed: str = ""


@dataclass(slots=True)
class Job:
    """A command to measure and how often; `quick` ones run more often."""

    name: str
    command: list[str]
    repeats: int
    sample: Sample = field(default_factory=Sample)


@dataclass(slots=True)
class Line:
    """One printed comparison; `most` says whether the goal is an upper bound."""

    what: str
    value: float | None
    goal: float | None
    most: bool = True
    note: str = ""


def measure(job: Job, scratch: Path) -> None:
    """Run a job once; keep the least of each figure."""
    with (scratch / "stderr").open("w+") as errors:
        began = time.perf_counter()
        child = subprocess.Popen(job.command, stdout=subprocess.DEVNULL, stderr=errors, cwd=scratch)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        errors.seek(0)
        said = errors.read()
    if child.returncode:
        job.sample.failed = said.strip().splitlines()[-1] if said.strip() else f"exit {child.returncode}"
        return
    best = job.sample
    best.cpu = min(best.cpu, usage.ru_utime + usage.ru_stime)
    best.wall = min(best.wall, wall)
    best.rss = min(best.rss, usage.ru_maxrss * 1024)


def analyze(files: list[Path], scratch: Path, workers: int = 1) -> list[str]:
    """The whole command: read, label, account, write the dataset."""
    out = str(scratch / "dataset")
    return [*TRACEKIT, "analyze", *map(str, files), "-o", out, "-f", "-q", "--workers", str(workers)]


def data(folder: Path, mb: float) -> dict[str, Path]:
    """The input files, made when absent."""
    wanted = {
        "plain": (f"k{mb:g}.json", mb, 0),
        "gz": (f"k{mb:g}.json.gz", mb, 0),
        "twice": (f"k{2 * mb:g}.json", 2 * mb, 0),
        "half0": (f"pair{mb:g}/rank0.json", mb / 2, 0),
        "half1": (f"pair{mb:g}/rank1.json", mb / 2, 1),
        "peer": (f"k{mb:g}-rank1.json", mb, 1),
        "small": ("k1.json", 1, 0),
    }
    for name, size, rank in wanted.values():
        path = folder / name
        if not Path(f"{path}.truth.json").exists():
            print(f"writing {path} ({size:g} MB) …", file=sys.stderr)
            generate.generate(path, size, rank=rank, steps=20 if size > 1 else 2)
    return {key: folder / name for key, (name, _, _) in wanted.items()}


def jobs(files: dict[str, Path], scratch: Path, options: argparse.Namespace) -> dict[str, Job]:
    """Everything to measure. The peers' long runs are repeated less."""
    n = options.repeats
    plain = str(files["plain"])
    found = [
        Job("tracekit", analyze([files["plain"]], scratch), n),
        Job("orjson", [sys.executable, "-c", ORJSON, plain], n),
        Job("tracekit gz", analyze([files["gz"]], scratch), n),
        Job("tracekit twice", analyze([files["twice"]], scratch), n),
        *(
            Job(f"{size} {workers}", analyze([files[a], files[b]], scratch, workers), n)
            for size, a, b in PAIRS
            for workers in (1, 2)
        ),
        Job("small", analyze([files["small"]], scratch), n + 2),
        Job("help", [*TRACEKIT, "--help"], n + 2),
    ]
    if options.hta:
        found.append(Job("hta", [options.hta, "-c", HTA, plain], options.peer_repeats))
    if options.tracelens:
        found.append(Job("tracelens", [options.tracelens, "-c", TRACELENS, plain], options.peer_repeats))
    return {job.name: job for job in found}


def algebra(python: str, way: str, repeats: int) -> tuple[float, Any] | None:
    """(least CPU seconds, answer) of the interval algebra done one way."""
    best, answer = float("inf"), None
    for _ in range(repeats):
        command = [python, str(HERE / "algebra.py"), way, str(KERNELS)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return None
        result = json.loads(done.stdout)
        best, answer = min(best, result["cpu"]), result["result"]
    return best, answer


def ratios(files: dict[str, Path], found: dict[str, Job]) -> list[Line]:
    """All comparisons but the interval algebra."""
    size = {key: path.stat().st_size for key, path in files.items()}
    s = {name: job.sample for name, job in found.items()}
    mine = s["tracekit"]
    grown = s["tracekit twice"].rss - mine.rss
    lines = [
        Line("CPU / orjson.loads, plain", mine.cpu / s["orjson"].cpu, 0.40),
        Line("CPU / orjson.loads of the plain file, gz", s["tracekit gz"].cpu / s["orjson"].cpu, 0.40),
        Line("peak RSS / file size", mine.rss / size["plain"], 0.40),
        Line("peak RSS growth per MB of JSON", grown / (size["twice"] - size["plain"]), 0.25),
        Line("CPU for twice the events", s["tracekit twice"].cpu / mine.cpu, 2.1),
        *(
            Line(
                f"two ranks of {size[a] / 1e6:.0f} MB: wall, one worker / two",
                s[f"{pair} 1"].wall / s[f"{pair} 2"].wall,
                1.5,
                most=False,
            )
            for pair, a, _ in PAIRS
        ),
        Line("--help, s", s["help"].wall, 0.3),
        Line("analyze of a 1 MB file, s", s["small"].wall, 1.2),
    ]
    for peer, what, goal in (
        ("hta", "HTA load + overlap + breakdown / tracekit, CPU", 15.0),
        ("tracelens", "TraceLens tree + timeline / tracekit, CPU", 10.0),
    ):
        job = found.get(peer)
        if job is None:
            lines.append(Line(what, None, goal, most=False, note="not run: not at hand"))
        elif job.sample.failed:
            lines.append(Line(what, None, goal, most=False, note=f"not run: {job.sample.failed[:60]}"))
        else:
            lines.append(Line(what, job.sample.cpu / mine.cpu, goal, most=False))
            lines.append(Line(what.replace("CPU", "peak RSS"), job.sample.rss / mine.rss, None))
    return lines


def algebra_line(options: argparse.Namespace) -> Line:
    """Interval algebra against HTA's way."""
    what = "interval algebra of 5 M kernels, HTA's way / tracekit"
    if not options.hta:
        return Line(what, None, 25.0, most=False, note="not run: not at hand")
    mine = algebra(sys.executable, "tracekit", options.repeats)
    theirs = algebra(options.hta, "hta", options.peer_repeats)
    if mine is None or theirs is None:
        return Line(what, None, 25.0, most=False, note="not run: failed")
    note = "equal results" if mine[1] == theirs[1] else "RESULTS DIFFER"
    return Line(what, theirs[0] / mine[0], 25.0, most=False, note=note)


def exact(path: Path) -> str:
    """Compare the totals of a file with the generator's truth."""
    truth = json.loads(Path(f"{path}.truth.json").read_text())
    command = [*TRACEKIT, "analyze", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=path.parent)
    total = json.loads(done.stdout)["totals"][0]
    wrong = [key for key, value in truth["device"].items() if total[key] != value]
    if total["collectives"] != truth["calls"]:
        wrong.append("collectives")
    return "equal to the ns" if not wrong else "DIFFERENT: " + ", ".join(wrong)


def show(lines: list[Line]) -> None:
    """Print the table."""
    print(f"{'ratio':<58}{'value':>9}{'goal':>10}")
    for line in lines:
        goal = "" if line.goal is None else f"{'≤' if line.most else '≥'} {line.goal:g}"
        if line.value is None:
            verdict = line.note
        elif line.goal is None:
            verdict = ""
        else:
            met = line.value <= line.goal if line.most else line.value >= line.goal
            verdict = ("ok" if met else "missed") + (f", {line.note}" if line.note else "")
        value = "–" if line.value is None else f"{line.value:.2f}"
        print(f"{line.what:<58}{value:>9}{goal:>10}  {verdict}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=500, help="size of the main file in MB (default 500)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer-repeats", type=int, default=1)
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--hta", default=os.environ.get("BENCH_HTA"), help="Python with HolisticTraceAnalysis 0.5.0")
    parser.add_argument("--tracelens", default=os.environ.get("BENCH_TRACELENS"), help="Python with TraceLens")
    options = parser.parse_args()
    for folder in ("tracekit", "parsers", "rules"):  # an editable copy starts like an installed one, which pip compiles
        compileall.compile_dir(HERE.parent / folder, quiet=1)
    files = data(options.data.resolve(), options.mb)
    scratch = options.data.resolve() / "scratch"
    scratch.mkdir(exist_ok=True)
    try:
        found = jobs(files, scratch, options)
        for repeat in range(max(job.repeats for job in found.values())):
            for job in found.values():
                if repeat < job.repeats and not job.sample.failed:
                    print(f"{repeat + 1}: {job.name} …", file=sys.stderr)
                    measure(job, scratch)
        ours = [j.name for j in found.values() if j.sample.failed and j.name not in {"hta", "tracelens"}]
        if ours:
            print("failed: " + "; ".join(f"{n}: {found[n].sample.failed}" for n in ours))
            return
        lines = [*ratios(files, found), algebra_line(options)]
    finally:
        shutil.rmtree(scratch)
    events = json.loads(Path(f"{files['plain']}.truth.json").read_text())["events"]
    print(f"{files['plain'].name}: {files['plain'].stat().st_size / 1e6:.0f} MB, {events:,} events, 20 steps")
    print(f"totals against the generator's truth: plain {exact(files['plain'])}; gz {exact(files['gz'])}")
    show(lines)


if __name__ == "__main__":
    main()

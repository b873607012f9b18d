#!/usr/bin/env python3
"""Put the numbers of HTA 0.5.0 and of tracekit side by side for the same trace files.

    python benchmarks/compare_hta.py --hta PYTHON FILE…

PYTHON is an interpreter with HolisticTraceAnalysis installed. Each file is one rank. HTA runs three times: as shipped,
which rounds every time to whole µs; with HTA_DISABLE_NS_ROUNDING=1; and like that with three of its decisions undone
from outside (docs/compare-hta.md): no kernel is dropped for its launch, rows that are no device work are left out, and
communication kernels that it does not know by name count as communication. Prints a Markdown table, times in µs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ASK_HTA = """
import contextlib, json, logging, re, sys
logging.disable(logging.CRITICAL)
path, corrected = sys.argv[1], sys.argv[2] == "corrected"
out = {}
with contextlib.redirect_stdout(sys.stderr):
    try:
        import hta.analyzers.breakdown_analysis as breakdown
        import hta.analyzers.communication_analysis as communication
        from hta.common.trace import Trace
        from hta.trace_analysis import TraceAnalysis
        known = breakdown.get_kernel_type
        def kernel_type(name):
            other = r"deep_ep::|multimem_all_reduce|cross_device_reduce"
            return "COMMUNICATION" if re.search(other, name) else known(name)
        if corrected:
            Trace._filter_irrelevant_gpu_kernels = lambda *_: None
            breakdown.get_kernel_type = communication.get_kernel_type = kernel_type
        t = TraceAnalysis(trace_files={0: path}, include_last_profiler_step=True)
        if corrected:
            rows, names = t.t.traces[0], t.t.symbol_table.get_sym_table()
            device = rows["cat"].map(lambda i: names[i] in ("kernel", "gpu_memcpy", "gpu_memset"))
            t.t.traces[0] = rows[rows["stream"].eq(-1) | device]
        out["overlap_pct"] = float(t.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0])
        row = t.get_temporal_breakdown(visualize=False).iloc[0]
        out |= {k: float(row[k + "_time(us)"]) for k in ("idle", "compute", "non_compute", "kernel")}
    except Exception as error:
        out["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(out))
"""
MODES = {
    "HTA": ("0", "shipped"),
    "HTA, no rounding": ("1", "shipped"),
    "HTA, no rounding, corrected": ("1", "corrected"),
}
COLUMNS = ("window", "compute", "not compute", "idle", "overlap %")


def ask_hta(python: str, path: Path, exact: str, how: str) -> dict[str, Any]:
    """HTA's figures of one file, µs; `error` when it stops."""
    env = os.environ | {"HTA_DISABLE_NS_ROUNDING": exact}
    command = [python, "-c", ASK_HTA, str(path), how]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        return {"error": f"exit {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def hta_row(found: dict[str, Any]) -> list[float | None]:
    """Its figures in the order of `COLUMNS`."""
    overlap = found.get("overlap_pct")
    overlap = None if overlap is None or overlap != overlap else overlap
    return [found.get("kernel"), found.get("compute"), found.get("non_compute"), found.get("idle"), overlap]


def ask_tracekit(path: Path) -> list[list[float | None]]:
    """Per device the figures in the order of `COLUMNS`; `not compute` is what is neither compute nor idle."""
    command = [sys.executable, "-c", "from tracekit.commands import main; main()", "analyze", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return []
    rows: list[list[float | None]] = []
    for total in json.loads(done.stdout)["totals"]:
        compute = total["compute_ns"] or 0
        rest = total["window_ns"] - compute - total["idle_ns"]
        ratio = total["overlap_ratio"]
        times = (total["window_ns"], compute, rest, total["idle_ns"])
        rows.append([*(t / 1000 for t in times), None if ratio is None else 100 * ratio])
    return rows


def cells(row: list[float | None]) -> str:
    """One table row's numbers."""
    return " | ".join("–" if value is None else f"{value:,.3f}".removesuffix(".000") for value in row)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hta", required=True, metavar="PYTHON")
    parser.add_argument("files", nargs="+", type=Path)
    args = parser.parse_args()
    print("| file | tool | " + " | ".join(COLUMNS) + " |")
    print("|---|---|" + "---:|" * len(COLUMNS))
    for path in args.files:
        print(f"| `{path.parent.name}/{path.name}` |" + " |" * (1 + len(COLUMNS)))
        for name, (exact, how) in MODES.items():
            found = ask_hta(args.hta, path.resolve(), exact, how)
            print(f"| | {name} | {found.get('error') or cells(hta_row(found))} |", flush=True)
        for device in ask_tracekit(path):
            print(f"| | tracekit | {cells(device)} |", flush=True)


if __name__ == "__main__":
    main()

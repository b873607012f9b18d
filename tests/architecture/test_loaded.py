"""What a run of one recording loads: nothing that only other inputs or outputs need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "gpu-tp2-pp2-dp2" / "rank0.json.gz"
UNNEEDED = (
    # libraries
    "pandas", "rich", "multiprocessing", "concurrent.futures", "holoviews", "torch", "pyarrow.parquet",
    # other inputs
    "tracekit.parsers.nsys", "tracekit.parsers.nccl_log", "tracekit.parsers.flight_recorder",
    "tracekit.parsers.execution_trace", "tracekit.parsers.straggler_table", "tracekit.label.witness",
    "tracekit.label.join", "tracekit.label.communicators", "tracekit.ingest.hanging", "tracekit.analysis.hang",
    # several ranks
    "tracekit.analysis.crossrank.run", "tracekit.analysis.crossrank.matching", "tracekit.analysis.crossrank.clocks",
    "tracekit.analysis.stragglers.graph", "tracekit.analysis.stragglers.whatif", "tracekit.analysis.stragglers.writer",
    # other questions and outputs
    "tracekit.theory.planning", "tracekit.theory.config", "tracekit.simulate", "tracekit.analysis.diff",
    "tracekit.output.parquet", "tracekit.output.terminal", "tracekit.output.html", "tracekit.output.perfetto",
    "tracekit.output.runs",
)  # fmt: skip


def test_one_recording_as_json_loads_nothing_else() -> None:
    code = (
        "import contextlib, io, sys\n"
        "from tracekit.commands import main\n"
        "with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):\n"
        f"    main(['analyze', {str(SAMPLE)!r}, '--json'])\n"
        f"print(len(text.getvalue()) > 1000, *(m for m in {UNNEEDED!r} if m in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]

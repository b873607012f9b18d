#!/usr/bin/env python3
"""The dashboard's first view in a real browser, from a server that has just started, over 1,024,000 calls.

    python benchmarks/dashboard.py [--calls 1024000] [--tries 3] [--folder DIR]

The data: the sample job, its ranks and calls repeated and written with tracekit's own writer, beside the sample itself,
so that there is a trend to draw. Each try is cold: a new server, a new browser profile. Seconds count from the start of
the navigation (Performance API) until the first plot is painted; those from the command to its "serving" stand beside.
Needs chromium, chromedriver, and the extras `dashboard` and `dev`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.ingest.run import RunTables

HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parent / "sample_traces" / "gpu-tp2-pp2-dp2"
RANKS = 256
SERVE = "import sys; from tracekit.commands import main; sys.exit(main())"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--window-size=1280,900",
)  # fmt: skip
WATCH = """
  window.__seen = {};
  const deep = (r) => [...r.querySelectorAll('*')].flatMap((e) => [e, ...(e.shadowRoot ? deep(e.shadowRoot) : [])]);
  const painted = (c) => { if (!c.width || !c.height) return false;
    const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
    for (let i = 3; i < data.length; i += 4) if (data[i]) return true; return false; };
  const look = setInterval(() => {
    const all = document.body ? deep(document.body) : [];
    if (!__seen.table && all.some((e) => e.tagName === 'TABLE')) __seen.table = performance.now();
    if (!all.some((e) => e.tagName === 'CANVAS' && painted(e))) return;
    __seen.plot = performance.now();
    clearInterval(look);
  }, 20);
"""
SEEN = """
  const [n] = performance.getEntriesByType('navigation');
  const all = performance.getEntriesByType('resource');
  return {...__seen, page: n.responseEnd, loaded: n.loadEventStart, requests: all.length + 1,
    bytes: all.reduce((s, e) => s + e.transferSize, n.transferSize)};
"""


def many(run: RunTables, calls: int, folder: Path) -> RunTables:
    """The sample's run with so many ranks and calls; `folder` holds them until they are written."""
    import numpy as np
    import pyarrow as pa

    own = len(run.details)
    a_rank = -(-calls // RANKS)
    details, added, expected = [], [], []
    for (_, files, shift), more, theory in zip(run.details, run.added, run.expected, strict=True):
        with pa.memory_map(files["collectives"]) as source:
            rows = pa.ipc.open_file(source).read_all()
        take = np.resize(np.arange(rows.num_rows), a_rank)
        at = rows.schema.get_field_index("id")
        grown = rows.take(take).set_column(
            at, rows.schema.field("id"), pa.array(range(a_rank), rows.schema.field("id").type)
        )
        path = folder / f"{len(details)}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, grown.schema) as writer:
            writer.write_table(grown)
        details.append((files | {"collectives": str(path)}, shift))
        added.append(more if isinstance(more, str) else _taken(more, take))
        expected.append(_taken(theory, take))
    run.world_size = RANKS
    run.details = [(r, *details[r % own]) for r in range(RANKS)]
    run.added, run.expected = ([x[r % own] for r in range(RANKS)] for x in (added, expected))
    for name in ("ranks", "steps", "breakdown", "exposure", "totals"):
        rows_of: dict[int, list[dict[str, Any]]] = {}
        for row in run.tables[name]:
            rows_of.setdefault(row["rank"], []).append(row)
        run.tables[name] = [row | {"rank": r} for r in range(RANKS) for row in rows_of.get(r % own, [])]
    return run


def _taken(columns: Any, rows: Any) -> Any:
    import numpy as np

    return type(columns)(
        {k: v[rows] for k, v in columns.numbers.items()}, {k: v[rows] for k, v in columns.rates.items()},
        {k: np.asarray(v, object)[rows].tolist() for k, v in columns.texts.items()},
    )  # fmt: skip


def made(folder: Path, calls: int) -> Path:
    """The two runs, written when absent."""
    import tracekit as tk
    from tracekit.output import runs

    root = folder / f"runs-{calls}"
    if not root.is_dir():
        print(f"writing {calls:,} calls into {root} …", file=sys.stderr)
        result = tk.analyze(SAMPLE, workers=1)  # its big tables last as long as it
        result.append(root, "sample")
        with tempfile.TemporaryDirectory() as parts:
            runs.append(many(result.run, calls, Path(parts)), root, "many")
    return root


def first_view(root: Path, shot: Path | None) -> dict[str, float]:
    """One cold try: seconds until it serves, until table and plot are there; requests and bytes."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    profile = tempfile.mkdtemp()
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    begin = time.monotonic()
    command = [sys.executable, "-c", SERVE, "dashboard", str(root), "--no-show", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            assert server.stderr.readline().startswith("serving")
            serving = time.monotonic() - begin
            driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
            driver.get(f"http://127.0.0.1:{port}/")
            end = time.monotonic() + 120
            while not driver.execute_script("return __seen.plot"):
                assert time.monotonic() < end, "no plot after two minutes"
                time.sleep(0.05)
            found = driver.execute_script(SEEN)
            if shot is not None:
                driver.save_screenshot(str(shot))
        finally:
            server.terminate()
            driver.quit()
            shutil.rmtree(profile, ignore_errors=True)
    times = {k: found[k] / 1000 for k in ("page", "loaded", "table", "plot")}
    return {"serving": serving} | times | {"requests": found["requests"], "MB": found["bytes"] / 1e6}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_024_000)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=HERE / "data", help="where the runs are kept")
    parser.add_argument("--shot", type=Path, help="keep a picture of the last view")
    args = parser.parse_args()
    root = made(args.folder, args.calls)
    print("cold first view, s  serving   page loaded  table   plot  requests    MB   load")
    seen = []
    for number in range(args.tries):
        load = os.getloadavg()[0]
        one = first_view(root, args.shot)
        seen.append(one["plot"])
        times = "".join(f"{one[k]:7.2f}" for k in ("serving", "page", "loaded", "table", "plot"))
        print(f"try {number + 1}               {times} {one['requests']:9.0f} {one['MB']:5.1f} {load:6.1f}", flush=True)
    print(f"first plot: {min(seen):.2f} s at best, {statistics.median(seen):.2f} s median of {len(seen)} (goal: 3 s)")


if __name__ == "__main__":
    main()

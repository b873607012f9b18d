"""Real CPU recordings: times equal the oracle to the ns, and agree with what was injected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import oracle
import pytest
from shared_folder import shared_dir

import tracekit as tk
from tracekit.analysis.intervals import covered, union
from tracekit.model import CPU_DEVICE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.shared

MS = 1_000_000


def _recordings() -> list[str]:
    """One rank of each case."""
    root = shared_dir()
    if root is None:
        return []
    cases = sorted((root / "recordings").iterdir())
    firsts = [min(case.glob("rank*.json.gz"), default=None) for case in cases]
    return [f"{path.parent.name}/{path.name}" for path in firsts if path is not None]


@pytest.mark.parametrize("file", _recordings() or [None])
def test_recording_equals_the_oracle(shared: Path, file: str) -> None:
    path = shared / "recordings" / file
    truth = oracle.host_totals(oracle.load(path))
    (row,) = tk.analyze(path, detail=False, workers=1).document["totals"]
    assert row["device"] == CPU_DEVICE
    got = {name: row[f"{name}_ns"] or 0 for name in ("compute", "comm", "hidden", "exposed")}
    assert got == {name: getattr(truth, name) for name in got}


def _probes(path: Path) -> dict[str, list[tuple[int, int]]]:
    """(communication, exposed) ns of every all-reduce, by the probe it belongs to."""
    result = tk.analyze(path, workers=1)
    acts = result.arrow("activities").select(["kind", "ts_ns", "dur_ns"]).to_pylist()
    compute = [(a["ts_ns"], a["ts_ns"] + a["dur_ns"]) for a in acts if a["kind"] == "compute"]
    over = union(np.array([a for a, _ in compute], np.int64), np.array([b for _, b in compute], np.int64))
    out: dict[str, list[tuple[int, int]]] = {}
    for c in result.arrow("collectives").select(["op", "scope", "ts_ns", "dur_ns"]).to_pylist():
        if c["op"] == "all_reduce":
            ends = np.array([c["ts_ns"], c["ts_ns"] + c["dur_ns"]], np.int64)
            before, after = covered(over, ends).tolist()
            out.setdefault(c["scope"].removeprefix("probe:"), []).append((c["dur_ns"], c["dur_ns"] - (after - before)))
    return out


def test_timed_overlap_is_found(shared: Path) -> None:
    folder = shared / "recordings" / "overlap_timed2"
    ranks = [_probes(folder / f"rank{r}.json.gz") for r in range(2)]
    for probes in ranks:
        assert {name: len(calls) for name, calls in probes.items()} == dict.fromkeys(probes, 3)
        assert all(comm - exposed < 5 * MS for comm, exposed in probes["blocking"])
        assert all(exposed < 5 * MS for _, exposed in probes["overlapped"])
        # The sleep of 5 ms overran a little on the loaded machine of the recording.
        assert all(0 < comm - exposed < 12 * MS for comm, exposed in probes["partial"])
    waits = [a[0] - b[0] for a, b in zip(ranks[0]["straggler"], ranks[1]["straggler"], strict=True)]
    assert all(75 * MS < wait < 90 * MS for wait in waits)

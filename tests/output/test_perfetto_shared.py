"""Real recordings drawn: the strict reader takes them, and the exposed slices are the published exposed time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from chrome_reader import read, union

import tracekit as tk
from tracekit.errors import UnusableInput

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.shared
RECORDED = [
    "corpus/felipemello1+torchtitan/torchtitan_4rank_obs-pr8a",
    "corpus/ModelTC+lightllm/lightllm_deepep_decode_8rank",
    "corpus/pytorch+torchrec/torchrec_a2a_4rank",
    "recordings/fr_ep2",
    "recordings/pptime_1f1b4",
]


@pytest.mark.parametrize("name", RECORDED)
def test_real_recordings(name: str, shared: Path, tmp_path: Path) -> None:
    result = tk.analyze(shared / name, workers=1)
    written = result.perfetto(tmp_path / "t.json")
    trace = read(tmp_path / "t.json")
    assert (written.slices, written.flows) == (len(trace.slices), len(trace.flows))
    assert trace.other["flows_left_out"] == 0
    for total in result.document["totals"]:
        parts = [s for s in trace.slices if s.process == f"rank {total['rank']}" and s.cat == "exposed"]
        assert union([(s.start, s.end) for s in parts]) == total["exposed_ns"]
    for call in result.arrow("collectives").to_pylist():
        if call["arrival_ns"] is not None and call["n_activities"] and call["family"] != "gloo":
            drawn = [s for s in trace.slices if s.args.get("call_id") == call["id"]
                     and s.process == f"rank {call['rank']}"]  # fmt: skip
            assert [s.start for s in drawn] == [call["arrival_ns"] + trace.other["shift_ns"]]


def test_dumps_without_durations_are_not_drawn(shared: Path, tmp_path: Path) -> None:
    result = tk.analyze(shared / "corpus/NVIDIA+nvidia-resiliency-ext/fr_gpu_error_1st", workers=1)
    with pytest.raises(UnusableInput, match="no device work and no call with a duration"):
        result.perfetto(tmp_path / "t.json")
    assert not list(tmp_path.iterdir())

"""Real gloo jobs recorded by the profiler and the flight recorder at once: all calls tied, groups and labels right."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import accuracy
import pytest

from tracekit.ingest.locate import rank_of_run
from tracekit.ingest.worker import Options

if TYPE_CHECKING:
    from pathlib import Path

AXIS = {"tp": "tp", "zero3": "dp", "dp": "dp", "ep": "ep"}
"""Strategy of a call → its group in the recording's own account of the mesh."""
TWINS = {"fr_ep2": "tkgloo_ep2", "fret_tk_ep2": "tkgloo_ep2", "rec_fsdp_tp4": "tkgloo_fsdp_tp4",
         "fr_pp_1f1b2": "tkgloo_pp_1f1b2", "rec_pp_1f1b4": "tkgloo_pp_1f1b2"}  # fmt: skip
"""The same kind of job recorded by a backend that writes groups into the trace itself."""


@pytest.mark.shared
@pytest.mark.parametrize("name", TWINS)
def test_groups_and_labels_of_a_trace_with_dumps(shared: Path, name: str) -> None:
    folder = shared / "recordings" / name
    truth = json.loads((folder / "truth.json").read_text())
    score = accuracy.Score()
    for labels, path in accuracy.files(shared, name):
        rank = int(labels.stem.removeprefix("labels_rank"))
        files = [*folder.glob("rank*.json.gz"), *folder.glob("fr_rank*")]
        out = rank_of_run(files, Options(), rank, workers=1)
        assert out.meta.path == str(path)
        found = {(c.via[-1], c.call_ts): c for c in out.calls if c.via}
        for event in json.loads(labels.read_text()):
            call = found[event["op"], round(event["ts"] * 1000) + (out.meta.base_ns or 0)]
            accuracy.judge(score, call, event)
            if call.op in accuracy.P2P:  # gloo's recorder has no sends and receives
                continue
            assert call.witness is not None
            assert call.witness.startswith("flight-recorder:")
            if (axis := AXIS.get(event["strategy"])) is not None:
                group = next(g for g in truth["groups"][axis] if rank in g)
                assert list(call.members or ()) == group
    twin = accuracy.score_case(shared, TWINS[name])
    assert score.events > 0
    assert score.right * twin.events >= twin.right * score.events, score.notes
    assert score.phase_ratio() >= twin.phase_ratio(), score.notes

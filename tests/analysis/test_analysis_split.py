"""The split of communication time into waiting and transfer, against counting instants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from analysis_builder import Act, call, rank
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tracekit.analysis.arrays import spill
from tracekit.analysis.crossrank.busy import busy_table
from tracekit.analysis.crossrank.columns import RankInput
from tracekit.analysis.crossrank.split import split_rank
from tracekit.analysis.rank import analyze_rank
from tracekit.model import NO_TIME, Kind

if TYPE_CHECKING:
    import pytest


@st.composite
def ranks(draw: st.DrawFn) -> tuple[list[Any], list[Any], list[int | None]]:
    """Activities and calls of one rank in a window of 60 ns, and how long each call waits (None = not split)."""
    calls = [
        call(draw(st.sampled_from(["dp", "tp"])), draw(st.sampled_from(["a", "b"])))
        for _ in range(draw(st.integers(1, 4)))
    ]
    acts = []
    spans = []
    for i in range(len(calls)):
        start = draw(st.integers(0, 50))
        end = draw(st.integers(start, 60))
        acts.append(Act(start, end, Kind.COMM, i))
        spans.append((start, end))
    for kind in draw(st.lists(st.sampled_from([Kind.COMPUTE, Kind.FUSED, Kind.COPY]), max_size=4)):
        start = draw(st.integers(0, 50))
        acts.append(Act(start, draw(st.integers(start, 60)), kind))
    waited = [draw(st.one_of(st.none(), st.integers(0, e - s))) for s, e in spans]
    return acts, [replace(c, ts=s, dur=e - s) for c, (s, e) in zip(calls, spans, strict=True)], waited


@given(case=ranks())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_split_equals_counting_instants_and_adds_up(case: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    acts, calls, waited = case
    labelled = rank(acts, calls)
    tables = analyze_rank(labelled, origin_ns=0)
    path = str(tmp_path_factory.mktemp("busy") / "busy.arrow")
    data = busy_table(labelled, 0)
    spill(data, str(path))
    one = RankInput(3, {"busy": path}, steps=tables.steps)
    keys = [(c.label.strategy, c.label.purpose or "", "") for c in calls]
    wait = np.array([NO_TIME if w is None else w for w in waited], np.int64)
    once = sorted(set(keys))
    key = np.array([once.index(k) for k in keys], np.int64)
    got = split_rank(one, once, key, np.array([c.ts for c in calls], np.int64), wait)
    for total in tables.totals:
        for strategy, row in total["by_strategy"].items():
            split = got.strategies[0].get(strategy)
            if split is None:
                assert row["total_ns"] == 0
                continue
            assert sum(split.attributed) == row["attributed_ns"]
            assert sum(split.total) == row["total_ns"]
            assert split.total == _instants(calls, waited, strategy)
    for row in tables.exposure:
        found = got.rows[0, row["step"]].get((row["strategy"], row["purpose"], ""))
        if found is None:
            assert row["total_ns"] == 0
        else:
            assert sum(found.attributed) == row["attributed_ns"]
            assert sum(found.total) == row["total_ns"]


def _instants(calls: list[Any], waited: list[int | None], strategy: str) -> list[int]:
    """[waiting, transfer, not split] ns of a strategy, looking at every ns."""
    out = [0, 0, 0]
    for t in range(60):
        parts = set()
        for c, w in zip(calls, waited, strict=True):
            if c.label.strategy == strategy and c.ts <= t < c.ts + c.dur:
                parts.add(2 if w is None else 0 if t < c.ts + w else 1)
        if parts:
            out[1 if 1 in parts else 0 if 0 in parts else 2] += 1
    return out

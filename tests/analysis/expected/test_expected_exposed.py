"""Exposed time: what could be hidden, by rule, by position in the step, and by the compute that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit import theory
from tracekit.analysis.arrays import spill
from tracekit.analysis.crossrank.busy import COMPUTE
from tracekit.analysis.expected.calls import Calls, Kind, Recording
from tracekit.analysis.expected.exposed import split_exposure
from tracekit.analysis.expected.findings import exposure_findings
from tracekit.analysis.expected.hiding import AVOIDABLE, STRUCTURAL, UNKNOWN, rule_of
from tracekit.analysis.expected.timing import Judged, Timed
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]
Span = tuple[int, int]
KIND = Kind("zero3", "grad_reduce", "backward", "reduce_scatter", "0-7", "nccl", None, None, 8, None, 1 << 20)


def _split(
    folder: Path, compute: list[Span], comm: list[tuple[Kind, int, int, int | None]], *, spare: int,
    attributed: dict[str, tuple[int, int]], high: float | None = None,
) -> tuple[list[Row], Recording]:  # fmt: skip
    """Rows of exposure after the split. comm: (kind, start, end, waiting); attributed: strategy → (all, waiting)."""
    rows = [(a, b - a, COMPUTE) for a, b in compute] + [(a, b - a, i) for i, (_, a, b, _) in enumerate(comm)]
    table = pa.table({
        "device": pa.array([0] * len(rows), pa.int32()), "ts_ns": pa.array([r[0] for r in rows], pa.int64()),
        "dur_ns": pa.array([r[1] for r in rows], pa.int64()), "call": pa.array([r[2] for r in rows], pa.int32()),
    })  # fmt: skip
    path = str(folder / "busy.arrow")
    spill(table, str(path))
    kinds = list(dict.fromkeys(k for k, *_ in comm))
    n = len(comm)
    wait = np.array([NO_TIME if w is None else w for *_, w in comm], np.int64)
    which = np.array([kinds.index(k) for k, *_ in comm], np.int64)
    calls = Calls(
        kinds, which, kinds, which, np.zeros(n, np.int64),
        np.array([a for _, a, _, _ in comm], np.int64), np.array([b - a for _, a, b, _ in comm], np.int64),
        wait, wait,
    )  # fmt: skip
    e = None
    if high is not None:
        e = theory.Expectation(theory.expect("send", 1, theory.place([0, 1], 8), theory.hardware("h100")).bound,
                               high, high, high, None, "")  # fmt: skip
    none = np.full(n, np.nan)
    judged = Judged(np.zeros(n, np.int64), none, none, wait, wait != NO_TIME, [Timed(8, expectation=e) for _ in kinds])
    exposure = [
        {"rank": 0, "device": 0, "step": 0, "strategy": s, "purpose": k.purpose, "phase": k.phase,
         "attributed_ns": attributed[s][0], "attributed_wait_ns": attributed[s][1]}
        for s in attributed for k in kinds if k.strategy == s
    ]  # fmt: skip
    one = Recording(
        0, {"busy": path}, "one-rank", steps=[{"step": 0, "complete": True}], exposure=exposure,
        breakdown=[{"device": 0, "step": 0, "compute_only_ns": spare, "overlapped_ns": 0, "window_ns": 1000}],
    )  # fmt: skip
    split_exposure(one, calls, judged, {})
    return exposure, one


def _parts(row: Row) -> tuple[int, int, int]:
    return (row["avoidable_ns"], row["structural_ns"], row["unknown_ns"])


def test_the_last_reduction_stays_exposed(tmp_path: Path) -> None:
    """DDP by hand (theory 4.3): of 3 buckets of 10 the last has no backward left; a covered part counts nowhere."""
    comm = [(KIND, 0, 10, 0), (KIND, 20, 30, 0), (KIND, 40, 50, 0)]
    rows, _ = _split(tmp_path, [(5, 20)], comm, spare=500, attributed={"zero3": (25, 0)})
    assert _parts(rows[0]) == (15, 10, 0)
    assert "backward" in rows[0]["overlap"]


def test_the_first_gather_stays_exposed(tmp_path: Path) -> None:
    gather = KIND._replace(purpose="param_gather", phase="forward", op="all_gather")
    comm = [(gather, 0, 40, 0), (gather._replace(payload=5), 50, 60, 0)]
    rows, _ = _split(tmp_path, [], comm, spare=500, attributed={"zero3": (50, 0)})
    assert _parts(rows[0]) == (10, 40, 0)


def test_waiting_is_taken_off(tmp_path: Path) -> None:
    comm = [(KIND, 0, 100, 90), (KIND, 200, 210, 0)]
    rows, _ = _split(tmp_path, [(0, 95)], comm, spare=500, attributed={"zero3": (15 + 90, 90)})
    # transfers of 10 each: 5 of the first are covered; the second is the last
    assert _parts(rows[0]) == (5, 10, 0)


def test_no_more_is_avoidable_than_compute_is_left(tmp_path: Path) -> None:
    comm = [(KIND, 0, 30, 0), (KIND, 30, 60, 0), (KIND, 60, 70, 0)]
    rows, _ = _split(tmp_path, [], comm, spare=20, attributed={"zero3": (70, 0)})
    assert _parts(rows[0]) == (20, 50, 0)


def test_without_other_ranks_the_excess_may_be_waiting(tmp_path: Path) -> None:
    comm = [(KIND, 0, 100, None), (KIND, 100, 110, None)]
    rows, _ = _split(tmp_path, [], comm, spare=500, attributed={"zero3": (110, 0)}, high=20.0)
    assert _parts(rows[0]) == (20, 10, 80)
    rows, _ = _split(tmp_path, [], comm, spare=500, attributed={"zero3": (110, 0)})
    assert _parts(rows[0]) == (0, 0, 110)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 100), st.integers(1, 40), st.integers(0, 40)), min_size=1),
    st.integers(0, 60),
)  # fmt: skip
def test_parts_add_up_exactly(tmp_path_factory: pytest.TempPathFactory, drawn: list[Any], spare: int) -> None:
    kinds = [KIND, KIND._replace(strategy="tp", purpose="activation", phase="forward"),
             KIND._replace(strategy="pp", purpose="stage_transfer", op="send")]  # fmt: skip
    comm = [(kinds[k], a, a + d, min(w, d)) for k, a, d, w in drawn]
    attributed: dict[str, tuple[int, int]] = {}
    for k, a, b, w in comm:
        old = attributed.get(k.strategy, (0, 0))
        attributed[k.strategy] = (old[0] + b - a, old[1] + (w or 0))
    folder = tmp_path_factory.mktemp("x")
    rows, _ = _split(folder, [(10, 20)], comm, spare=spare, attributed=attributed)
    for r in rows:
        assert sum(_parts(r)) == r["attributed_ns"] - r["attributed_wait_ns"]
        assert min(_parts(r)) >= 0
    assert sum(r["avoidable_ns"] for r in rows) <= spare


def test_findings_name_what_could_be_saved(tmp_path: Path) -> None:
    comm = [(KIND, 0, 100, 0), (KIND, 100, 110, 0)]
    _, one = _split(tmp_path, [], comm, spare=500, attributed={"zero3": (110, 0)})
    found = exposure_findings([one])
    assert [(f["code"], f["avoidable_ns"], f["cost_ns"]) for f in found] == [("avoidable-exposure", 100, 110)]
    assert "10.0 %" in found[0]["message"]
    tp = KIND._replace(strategy="tp", purpose="activation", phase="forward", op="all_reduce")
    _, one = _split(tmp_path, [], [(tp, 0, 100, 0)], spare=500, attributed={"tp": (100, 0)})
    assert [f["code"] for f in exposure_findings([one])] == ["structural-exposure"]


@pytest.mark.parametrize(
    ("strategy", "purpose", "phase", "op", "overlap"),
    [
        ("tp", "activation", "forward", "all_reduce", STRUCTURAL),
        ("tp", "activation", "decode", "all_reduce", STRUCTURAL),
        ("tp", "activation", "recompute", "all_reduce", STRUCTURAL),
        ("tp", "activation", "backward", "all_reduce", AVOIDABLE),
        ("tp", "activation", None, "all_reduce", UNKNOWN),
        ("sp", "activation", "backward", "reduce_scatter", AVOIDABLE),
        ("sp", "activation", "backward", "all_gather", UNKNOWN),
        ("sp", "activation", "forward", "all_gather", STRUCTURAL),
        ("dp", "grad_reduce", "backward", "all_reduce", AVOIDABLE),
        ("zero1", "param_gather", "optimizer", "all_gather", AVOIDABLE),
        ("cp", "kv_exchange", "forward", "send", AVOIDABLE),
        ("cp", "kv_exchange", "forward", "all_gather", STRUCTURAL),
        ("cp", "kv_exchange", "forward", "all_to_all", UNKNOWN),
        ("ep", "token_dispatch", "forward", "all_to_all", STRUCTURAL),
        ("pp", "stage_transfer", "forward", "recv", UNKNOWN),
        ("embedding", "tied_grad", "backward", "all_reduce", STRUCTURAL),
        ("housekeeping", "metric", None, "all_reduce", UNKNOWN),
        ("unknown", None, None, "all_reduce", UNKNOWN),
    ],
)
def test_rules(strategy: str, purpose: str | None, phase: str | None, op: str, overlap: int) -> None:
    kind = KIND._replace(strategy=strategy, purpose=purpose, phase=phase, op=op)
    assert rule_of(kind).overlap == overlap


def test_variants_of_context_parallelism() -> None:
    kind = KIND._replace(strategy="cp", purpose="kv_exchange", phase="forward", op="all_to_all")
    assert rule_of(kind._replace(variant="ring-a2a")).overlap == AVOIDABLE
    assert rule_of(kind._replace(variant="ulysses")).overlap == STRUCTURAL

"""Kernels alone and under communication."""

from __future__ import annotations

import numpy as np
import pytest
from analysis_builder import Act, activities, rank

from tracekit.analysis import analyze_rank
from tracekit.analysis.slowdown import slowdown
from tracekit.model import Kind


def _runs(alone: list[int], over: list[int], name: str = "gemm", at: int = 0) -> list[Act]:
    """Kernels of these durations, first alone, then under one long communication."""
    out = []
    for d in alone:
        out.append(Act(at, at + d, name=name))
        at += d + 10
    start = at
    for d in over:
        out.append(Act(at, at + d, name=name))
        at += d + 10
    if over:
        out.append(Act(start, at, kind=Kind.COMM, stream=9, name="nccl"))
    return out


def _slowdown(acts: list[Act]) -> tuple[float | None, int, int, int | None]:
    a = activities(acts)
    s = slowdown(a, np.arange(len(a)))
    return (s.ratio, s.kernels, s.runs, s.extra_ns)


def test_ratio_to_the_median_alone() -> None:
    assert _slowdown(_runs([100] * 5, [120, 120, 120, 120, 130])) == (pytest.approx(1.22), 1, 5, 110)


def test_too_few_runs_give_no_number() -> None:
    assert _slowdown(_runs([100] * 4, [120] * 5)) == (None, 0, 0, None)
    assert _slowdown(_runs([100] * 5, [120] * 4)) == (None, 0, 0, None)
    assert _slowdown([Act(0, 10)]) == (None, 0, 0, None)


def test_a_name_with_several_shapes_is_left_out() -> None:
    mixed = _runs([100, 100, 100, 400, 400, 400], [120] * 5)
    assert _slowdown(mixed) == (None, 0, 0, None)
    more = _runs([50] * 5, [55] * 5, "norm", at=100_000)
    assert _slowdown(mixed + more) == (pytest.approx(1.1), 1, 5, 25)


def test_partly_covered_runs_do_not_count() -> None:
    acts = _runs([100] * 5, [])
    for i in range(6):
        at = 10_000 + 1000 * i
        acts += [Act(at, at + 100, name="gemm"), Act(at + 50, at + 200, kind=Kind.COMM, stream=9, name="nccl")]
    assert _slowdown(acts) == (None, 0, 0, None)


def test_published_per_rank_and_device() -> None:
    total = analyze_rank(rank(_runs([100] * 5, [110] * 5)), origin_ns=0).totals[0]
    assert total["slowdown_ratio"] == pytest.approx(1.1)
    assert (total["slowdown_kernels"], total["slowdown_runs"], total["slowdown_ns"]) == (1, 5, 50)

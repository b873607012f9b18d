"""Where in its step a call stands."""

from __future__ import annotations

import pytest
from label_builder import TraceBuilder

from tracekit.label import load_rules
from tracekit.label.place import places
from tracekit.label.steps import find_steps
from tracekit.model import Call

BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


@pytest.mark.parametrize(
    ("spans", "want"),
    [
        ([], "none"),
        ([(10, BACKWARD)], "after_backward"),
        ([(90, BACKWARD)], "before_backward"),
        ([(10, BACKWARD), (90, BACKWARD)], "between"),
        ([(10, BACKWARD), (20, "Optimizer.step#SGD.step")], "none"),
        ([(10, BACKWARD), (80, "Optimizer.step#SGD.step"), (90, BACKWARD)], "after_backward"),
        ([(10, BACKWARD), (20, "Optimizer.step#SGD.step"), (90, BACKWARD)], "before_backward"),
        ([(10, BACKWARD), (40, "ProfilerStep#4")], "none"),
        ([(10, BACKWARD), (60, "ProfilerStep#4"), (90, BACKWARD)], "after_backward"),
    ],
)
def test_place(spans, want):
    b = TraceBuilder()
    for at, name in spans:
        b.note(at, 5, name)
    trace = b.build()
    base = trace.host.ts[0] - spans[0][0] * 1000 if spans else 0
    calls = [Call(op="all_reduce", op_raw="allreduce"), Call(op="all_reduce", op_raw="allreduce")]
    calls[0].call_ts = int(base) + 50_000
    assert places(calls, trace, find_steps(trace, load_rules().steps)) == [want, "none"]

"""Traces without device work: gloo workers joined first-in first-out, compute of the main thread."""

from __future__ import annotations

import numpy as np
import pytest
from label_builder import TraceBuilder

from tracekit.label import label_rank, load_rules
from tracekit.label.host import in_order
from tracekit.model import CPU_DEVICE, Kind, LabelledRank, LinkConfidence

RULES = load_rules()


def run(b: TraceBuilder) -> LabelledRank:
    return label_rank(b.build(), RULES)


def dims(*shape: int) -> dict[str, object]:
    return {"dims": [list(shape)], "types": ["float"]}


def in_out(out: list[int], inp: list[int]) -> dict[str, object]:
    return {"dims": [out, inp, [], []], "types": ["float", "float", "", ""]}


def reduced(*shape: int) -> dict[str, object]:
    return {"dims": [[list(shape)], []], "types": ["TensorList", ""]}


def comm(out: LabelledRank) -> list[tuple[int, int, int]]:
    a = out.activities
    return [(int(t), int(d), int(c)) for t, d, c, k in zip(a.ts, a.dur, a.call, a.kind, strict=True) if k == Kind.COMM]


def compute(out: LabelledRank) -> list[tuple[int, int]]:
    a = out.activities
    return [(int(t), int(d)) for t, d, k in zip(a.ts, a.dur, a.kind, strict=True) if k == Kind.COMPUTE]


def test_spans_join_by_kind_shape_and_order():
    b = TraceBuilder()
    for i, shape in enumerate([(8,), (4,), (8,)]):
        b.op(10 * i, 5, "c10d::allreduce_", args=reduced(*shape))
    b.note(12, 9, "gloo:all_reduce", thread="w1", args=dims(4)).note(
        40, 9, "gloo:all_reduce", thread="w2", args=dims(8)
    )
    b.note(30, 9, "gloo:all_reduce", thread="w1", args=dims(8))
    found = run(b).calls
    assert [c.ts for c in found] == [30_000, 12_000, 40_000]
    assert [(c.in_nelems, c.dtype, c.payload_bytes) for c in found] == [
        (8, "Float", 32),
        (4, "Float", 16),
        (8, "Float", 32),
    ]
    assert all(c.family == "gloo" and c.link == LinkConfidence.CONTAINMENT and c.device == CPU_DEVICE for c in found)


def test_a_reduce_scatter_runs_as_an_all_reduce():
    b = TraceBuilder().op(0, 5, "c10d::_reduce_scatter_base_", args=in_out([4], [8]))
    [call] = run(b.note(9, 9, "gloo:all_reduce", thread="w", args=dims(8))).calls
    assert (call.op, call.ts, call.in_nelems, call.out_nelems) == ("reduce_scatter", 9_000, 8, 4)


def test_without_recorded_shapes_the_kind_must_do():
    b = TraceBuilder().op(0, 5, "c10d::allreduce_", args={"dims": [[], []], "types": ["TensorList", ""]})
    [call] = run(b.note(9, 9, "gloo:all_reduce", thread="w", args=dims(77))).calls
    assert (call.ts, call.in_nelems) == (9_000, 77)


def test_a_span_that_starts_before_the_operator_is_not_its_own():
    b = (
        TraceBuilder()
        .note(2, 5, "gloo:all_reduce", thread="w", args=dims(8))
        .op(10, 5, "c10d::allreduce_", args=reduced(8))
    )
    found = run(b).calls
    assert [(c.call_ts, c.ts) for c in found] == [(None, 2_000), (10_000, None)]


def test_a_barrier_is_a_call_but_no_communication_time():
    out = run(TraceBuilder().op(0, 5, "c10d::barrier").note(6, 9, "gloo:barrier", thread="w"))
    assert [c.op for c in out.calls] == ["barrier"]
    assert comm(out) == []


def test_a_send_is_never_charged_and_a_receive_only_while_nothing_else_runs():
    b = TraceBuilder().op(0, 5, "c10d::send", args=reduced(8)).note(4, 90, "gloo:send", args=dims(8))
    b.op(6, 3, "c10d::recv_", args=reduced(8)).note(8, 60, "gloo:recv", args=dims(8)).op(20, 20, "aten::mm")
    out = run(b)
    assert [(c.op, c.ts, c.dur, c.n_activities) for c in out.calls] == [
        ("send", 4_000, None, 0),
        ("recv", 40_000, 28_000, 1),
    ]
    assert comm(out) == [(40_000, 28_000, 1)]


def test_a_receive_that_ends_under_compute_waited_for_nothing():
    b = (
        TraceBuilder()
        .op(6, 3, "c10d::recv_", args=reduced(8))
        .note(8, 20, "gloo:recv", args=dims(8))
        .op(20, 20, "aten::mm")
    )
    assert comm(run(b)) == []


def test_compute_is_what_neither_communicates_nor_encloses_communication():
    b = TraceBuilder().op(0, 100, "Redistribute").op(5, 10, "aten::view").op(20, 30, "_c10d_functional::all_reduce")
    b.op(22, 4, "aten::clone").op(30, 10, "c10d::allreduce_", args=reduced(8)).op(60, 20, "aten::mm").op(
        62, 5, "aten::t"
    )
    b.op(70, 200, "aten::other_thread", thread="loader").note(40, 9, "gloo:all_reduce", thread="w", args=dims(8))
    out = run(b)
    assert compute(out) == [(5_000, 10_000), (22_000, 4_000), (60_000, 20_000)]
    assert set(out.activities.device.tolist()) == {CPU_DEVICE}


def test_the_thread_of_the_step_markers_is_the_one_that_computes():
    b = TraceBuilder().note(0, 50, "ProfilerStep#1").op(5, 10, "aten::a").op(0, 500, "aten::b", thread="loader")
    assert compute(run(b)) == [(5_000, 10_000)]


def test_a_worker_span_whose_operator_is_missing_is_still_communication():
    out = run(TraceBuilder().note(9, 5, "gloo:all_reduce", thread="w", args=dims(8)))
    assert [(c.op, c.call_ts, c.ts, c.link) for c in out.calls] == [("all_reduce", None, 9_000, LinkConfidence.NONE)]
    assert comm(out) == [(9_000, 5_000, 0)]


def test_a_trace_of_a_gpu_job_without_its_device_side_shows_no_compute():
    b = TraceBuilder().op(0, 50, "record_param_comms", args={}).note(1, 40, "nccl:all_to_all").op(60, 9, "aten::mm")
    out = run(b)
    assert len(out.activities) == 0
    assert [c.op for c in out.calls] == ["all_to_all"]
    assert any("no device activity" in h.reason for h in out.health)


def test_the_only_group_of_a_job_is_the_group_of_its_calls():
    from tracekit.model import ProcessGroup

    group = ProcessGroup("0", "default_pg", 2, (4, 5))
    args = {**reduced(8), "concrete": ["", "", "1", "0"]}
    for count, want in ((1, (4, 5)), (3, None)):
        b = TraceBuilder(groups=(group,), pg_count=count).op(0, 5, "c10d::send", args=args)
        [call] = run(b).calls
        assert (call.members, call.dst_rank) == (want, 5 if want else None)


def test_uneven_splits_are_kept():
    args = {"dims": [[97, 64], [96, 64], [], [], []], "types": ["float", "float", "", "ScalarList", "ScalarList"],
            "concrete": ["", "", "", "[56, 41]", "[56, 40]"]}  # fmt: skip
    [call] = run(TraceBuilder().op(0, 5, "c10d::alltoall_base_", args=args)).calls
    assert (call.out_splits, call.in_splits, call.in_nelems, call.out_nelems) == (
        "[56, 41]",
        "[56, 40]",
        6144,
        6208,
    )


@pytest.mark.parametrize("seed", range(20))
def test_rows_in_order_are_known_as_such(seed):
    keys = list(np.random.default_rng(seed).integers(0, 3, (3, 4)))
    if seed % 2:
        keys = [key[np.lexsort(keys[::-1])] for key in keys]
    rows = list(zip(*(k.tolist() for k in keys), strict=True))
    assert in_order(keys) == (rows == sorted(rows))

"""Links are verified by time and thread; ids alone are not believed."""

from __future__ import annotations

import numpy as np
import pytest
from label_builder import TraceBuilder

from tracekit.model import LinkConfidence, RankTrace
from tracekit.parsers.links import Links, _latest, link


def launch_names(trace: RankTrace, links: Links) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in zip(links.launch, links.op, strict=True)]


def op_name(trace: RankTrace, links: Links, row: int) -> str | None:
    return None if links.op[row] < 0 else trace.names[trace.host.name[links.op[row]]]


def test_ids_that_agree_with_time_and_thread():
    trace = (
        TraceBuilder().op(0, 50, "aten::mm", ext=5).call(10, 5, corr=7, ext=5).kernel(40, 9, "k", corr=7, ext=5).build()
    )
    links = link(trace)
    assert op_name(trace, links, 0) == "aten::mm"
    assert links.launch[0] == 1
    assert links.confidence[0] == LinkConfidence.ID


def test_a_fake_external_id_falls_back_to_containment():
    b = TraceBuilder().op(0, 50, "aten::true", ext=90).op(500, 50, "aten::wrong", ext=7)
    trace = b.call(10, 5, corr=7).kernel(40, 9, "k", corr=7, ext=7).build()
    links = link(trace)
    assert op_name(trace, links, 0) == "aten::true"
    assert links.confidence[0] == LinkConfidence.CONTAINMENT


def test_an_external_id_on_another_thread_is_refused():
    b = TraceBuilder().op(0, 50, "aten::elsewhere", ext=7, thread="other").op(5, 30, "aten::here", ext=8)
    trace = b.call(10, 5, corr=7).kernel(40, 9, "k", corr=7, ext=7).build()
    assert op_name(trace, link(trace), 0) == "aten::here"


def test_one_graph_launch_issues_many_kernels():
    b = TraceBuilder().call(10, 5, "cudaGraphLaunch", corr=3)
    for i in range(5):
        b.kernel(20 + 10 * i + (2_000_000 if i == 4 else 0), 5, f"k{i}", corr=3)
    links = link(b.build())
    assert links.launch.tolist() == [0] * 5
    assert links.confidence.tolist() == [LinkConfidence.ID] * 5


def test_an_ordinary_launch_does_not_claim_the_kernels_of_a_later_session():
    b = TraceBuilder().call(10, 5, corr=3).kernel(20, 5, "k", corr=3).kernel(5_000_000, 5, "k", corr=3)
    assert link(b.build()).launch.tolist() == [0, -1]


def test_sessions_that_repeat_their_correlation_ids():
    b = TraceBuilder()
    for session in range(3):
        b.call(session * 1e6, 5, corr=3).kernel(session * 1e6 + 20, 5, "k", corr=3)
    assert link(b.build()).launch.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("early_us", "linked"), [(9, True), (31, True), (2000, False)])
def test_a_kernel_may_seem_to_start_before_its_launch_by_clock_skew_only(early_us, linked):
    links = link(TraceBuilder().call(5000, 5, corr=3).kernel(5000 - early_us, 5, "k", corr=3).build())
    assert (links.launch[0] == 0) == linked
    assert links.skewed == (1 if linked and early_us > 10 else 0)


def test_without_a_launch_the_annotation_on_the_stream_is_left():
    b = TraceBuilder().op(0, 1, "x").gpu_note(90, 40, "outer").gpu_note(99, 12, "nccl:all_reduce", stream=20)
    trace = b.gpu_note(99, 12, "nccl:broadcast", stream=20, device=1).kernel(100, 10, "k", stream=20, corr=3).build()
    links = link(trace)
    assert links.confidence[0] == LinkConfidence.ANNOTATION
    assert trace.names[trace.annotations.name[links.note[0]]] == "nccl:all_reduce"


def test_nothing_to_go_by():
    links = link(TraceBuilder().kernel(100, 10, "k").build())
    assert links.confidence.tolist() == [LinkConfidence.NONE]


def test_an_unsigned_id_keeps_its_64_bits():
    top = np.uint64(2**64 - 5).astype(np.int64).item()
    links = link(TraceBuilder().call(10, 5, corr=top).kernel(20, 5, "k", corr=top).build())
    assert links.launch.tolist() == [0]


def scopes(trace: RankTrace, name: str, **options: bool) -> list[str]:
    rows = np.flatnonzero(trace.host.name == trace.names.index(name))
    host = trace.host
    offsets, found = link(trace).scopes(
        host.track[rows], host.ts[rows], host.ts[rows] + host.dur[rows], rows, **options
    )
    assert offsets.tolist()[-1] == len(found)
    return [trace.names[host.name[r]] for r in found[offsets[0] : offsets[1]]]


def nested() -> TraceBuilder:
    b = TraceBuilder().note(0, 100, "step").op(10, 80, "outer").op(20, 50, "inner").op(30, 10, "me")
    return b.op(41, 10, "sibling").span("python", 5, 90, "f.py").op(0, 100, "elsewhere", thread="other")


def test_scopes_come_outermost_first_on_the_own_thread():
    assert scopes(nested().build(), "me") == ["step", "outer", "inner"]
    assert scopes(nested().build(), "me", python=True) == ["step", "f.py", "outer", "inner"]


def test_an_asynchronous_worker_span_encloses_nothing():
    assert scopes(nested().note(15, 80, "gloo:send").build(), "me") == ["step", "outer", "inner"]


def test_a_child_may_outlast_its_parent():
    trace = TraceBuilder().note(0, 100, "step").op(10, 20, "parent").op(25, 30, "me").build()
    assert scopes(trace, "me") == ["step", "parent"]


def test_a_span_cut_to_whole_microseconds_keeps_its_parent():
    trace = TraceBuilder().op(10, 20, "parent").op(29.5, 1.4, "me").build()
    assert scopes(trace, "me") == ["parent"]


def test_the_next_sibling_is_no_child():
    trace = TraceBuilder().op(10, 20, "before").op(30, 20, "me").build()
    assert scopes(trace, "me") == []


def test_many_queries_equal_the_naive_answer():
    rng = np.random.default_rng(7)
    b = TraceBuilder()
    for i in range(400):
        b.op(int(rng.integers(0, 3000)), int(rng.integers(1, 400)), f"op{i}", thread=f"t{i % 3}")
    trace = b.build()
    h = trace.host
    rows = np.arange(0, len(h), 3)
    end = h.ts + h.dur
    offsets, found = link(trace).scopes(h.track[rows], h.ts[rows], end[rows], rows)
    for i, q in enumerate(rows.tolist()):
        want = [
            r for r in range(len(h))
            if r != q and h.track[r] == h.track[q] and h.ts[r] <= h.ts[q] <= end[r]
            and (end[r] + 1000 >= end[q] or end[r] >= h.ts[q] + 1000)
        ]  # fmt: skip
        assert found[offsets[i] : offsets[i + 1]].tolist() == want


@pytest.mark.parametrize("ids", [[5, 6, 7, 9], [9, 5, 7, 6], [5, 5, 6, 6], [0, 10**15, -7, 3], []])
def test_the_latest_with_an_id_equals_the_naive_answer(ids):
    """Ids that are close, far apart, repeated, out of order: `ts` ascends."""
    keys, ts = np.array(ids, np.int64), np.arange(len(ids)) * 10
    want = np.array([*range(-8, 12), 10**15, 2**62, -(2**63)], np.int64)
    for shift in (-1, 0, 15, 100):
        by = np.full(len(want), shift)
        naive = [max((i for i, k in enumerate(ids) if k == w and ts[i] <= shift), default=-1) for w in want.tolist()]
        assert _latest(keys, ts, want, by).tolist() == naive

"""Simulated bubbles against closed forms, for equal stages, over sizes and times."""

from __future__ import annotations

import pytest

from tracekit.theory.schedules import Timeline, Times, build, simulate

SIZES = [(1, 4), (2, 4), (4, 8), (4, 20), (8, 32), (6, 18)]
"""(p, m); p divides m where a formula needs it."""
TIMES = [(10, 10, 10), (100, 120, 80), (30, 29, 19)]
"""(F, Bin, W), W ≤ Bin."""


def run(name: str, p: int, m: int, ns: tuple[int, int, int], v: int | None = None, c: int = 0) -> Timeline:
    return simulate(build(name, p, m, v), Times(*ns, c))


def idle(timeline: Timeline) -> set[int]:
    """The idle of ranks in the common window: one value where all have the same work."""
    return set(timeline.bubble().idle_ns)


@pytest.mark.parametrize(("p", "m"), [*SIZES, (8, 3), (5, 13)])
@pytest.mark.parametrize("ns", TIMES)
@pytest.mark.parametrize("name", ["GPipe", "1F1B"])
def test_gpipe_and_1f1b_idle_one_fill_and_one_drain(name: str, p: int, m: int, ns: tuple[int, int, int]) -> None:
    """(p-1)(F+B), of the step (p-1)/(m+p-1), of the work (p-1)/m."""
    timeline = run(name, p, m, ns)
    assert idle(timeline) == {(p - 1) * sum(ns)}
    assert timeline.bubble().over_step_ratio == pytest.approx((p - 1) / (m + p - 1))
    assert timeline.bubble().over_ideal_ratio == pytest.approx((p - 1) / m)


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize("v", [1, 2, 3])
@pytest.mark.parametrize("name", ["Interleaved1F1B", "LoopedBFS"])
def test_looping_divides_the_bubble(name: str, p: int, m: int, v: int) -> None:
    """(p-1)(F+B)/v: a stage takes (F+B)/v."""
    assert idle(run(name, p, m, (10, 12, 8), v)) == {(p - 1) * 30}


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize("ns", TIMES)
@pytest.mark.parametrize("v", [1, 2])
def test_zb_h1_fills_with_weights(p: int, m: int, ns: tuple[int, int, int], v: int) -> None:
    """(p-1)(F+Bin-W)/v for W ≤ Bin."""
    f, i, w = ns
    assert idle(run("InterleavedZeroBubble", p, m, ns, v)) == {(p - 1) * (f + i - w)}


@pytest.mark.parametrize(("p", "m"), [(2, 6), (4, 12), (8, 24), (8, 64)])
@pytest.mark.parametrize("ns", [*TIMES, (29718, 29444, 19927)])
def test_zb_h2_span(p: int, m: int, ns: tuple[int, int, int]) -> None:
    """(p-1)(F+Bin-2W) where that is not negative, in the longest span; start and end of ranks are staggered."""
    f, i, w = ns
    assert max(run("ZB-H2", p, m, ns).bubble("span").idle_ns) == (p - 1) * (f + i - 2 * w)


@pytest.mark.parametrize(("p", "m"), [(2, 6), (4, 8), (8, 32), (3, 5)])
def test_zb_v_is_without_bubble_for_equal_times_in_each_span(p: int, m: int) -> None:
    timeline = run("ZBV", p, m, (10, 10, 10))
    assert timeline.idle_in_span_ns == (0,) * p
    assert idle(timeline) == {(p - 1) * 10}  # the stagger of the start, one stage's forward a rank


@pytest.mark.parametrize(("half", "m"), [(1, 8), (2, 8), (2, 20), (4, 20), (5, 30)])
@pytest.mark.parametrize("pair", [None, 24])
def test_dualpipe_and_dualpipev(half: int, m: int, pair: int | None) -> None:
    """(PP/2-1)(FB + B - 3W) for F = Bin = W: on all ranks for FB = F+B, on the rank that idles most for less."""
    bubble = (half - 1) * ((30 if pair is None else pair) + 20 - 30)
    for name, ranks in (("DualPipe", 2 * half), ("DualPipeV", half)):
        found = simulate(build(name, ranks, m), Times(10, 10, 10, overlapped_ns=pair)).bubble().idle_ns
        assert max(found) == bubble, name
        assert pair is not None or set(found) == {bubble}


@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 2), (8, 32, 4), (8, 24, 3), (2, 8, 1)])
def test_latency_of_interleaved_does_not_grow_with_micro_batches(p: int, m: int, v: int) -> None:
    """+2c(pv-1): the crossings of one micro-batch."""
    (without,), (with_it,) = (idle(run("Interleaved1F1B", p, m, (600, 700, 500), v, c)) for c in (0, 7))
    assert with_it - without == 2 * 7 * (p * v - 1)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 32), (4, 20)])
def test_latency_of_1f1b_does(p: int, m: int) -> None:
    """(p-1)S + 2c[m(p-1)/p + p-2] for p | m."""
    assert idle(run("1F1B", p, m, (600, 700, 500), None, 9)) == {(p - 1) * 1800 + 18 * (m * (p - 1) // p + p - 2)}


@pytest.mark.parametrize(("p", "m"), [(4, 12), (8, 24), (8, 64)])
def test_latency_of_zero_bubble(p: int, m: int) -> None:
    """ZB-H1 (p-1)(F+Bin-W+4c), ZB-H2 (p-1)(F+Bin-2W+2c)."""
    assert idle(run("ZB-H1", p, m, (300, 290, 190), None, 5)) == {(p - 1) * (400 + 20)}
    assert max(run("ZB-H2", p, m, (300, 290, 190), None, 5).bubble("span").idle_ns) == (p - 1) * (210 + 10)


@pytest.mark.parametrize(("p", "m"), [(8, 4), (8, 8), (4, 1)])
def test_few_micro_batches(p: int, m: int) -> None:
    """m ≤ p: 1F1B (m+p-1)(F+B), ZB (m+p-1)(F+Bin) + W (arXiv 2401.10241, appendix H)."""
    f, i, w = 29718, 29444, 19927
    assert run("1F1B", p, m, (f, i, w)).makespan_ns == (m + p - 1) * (f + i + w)
    assert run("ZB-H1", p, m, (f, i, w)).makespan_ns == (m + p - 1) * (f + i) + w


PEAKS = [
    ("GPipe", 4, 9, None, 9),
    ("1F1B", 8, 32, None, 8),
    ("Interleaved1F1B", 4, 8, 3, 4 * 3 + 4 - 1),
    ("ZB-H1", 8, 32, None, 8),
    ("ZB-H2", 8, 32, None, 15),
    ("ZBV", 8, 32, None, 16),
    ("DualPipe", 8, 20, None, 9),
    ("DualPipeV", 4, 10, None, 9),
]


@pytest.mark.parametrize(("name", "p", "m", "v", "peak"), PEAKS)
def test_most_activations_held(name: str, p: int, m: int, v: int | None, peak: int) -> None:
    """Published: GPipe m, 1F1B p, interleaved (pv+p-1)/v, ZB-H1 p, ZB-H2 2p-1, ZB-V p (halves: 2p), DualPipe PP+1."""
    assert max(build(name, p, m, v).peak_in_flight) == peak


@pytest.mark.parametrize("name", ["GPipe", "1F1B", "ZB-H1", "ZB-H2", "ZBVZeroBubble", "DualPipeV"])
@pytest.mark.parametrize("m", [8, 9, 11])
def test_as_many_micro_batches_as_asked_for(name: str, m: int) -> None:
    """Whether the ranks divide them or not."""
    assert build(name, 4, m).micro_batches == m

"""Closed forms of the bubble against the simulator, over random cases: where a form is given it is right."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.theory import bubbles
from tracekit.theory.bubbles import StageTimes
from tracekit.theory.errors import OutsideDomain
from tracekit.theory.schedules import NAMES, Times, build, simulate

VIRTUAL = {"Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble"}
STEP = 12  # durations are multiples, so that chunks of one, two or three stages stay whole


def cases(name: str, count: int) -> list[tuple[int, int, int, StageTimes]]:
    """(p, m, v, times), the same at every run; equal parts often, since some forms hold only there."""
    rng = random.Random(name)
    found = []
    for _ in range(count):
        p, m = rng.randint(1, 6), rng.randint(1, 20)
        if name.startswith("Dual"):
            p, m = rng.choice([2, 4, 6]), rng.choice([12, 14, 24])
        v = rng.randint(1, 3) if name in VIRTUAL else 1
        f, b = (STEP * rng.randint(1, 10) for _ in range(2))
        w = STEP * rng.randint(0, 10)
        if rng.random() < 0.4:
            f = b = w = 5 * STEP
        pair = None
        if name.startswith("Dual") and rng.random() < 0.5:
            pair = 2 * rng.randint((f + b + w) // 6, (f + b + w) // 2)
        latency = 0 if name.startswith(("Dual", "ZBV", "GPipe", "Looped")) else rng.choice([0, 0, 1, 5])
        found.append((p, m, v, StageTimes(f, b, w, latency, pair)))
    return found


def run(name: str, p: int, m: int, v: int, t: StageTimes) -> tuple[int, int, int]:
    """(step window, longest span, idle of the idlest rank in the step window) by simulation."""
    stages = 2 if name in bubbles.V_SHAPED else v
    parts = [round(x / stages) for x in (t.forward_ns, t.input_grad_ns, t.weight_grad_ns)]
    pair = None if t.overlapped_ns is None else round(t.overlapped_ns / stages)
    line = simulate(build(name, p, m, stages if stages > 1 else None), Times(*parts, round(t.p2p_ns), pair))
    return line.makespan_ns, max(line.span_ns), line.makespan_ns - min(line.busy_ns)


@pytest.mark.parametrize("name", NAMES)
def test_closed_form_is_what_the_simulator_finds(name: str) -> None:
    checked = 0
    for p, m, v, t in cases(name, 250):
        try:
            b = bubbles.bubble(name, p, m, t, v)
        except OutsideDomain:
            continue
        step, span, idle = run(name, p, m, v, t)
        found = idle if b.window == "step" else idle - step + span
        if b.kind == "exact":
            assert b.bubble_ns == pytest.approx(found), (p, m, v, t)
        else:
            assert found <= b.bubble_ns + 1e-9, (p, m, v, t)
        checked += 1
    assert checked >= 20


def test_conditions_are_not_empty_words() -> None:
    """Outside its conditions the form is wrong: with W above F ZB-H1 idles longer."""
    t = StageTimes(24, 108, 60)
    with pytest.raises(OutsideDomain):
        bubbles.bubble("ZB-H1", 2, 18, t)
    assert run("ZB-H1", 2, 18, 1, t)[2] > (2 - 1) * (24 + 108 - 60)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=6), st.integers(1, 12))
def test_unequal_stages_stay_within_the_bounds(stages: list[tuple[int, int]], m: int) -> None:
    forward, backward = zip(*stages, strict=True)
    line = simulate(build("1F1B", len(stages), m), Times(forward, backward, 0))
    low, high = bubbles.step_bounds_ns(forward, backward, m)
    assert low <= line.makespan_ns <= high


def test_costs_alone_do_not_bound_a_step() -> None:
    """Stages of cost 1, 2, 2, 1 that spend it on different passes: 6 + 2 is too little."""
    forward, backward = [0, 0, 2, 0], [1, 2, 0, 1]
    assert simulate(build("1F1B", 4, 2), Times(forward, backward, 0)).makespan_ns == 9
    assert bubbles.step_bounds_ns(forward, backward, 2) == (7, 10)


@pytest.mark.parametrize("r", [0.0, 0.1, 1.0, 3.0])
def test_denominators_convert(r: float) -> None:
    b = bubbles.Bubble("x", 100 * r, 100, "step", "exact", "")
    assert b.over_ideal_ratio == pytest.approx(r)
    assert b.over_step_ratio == pytest.approx(bubbles.over_step_of(r))


def test_simulated_agrees_with_the_closed_form() -> None:
    t = StageTimes(10, 12, 8)
    for name, v in (("1F1B", 1), ("Interleaved1F1B", 2), ("ZB-H1", 1)):
        closed, simulated = bubbles.bubble(name, 4, 8, t, v), bubbles.simulated_bubble(name, 4, 8, t, v)
        assert simulated.kind == "simulated"
        assert simulated.bubble_ns == pytest.approx(closed.bubble_ns)
        assert simulated.over_step_ratio == pytest.approx(closed.over_step_ratio)


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(OutsideDomain, match="even"):
        bubbles.simulated_bubble("DualPipe", 3, 8, StageTimes(10, 12, 8))

"""Pipeline bubbles in closed form, with the window and the exactness of each.

Symbols: p stages (ranks), m micro-batches, v virtual stages a rank; F, Bin, W forward, input-gradient and
weight-gradient time of *one rank's whole share* of one micro-batch; B = Bin + W; S = F + B; c latency of a transfer
between stages that nothing hides. All times in ns, the formulas are linear in them. Equal stages: unequal ones need the
simulator, or `step_bounds_ns`.

Two windows: `step` is the common window over all pipeline ranks, `span` the longest first-to-last operation of a rank.
Two denominators: `over_ideal_ratio` = bubble/(m·S), `over_step_ratio` = bubble/(m·S + bubble).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.theory.checks import not_negative, positive
from tracekit.theory.errors import OutsideDomain
from tracekit.theory.schedules import ScheduleError, Times, build, canonical, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Times of one rank's share of one micro-batch in ns; `overlapped_ns` is a forward and a backward run as one pair.

    `input_grad_ns` + `weight_grad_ns` = backward; where backward is not split give it all as input gradient.
    """

    forward_ns: float
    input_grad_ns: float
    weight_grad_ns: float = 0.0
    p2p_ns: float = 0.0
    overlapped_ns: float | None = None

    def __post_init__(self) -> None:
        positive(forward_ns=self.forward_ns)
        not_negative(input_grad_ns=self.input_grad_ns, weight_grad_ns=self.weight_grad_ns, p2p_ns=self.p2p_ns)

    @property
    def backward_ns(self) -> float:
        """B = Bin + W."""
        return self.input_grad_ns + self.weight_grad_ns

    @property
    def micro_batch_ns(self) -> float:
        """S = F + B."""
        return self.forward_ns + self.backward_ns


@dataclass(frozen=True, slots=True)
class Bubble:
    """Idle time of a rank that the schedule forces.

    `window`: step | span. `kind`: exact (a closed form, confirmed by simulation), upper (an upper bound), fit (fitted
    to published values), simulated.
    """

    schedule: str
    bubble_ns: float
    ideal_ns: float
    window: str
    kind: str
    formula: str

    @property
    def total_ns(self) -> float:
        """Length of the window: m·S + bubble."""
        return self.ideal_ns + self.bubble_ns

    @property
    def over_ideal_ratio(self) -> float:
        """bubble / (m·S): no share of the step, may exceed 1."""
        return self.bubble_ns / self.ideal_ns

    @property
    def over_step_ratio(self) -> float:
        """bubble / (m·S + bubble): the share of the window that is idle."""
        return self.bubble_ns / self.total_ns


@dataclass(frozen=True, slots=True)
class _Case:
    p: int
    m: int
    v: int
    t: StageTimes


_Formula = tuple[float, str, str, str]  # bubble, window, kind, formula


def _no_p2p(case: _Case, name: str) -> None:
    if case.t.p2p_ns:
        raise OutsideDomain(f"no closed form of {name} with transfer latency: simulate it")


def _short_latency(case: _Case, holds: bool, name: str, condition: str) -> None:
    if case.t.p2p_ns and not holds:
        raise OutsideDomain(f"the latency term of {name} holds for {condition}: simulate it")


def _gpipe(k: _Case) -> _Formula:
    _no_p2p(k, "GPipe")
    return (k.p - 1) * k.t.micro_batch_ns, "step", "exact", "(p-1)(F+B)"


def _1f1b(k: _Case) -> _Formula:
    bubble = (k.p - 1) * k.t.micro_batch_ns
    if not k.t.p2p_ns:
        return bubble, "step", "exact", "(p-1)(F+B)"
    _short_latency(k, 2 * k.t.p2p_ns <= min(k.t.forward_ns, k.t.backward_ns), "1F1B", "2c ≤ min(F, B)")
    if k.m % k.p:
        raise OutsideDomain(f"the latency term of 1F1B holds for m a multiple of p, not m={k.m}, p={k.p}: simulate it")
    extra = 2 * k.t.p2p_ns * (k.m * (k.p - 1) / k.p + k.p - 2) if k.p > 1 else 0.0
    return bubble + extra, "step", "exact", "(p-1)(F+B) + 2c[m(p-1)/p + p-2]"


def _interleaved(k: _Case) -> _Formula:
    groups = max(1, k.m // k.p)
    if k.m % groups or k.m < k.p:
        raise OutsideDomain(f"interleaving needs m ≥ p in whole rounds, not m={k.m}, p={k.p}: simulate it")
    bubble = (k.p - 1) * k.t.micro_batch_ns / k.v
    if not k.t.p2p_ns:
        return bubble, "step", "exact", "(p-1)(F+B)/v"
    short = 2 * k.v * k.t.p2p_ns <= min(k.t.forward_ns, k.t.backward_ns) and k.m % k.p == 0 and k.p > 1
    _short_latency(k, short, "Interleaved1F1B", "2cv ≤ min(F, B), p > 1 and m a multiple of p")
    return bubble + 2 * k.t.p2p_ns * (k.p * k.v - 1), "step", "exact", "(p-1)(F+B)/v + 2c(pv-1)"


def _looped_bfs(k: _Case) -> _Formula:
    _no_p2p(k, "LoopedBFS")
    if k.m < k.p:
        raise OutsideDomain(f"the closed form of LoopedBFS holds for m ≥ p, not m={k.m}, p={k.p}: simulate it")
    return (k.p - 1) * k.t.micro_batch_ns / k.v, "step", "exact", "(p-1)(F+B)/v"


def _needs_short_w(k: _Case, name: str) -> None:
    if k.t.weight_grad_ns > min(k.t.forward_ns, k.t.input_grad_ns):
        raise OutsideDomain(f"the closed form of {name} holds for W ≤ min(F, Bin): simulate it")


def _zb_h1(k: _Case) -> _Formula:
    _needs_short_w(k, "ZB-H1")
    t = k.t
    if k.m <= k.p:
        _no_p2p(k, "ZB-H1 with m ≤ p")
        whole = (k.m + k.p - 1) * (t.forward_ns + t.input_grad_ns) + t.weight_grad_ns
        return whole - k.m * t.micro_batch_ns, "step", "exact", "(m+p-1)(F+Bin) + W - m(F+B)"
    _short_latency(k, 2 * t.p2p_ns <= t.weight_grad_ns and k.m >= 2 * k.p, "ZB-H1", "2c ≤ W and m ≥ 2p")
    bubble = (k.p - 1) * (t.forward_ns + t.input_grad_ns - t.weight_grad_ns + 4 * t.p2p_ns)
    return bubble, "step", "exact", "(p-1)(F+Bin-W+4c)"


def _interleaved_zero_bubble(k: _Case) -> _Formula:
    _needs_short_w(k, "InterleavedZeroBubble")
    _no_p2p(k, "InterleavedZeroBubble")
    if k.m < k.p or k.m % max(1, k.m // k.p):
        raise OutsideDomain(f"interleaving needs m ≥ p in whole rounds, not m={k.m}, p={k.p}: simulate it")
    bubble = (k.p - 1) * (k.t.forward_ns + k.t.input_grad_ns - k.t.weight_grad_ns) / k.v
    return bubble, "step", "exact", "(p-1)(F+Bin-W)/v"


def _zb_h2(k: _Case) -> _Formula:
    t = k.t
    _needs_short_w(k, "ZB-H2")
    _short_latency(k, 2 * t.p2p_ns <= t.weight_grad_ns, "ZB-H2", "2c ≤ W")
    bubble = (k.p - 1) * (t.forward_ns + t.input_grad_ns - 2 * t.weight_grad_ns + 2 * t.p2p_ns)
    if k.m < 2 * k.p - 1:
        raise OutsideDomain(f"ZB-H2 needs m ≥ 2p-1 micro-batches to fill its warm-up, not m={k.m}, p={k.p}")
    return bubble, "span", "exact", "(p-1)(F+Bin-2W+2c)"


def _zb_v(k: _Case) -> _Formula:
    t = k.t
    _no_p2p(k, "ZB-V")
    if not t.forward_ns == t.input_grad_ns == t.weight_grad_ns:
        raise OutsideDomain("ZB-V has a closed form only for F = Bin = W: simulate it")
    if k.m < 2 * k.p - 1:
        raise OutsideDomain(f"the closed form of ZB-V holds for m ≥ 2p-1, not m={k.m}, p={k.p}: simulate it")
    return 0.0, "span", "exact", "0 (F=Bin=W)"


def _dualpipe(k: _Case) -> _Formula:
    """PP ranks; a micro-batch passes one chunk of each, so a rank's share is a chunk."""
    t = k.t
    _no_p2p(k, "DualPipe")
    if k.p % 2 or k.m % 2 or k.m < 2 * k.p:
        raise OutsideDomain(f"DualPipe needs even p and m and m ≥ 2p, not p={k.p}, m={k.m}")
    return _dual(k.p, t, 1)


def _dualpipe_v(k: _Case) -> _Formula:
    """PP = 2p stages, two chunks a rank: a rank's share is two chunks."""
    _no_p2p(k, "DualPipeV")
    if k.m < 2 * k.p:
        raise OutsideDomain(f"DualPipeV needs m ≥ 2p, not p={k.p}, m={k.m}")
    return _dual(2 * k.p, k.t, 2)


def _dual(pp: int, t: StageTimes, chunks: int) -> _Formula:
    pair = t.micro_batch_ns if t.overlapped_ns is None else t.overlapped_ns
    bubble = (pp / 2 - 1) * (pair + t.backward_ns - 3 * t.weight_grad_ns) / chunks
    equal = t.forward_ns == t.input_grad_ns == t.weight_grad_ns
    if equal and pair < 2 * t.forward_ns:
        raise OutsideDomain("the closed form of DualPipe holds for FB ≥ 2F: simulate it")
    if not equal and not (t.weight_grad_ns <= t.forward_ns <= t.input_grad_ns and pair >= t.micro_batch_ns):
        raise OutsideDomain("DualPipe's form bounds the bubble for W ≤ F ≤ Bin and FB ≥ F + B: simulate it")
    return bubble, "step", "exact" if equal else "upper", "(PP/2-1)(FB+B-3W)"


_FORMULAS: dict[str, Callable[[_Case], _Formula]] = {
    "GPipe": _gpipe,
    "1F1B": _1f1b,
    "Interleaved1F1B": _interleaved,
    "LoopedBFS": _looped_bfs,
    "ZB-H1": _zb_h1,
    "InterleavedZeroBubble": _interleaved_zero_bubble,
    "ZB-H2": _zb_h2,
    "ZBVZeroBubble": _zb_v,
    "DualPipe": _dualpipe,
    "DualPipeV": _dualpipe_v,
}
ONE_STAGE = frozenset({"GPipe", "1F1B", "ZB-H1", "ZB-H2"})
"""Schedules with one stage a rank."""
V_SHAPED = frozenset({"ZBVZeroBubble", "DualPipeV"})
"""Schedules with two stages a rank, the second way back: the turn is local."""


def schedule_name(name: str) -> str:
    """The schedule's name as `schedules.NAMES` spells it; OutsideDomain lists them."""
    try:
        return canonical(name)
    except ScheduleError as e:
        raise OutsideDomain(str(e)) from None


def bubble(schedule: str, stages: int, micro_batches: int, times: StageTimes, virtual: int = 1) -> Bubble:
    """Bubble of a rank in closed form. `stages` counts pipeline ranks, `micro_batches` all of a step.

    OutsideDomain where no closed form holds: the conditions are narrower than published, found by simulating thousands
    of cases. Sources: SC21 (2104.04473) 2.2, Zero Bubble (2401.10241) Tables 2 and 5,
    App. B and H, DualPipe README; all confirmed by simulation.
    """
    positive(stages=stages, micro_batches=micro_batches, virtual=virtual)
    name = schedule_name(schedule)
    if name in ONE_STAGE and virtual != 1:
        raise OutsideDomain(f"{name} has one stage a rank, not {virtual}")
    ns, window, kind, text = _FORMULAS[name](_Case(stages, micro_batches, virtual, times))
    return Bubble(name, ns, micro_batches * times.micro_batch_ns, window, kind, text)


def simulated_bubble(schedule: str, stages: int, micro_batches: int, times: StageTimes, virtual: int = 1) -> Bubble:
    """Mean idle time of the ranks in the common window by simulation of equal stages, durations rounded to whole ns."""
    name = schedule_name(schedule)
    v = 2 if name in V_SHAPED else virtual
    parts = (times.forward_ns, times.input_grad_ns, times.weight_grad_ns, times.p2p_ns)
    f, i, w, c = (round(x / (v if n < 3 else 1)) for n, x in enumerate(parts))
    pair = None if times.overlapped_ns is None else round(times.overlapped_ns / v)
    try:
        timeline = simulate(build(name, stages, micro_batches, v if v > 1 else None), Times(f, i, w, c, pair))
    except ScheduleError as e:
        raise OutsideDomain(str(e)) from None
    found = timeline.bubble("step")
    idle = sum(found.idle_ns) / stages
    return Bubble(name, idle, found.window_ns - idle, "step", "simulated", "simulated")


def zb_paper_interleaved_bubble(stages: int, micro_batches: int, times: StageTimes, virtual: int) -> Bubble:
    """Interleaved 1F1B as the Zero Bubble paper measured it: (p−1)(F+B)/v + c(2pv−p−2), its latency term fitted."""
    positive(stages=stages, micro_batches=micro_batches, virtual=virtual)
    p, v = stages, virtual
    ns = (p - 1) * times.micro_batch_ns / v + times.p2p_ns * (2 * p * v - p - 2)
    text = "(p-1)(F+B)/v + c(2pv-p-2)"
    return Bubble("Interleaved1F1B", ns, micro_batches * times.micro_batch_ns, "step", "fit", text)


def zb_v_step_bubble_ns(stages: int, times: StageTimes) -> float:
    """Bubble of ZB-V in the common step window for F = Bin = W: the start stagger (p−1)·F/2 stays, in ns."""
    _zb_v(_Case(stages, 2 * stages, 2, times))
    return (stages - 1) * times.forward_ns / 2


def one_f_one_b_span_idle_ns(stages: int, times: StageTimes) -> tuple[float, ...]:
    """1F1B: idle inside each rank's own span, (p−1−r)(F+B) ns; the mean over ranks is half the step-window bubble."""
    positive(stages=stages)
    return tuple((stages - 1 - r) * times.micro_batch_ns for r in range(stages))


def over_step_of(over_ideal_ratio: float) -> float:
    """bubble/step from bubble/ideal: r/(1+r)."""
    not_negative(over_ideal_ratio=over_ideal_ratio)
    return over_ideal_ratio / (1 + over_ideal_ratio)


def step_bounds_ns(
    forward_ns: Sequence[float], backward_ns: Sequence[float], micro_batches: int
) -> tuple[float, float]:
    """(lower, upper) bound of a 1F1B step with unequal stages c_i = F_i + B_i, in ns, transfers aside.

    max_j(Σ_{i<j} c_i + m·c_j) ≤ T ≤ Σ c_i + (m−1)·(max F + max B). The often quoted (m−1)·max c is too low where the
    longest forward and the longest backward are on different stages: F = 0, 0, 2, 0, B = 1, 2, 0, 1, m = 2 takes 9.
    """
    positive(micro_batches=micro_batches, stages=len(forward_ns))
    before, lower = 0.0, 0.0
    for forward, backward in zip(forward_ns, backward_ns, strict=True):
        not_negative(forward_ns=forward, backward_ns=backward)
        lower = max(lower, before + micro_batches * (forward + backward))
        before += forward + backward
    return lower, before + (micro_batches - 1) * (max(forward_ns) + max(backward_ns))


def imbalance_ns(stage_ns: Sequence[float], micro_batches: int) -> float:
    """What unequal stages cost beside the bubble, about m(max c − mean c), in ns."""
    positive(micro_batches=micro_batches, stages=len(stage_ns))
    return micro_batches * (max(stage_ns) - sum(stage_ns) / len(stage_ns))


def first_micro_batch_ns(stages: int, times: StageTimes) -> float:
    """Least time of the first micro-batch through the pipeline and back: p(F+Bin) + 2(p−1)c ns (Zero Bubble App. B)."""
    positive(stages=stages)
    return stages * (times.forward_ns + times.input_grad_ns) + 2 * (stages - 1) * times.p2p_ns


def activations_in_flight(schedule: str, stages: int, micro_batches: int, virtual: int = 1) -> float:
    """Largest number of micro-batches (of one rank's whole share) whose activations a rank holds."""
    positive(stages=stages, micro_batches=micro_batches, virtual=virtual)
    name = schedule_name(schedule)
    if name == "GPipe":
        return micro_batches
    if name in {"1F1B", "ZB-H1", "ZBVZeroBubble"}:
        return min(micro_batches, stages)
    if name == "Interleaved1F1B":
        return stages * (1 + (stages - 1) / (stages * virtual))
    if name == "ZB-H2":
        return min(micro_batches, 2 * stages - 1)
    if name == "DualPipe":
        return stages + 1
    raise OutsideDomain(f"no closed form of the activation peak of {name}: simulate it")

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

    `window`: step | span. `kind`: exact (confirmed by simulation), upper (an upper bound), fit (fitted to published
    values).
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


def _gpipe(k: _Case) -> _Formula:
    _no_p2p(k, "gpipe")
    return (k.p - 1) * k.t.micro_batch_ns, "step", "exact", "(p-1)(F+B)"


def _1f1b(k: _Case) -> _Formula:
    bubble = (k.p - 1) * k.t.micro_batch_ns
    if not k.t.p2p_ns:
        return bubble, "step", "exact", "(p-1)(F+B)"
    if k.m % k.p:
        raise OutsideDomain(f"the latency term of 1f1b holds for m a multiple of p, not m={k.m}, p={k.p}: simulate it")
    extra = 2 * k.t.p2p_ns * (k.m * (k.p - 1) / k.p + k.p - 2) if k.p > 1 else 0.0
    return bubble + extra, "step", "exact", "(p-1)(F+B) + 2c[m(p-1)/p + p-2]"


def _interleaved(k: _Case) -> _Formula:
    groups = max(1, k.m // k.p)
    if k.m % groups or k.m < k.p:
        raise OutsideDomain(f"interleaving needs m ≥ p in whole rounds, not m={k.m}, p={k.p}: simulate it")
    bubble = (k.p - 1) * k.t.micro_batch_ns / k.v
    if not k.t.p2p_ns:
        return bubble, "step", "exact", "(p-1)(F+B)/v"
    return bubble + 2 * k.t.p2p_ns * (k.p * k.v - 1), "step", "exact", "(p-1)(F+B)/v + 2c(pv-1)"


def _interleaved_zb_paper(k: _Case) -> _Formula:
    bubble = (k.p - 1) * k.t.micro_batch_ns / k.v + k.t.p2p_ns * (2 * k.p * k.v - k.p - 2)
    return bubble, "step", "fit" if k.t.p2p_ns else "exact", "(p-1)(F+B)/v + c(2pv-p-2)"


def _looped_bfs(k: _Case) -> _Formula:
    _no_p2p(k, "looped_bfs")
    if k.m < k.p:
        raise OutsideDomain(f"the closed form of looped_bfs holds for m ≥ p, not m={k.m}, p={k.p}: simulate it")
    return (k.p - 1) * k.t.micro_batch_ns / k.v, "step", "exact", "(p-1)(F+B)/v"


def _needs_short_w(k: _Case, name: str) -> None:
    if k.t.weight_grad_ns > k.t.input_grad_ns:
        raise OutsideDomain(f"the closed form of {name} holds for W ≤ Bin: simulate it")


def _zb_h1(k: _Case) -> _Formula:
    _needs_short_w(k, "zb_h1")
    t = k.t
    if k.m <= k.p:
        _no_p2p(k, "zb_h1 with m ≤ p")
        whole = (k.m + k.p - 1) * (t.forward_ns + t.input_grad_ns) + t.weight_grad_ns
        return whole - k.m * t.micro_batch_ns, "step", "exact", "(m+p-1)(F+Bin) + W - m(F+B)"
    bubble = (k.p - 1) * (t.forward_ns + t.input_grad_ns - t.weight_grad_ns + 4 * t.p2p_ns)
    return bubble, "step", "exact", "(p-1)(F+Bin-W+4c)"


def _interleaved_zero_bubble(k: _Case) -> _Formula:
    _needs_short_w(k, "interleaved_zero_bubble")
    _no_p2p(k, "interleaved_zero_bubble")
    if k.m < k.p:
        raise OutsideDomain(f"interleaving needs m ≥ p, not m={k.m}, p={k.p}: simulate it")
    bubble = (k.p - 1) * (k.t.forward_ns + k.t.input_grad_ns - k.t.weight_grad_ns) / k.v
    return bubble, "step", "exact", "(p-1)(F+Bin-W)/v"


def _zb_h2(k: _Case) -> _Formula:
    t = k.t
    bubble = (k.p - 1) * (t.forward_ns + t.input_grad_ns - 2 * t.weight_grad_ns + 2 * t.p2p_ns)
    if bubble < 0:
        raise OutsideDomain("the closed form of zb_h2 holds for 2W ≤ F + Bin + 2c: simulate it")
    if k.m < 2 * k.p - 1:
        raise OutsideDomain(f"zb_h2 needs m ≥ 2p-1 micro-batches to fill its warm-up, not m={k.m}, p={k.p}")
    return bubble, "span", "exact", "(p-1)(F+Bin-2W+2c)"


def _zb_v(k: _Case) -> _Formula:
    t = k.t
    _no_p2p(k, "zb_v")
    if not t.forward_ns == t.input_grad_ns == t.weight_grad_ns:
        raise OutsideDomain("zb_v has a closed form only for F = Bin = W: simulate it")
    return 0.0, "span", "exact", "0 (F=Bin=W)"


def _dualpipe(k: _Case) -> _Formula:
    t = k.t
    _no_p2p(k, "dualpipe")
    if k.p % 2:
        raise OutsideDomain(f"DualPipe needs an even number of stages, not {k.p}")
    pair = t.micro_batch_ns if t.overlapped_ns is None else t.overlapped_ns
    bubble = (k.p / 2 - 1) * (pair + t.backward_ns - 3 * t.weight_grad_ns)
    equal = t.forward_ns == t.input_grad_ns == t.weight_grad_ns
    return bubble, "step", "exact" if equal else "upper", "(PP/2-1)(FB+B-3W)"


_FORMULAS: dict[str, Callable[[_Case], _Formula]] = {
    "gpipe": _gpipe,
    "1f1b": _1f1b,
    "interleaved_1f1b": _interleaved,
    "interleaved_1f1b_zb_paper": _interleaved_zb_paper,
    "looped_bfs": _looped_bfs,
    "zb_h1": _zb_h1,
    "interleaved_zero_bubble": _interleaved_zero_bubble,
    "zb_h2": _zb_h2,
    "zb_v": _zb_v,
    "dualpipe": _dualpipe,
    "dualpipe_v": _dualpipe,
}
SCHEDULES = tuple(_FORMULAS)
"""Schedules with a closed form."""
ONE_STAGE = frozenset({"gpipe", "1f1b", "zb_h1", "zb_h2"})
"""Schedules with one stage a rank."""
V_SHAPED = frozenset({"zb_v", "dualpipe_v"})
"""Schedules with two stages a rank, the second way back: the turn is local."""


def bubble(schedule: str, stages: int, micro_batches: int, times: StageTimes, virtual: int = 1) -> Bubble:
    """Bubble of a rank.

    `stages` counts pipeline ranks; for dualpipe and dualpipe_v it is PP, the number of stages (dualpipe_v holds two a
    rank), and the times are those of one *stage chunk*. OutsideDomain where no closed form holds. Sources: SC21
    (2104.04473) 2.2, Zero Bubble (2401.10241) Tables 2 and 5, App. B and H, DualPipe README; all but the fit confirmed
    by simulation.
    """
    positive(stages=stages, micro_batches=micro_batches, virtual=virtual)
    formula = _FORMULAS.get(schedule)
    if formula is None:
        raise OutsideDomain(f"no closed form for schedule {schedule!r}; there are {', '.join(SCHEDULES)}")
    if schedule in ONE_STAGE and virtual != 1:
        raise OutsideDomain(f"{schedule} has one stage a rank, not {virtual}")
    ns, window, kind, text = formula(_Case(stages, micro_batches, virtual, times))
    return Bubble(schedule, ns, micro_batches * times.micro_batch_ns, window, kind, text)


def zb_v_step_bubble_ns(stages: int, times: StageTimes) -> float:
    """Bubble of ZB-V in the common step window for F = Bin = W: the start stagger (p−1)·F/2 stays, in ns."""
    _zb_v(_Case(stages, 1, 2, times))
    return (stages - 1) * times.forward_ns / 2


def one_f_one_b_span_idle_ns(stages: int, times: StageTimes) -> tuple[float, ...]:
    """1F1B: idle inside each rank's own span, (p−1−r)(F+B) ns; the mean over ranks is half the step-window bubble."""
    positive(stages=stages)
    return tuple((stages - 1 - r) * times.micro_batch_ns for r in range(stages))


def over_step_of(over_ideal_ratio: float) -> float:
    """bubble/step from bubble/ideal: r/(1+r)."""
    not_negative(over_ideal_ratio=over_ideal_ratio)
    return over_ideal_ratio / (1 + over_ideal_ratio)


def step_bounds_ns(stage_ns: Sequence[float], micro_batches: int) -> tuple[float, float]:
    """(lower, upper) bound of a 1F1B step with unequal stages c_i = F_i + B_i, in ns.

    max_j(Σ_{i<j} c_i + m·c_j) ≤ T ≤ Σ c_i + (m−1)·max c.
    """
    positive(micro_batches=micro_batches, stages=len(stage_ns))
    before, lower = 0.0, 0.0
    for c in stage_ns:
        not_negative(stage_ns=c)
        lower = max(lower, before + micro_batches * c)
        before += c
    return lower, before + (micro_batches - 1) * max(stage_ns)


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
    if schedule == "gpipe":
        return micro_batches
    if schedule in {"1f1b", "zb_h1", "zb_v"}:
        return min(micro_batches, stages)
    if schedule == "interleaved_1f1b":
        return stages * (1 + (stages - 1) / (stages * virtual))
    if schedule == "zb_h2":
        return min(micro_batches, 2 * stages - 1)
    if schedule in {"dualpipe", "dualpipe_v"}:
        return stages + 1
    raise OutsideDomain(f"no known activation peak of schedule {schedule!r}")

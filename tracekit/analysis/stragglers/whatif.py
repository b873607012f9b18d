"""The what-if of a job: slowdown, whom fixing recovers it, and who alone would cause it.

With T the mean step time without launch delays, T_ideal that of a replay with ideal durations, and x a set of
operations (a worker, a stage, an operation type):

* S = T / T_ideal; waste = 1 - 1/S;
* S_x = T(all ideal, x as measured) / T_ideal; score of a worker = min(S of its DP rank, S of its stage);
* recovered_x = (T - T(all as measured, x ideal)) / (T - T_ideal): M_W for the top 3 % of workers by score, M_S for the
  last stage;
* launch slowdown = T_measured / T; of x = T(delays of x kept) / T: what is slow outside the table (host, input);
* replay error = |T - T_measured| / T_measured.

Source: OSDI'25 "Understanding Stragglers in Large Model Training Using What-if Analysis" (arXiv 2505.05713), eq. 1-5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracekit.analysis.stragglers.optypes import BACKWARD, COMMUNICATION, FORWARD, family
from tracekit.analysis.stragglers.replay import Scenario, replay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.stragglers.graph import Graph
    from tracekit.analysis.stragglers.optable import OpGrid
    from tracekit.analysis.stragglers.replay import Work

STRAGGLING = 1.1
"""A job, step or worker straggles from this slowdown on (OSDI'25 §4.1)."""
EXPLAINABLE = 1.03
"""Below this slowdown nothing is shared out: the difference of two replays is noise."""
MAX_ERROR = 0.05
"""A replay further from the measurement is not believed."""
TOP_WORKERS = 0.03


class Effect(Struct, frozen=True):
    """What one set of operations x does. alone: ns [steps], all ideal but x; without: ns [steps], x ideal."""

    alone: NDArray[np.int64]
    without: NDArray[np.int64]


class WhatIf(Struct, frozen=True):
    """Step times in ns [steps]; stages, dp_ranks, families: the effect of each. `reason` is set when nothing is said.

    scores, compute_scores, comm_scores, launch_scores: float64 [stages, dp] over all steps, for all operations,
    computes, communication and launch delays; step_scores: [steps, stages, dp]. top: (stage, dp) of the top workers.
    """

    measured: NDArray[np.int64]
    nodelay: NDArray[np.int64]
    ideal: NDArray[np.int64]
    stages: tuple[Effect, ...]
    dp_ranks: tuple[Effect, ...]
    families: dict[str, Effect]
    scores: NDArray[np.float64]
    compute_scores: NDArray[np.float64]
    comm_scores: NDArray[np.float64]
    launch_scores: NDArray[np.float64]
    step_scores: NDArray[np.float64]
    top: tuple[tuple[int, int], ...]
    top_workers: Effect
    reason: str | None

    @property
    def slowdown(self) -> float:
        """S; also below 1 by the replay's error."""
        return float(self.nodelay.mean() / self.ideal.mean())

    @property
    def launch_slowdown(self) -> float:
        """Measured over replayed without launch delays."""
        return float(self.measured.mean() / self.nodelay.mean())

    @property
    def replay_error(self) -> float:
        """Relative difference of replayed (without delays) and measured mean step time."""
        measured = float(self.measured.mean())
        return abs(float(self.nodelay.mean()) - measured) / measured

    @property
    def explained(self) -> bool:
        """Whether the slowdown is large enough to be shared out."""
        return self.reason is None and self.slowdown >= EXPLAINABLE

    def slowdown_of(self, effect: Effect) -> float:
        """S_x."""
        return float(effect.alone.mean() / self.ideal.mean())

    def recovered(self, effect: Effect) -> float:
        """Share of T - T_ideal that making x ideal recovers; may leave 0–1 where ideal durations mix unequal stages."""
        lost = float(self.nodelay.mean() - self.ideal.mean())
        return float(self.nodelay.mean() - effect.without.mean()) / lost

    def added(self, effect: Effect) -> float:
        """Share of T - T_ideal that x alone brings about."""
        lost = float(self.nodelay.mean() - self.ideal.mean())
        return float(effect.alone.mean() - self.ideal.mean()) / lost


def what_if(grid: OpGrid, graph: Graph, work: Work) -> WhatIf:
    """Replay a job as measured, ideal, and with each stage, DP rank and operation type alone or fixed."""
    everyone = np.ones(grid.ranks.shape, np.bool_)
    stage, dp = np.indices(grid.ranks.shape)
    lines = [*(stage == s for s in range(grid.stages)), *(dp == d for d in range(grid.dp))]
    names = sorted({family(n.op) for n in grid.nodes})
    of_names = [np.array([family(n.op) == f for n in grid.nodes], np.bool_) for f in names]
    communicates = np.array([n.op in COMMUNICATION for n in grid.nodes], np.bool_)
    base, alone, without, only, fixed, compute, comm, launch = _replays(
        grid, graph, work,
        [Scenario(everyone), Scenario(~everyone)],
        [Scenario(w) for w in lines], [Scenario(~w) for w in lines],
        [Scenario(everyone, m) for m in of_names], [Scenario(everyone, ~m) for m in of_names],
        [Scenario(w, ~communicates) for w in lines], [Scenario(w, communicates) for w in lines],
        [Scenario(everyone, delayed=w) for w in lines],
    )  # fmt: skip
    nodelay, ideal = base
    effects = [*map(Effect, alone, without)]
    scores = _scores(alone, grid) / ideal.mean()
    top = _top(scores, grid.ranks)
    chosen = np.zeros_like(everyone)
    for place in top:
        chosen[place] = True
    (of_top,) = _replays(grid, graph, work, [Scenario(chosen), Scenario(~chosen)])
    found = WhatIf(
        measured=grid.step_ns(), nodelay=nodelay, ideal=ideal, stages=tuple(effects[: grid.stages]),
        dp_ranks=tuple(effects[grid.stages :]), families=dict(zip(names, map(Effect, only, fixed), strict=True)),
        scores=scores, compute_scores=_scores(compute, grid) / ideal.mean(),
        comm_scores=_scores(comm, grid) / ideal.mean(), launch_scores=_scores(launch, grid) / nodelay.mean(),
        step_scores=_lower(alone[: grid.stages].T, alone[grid.stages :].T) / ideal[:, None, None], top=top,
        top_workers=Effect(*of_top), reason=None,
    )  # fmt: skip
    return replace(found, reason=_refusal(found, everyone.size))


def _replays(grid: OpGrid, graph: Graph, work: Work, *groups: Sequence[Scenario]) -> list[NDArray[np.int64]]:
    """Step times of each group of scenarios, ns [scenarios, steps]; all of them in one go."""
    times = replay(grid, graph, work, [s for group in groups for s in group])
    return np.split(times, np.cumsum([len(group) for group in groups])[:-1])


def _scores(times: NDArray[np.int64], grid: OpGrid) -> NDArray[np.float64]:
    """Mean step, ns [stages, dp]: the lower of a worker's stage and of its DP rank. times: of stages, then of DP."""
    means = times.mean(axis=1)
    return _lower(means[: grid.stages], means[grid.stages :])


def _refusal(found: WhatIf, workers: int) -> str | None:
    if workers < 2:
        return "one-worker"
    if not found.ideal.mean() or not found.measured.mean():
        return "no-time"
    return "replay-error" if found.replay_error > MAX_ERROR else None


def _lower(by_stage: NDArray[Any], by_dp: NDArray[Any]) -> NDArray[np.float64]:
    """The smaller of a worker's stage and DP rank: [..., stages], [..., dp] → [..., stages, dp]."""
    lower: NDArray[np.float64] = np.minimum(by_stage[..., :, None], by_dp[..., None, :]).astype(np.float64)
    return lower


def _top(scores: NDArray[np.float64], ranks: NDArray[np.int32]) -> tuple[tuple[int, int], ...]:
    """The 3 % (at least one) workers with the largest score; of equals the lower rank."""
    count = int(np.ceil(scores.size * TOP_WORKERS))
    places = [(s, d) for s in range(scores.shape[0]) for d in range(scores.shape[1])]
    return tuple(sorted(places, key=lambda p: (-scores[p], int(ranks[p]), p))[:count])


def forward_backward_correlation(grid: OpGrid) -> float | None:
    """Pearson correlation of a micro-batch's forward and backward time around its worker's mean of the step.

    Near 1 when micro-batches differ in length (sequence imbalance, OSDI'25 §5.3), which neither a slow worker nor a
    slow step makes. None below 8 pairs.
    """
    ops = {(n.stage, n.op, n.chunk, n.micro_batch): i for i, n in enumerate(grid.nodes) if n.micro_batch >= 0}
    deviations: tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]] = ([], [])
    for stage, chunk in sorted({(s, c) for s, op, c, _ in ops if op == FORWARD}):
        numbers = [b for s, op, c, b in ops if (s, op, c) == (stage, FORWARD, chunk)]
        both = [b for b in numbers if (stage, BACKWARD, chunk, b) in ops]
        for op, out in ((FORWARD, deviations[0]), (BACKWARD, deviations[1])):
            times = grid.dur[[ops[stage, op, chunk, b] for b in both]].astype(np.float64)
            out.append((times - times.mean(axis=0)).ravel() if both else np.zeros(0))
    forward, backward = (np.concatenate(d) if d else np.zeros(0) for d in deviations)
    if len(forward) < 8 or not forward.any() or not backward.any():
        return None
    return float(np.dot(forward, backward) / np.sqrt(np.dot(forward, forward) * np.dot(backward, backward)))

"""One what-if as rows of the table `stragglers`, and the finding that sums them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.stragglers.optypes import family
from tracekit.analysis.stragglers.tables import finding, whole
from tracekit.analysis.stragglers.whatif import STRAGGLING, forward_backward_correlation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tracekit.analysis.stragglers.graph import Graph
    from tracekit.analysis.stragglers.optable import OpGrid
    from tracekit.analysis.stragglers.replay import Work
    from tracekit.analysis.stragglers.whatif import Effect, WhatIf

Row = dict[str, Any]
_WAIT_FLOOR = 1e-4
"""Groups that wait less than this share of their time were written without their waiting: no real job is that even."""
_MAX_CELLS = 200_000
"""More rows rank × step than this are left to the ranks that straggle in some step."""


def _mean(times: NDArray[np.int64]) -> int:
    return round(float(times.mean()))


class Writer:
    """Turns one what-if into rows."""

    def __init__(self, source: str, grid: OpGrid, graph: Graph, work: Work, found: WhatIf) -> None:
        self.source, self.grid, self.work, self.found = source, grid, work, found
        sizes = [len(g.members) * (grid.dp if g.over_dp else 1) for g in graph.groups]
        self.in_group = [g >= 0 and sizes[g] > 1 for g in graph.group_of.tolist()]
        self.waits = float(work.wait.sum()) >= _WAIT_FLOOR * float(grid.dur[self.in_group].sum())

    def rows(self) -> list[Row]:
        """All rows, the job's first."""
        rows = [self._job(), *self._fixes(), *self._families(), *self._lines(), *self._workers()]
        rows += [*self._steps(), *self._cells()]
        for row in rows:
            row["source"] = self.source
            row.setdefault("reason", self.found.reason)
        return [whole(row) for row in rows]

    def _job(self) -> Row:
        f = self.found
        row = {"scope": "job", "workers": self.grid.ranks.size, "steps": len(self.grid.steps)}
        row |= {"step_ns": _mean(f.measured), "replayed_ns": _mean(f.nodelay), "replay_error_ratio": f.replay_error}
        row |= {"launch_slowdown": f.launch_slowdown} | self._times(range(len(self.grid.nodes)), grouped=True)
        if f.reason is None:
            per_step = f.nodelay / f.ideal
            row |= {"ideal_ns": _mean(f.ideal), "slowdown": f.slowdown, "waste_ratio": max(0.0, 1 - 1 / f.slowdown)}
            row |= {"straggling_steps_ratio": float((per_step >= STRAGGLING).mean())}
            row |= {"forward_backward_correlation": forward_backward_correlation(self.grid)}
        return row

    def _fixes(self) -> list[Row]:
        last = self.grid.stages - 1
        rows = [{"scope": "top_workers", "workers": len(self.found.top)} | self._effect(self.found.top_workers)]
        if last:
            rows.append({"scope": "last_stage", "stage": last} | self._effect(self.found.stages[last]))
        return rows

    def _families(self) -> list[Row]:
        rows = []
        for name, effect in self.found.families.items():
            mine = [i for i, n in enumerate(self.grid.nodes) if family(n.op) == name]
            rows.append({"scope": "op_type", "op": name} | self._effect(effect) | self._times(mine))
        return sorted(rows, key=lambda r: (-(r.get("slowdown") or 0), r["op"]))

    def _lines(self) -> list[Row]:
        rows: list[Row] = [
            {"scope": "stage", "stage": s} | self._effect(e) for s, e in enumerate(self.found.stages)
        ]  # fmt: skip
        rows += [{"scope": "dp_rank", "dp_rank": d} | self._effect(e) for d, e in enumerate(self.found.dp_ranks)]
        return rows

    def _workers(self) -> list[Row]:
        rows = []
        for stage, dp in self._by_score():
            mine = [i for i, n in enumerate(self.grid.nodes) if n.stage == stage]
            row: Row = {"scope": "worker"} | self._place(stage, dp) | self._times(mine, dp, grouped=True)
            row["launch_slowdown"] = float(self.found.launch_scores[stage, dp])
            if self.found.reason is None:
                scores = self.found.step_scores[:, stage, dp]
                row["slowdown"] = float(self.found.scores[stage, dp])
                row["compute_slowdown"] = float(self.found.compute_scores[stage, dp])
                row["communication_slowdown"] = float(self.found.comm_scores[stage, dp])
                row["straggling_steps_ratio"] = float((scores >= STRAGGLING).mean())
            rows.append(row)
        return rows

    def _by_score(self) -> list[tuple[int, int]]:
        places = [(s, d) for s in range(self.grid.stages) for d in range(self.grid.dp)]
        return sorted(places, key=lambda p: (-self.found.scores[p], int(self.grid.ranks[p]), p))

    def _steps(self) -> list[Row]:
        f = self.found
        rows = []
        for k, step in enumerate(self.grid.steps.tolist()):
            row = {"scope": "step", "step": step, "step_ns": int(f.measured[k]), "replayed_ns": int(f.nodelay[k])}
            if f.reason is None:
                slowdown = float(f.nodelay[k] / f.ideal[k])
                row |= {"ideal_ns": int(f.ideal[k]), "slowdown": slowdown, "waste_ratio": max(0.0, 1 - 1 / slowdown)}
            rows.append(row)
        return rows

    def _cells(self) -> list[Row]:
        """rank × step, for a heat map."""
        if self.found.reason is not None:
            return []
        scores = self.found.step_scores
        shown = np.ones(self.grid.ranks.shape, np.bool_)
        if scores.size > _MAX_CELLS:
            shown = np.asarray((scores >= STRAGGLING).any(axis=0), np.bool_)
        return [
            {"scope": "worker_step", "step": step, "slowdown": float(scores[k, s, d])} | self._place(s, d)
            for s, d in zip(*map(np.ndarray.tolist, np.nonzero(shown)), strict=True)
            for k, step in enumerate(self.grid.steps.tolist())
        ]

    def _place(self, stage: int, dp: int) -> Row:
        rank = int(self.grid.ranks[stage, dp])
        return {"rank": None if rank < 0 else rank, "stage": stage, "dp_rank": dp}

    def _effect(self, effect: Effect) -> Row:
        f = self.found
        if f.reason is not None:
            return {}
        if not f.explained:
            return {"slowdown": f.slowdown_of(effect), "reason": "no-slowdown"}
        return {
            "slowdown": f.slowdown_of(effect), "recovered_ratio": f.recovered(effect), "added_ratio": f.added(effect),
        }  # fmt: skip

    def _times(self, nodes: Iterable[int], dp: int | slice = slice(None), *, grouped: bool = False) -> Row:
        """Sums over all steps; waiting only of operations that have a group, and only where the table recorded it."""
        mine = [i for i in nodes if self.in_group[i] or not grouped]
        total, wait = int(self.grid.dur[mine][:, :, dp].sum()), int(self.work.wait[mine][:, :, dp].sum())
        if not self.waits or not any(self.in_group[i] for i in mine):
            return {"total_ns": total}
        return {"total_ns": total, "wait_ns": wait, "wait_ratio": wait / total if total else None}

    def findings(self) -> list[Row]:
        """One sentence a reader should know, and what could not be told."""
        f = self.found
        out = []
        if f.reason == "replay-error":
            text = f"{self.source}: no slowdown is given: the replay misses the measured steps by "
            text += f"{100 * f.replay_error:.1f} %, more than 5 %"
            worst = np.unravel_index(int(f.launch_scores.argmax()), f.launch_scores.shape)
            slow = f"; launch delays of {self._name(int(worst[0]), int(worst[1]))} alone make steps "
            text += slow + f"{f.launch_scores[worst]:.2f} times as long: look at its host and input"
            out.append(finding("warning", text))
        elif f.reason is not None:
            out.append(finding("info", f"{self.source}: no slowdown is given: {f.reason}"))
        if not self.waits:
            text = "members of every group start together, so waiting was taken out before the table was written"
            out.append(finding("info", f"{self.source}: {text}; no wait is given"))
        if f.explained and f.slowdown >= STRAGGLING:
            out.insert(0, finding("warning", self._causes()))
        return out

    def _causes(self) -> str:
        f, g = self.found, self.grid
        causes = []
        if f.recovered(f.top_workers) >= 0.5:
            names = ", ".join(self._name(*p) for p in f.top[:4]) + (" …" if len(f.top) > 4 else "")
            causes.append(f"few slow workers ({names}): fixing them recovers {100 * f.recovered(f.top_workers):.0f} %")
        if g.stages > 1 and f.recovered(f.stages[-1]) >= 0.5:
            causes.append(f"a long last stage: fixing it recovers {100 * f.recovered(f.stages[-1]):.0f} %")
        r = forward_backward_correlation(g)
        if r is not None and r >= 0.9:
            causes.append(f"micro-batches of unequal length: forward and backward times correlate ({r:.2f})")
        blame = "; ".join(causes) or "no few workers, last stage or uneven micro-batches explain it"
        return f"{self.source}: stragglers make steps {f.slowdown:.2f} times as long as ideal ones; {blame}"

    def _name(self, stage: int, dp: int) -> str:
        rank = int(self.grid.ranks[stage, dp])
        return f"stage {stage} dp {dp}" if rank < 0 else f"rank {rank}"

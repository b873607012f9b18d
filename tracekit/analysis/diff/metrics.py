"""The numbers that a gate can ask for, each a mean of a rank and step, or null with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.analysis.diff.side import Mean, Side


class Metric(Struct, frozen=True):
    """A value in ns, as a ratio or a count; None with the reason."""

    value: float | None
    reason: str | None = None


NO_TIME_KNOWN = "no device activity, so no step has a time"
NO_COMM = "no communication with a time"
NO_SPLIT = "waiting could not be told from transfer in all calls (docs/cross-rank.md says what that takes)"
NO_PIPELINE = "no pipeline whose bubble is known"

PLAIN: dict[str, str] = {
    "step_ns": "length of a step", "compute_ns": "compute", "exposed_ns": "communication that nothing hides",
    "hidden_ns": "communication behind compute", "idle_ns": "nothing on the device", "copy_ns": "only copies or sets",
    "fused_ns": "only fused kernels", "wait_ns": "exposed waiting for other ranks",
    "compute_ratio": "compute over step", "exposed_ratio": "exposed over step", "idle_ratio": "idle over step",
    "wait_ratio": "exposed waiting over step", "overlap_ratio": "hidden over all communication",
    "bubble_ns": "idle time of a pipeline rank", "bubble_over_step_ratio": "the same over the pipeline's window",
    "unlabelled_ratio": "communication time without a label",
}  # fmt: skip
"""Metrics of a whole run and what they are."""
BY_STRATEGY: dict[str, str] = {
    "exposed": "attributed_ns", "wait": "attributed_wait_ns", "transfer": "attributed_transfer_ns",
}  # fmt: skip
"""`exposed.dp_ns`, `exposed.dp_ratio` (over step): columns of `exposure` that add up over the rows of a strategy."""
SEVERITIES = ("error", "warning", "info")
_PART = {"compute": "compute", "exposed": "exposed_comm", "idle": "idle", "copy": "exposed_copy", "fused": "fused"}


def known() -> list[str]:
    """Names as a mistake's message lists them."""
    return [*PLAIN, *(f"{n}.STRATEGY_ns" for n in BY_STRATEGY), *(f"{n}.STRATEGY_ratio" for n in BY_STRATEGY),
            *(f"findings.{s}" for s in SEVERITIES)]  # fmt: skip


def is_known(name: str) -> bool:
    """Whether a gate may name it; which strategies there are depends on the run."""
    head, dot, rest = name.partition(".")
    if not dot:
        return name in PLAIN
    return (head == "findings" and rest in SEVERITIES) or (head in BY_STRATEGY and _strategy(rest) != "")


def metric(one: Side, name: str) -> Metric:
    """Value of a known metric in a run."""
    head, dot, rest = name.partition(".")
    if head == "findings" and dot:
        return Metric(float(one.findings.get(rest, 0)))
    if dot:
        return _of_strategy(one, head, rest)
    if name == "unlabelled_ratio":
        return Metric(one.unlabelled_ratio, None if one.unlabelled_ratio is not None else NO_COMM)
    if name in ("bubble_ns", "bubble_over_step_ratio"):
        value = one.bubble.value if name == "bubble_ns" else one.bubble_ratio.value
        return Metric(value, None if value is not None else NO_PIPELINE)
    step = one.window.value
    if not step:
        return Metric(None, NO_TIME_KNOWN)
    return _of_run(one, name, step)


def _of_run(one: Side, name: str, step: float) -> Metric:
    if name == "step_ns":
        return Metric(step)
    what, _, unit = name.rpartition("_")
    if what in ("exposed", "hidden", "overlap", "wait") and (reason := _timed(one)):
        return Metric(None, reason)
    hidden, exposed = one.overlapped.value or 0.0, one.parts["exposed_comm"].value or 0.0
    if what == "overlap":
        return Metric(hidden / (hidden + exposed)) if hidden + exposed else Metric(None, NO_COMM)
    if what == "wait":
        value = _sum(c.times["attributed_wait_ns"] for c in one.comm.values())
    else:
        value = hidden if what == "hidden" else one.parts[_PART[what]].value
    if value is None:
        return Metric(None, NO_SPLIT)
    return Metric(value if unit == "ns" else value / step)


def _timed(one: Side) -> str | None:
    """Why nothing can be said of communication's time."""
    return None if any(c.times["total_ns"].value is not None for c in one.comm.values()) else NO_COMM


def _of_strategy(one: Side, head: str, rest: str) -> Metric:
    strategy, step = _strategy(rest), one.window.value
    mine = [c for key, c in one.comm.items() if key[0] == strategy]
    if not step:
        return Metric(None, NO_TIME_KNOWN)
    if not mine:
        there = ", ".join(sorted({key[0] for key in one.comm})) or "none"
        return Metric(None, f"no call is labelled {strategy} in the steps of this run; there are: {there}")
    value = _sum(c.times[BY_STRATEGY[head]] for c in mine)
    if value is None:
        return Metric(None, NO_SPLIT if head in ("wait", "transfer") else NO_COMM)
    return Metric(value if rest.endswith("_ns") else value / step)


def _strategy(rest: str) -> str:
    for unit in ("_ns", "_ratio"):
        if rest.endswith(unit):
            return rest.removesuffix(unit)
    return ""


def _sum(means: Iterable[Mean]) -> float | None:
    values = [m.value for m in means]
    return None if not values or any(v is None for v in values) else sum(v for v in values if v is not None)

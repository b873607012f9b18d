"""Where in its step a call stands: before, between or after the backward passes.

* before_backward: a backward pass follows in the step, none came before
* between: one came before and one follows (micro-batches)
* after_backward: one came before, none follows before the optimizer or the end of the step
* none: neither, such as after the optimizer, or in a trace without a backward pass
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.label.steps import Steps
    from tracekit.model import Call, RankTrace

PLACES = ("before_backward", "between", "after_backward", "none")
_BACKWARD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer.step"
_STEP = "ProfilerStep#"
_NEVER = np.iinfo(np.int64).max


def places(calls: Sequence[Call], trace: RankTrace, steps: Steps) -> list[str]:
    """Place of every call; one without a time on the host has none."""
    when = np.array([-_NEVER if c.call_ts is None else c.call_ts for c in calls], np.int64)
    marks = np.array([m.start for m in steps.markers], np.int64)
    return _among(when, _starts(trace, _BACKWARD), _starts(trace, _OPTIMIZER), marks)


def places_by_order(order: Sequence[int | None], landmarks: Sequence[tuple[int, str]]) -> list[str]:
    """Place of calls whose source has an order but no times; landmarks: (place in the order, name), sorted."""
    when = np.array([-_NEVER if n is None else n for n in order], np.int64)
    backward, optimizer, marks = (
        np.array([at for at, name in landmarks if name.startswith(prefix)], np.int64)
        for prefix in (_BACKWARD, _OPTIMIZER, _STEP)
    )
    return _among(when, backward, optimizer, marks)


def _among(
    when: NDArray[np.int64], backward: NDArray[np.int64], optimizer: NDArray[np.int64], marks: NDArray[np.int64]
) -> list[str]:
    follows = _next(backward, when) < np.minimum(_next(marks, when), _next(optimizer, when))
    came = _last(backward, when) > np.maximum(_last(marks, when), _last(optimizer, when))
    timed = when > -_NEVER
    number = np.where(follows, np.where(came, 1, 0), np.where(came, 2, 3))
    return [PLACES[i] for i in np.where(timed, number, 3).tolist()]


def _starts(trace: RankTrace, prefix: str) -> NDArray[np.int64]:
    host = trace.host
    wanted = np.fromiter((name.startswith(prefix) for name in trace.names), np.bool_, len(trace.names))
    return host.ts[wanted[host.name]] if len(trace.names) else host.ts[:0]


def _next(starts: NDArray[np.int64], when: NDArray[np.int64]) -> NDArray[np.int64]:
    """First start after each time, `_NEVER` for none."""
    padded = np.append(starts, _NEVER)
    out: NDArray[np.int64] = padded[np.searchsorted(starts, when, "right")]
    return out


def _last(starts: NDArray[np.int64], when: NDArray[np.int64]) -> NDArray[np.int64]:
    """Last start at or before each time, `-_NEVER` for none."""
    padded = np.append(np.array([-_NEVER], np.int64), starts)
    out: NDArray[np.int64] = padded[np.searchsorted(starts, when, "right")]
    return out

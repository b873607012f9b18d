"""Kernels without a record, such as those launched before the recording began: labelled by their like.

A kernel's name or its stream alone says little. Together, when all labelled calls with that kernel on that stream bear
one label (NCCL gives each group a stream of its own), they are suggestive evidence, tier C.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracekit.model import Fired, Label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.model import Call

RULE = "pattern.same-kernel-and-stream"
AT_LEAST = 3
CONFIDENCE = 0.55
_NO_LABEL = frozenset({"unknown", "conflict"})
_COPIED = ("strategy", "axes", "purpose", "variant")

Lane = tuple[int | None, int | None, str]


def label_lone(calls: Sequence[Call]) -> None:
    """Label calls that only the device shows, where at least `AT_LEAST` recorded calls agree."""
    lone: dict[Lane, list[Call]] = defaultdict(list)
    known: dict[Lane, list[Label]] = defaultdict(list)
    for call in calls:
        if call.kernel is None or call.stream is None:
            continue
        lane: Lane = (call.device, call.stream, call.kernel)
        if call.call_ts is not None:
            known[lane].append(call.label)
        elif call.label.strategy in _NO_LABEL:
            lone[lane].append(call)
    for place, mine in lone.items():
        labels = known.get(place, [])
        kinds = {(x.strategy, x.axes, x.purpose, x.variant) for x in labels}
        if len(labels) >= AT_LEAST and len(kinds) == 1 and labels[0].strategy not in _NO_LABEL:
            copied = _copy(labels[0], len(labels), place)
            for call in mine:
                call.label = replace(copied, phase=call.label.phase, fired=(*call.label.fired, *copied.fired))


def _copy(like: Label, count: int, lane: Lane) -> Label:
    confidence = min(CONFIDENCE, like.confidence or CONFIDENCE)
    saw = f"kernel {lane[2].split('(')[0]} on stream {lane[1]}: {count} recorded calls with it bear this label"
    told = [(name, getattr(like, name)) for name in _COPIED]
    fired = tuple(Fired(RULE, name, value, "C", confidence, saw) for name, value in told if value is not None)
    return Label(
        like.strategy, like.axes, like.purpose, None, like.variant, confidence, "C", RULE, like.alternatives, fired
    )

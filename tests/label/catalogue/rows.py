"""Rows of the catalogue as test cases: a composed call with the row's literals, and the label it must get."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from micro import Micro, group

if TYPE_CHECKING:
    from tracekit.model import Label


@dataclass(frozen=True)
class Row:
    """One row: `op` and `how` describe the call (see `Micro.call`), the rest is what must come out.

    tier: the tier, or "C-" for C, D or none; None = not asked. names, frames, groups: what tells the framework.
    """

    id: str
    op: str
    strategy: str
    tier: str | None = "A"
    axes: str | None = None
    purpose: str | None = None
    variant: str | None = None
    phase: str | None = None
    names: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    how: dict[str, Any] = field(default_factory=dict)
    offered: str | None = None  # the truth that must stand among the alternatives of an unknown


def micro(names: tuple[str, ...] = (), frames: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> Micro:
    """An empty trace that shows these names, frames and group descriptions somewhere else."""
    out = Micro({"groups": tuple(group(str(90 + i), d, 0, 1) for i, d in enumerate(groups))})
    for name in names:
        out.b.op(out.at, 5, name)
        out.at += 10
    for frame in frames:
        out.b.span("python", out.at, 5, frame)
        out.at += 10
    return out


def labelled(row: Row) -> Label:
    """Label of the row's call."""
    return micro(row.names, row.frames, row.groups).call(row.op, **row.how).labels()[-1]


def check(label: Label, row: Row) -> None:
    """Compare what the row states."""
    got = (label.strategy, label.rule, label.alternatives, label.variant)
    assert label.strategy == row.strategy, got
    if row.tier == "C-":
        assert label.tier not in ("A", "B"), got
    elif row.tier is not None and row.strategy != "unknown":
        assert label.tier == row.tier, got
    for name in ("axes", "purpose", "variant", "phase"):
        if getattr(row, name) is not None:
            assert getattr(label, name) == getattr(row, name), (name, getattr(label, name), got)
    if row.offered is not None:
        assert row.offered in [s for s, _ in label.alternatives], got

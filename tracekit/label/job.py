"""What the whole job knows and one rank's file may not: its frameworks, its groups, and what their axes are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.label.layout.kinds import Key


class Claim(Struct, frozen=True):
    """A conclusion about one group's axes from outside the rules (layout, user's map)."""

    axes: str
    tier: str
    confidence: float
    rule: str
    saw: str
    strategy: str | None = None
    purpose: str | None = None
    alternatives: tuple[str, ...] = ()


class Job(Struct, frozen=True):
    """Knowledge of the whole job, handed to every rank.

    descriptions: group name → description, where all ranks that have one agree; claims: group → conclusions, the
    strongest first; stages: groups in which some rank's messages are those of a pipeline stage.
    """

    frameworks: frozenset[str] = frozenset()
    descriptions: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[Key, tuple[Claim, ...]] = field(default_factory=dict)
    world_size: int | None = None
    stages: frozenset[Key] = frozenset()

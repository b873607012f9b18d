"""A part of the page, and what all parts share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tracekit.output.html import source as src
from tracekit.output.html.markup import Terms, reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.output.html.charts import Chart
    from tracekit.output.html.source import Place, Row, Source


@dataclass(slots=True)
class Section:
    """A part: ready HTML, its pictures, and data that the browser needs for choices (`payloads`, by name)."""

    id: str
    title: str
    body: str
    charts: list[Chart] = field(default_factory=list)
    payloads: dict[str, Any] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """Name in the navigation."""
        return _SHORT.get(self.id, self.title)

    @classmethod
    def empty(cls, id_: str, title: str, why: str) -> Section:
        """A part without numbers, which says why."""
        return cls(id_, title, reason(why))


_SHORT = {
    "breakdown": "Step", "strategies": "Strategies", "theory": "Theory", "waiting": "Waiting", "timeline": "Timeline",
    "quality": "Data", "tables": "Tables", "stragglers": "Stragglers",
}  # fmt: skip


@dataclass
class Context:
    """What the parts are made from. `step`: the step that pictures of one step show."""

    source: Source
    step: int | None
    terms: Terms = field(default_factory=Terms)

    @cached_property
    def places(self) -> set[Place]:
        """(rank, device, step) of the steps that count."""
        return src.complete_places(self.source)

    def counted(self, rows: Iterable[Row]) -> list[Row]:
        """Rows of the steps that count."""
        return [r for r in rows if src.place(r) in self.places]

    @cached_property
    def whole_recording(self) -> bool:
        """Whether there are no step markers."""
        return all(s["found_by"] == "whole-window" for s in self.source.rows("steps"))

    @cached_property
    def lanes(self) -> list[tuple[int | None, int]]:
        """(rank, device) in order."""
        found = {(t["rank"], t["device"]) for t in self.source.rows("totals")}
        return sorted(found, key=lambda p: (p[0] is None, p[0] or 0, p[1]))

    def lane_name(self, rank: int | None, device: int) -> str:
        """Rank, and its device where a rank has several."""
        name = "?" if rank is None else str(rank)
        several = len(self.lanes) > len({r for r, _ in self.lanes})
        return f"{name}/{device}" if several and device >= 0 else name


def mean(values: Iterable[float | None]) -> float | None:
    """Arithmetic mean of the known values; None without any."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def total(values: Iterable[int | None]) -> int | None:
    """Sum of the known values; None without any."""
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def thinned(names: list[str], most: int = 24) -> dict[float, str]:
    """Tick text at the middle of row i, at most so many."""
    every = max(1, -(-len(names) // most))
    return {i + 0.5: n for i, n in enumerate(names) if i % every == 0}

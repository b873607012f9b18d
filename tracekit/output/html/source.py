"""Where the page takes its numbers from: the result tables of a run, or of a dataset that was read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from tracekit.ingest.run import RunTables
    from tracekit.output.dataset import Dataset

Row = dict[str, Any]
Place = tuple[int | None, int, int | None]
"""(rank, device, step) of a row."""


@dataclass(frozen=True)
class Source:
    """The tables of one run. Small ones are rows; the big ones come rank by rank."""

    run: RunTables
    dataset: Dataset | None = None

    def rows(self, table: str) -> list[Row]:
        """All rows of a small table; none where this version or the data have no such table."""
        from tracekit.model import TABLES

        return self.run.rows(table) if table in TABLES else []

    def arrow(self, table: str, columns: Sequence[str]) -> pa.Table:
        """Columns of a table that may be long but has no folder a rank."""
        if self.dataset is not None:
            return self.dataset.arrow(table, columns)
        from tracekit.output.rows import table_of

        return table_of(self.run, table).select(list(columns))

    def each(self, table: str, columns: Sequence[str], *, until_ns: int | None = None) -> Iterator[pa.Table]:
        """Columns of a big table, one rank (or file) at a time; rows that start before `until_ns`."""
        if self.dataset is not None:
            yield from self.dataset.each(table, columns, until_ns=until_ns)
            return
        if not self.run.details:
            return
        from tracekit.output.details import each

        for _, data in each(self.run, table):
            yield data.select(list(columns))

    @property
    def has_detail(self) -> bool:
        """Whether the tables `activities` and `collectives` are there."""
        return self.dataset is not None or bool(self.run.details)


def complete_places(source: Source) -> set[Place]:
    """(rank, device, step) of the steps that no file cuts; of all steps where every one may be cut."""
    steps = source.rows("steps")
    whole = {place(s) for s in steps if s["complete"]}
    return whole or {place(s) for s in steps}


def place(row: Row) -> Place:
    """Where a row belongs."""
    return row["rank"], row["device"], row["step"]


def chosen_step(source: Source, wanted: int | None) -> int | None:
    """The step that pictures show: the wanted one, else the complete step of median length; None without steps."""
    places = complete_places(source)
    longest: dict[int, int] = {}
    for s in source.rows("steps"):
        if wanted is not None or place(s) in places:
            longest[s["step"]] = max(longest.get(s["step"], 0), s["dur_ns"])
    if wanted is not None:
        if wanted not in longest:
            known = ", ".join(map(str, sorted(longest)[:20])) or "none"
            raise UsageError(f"--step {wanted}: no such step; the recording has {known}")
        return wanted
    ordered = sorted(longest, key=lambda n: (longest[n], n))
    return ordered[len(ordered) // 2] if ordered else None

"""Pure functions from one labelled rank to the published tables: steps, exposure, breakdown, totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from tracekit.model import LabelledRank

__all__ = ["RankTables", "analyze_rank"]


@dataclass(frozen=True, slots=True)
class RankTables:
    """Published tables of one rank, each with the schema `tracekit.model.arrow_schema(<field name>)`.

    `source`, `part`: the file (and document or process in it) the rank was read from. The tables `ranks` and
    `columns` are not made here: the first needs the identity of all ranks, the second no trace.
    """

    rank: int | None
    source: str
    part: int
    activities: pa.Table
    collectives: pa.Table
    groups: pa.Table
    steps: pa.Table
    exposure: pa.Table
    step_strategies: pa.Table
    by_strategy: pa.Table
    label_share: pa.Table
    breakdown: pa.Table
    totals: pa.Table
    findings: pa.Table
    health: pa.Table

    def tables(self) -> dict[str, pa.Table]:
        """Tables by their published name."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("rank", "source", "part")}


def analyze_rank(labelled: LabelledRank, *, origin_ns: int) -> RankTables:
    """All tables of one rank; `origin_ns` is the time (file clock, ns) that `ts_ns` columns count from."""
    from tracekit.analysis.rank import RankAnalysis

    return RankAnalysis(labelled, origin_ns).tables()

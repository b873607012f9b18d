"""Operation tables among the inputs: each is a job of its own and gives rows of `stragglers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tracekit.errors import UnusableInput
from tracekit.ingest.worker import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tracekit.analysis.stragglers import StragglerTables

Row = dict[str, Any]


class OpTableResults(Struct):
    """Rows for `stragglers`, `findings` and `health`, and the operation tables that could not be read."""

    rows: list[Row] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    health: list[Row] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def add(self, found: StragglerTables, source: str) -> None:
        """Add what was found about one job."""
        self.rows += found.rows
        self.findings += found.findings
        self.health += [
            {
                "rank": None, "source": source, "severity": h.severity, "reason": h.reason, "count": h.count,
                "example": h.example or None,
            }
            for h in found.health
        ]  # fmt: skip

    def into(self, tables: dict[str, list[Row]]) -> None:
        """Add to the tables of a run, the most important findings first."""
        order = {"error": 0, "warning": 1, "info": 2}
        tables["stragglers"] = self.rows
        tables["health"] += self.health
        tables["findings"] = sorted([*self.findings, *tables["findings"]], key=lambda f: order[f["severity"]])


def read_op_tables(paths: Iterable[Path], *, strict: bool = False) -> OpTableResults:
    """Read and analyse operation tables one after the other; one that cannot be read becomes a failure."""
    out = OpTableResults()
    for path in paths:
        from tracekit.analysis.stragglers import analyze_ops
        from tracekit.parsers.straggler_table import parse

        try:
            found = analyze_ops(parse(path, strict=strict))
        except UnusableInput as e:
            out.failures.append(Failure(str(path), str(e)))
            continue
        out.add(found, str(path))
    return out

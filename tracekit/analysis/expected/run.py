"""The theory step of a run: recordings → rows of `theory`, columns for each recording's calls, findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.crossrank.columns import CallColumns
from tracekit.analysis.expected.calls import read_calls
from tracekit.analysis.expected.exposed import split_exposure
from tracekit.analysis.expected.findings import exposure_findings, findings_of
from tracekit.analysis.expected.machine import machine_of
from tracekit.analysis.expected.planned import planned
from tracekit.analysis.expected.rows import collect, theory_rows
from tracekit.analysis.expected.timing import VERDICTS, judge_calls
from tracekit.analysis.expected.utilisation import utilisation
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.analysis.expected.calls import Recording
    from tracekit.analysis.expected.rows import Key
    from tracekit.analysis.expected.timing import Judged, Timed

Row = dict[str, Any]


class Expected(Struct):
    """Rows of `theory`, findings, columns for the calls of each recording, the inputs used and what is missing."""

    rows: list[Row]
    findings: list[Row] = field(default_factory=list)
    columns: list[CallColumns] = field(default_factory=list)
    inputs: list[Row] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    utilisation: Row = field(default_factory=dict)


def expected(
    recordings: Sequence[Recording],
    tables: Mapping[str, Any],
    *,
    world: int | None,
    groups: Sequence[Row],
    layout: Row | None,
) -> Expected:
    """Everything that theory says of the calls of a run.

    recordings: in the run's order. tables: [model], [training], [hardware] of run.toml. groups: rows of that table.
    degrees: axis → ranks, of the declared or inferred layout. Raises UsageError for a mistake in the tables.
    """
    degrees = {**layout["expert"], **layout["degrees"]} if layout is not None else {}
    machine = machine_of(recordings, tables.get("hardware", {}), world, groups, degrees)
    calls = [read_calls(one) for one in recordings]
    known: dict[object, Timed] = {}
    judged = [judge_calls(c, one.rank, machine, known) for one, c in zip(recordings, calls, strict=True)]
    exposed: dict[Key, list[float]] = {}
    for one, mine, verdicts in zip(recordings, calls, judged, strict=True):
        split_exposure(one, mine, verdicts, exposed)
    sums = collect(recordings, calls, judged, machine)
    found = planned(sums, tables, layout, machine)
    rows = theory_rows(sums, exposed, _compute(recordings), machine, found)
    out = Expected(rows, inputs=[*machine.inputs, *found.inputs], utilisation=utilisation(found, recordings))
    out.columns = [_columns(j) for j in judged]
    out.findings = [*findings_of(rows), *exposure_findings(recordings)]
    out.missing = [*_missing(rows), *found.missing]
    return out


def _columns(j: Judged) -> CallColumns:
    def whole(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.where(np.isnan(values), NO_TIME, np.nan_to_num(np.rint(values))).astype(np.int64)

    words = np.array([*VERDICTS, None], object)
    verdict: list[str | None] = words[j.verdict].tolist()  # NONE is the last one
    return CallColumns({"least_ns": whole(j.least), "expected_ns": whole(j.expected)}, {}, {"verdict": verdict})


def _compute(recordings: Sequence[Recording]) -> dict[tuple[int, int], int]:
    """(recording, step) → ns with compute active, all devices."""
    out: dict[tuple[int, int], int] = {}
    for number, one in enumerate(recordings):
        for b in one.breakdown:
            at = (number, b["step"])
            out[at] = out.get(at, 0) + (b["compute_only_ns"] or 0) + (b["overlapped_ns"] or 0)
    return out


def _missing(rows: Sequence[Row]) -> list[str]:
    """What theory lacks, with the strategies it concerns: one line a reason."""
    found: dict[str, list[str]] = {}
    for r in rows:
        if r["expected_ns"] is None and r["reason"]:
            found.setdefault(r["reason"], []).append(f"{r['strategy']} {r['op']}")
    return [f"{reason} ({', '.join(dict.fromkeys(names))})" for reason, names in found.items()]

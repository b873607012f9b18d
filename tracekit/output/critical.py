"""The part of the report on the critical path: what a step's length consists of, and what would change it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tracekit.output.text import Grid, clean, ms, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.ingest.run import RunTables

Row = dict[str, Any]
DEFINITION = (
    "critical path = what each thing waited for last, back from the end of a step to its start, across ranks; a call "
    "that all its ranks have to reach is on it from the last arrival on (docs/critical-path.md)"
)
_CASES = {
    "no-stragglers": "no rank computes longer than is typical of its stage",
    "no-straggler": "the slowest rank computes as long as is typical",
    "balanced-stages": "all stages compute alike",
    "theory-speed": "transfers as fast as theory",
    "perfect-overlap": "nobody waits for its transfers",
}
MOST_PARTS, MOST_CASES = 10, 8


def grids(run: RunTables) -> list[Grid]:
    """The path of a mean step, and the changes that would save most; nothing without steps."""
    steps = _used(run.tables.get("critical_steps", []))
    if not steps:
        return []
    numbers = {s["step"] for s in steps}
    return [
        _parts(steps, [r for r in run.tables["critical_shares"] if r["step"] in numbers]),
        _what_if([w for w in run.tables["what_if"] if w["basis"] == "critical-path" and w["step"] in numbers]),
    ]


def _used(rows: Sequence[Row]) -> list[Row]:
    """Complete steps; all when none is complete."""
    return [r for r in rows if r["complete"]] or list(rows)


def _parts(steps: Sequence[Row], shares: Sequence[Row]) -> Grid:
    length = statistics.fmean(s["dur_ns"] for s in steps)
    grid = Grid(
        f"critical path ({ms(length)} ms, mean of {len(steps)} step{'' if len(steps) == 1 else 's'}, "
        f"{max(s['ranks'] for s in steps)} ranks)".replace(" 1 ranks", " 1 rank"),
        ("part", "strategy", "time", "share", "ranks it is on"),
    )
    sums: dict[tuple[str, str | None], int] = defaultdict(int)
    on: dict[tuple[str, str | None], dict[int | None, int]] = defaultdict(lambda: defaultdict(int))
    for r in shares:
        key = (r["kind"], r["strategy"])
        sums[key] += r["dur_ns"]
        on[key][r["rank"]] += r["dur_ns"]
    order = sorted(sums, key=lambda k: (-sums[k], k[0], k[1] or ""))
    for kind, strategy in order[:MOST_PARTS]:
        ranks = on[kind, strategy]
        most = sorted(ranks, key=lambda r: (-ranks[r], -1 if r is None else r))
        names = ", ".join("?" if r is None else str(r) for r in most[:4]) + (", …" if len(most) > 4 else "")
        ns = sums[kind, strategy] / len(steps)
        grid.rows.append((kind, clean(strategy or ""), ms(ns), percent(ns, length), names))
    if any(s["reason"] for s in steps):
        grid.notes.append(f"limited: {', '.join(sorted({s['reason'] for s in steps if s['reason']}))}")
    errors = [s["replay_error_ratio"] for s in steps if s["replay_error_ratio"] is not None]
    if errors:
        grid.notes.append(f"the replay of these dependencies misses the steps by up to {percent(max(errors), 1)}")
    return grid


def _what_if(rows: Sequence[Row]) -> Grid:
    grid = Grid("what if (replay of a mean step, ms)", ("change", "of", "step", "saved", "share"))
    cases: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
    for r in rows:
        if r["what_if_ns"] is not None:
            cases[r["what"], r["subject"]].append(r)
    means = {k: statistics.fmean(r["saved_ns"] for r in found) for k, found in cases.items()}
    for key in sorted(cases, key=lambda k: (-means[k], k[0], k[1] or ""))[:MOST_CASES]:
        if means[key] <= 0:
            continue
        length = statistics.fmean(r["what_if_ns"] for r in cases[key])
        base = statistics.fmean(r["replayed_ns"] for r in cases[key])
        grid.rows.append(
            (_CASES[key[0]], clean(key[1] or "all"), ms(length), ms(means[key]), percent(means[key], base))
        )
    return grid

"""A comparison of two runs for reading: terminal, GitHub-flavoured Markdown, JSON. Only arranges its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.output.markdown import escape, table
from tracekit.output.text import Grid, clean, ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

Row = dict[str, Any]
MOST_CAUSES, MOST_ROWS, MOST_SITES = 6, 12, 8
LEAST_NS = 1_000
"""Changes of call sites below a microsecond are not listed."""
_VERDICTS = {"only-a": "only in A", "only-b": "only in B"}
DEFINITION = (
    "means of a rank and step; ± = 99 % interval of the change from the spread over steps; "
    "same = within it, or below half a per cent of a step (docs/diff.md)"
)


def grids(found: Row) -> list[Grid]:
    """Tables of a comparison, in reading order."""
    out = [_parts(found["parts"]), _communication(found["communication"]), _sites(found["sites"])]
    return [*(g for g in out if g.rows), *([gates(found["gates"])] if found.get("gates") else [])]


def _changed(row: Row) -> tuple[str, ...]:
    noise = row.get("band_ns")
    ratio = row["change_ratio"]
    return (
        ms(row["a_ns"]), ms(row["b_ns"]), _signed(row["change_ns"]), "–" if ratio is None else f"{100 * ratio:+.1f} %",
        "–" if noise is None else ms(noise),
    )  # fmt: skip


def _signed(ns: float | None) -> str:
    return "–" if ns is None else f"{'+' if ns > 0 else ''}{ms(ns)}"


def _parts(rows: Sequence[Row]) -> Grid:
    grid = Grid("a step (ms, mean of a rank)", ("part", "A", "B", "B − A", "%", "±", "verdict"))
    for row in rows:
        grid.rows.append((row["part"].replace("_", " "), *_changed(row), row["verdict"]))
    return grid


def _communication(rows: Sequence[Row]) -> Grid:
    grid = Grid(
        "exposed communication by strategy (ms, mean of a rank and step)",
        (
            "strategy",
            "purpose",
            "phase",
            "calls A",
            "calls B",
            "A",
            "B",
            "B − A",
            "%",
            "±",
            "waiting",
            "verdict",
        ),
    )
    for row in rows[:MOST_ROWS]:
        calls = (f"{row['calls_a'] or 0:,.4g}", f"{row['calls_b'] or 0:,.4g}")
        verdict = str(_VERDICTS.get(row["verdict"], row["verdict"]))
        names = (clean(row[n] or "–") for n in ("strategy", "purpose", "phase"))
        grid.rows.append((*names, *calls, *_changed(row), _signed(row["wait"]["change_ns"]), verdict))
    if len(rows) > MOST_ROWS:
        grid.notes.append(f"{len(rows) - MOST_ROWS} more with smaller changes (--json lists all)")
    return grid


def _sites(rows: Sequence[Row]) -> Grid:
    grid = Grid(
        "call sites whose exposed time changed most (ms, mean of a rank and step of the whole recording)",
        ("strategy", "purpose", "phase", "operation", "calls A", "calls B", "A", "B", "B − A", "where"),
    )
    for row in rows:
        if abs(row["change_ns"]) >= LEAST_NS and len(grid.rows) < MOST_SITES:
            names = (clean(row[n] or "–") for n in ("strategy", "purpose", "phase", "op"))
            grid.rows.append((
                *names, f"{row['calls_a']:,.4g}", f"{row['calls_b']:,.4g}", ms(row["a_ns"]), ms(row["b_ns"]),
                _signed(row["change_ns"]), clean(row["site"] or "–")[:60],
            ))  # fmt: skip
    return grid


def gates(rows: Sequence[Row]) -> Grid:
    """Outcome of each gate."""
    grid = Grid("gates", ("gate", "outcome", "why"))
    grid.rows = [(clean(r["gate"]), "passed" if r["passed"] else "crossed", clean(r["reason"])) for r in rows]
    return grid


def causes(found: Row) -> list[str]:
    """One line a cause, dearest first after what differs in set-up."""
    out = []
    for cause in found["causes"][:MOST_CAUSES]:
        cost = cause["cost_ns"]
        told = cost is not None and abs(cost) >= LEAST_NS
        out.append(cause["sentence"] + (f": {_signed(cost)} ms of a step" if told else ""))
    return out


def head(found: Row) -> str:
    """What is compared."""
    return f"A: {_run(found['a'])} · B: {_run(found['b'])}"


def _run(about: Row) -> str:
    return f"{clean(about['name'])} ({_count(about['ranks'], 'rank')}, {_count(about['steps'], 'step')})"


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


def show(found: Row, console: Console) -> None:
    """Print a comparison."""
    from tracekit.output.terminal import show as show_grid

    console.print(head(found), markup=False, highlight=False)
    console.print()
    console.print(clean(found["sentence"]), style="bold", markup=False, highlight=False)
    for line in causes(found)[1:]:
        console.print(f"also    {clean(line)}", markup=False, highlight=False)
    for grid in grids(found):
        console.print()
        show_grid(grid, console)
    console.print()
    for note in found["notes"]:
        console.print(f"note    {clean(note)}", style="yellow", markup=False, highlight=False)
    console.print(DEFINITION, style="dim", markup=False, highlight=False)


def markdown(found: Row) -> str:
    """The comparison as Markdown, to post on a change."""
    lines = [f"**{escape(found['sentence'])}**", "", escape(head(found)), ""]
    if len(found["causes"]) > 1:
        lines += [*(f"- {escape(line)}" for line in causes(found)), ""]
    for grid in grids(found):
        lines += [*table(grid), ""]
    lines += [f"- {escape(note)}" for note in found["notes"]] + [""] * bool(found["notes"])
    return "\n".join([*lines, f"<sub>{escape(DEFINITION)}</sub>"]) + "\n"

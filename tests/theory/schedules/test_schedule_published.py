"""Simulated bubbles against the published and derived numbers of the reference table, one test a row."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, TypeAlias

import pytest

from tracekit.theory.schedules import Timeline, Times, build, simulate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MS = 1_000_000


def run(
    name: str, p: int, m: int, f: float, i: float, w: float, c: float = 0.0, v: int = 1, pair: float | None = None
) -> Timeline:
    """A simulation with the times of one rank's whole share in ms; each of its v stages takes 1/v of them."""
    ns = [round(x * MS / v) for x in (f, i, w)]
    schedule = build(name, p, m, v if v > 1 else None)
    return simulate(schedule, Times(*ns, round(c * MS), None if pair is None else round(pair * MS)))


def worst(timeline: Timeline, span: bool = False) -> float:
    """ms, the idle of the rank that idles most."""
    return max(timeline.bubble("span" if span else "step").idle_ns) / MS


ROWS: dict[str, Callable[[], float]] = {
    "BUB-1F1B-1a": lambda: run("1F1B", 4, 8, 1, 1, 1).bubble().over_ideal_ratio,
    "BUB-1F1B-1b": lambda: run("1F1B", 4, 8, 1, 1, 1).bubble().over_step_ratio,
    "BUB-1F1B-2a": lambda: run("1F1B", 8, 32, 1, 1, 1).bubble().over_ideal_ratio,
    "BUB-1F1B-2b": lambda: run("1F1B", 8, 32, 1, 1, 1).bubble().over_step_ratio,
    "BUB-INT-1a": lambda: run("Interleaved1F1B", 8, 32, 1, 1, 1, v=4).bubble().over_ideal_ratio,
    "BUB-INT-1b": lambda: run("Interleaved1F1B", 8, 32, 1, 1, 1, v=4).bubble().over_step_ratio,
    "BUB-ZBH1-1a": lambda: run("ZB-H1", 4, 8, 1, 1.2, 0.8).bubble().over_ideal_ratio,
    "BUB-ZBH1-1b": lambda: run("ZB-H1", 4, 8, 1, 1.2, 0.8).bubble().over_step_ratio,
    "BUB-IZB-1a": lambda: run("InterleavedZeroBubble", 8, 32, 2, 3, 1, v=2).bubble().over_ideal_ratio,
    "BUB-IZB-1b": lambda: run("InterleavedZeroBubble", 8, 32, 2, 3, 1, v=2).bubble().over_step_ratio,
    "BUB-ZBH2-1": lambda: worst(run("ZB-H2", 8, 32, 1, 1.2, 0.8), span=True),
    "BUB-ZBV-1": lambda: worst(run("ZBV", 8, 32, 1, 1, 1, v=2), span=True),
    "BUB-ZBV-2": lambda: worst(run("ZBV", 8, 32, 1, 1, 1, v=2)),
    "BUB-DP-1": lambda: worst(run("DualPipe", 8, 20, 1, 1, 1, pair=3)),
    "BUB-DP-2": lambda: worst(run("DualPipe", 8, 20, 1, 1, 1, pair=2.4)),
    "BUB-DPV-1": lambda: worst(run("DualPipeV", 4, 8, 1, 1, 1, v=2)),
    "BUB-1F1B-C": lambda: worst(run("1F1B", 8, 32, 1, 1, 1, c=0.1)),
    "BUB-INT-C": lambda: (
        worst(run("Interleaved1F1B", 8, 32, 1, 1, 1, c=0.05, v=4)) - worst(run("Interleaved1F1B", 8, 32, 1, 1, 1, v=4))
    ),
    "BUB-MLEP-1": lambda: run("1F1B", 8, 4, 29.718, 29.444, 19.927).makespan_ns / MS,
    "BUB-MLEP-2": lambda: run("ZB-H1", 8, 4, 29.718, 29.444, 19.927).makespan_ns / MS,
}

TABLE_5 = [f"BUB-ZT5-{model}-m{m}" for model in ("1.5B", "6.2B") for m in (24, 32, 64)]
"""Rows of the Zero Bubble paper's table 5, without their last part."""
Row: TypeAlias = dict[str, str]


@pytest.fixture(scope="module")
def rows(shared: Path) -> dict[str, Row]:
    """Rows of the reference table by id."""
    with (shared / "reference" / "theory_checks.tsv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file, delimiter="\t")}


def inputs(row: Row) -> dict[str, float]:
    return {key: float(value) for key, value in (part.split("=") for part in row["inputs"].split(";"))}


@pytest.mark.shared
@pytest.mark.parametrize("row", ROWS)
def test_row(row: str, rows: dict[str, Row]) -> None:
    """Expected values have six digits."""
    assert ROWS[row]() == pytest.approx(float(rows[row]["expected"]), rel=2e-6, abs=6e-7)


@pytest.mark.shared
def test_row_dualpipe_bound(rows: dict[str, Row]) -> None:
    """BUB-DP-3: with unequal F, Bin, W the README's formula is above what its order takes."""
    bound, simulated = map(float, rows["BUB-DP-3"]["expected"].split(";"))
    assert worst(run("DualPipe", 8, 20, 1, 1.2, 0.8, pair=3)) == pytest.approx(simulated)
    assert simulated < bound


@pytest.mark.shared
def test_row_span_of_ranks(rows: dict[str, Row]) -> None:
    """BUB-SPAN-1: idle inside a rank's own span, and its mean beside the window's bubble."""
    each, _, mean = rows["BUB-SPAN-1"]["expected"].partition(" ; mean ")
    timeline = run("1F1B", 4, 8, 1, 1, 1)
    idle = [ns / MS for ns in timeline.idle_in_span_ns]
    assert idle == [float(x) for x in each.split(",")]
    assert [sum(idle) / 4, worst(timeline)] == [float(x) for x in mean.split(" vs ")]


@pytest.mark.shared
@pytest.mark.parametrize("row", TABLE_5)
@pytest.mark.parametrize(("kind", "name"), [("1F1B", "1F1B"), ("ZBH1", "ZB-H1"), ("ZBH2", "ZB-H2")])
def test_row_of_the_zero_bubble_paper(row: str, kind: str, name: str, rows: dict[str, Row]) -> None:
    """Table 5 rates from the times of table 9, with the paper's cost: the longest span of a rank."""
    given, rate = inputs(rows[f"{row}-{kind}"]), float(rows[f"{row}-{kind}"]["expected"])
    timeline = run(name, int(given["p"]), int(given["m"]), given["F"], given["B"], given["W"], given["c"])
    assert timeline.bubble("span").over_step_ratio == pytest.approx(rate, abs=6e-5)


@pytest.mark.shared
@pytest.mark.parametrize("row", TABLE_5)
def test_row_of_the_zero_bubble_paper_interleaved(row: str, rows: dict[str, Row]) -> None:
    """Here the paper has p latencies less than any order can: one micro-batch alone crosses 2(pv-1) boundaries."""
    given, rate = inputs(rows[f"{row}-INT"]), float(rows[f"{row}-INT"]["expected"])
    p, m, v, c = int(given["p"]), int(given["m"]), int(given["v"]), given["c"]
    timeline = run("Interleaved1F1B", p, m, given["F"], given["B"], given["W"], c, v)
    bubble = worst(timeline)
    assert bubble == pytest.approx(
        worst(run("Interleaved1F1B", p, m, given["F"], given["B"], given["W"], 0, v)) + 2 * c * (p * v - 1)
    )
    ideal = timeline.makespan_ns / MS - bubble
    assert (bubble - p * c) / (ideal + bubble - p * c) == pytest.approx(rate, abs=6e-5)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("row", "name", "virtual"),
    [
        ("VOL-PP-03", "1F1B", 1),
        ("VOL-PP-04", "Interleaved1F1B", 2),
        ("VOL-PP-05", "ZBV", 2),
        ("VOL-PP-05", "DualPipeV", 2),
    ],
)
def test_row_of_sends(row: str, name: str, virtual: int, rows: dict[str, Row]) -> None:
    assert build(name, 4, 8, virtual).sends == int(rows[row]["expected"])


@pytest.mark.shared
def test_no_row_of_bubbles_is_left_out(rows: dict[str, Row]) -> None:
    tested = {*ROWS, "BUB-DP-3", "BUB-SPAN-1", *(f"{t}-{k}" for t in TABLE_5 for k in ("1F1B", "INT", "ZBH1", "ZBH2"))}
    bounds = {"BUB-IMB-1"}  # a property: test_schedule_bounds
    assert {row for row in rows if row.startswith("BUB-")} == tested | bounds

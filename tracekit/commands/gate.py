"""`--gate`: conditions on a result, for CI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tracekit.errors import GateCrossed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.diff.gates import Gate
    from tracekit.api import Result

option = click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 4 where it does not hold, e.g. 'exposed.dp_ratio<0.05' or, between two runs, 'step_ns<+3%'; "
    "repeatable (docs/diff.md).",
)


def parsed(texts: Sequence[str]) -> list[Gate]:
    """The gates; a mistake shows before any trace is read. UsageError for changes, which need two runs."""
    if not texts:
        return []
    from tracekit.analysis.diff.gates import alone, parse

    return [alone(parse(text)) for text in texts]


def outcomes(gates: Sequence[Gate], result: Result) -> list[dict[str, Any]]:
    """What becomes of gates on one run."""
    if not gates:
        return []
    from tracekit.analysis.diff.gates import check
    from tracekit.analysis.diff.side import side

    return check(gates, side(result.document, "run"))


def enforce(outcomes: Sequence[dict[str, Any]]) -> None:
    """Raise GateCrossed, in one line, when a gate does not hold."""
    crossed = [row["reason"] for row in outcomes if not row["passed"]]
    if crossed:
        raise GateCrossed(f"gate crossed: {'; '.join(crossed)}")

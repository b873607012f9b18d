"""Facts that hold for a whole rank (such as: parameters are gathered in the forward only), from its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.label.engine import Engine
    from tracekit.label.matching import Evidence, Expectation, FactRule


def find_facts(
    rules: list[FactRule], engine: Engine, evidence: list[tuple[Evidence, int]], n_steps: int
) -> frozenset[str]:
    """Ids of the facts that hold. evidence: distinct evidence of the rank with its number of calls."""
    if not rules:
        return frozenset()
    seen = [(e, n, engine.phase(e)) for e, n in evidence]
    return frozenset(
        f.id
        for f in rules
        if all(_enough(engine, x, seen, n_steps) for x in f.present)
        and not any(_enough(engine, x, seen, n_steps) for x in f.absent)
    )


def _enough(
    engine: Engine, expectation: Expectation, seen: list[tuple[Evidence, int, str | None]], n_steps: int
) -> bool:
    hits = [(e, n) for e, n, phase in seen if engine.holds(expectation, e, phase)]
    if expectation.count == "scopes":
        return len({engine.nearest_scope(expectation, e) for e, _ in hits}) >= expectation.at_least
    calls = sum(n for _, n in hits)
    if expectation.count == "calls_per_step":
        return calls >= expectation.at_least * max(1, n_steps)
    return calls >= expectation.at_least

"""Facts that hold for a whole rank or one of its groups (such as: parameters are gathered in the forward only)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.label.engine import Engine
    from tracekit.label.matching import Evidence, Expectation, FactRule

    Seen = list[tuple[Evidence, int, str | None]]


def find_facts(
    rules: list[FactRule], engine: Engine, evidence: list[tuple[Evidence, int]], n_steps: int
) -> tuple[frozenset[str], dict[object, frozenset[str]]]:
    """Ids of the facts that hold for the rank, and per group. evidence: distinct evidence with its number of calls."""
    if not rules:
        return frozenset(), {}
    seen = [(e, n, engine.phase(e)) for e, n in evidence]
    by_group: dict[object, Seen] = defaultdict(list)
    for one in seen:
        by_group[one[0].group.key].append(one)
    alone = [f for f in rules if f.per_group]
    everywhere = frozenset(f.id for f in rules if not f.per_group and _holds(engine, f, seen, n_steps))
    groups = {key: frozenset(f.id for f in alone if _holds(engine, f, mine, n_steps)) for key, mine in by_group.items()}
    return everywhere, groups


def _holds(engine: Engine, fact: FactRule, seen: Seen, n_steps: int) -> bool:
    return all(_enough(engine, x, seen, n_steps) for x in fact.present) and not any(
        _enough(engine, x, seen, n_steps) for x in fact.absent
    )


def _enough(engine: Engine, expectation: Expectation, seen: Seen, n_steps: int) -> bool:
    hits = [(e, n) for e, n, phase in seen if engine.holds(expectation, e, phase)]
    if expectation.count == "scopes":
        count = float(len({engine.nearest_scope(expectation, e) for e, _ in hits}))
    else:
        count = sum(n for _, n in hits)
        if expectation.count == "calls_per_step":
            count /= max(1, n_steps)
    return expectation.at_least <= count and (expectation.at_most is None or count <= expectation.at_most)

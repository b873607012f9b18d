"""Facts that hold for a whole rank or one of its groups (such as: parameters are gathered in the forward only)."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.label.engine import Engine
    from tracekit.label.matching import Evidence, Expectation, FactRule

    Seen = list[tuple[Evidence, int, str | None]]


def find_facts(
    rules: list[FactRule], engine: Engine, evidence: list[tuple[Evidence, int]], n_steps: int
) -> tuple[frozenset[str], dict[object, frozenset[str]]]:
    """Ids of the facts that hold for the rank, and per group. evidence: distinct evidence with its number of calls.

    Groups may be thousands that differ in identity only: what they share is looked at once.
    """
    if not rules:
        return frozenset(), {}
    first: dict[Evidence, Evidence] = {}
    counts: Counter[Evidence] = Counter()
    by_group: dict[object, list[tuple[Evidence, int]]] = defaultdict(list)
    for e, n in evidence:
        shape = engine.shape(e)
        first.setdefault(shape, e)
        counts[shape] += n
        by_group[e.group.key].append((shape, n))
    phases = {shape: engine.phase(e) for shape, e in first.items()}
    seen = [(e, counts[shape], phases[shape]) for shape, e in first.items()]
    everywhere = frozenset(f.id for f in rules if not f.per_group and _holds(engine, f, seen, n_steps))
    alone = [f for f in rules if f.per_group]
    known: dict[tuple[tuple[Evidence, int], ...], frozenset[str]] = {}
    groups: dict[object, frozenset[str]] = {}
    for key, mine in by_group.items():
        alike = tuple(mine)
        if alike not in known:
            seen = [(first[shape], n, phases[shape]) for shape, n in mine]
            known[alike] = frozenset(f.id for f in alone if _holds(engine, f, seen, n_steps))
        groups[key] = known[alike]
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

"""What a label rule looks at: the evidence of a call, and the conditions on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping

FIELDS = ("strategy", "axes", "purpose", "phase", "variant")
TIERS = ("A", "B", "C", "D")
ABSENT = "-"
"""In a rule's `axes`, `purpose` or `phase`: matches when nothing is known of it."""
ANY = "*"
"""In a rule's `axes`, `purpose` or `phase`: matches anything that is known."""
FLOATS = frozenset({"Float", "Double", "Half", "BFloat16", "ComplexFloat", "ComplexDouble", "ComplexHalf"})


@dataclass(frozen=True, slots=True)
class SizeTest:
    """Limits on a call's size; a call whose size is not recorded passes none of them."""

    min_elements: int | None = None
    max_elements: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    relation: str | None = None  # shrinks | grows | equal: output against input elements

    def passes(self, elements: tuple[int | None, int | None], nbytes: int | None) -> bool:
        """True when every given limit holds."""
        known = [n for n in elements if n is not None]
        n = max(known, default=None)
        limits = (
            (self.min_elements, n, 1), (self.max_elements, n, -1),
            (self.min_bytes, nbytes, 1), (self.max_bytes, nbytes, -1),
        )  # fmt: skip
        for limit, value, sign in limits:
            if limit is not None and (value is None or (value - limit) * sign < 0):
                return False
        if self.relation is None:
            return True
        if len(known) < 2:
            return False
        step = known[1] - known[0]
        return {"shrinks": step < 0, "grows": step > 0, "equal": step == 0}[self.relation]


@dataclass(frozen=True, slots=True)
class When:
    """Conditions of a rule; all that are given must hold.

    Patterns (`re.search`): group_desc, group_name, op_raw, kernel; scope = some enclosing scope, nearest_scope =
    the innermost one, no_scope = none of them; job_group = the description of any group of this rank. Closed
    lists: op, dtype (also `float`, `integer`), family, framework, phase, axes, purpose, link. group_ops: all these
    operations happen in the call's group on this rank; fact: ids of facts that hold for the rank; no_fact.
    """

    group_desc: re.Pattern[str] | None = None
    group_name: re.Pattern[str] | None = None
    job_group: re.Pattern[str] | None = None
    op: tuple[str, ...] = ()
    op_raw: re.Pattern[str] | None = None
    dtype: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    framework: tuple[str, ...] = ()
    kernel: re.Pattern[str] | None = None
    scope: re.Pattern[str] | None = None
    nearest_scope: re.Pattern[str] | None = None
    no_scope: re.Pattern[str] | None = None
    group_ops: tuple[str, ...] = ()
    fact: tuple[str, ...] = ()
    no_fact: tuple[str, ...] = ()
    phase: tuple[str, ...] = ()
    axes: tuple[str, ...] = ()
    purpose: tuple[str, ...] = ()
    single_duty: bool | None = None
    size: SizeTest | None = None

    @property
    def derived(self) -> bool:
        """True when the rule builds on what other rules concluded."""
        return bool(self.phase or self.axes or self.purpose) or self.single_duty is not None


@dataclass(frozen=True, slots=True)
class LabelRule:
    """One [[rule]]: conditions, conclusions (field → value), tier and confidence (0–1).

    multi_duty: the group it recognises serves several strategies, so its axes never decide alone.
    """

    id: str
    when: When
    then: Mapping[str, str]
    tier: str
    confidence: float
    source: str
    multi_duty: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Part of a fact: at least `at_least` calls a step (or distinct matching scopes) that fulfil `when`."""

    when: When
    at_least: int = 1
    count: str = "calls"  # calls | calls_per_step | scopes


@dataclass(frozen=True, slots=True)
class FactRule:
    """One [[fact]] about a whole rank: every `present` found, no `absent` found."""

    id: str
    present: tuple[Expectation, ...]
    absent: tuple[Expectation, ...]
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that rules may see of one call; calls with equal evidence share one label."""

    op: str
    op_raw: str
    group_desc: str | None
    group_name: str | None
    dtype: str | None
    family: str | None
    kernel: str | None
    scopes: tuple[str, ...]
    group_ops: frozenset[str]
    sizes: tuple[bool, ...]


@dataclass(slots=True)
class Derived:
    """What earlier rules concluded: value → (tier, confidence), and whether the axes decide alone."""

    known: dict[str, dict[str, tuple[str, float]]] = field(default_factory=dict)
    single_duty: bool = True


@dataclass(slots=True)
class Context:
    """What holds for the whole rank."""

    frameworks: frozenset[str] = frozenset()
    facts: frozenset[str] = frozenset()
    job_groups: tuple[str, ...] = ()


class ScopeIndex:
    """Finds the nearest scope a pattern matches; each pattern meets each distinct string once."""

    def __init__(self) -> None:
        self._known: dict[tuple[re.Pattern[str], str], bool] = {}

    def hit(self, pattern: re.Pattern[str], text: str) -> bool:
        """True when the pattern is found in the text."""
        key = (pattern, text)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = pattern.search(text) is not None
        return found

    def depth(self, pattern: re.Pattern[str], scopes: tuple[str, ...]) -> int:
        """Distance from the innermost scope of the nearest match; -1 for none."""
        for depth, scope in enumerate(reversed(scopes)):
            if self.hit(pattern, scope):
                return depth
        return -1


@dataclass(frozen=True, slots=True)
class Match:
    """A rule that holds: nearest scope it saw (-1 = it looked at none) and what it saw."""

    depth: int
    saw: str
    floor: tuple[str, float] | None = None  # worst tier and confidence of the conclusions it builds on


def _in(allowed: tuple[str, ...], value: str | None) -> bool:
    return not allowed or value in allowed


def _dtype_ok(allowed: tuple[str, ...], dtype: str | None) -> bool:
    if not allowed:
        return True
    if dtype is None:
        return False
    group = "float" if dtype in FLOATS or dtype.startswith("Float8") else "integer"
    return dtype in allowed or group in allowed


def _text_ok(index: ScopeIndex, pattern: re.Pattern[str] | None, text: str | None) -> bool:
    return pattern is None or (text is not None and index.hit(pattern, text))


def _plain(when: When, e: Evidence, context: Context, index: ScopeIndex, size_ok: bool) -> bool:
    """The conditions that need no scope and no conclusion."""
    return (
        _in(when.op, e.op)
        and size_ok
        and _in(when.family, e.family)
        and _dtype_ok(when.dtype, e.dtype)
        and _text_ok(index, when.group_desc, e.group_desc)
        and _text_ok(index, when.group_name, e.group_name)
        and _text_ok(index, when.op_raw, e.op_raw)
        and _text_ok(index, when.kernel, e.kernel)
        and (not when.framework or bool(context.frameworks.intersection(when.framework)))
        and set(when.group_ops) <= e.group_ops
        and set(when.fact) <= context.facts
        and not context.facts.intersection(when.no_fact)
        and (when.job_group is None or any(index.hit(when.job_group, d) for d in context.job_groups))
    )


def _derived(when: When, derived: Derived) -> tuple[str, float] | None:
    """Worst (tier, confidence) of the conclusions the rule builds on; None when one is not as asked."""
    if when.single_duty is not None and when.single_duty != derived.single_duty:
        return None
    worst = ("A", 1.0)
    for name in ("axes", "purpose", "phase"):
        asked: tuple[str, ...] = getattr(when, name)
        if not asked:
            continue
        known = derived.known.get(name, {})
        fits = [v for k, v in known.items() if k in asked or ANY in asked]
        if not fits:
            if known or ABSENT not in asked:
                return None
            continue
        best = min(fits, key=lambda v: (v[0], -v[1]))
        worst = (max(worst[0], best[0]), min(worst[1], best[1]))
    return worst


def match(
    rule_when: When, e: Evidence, context: Context, index: ScopeIndex, derived: Derived | None, size_ok: bool
) -> Match | None:
    """Does a rule hold for this evidence? `derived` = conclusions so far (needed by rules that ask for them)."""
    when = rule_when
    if not _plain(when, e, context, index, size_ok):
        return None
    depth = -1
    if when.scope is not None:
        depth = index.depth(when.scope, e.scopes)
        if depth < 0:
            return None
    if when.nearest_scope is not None:
        if not e.scopes or not index.hit(when.nearest_scope, e.scopes[-1]):
            return None
        depth = 0
    if when.no_scope is not None and index.depth(when.no_scope, e.scopes) >= 0:
        return None
    floor = None
    if when.derived:
        floor = _derived(when, derived or Derived())
        if floor is None:
            return None
    return Match(depth, _saw(when, e, depth, derived), floor)


def _saw(when: When, e: Evidence, depth: int, derived: Derived | None) -> str:
    parts: list[str] = []
    pairs: Iterable[tuple[object, str, str | None]] = (
        (when.group_desc, "group description", e.group_desc),
        (when.group_name, "group name", e.group_name),
        (when.op, "operation", e.op),
        (when.op_raw, "operation as recorded", e.op_raw),
        (when.dtype, "element type", e.dtype),
        (when.family, "library", e.family),
        (when.kernel, "kernel", e.kernel),
    )
    parts += [f"{what} {value}" for asked, what, value in pairs if asked]
    if depth >= 0:
        parts.append(f"scope {e.scopes[-1 - depth]}")
    if when.group_ops:
        parts.append(f"{' and '.join(when.group_ops)} in the same group")
    parts += [f"fact {f}" for f in when.fact]
    if derived is not None:
        asked_fields = [n for n in ("axes", "purpose", "phase") if getattr(when, n)]
        parts += [f"{n} {' or '.join(derived.known.get(n, {})) or 'not known'}" for n in asked_fields]
    if when.size is not None:
        parts.append("size")
    return ", ".join(parts)

"""What a label rule looks at: the evidence of a call, and the conditions on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping

    from tracekit.label.job import Claim

FIELDS = ("strategy", "axes", "purpose", "phase", "variant")
TIERS = ("A", "B", "C", "D")
ABSENT = "-"
"""In a rule's `axes`, `purpose` or `phase`: matches when nothing is known of it."""
ANY = "*"
"""In a rule's `axes`, `purpose` or `phase`: matches anything that is known."""
_OWN = ("c10d::", "_c10d_functional::")
FLOATS = frozenset({"Float", "Double", "Half", "BFloat16", "ComplexFloat", "ComplexDouble", "ComplexHalf"})


class SizeTest(Struct, frozen=True):
    """Limits on a call's size; a call whose size is not recorded passes none of them."""

    min_elements: int | None = None
    max_elements: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    max_input: int | None = None  # elements of the input alone: one number of every rank, say
    relation: str | None = None  # shrinks | grows | equal: output against input elements

    def passes(self, elements: tuple[int | None, int | None], nbytes: int | None) -> bool:
        """True when every given limit holds."""
        known = [n for n in elements if n is not None]
        n = max(known, default=None)
        limits = (
            (self.min_elements, n, 1), (self.max_elements, n, -1),
            (self.min_bytes, nbytes, 1), (self.max_bytes, nbytes, -1), (self.max_input, elements[0], -1),
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


class When(Struct, frozen=True):
    """Conditions of a rule; all that are given must hold.

    Patterns (`re.search`): group_desc, group_name, op_raw, kernel; scope = some enclosing scope, nearest_scope =
    the innermost one (the call's own operators aside), no_scope = none of them, outer_scope = one further out than
    the match of `scope` (or of `frame`); frame = some enclosing Python frame, no_frame = none of them; job_group =
    the description of any group of this rank, no_job_group = of none. Closed lists: op, dtype (also `float`,
    `integer`), family, framework (one of them is present), no_framework (none of them is), phase, axes, purpose,
    splits of an all-to-all (even | uneven | single), ndim (of the first input), place in the step (see
    `tracekit.label.place`). group_ops: all these operations happen in the call's group on this rank; group_traffic:
    all these tags hold for it (see `tracekit.label.behaviour`); world: the group is the whole job; fact: ids of facts
    that hold for the rank or the group; no_fact.
    """

    group_desc: re.Pattern[str] | None = None
    group_name: re.Pattern[str] | None = None
    job_group: re.Pattern[str] | None = None
    no_job_group: re.Pattern[str] | None = None
    op: tuple[str, ...] = ()
    op_raw: re.Pattern[str] | None = None
    dtype: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    framework: tuple[str, ...] = ()
    kernel: re.Pattern[str] | None = None
    scope: re.Pattern[str] | None = None
    nearest_scope: re.Pattern[str] | None = None
    no_scope: re.Pattern[str] | None = None
    outer_scope: re.Pattern[str] | None = None
    frame: re.Pattern[str] | None = None
    no_frame: re.Pattern[str] | None = None
    no_framework: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    ndim: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    world: bool | None = None
    group_traffic: tuple[str, ...] = ()
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


class LabelRule(Struct, frozen=True):
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


class Expectation(Struct, frozen=True):
    """Part of a fact: at least `at_least` calls a step (or distinct matching scopes) that fulfil `when`."""

    when: When
    at_least: int = 1
    count: str = "calls"  # calls | calls_per_step | scopes
    at_most: int | None = None


class FactRule(Struct, frozen=True):
    """One [[fact]] about a whole rank, or (per_group) about one group of it: every `present` found, no `absent`."""

    id: str
    present: tuple[Expectation, ...]
    absent: tuple[Expectation, ...]
    source: str
    note: str = ""
    per_group: bool = False


class GroupEvidence(Struct, frozen=True):
    """What is known of a call's group: its key, what this rank does in it, and what the job knows of it.

    borrowed: the description comes from another rank. claims: conclusions of the layout or of the user's map.
    """

    key: object = None
    ops: frozenset[str] = frozenset()
    traffic: frozenset[str] = frozenset()
    world: bool = False
    borrowed: bool = False
    claims: tuple[Claim, ...] = ()


class Evidence(Struct, frozen=True):
    """All that rules may see of one call; calls with equal evidence share one label."""

    op: str
    op_raw: str
    group_desc: str | None
    group_name: str | None
    dtype: str | None
    family: str | None
    kernel: str | None
    scopes: tuple[str, ...]
    sizes: tuple[bool, ...]
    group: GroupEvidence
    frames: tuple[str, ...] = ()
    splits: str = "none"
    ndim: str | None = None
    place: str = "none"


class Derived(Struct):
    """What earlier rules concluded: value → (tier, confidence), and whether the axes decide alone."""

    known: dict[str, dict[str, tuple[str, float]]] = field(default_factory=dict)
    single_duty: bool = True


class Context(Struct):
    """What holds for the whole rank; group_facts: what holds for one group of it."""

    frameworks: frozenset[str] = frozenset()
    facts: frozenset[str] = frozenset()
    group_facts: dict[object, frozenset[str]] = field(default_factory=dict)
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


class Match(Struct, frozen=True):
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


def plain(when: When, e: Evidence, context: Context, index: ScopeIndex, size_ok: bool) -> bool:
    """The conditions that need no scope, no frame and no conclusion: do they hold?"""
    group = e.group
    return (
        _in(when.op, e.op)
        and size_ok
        and _in(when.family, e.family)
        and _dtype_ok(when.dtype, e.dtype)
        and _text_ok(index, when.group_desc, e.group_desc)
        and _text_ok(index, when.group_name, e.group_name)
        and _text_ok(index, when.op_raw, e.op_raw)
        and _text_ok(index, when.kernel, e.kernel)
        and _in(when.splits, e.splits)
        and _in(when.ndim, e.ndim)
        and _in(when.place, e.place)
        and (not when.framework or bool(context.frameworks.intersection(when.framework)))
        and not context.frameworks.intersection(when.no_framework)
        and group.ops.issuperset(when.group_ops)
        and group.traffic.issuperset(when.group_traffic)
        and when.world in (None, group.world)
        and (not (when.fact or when.no_fact) or _facts_ok(when, context, group.key))
        and (when.job_group is None or _any(index, when.job_group, context.job_groups))
        and not (when.no_job_group is not None and _any(index, when.no_job_group, context.job_groups))
    )


def _any(index: ScopeIndex, pattern: re.Pattern[str], texts: tuple[str, ...]) -> bool:
    return any(index.hit(pattern, t) for t in texts)


def _facts_ok(when: When, context: Context, group: object) -> bool:
    facts = context.facts | context.group_facts.get(group, frozenset())
    return facts.issuperset(when.fact) and not facts.intersection(when.no_fact)


def _derived(when: When, derived: Derived) -> tuple[str, float] | None:
    """Worst (tier, confidence) of the conclusions the rule builds on; None when one is not as asked.

    A rule that would hold without a conclusion does not build on it.
    """
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
        if ABSENT in asked:
            continue
        best = min(fits, key=lambda v: (v[0], -v[1]))
        worst = (max(worst[0], best[0]), min(worst[1], best[1]))
    return worst


def _depth(when: When, e: Evidence, index: ScopeIndex) -> int | None:
    """Distance of the scope or frame the rule rests on (-1: it asks for none), None when one is missing."""
    depth = -1
    for pattern, places in ((when.frame, e.frames), (when.scope, e.scopes)):
        if pattern is not None:
            depth = index.depth(pattern, places)
            if depth < 0:
                return None
    if when.nearest_scope is not None:
        depth = next((i for i, s in enumerate(reversed(e.scopes)) if not s.startswith(_OWN)), -1)
        if depth < 0 or not index.hit(when.nearest_scope, e.scopes[-1 - depth]):
            return None
    if when.outer_scope is not None:
        further = e.scopes if when.scope is None else e.scopes[: len(e.scopes) - 1 - depth]
        if index.depth(when.outer_scope, further) < 0:
            return None
    return depth


def match(when: When, e: Evidence, index: ScopeIndex, derived: Derived | None) -> Match | None:
    """Does a rule whose `plain` conditions hold stand? `derived` = conclusions so far, for rules that ask for them."""
    depth = _depth(when, e, index)
    if depth is None:
        return None
    for pattern, places in ((when.no_scope, e.scopes), (when.no_frame, e.frames)):
        if pattern is not None and index.depth(pattern, places) >= 0:
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
        rests_on_frame = when.scope is None and when.nearest_scope is None
        parts.append(f"frame {e.frames[-1 - depth]}" if rests_on_frame else f"scope {e.scopes[-1 - depth]}")
    if when.framework:
        parts.append(f"framework {' or '.join(when.framework)}")
    if when.place:
        parts.append(f"place {e.place.replace('_', ' the ')}")
    if when.splits:
        parts.append(f"{e.splits} split sizes")
    parts += [f"group traffic {t}" for t in when.group_traffic]
    if when.world:
        parts.append("a group of the whole job")
    if when.group_ops:
        parts.append(f"{' and '.join(when.group_ops)} in the same group")
    parts += [f"fact {f}" for f in when.fact]
    if derived is not None:
        asked_fields = [n for n in ("axes", "purpose", "phase") if getattr(when, n)]
        parts += [f"{n} {' or '.join(derived.known.get(n, {})) or 'not known'}" for n in asked_fields]
    if when.size is not None:
        parts.append("size")
    return ", ".join(parts)

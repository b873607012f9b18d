"""Apply the label rules: once for each distinct evidence, then axis × purpose × phase → strategy.

Order of trust: tier A before B before C before D; among scopes of one tier the nearest wins; two answers of tier
A that differ make `conflict`; below 0.5, or less than 0.15 ahead of the next, the answer is `unknown`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tracekit.label.matching import (
    FIELDS,
    Context,
    Derived,
    Evidence,
    FactRule,
    GroupEvidence,
    LabelRule,
    ScopeIndex,
    SizeTest,
    match,
    plain,
)
from tracekit.model import Fired, Label

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.label.matching import Expectation, When
    from tracekit.label.rules import Rules
    from tracekit.model import Call

CONFLICT = "conflict"
UNKNOWN = "unknown"
FLOOR = 0.5
MARGIN = 0.15
BORROWED = ("B", 0.85)
"""Best tier and confidence of what rests on a group's description that only another rank's file holds."""
CONTRADICTED = 0.6
"""Confidence left to a described group whose ranks do not lie as the declared layout says."""
USER_MAP = "layout.map"
SINGLE_DUTY = frozenset({"tp", "cp", "pp", "ep", "etp", "embedding"})
"""Axes whose groups serve one strategy, so that the axes decide alone."""
_OWN_PLACE = (None, "grad_reduce", "tied_grad", "metric", "control", "weight_move")
"""Purposes with a place of their own in a step: "in no other phase" does not mean the forward for them."""


class Candidate(Struct, frozen=True):
    """One conclusion of one rule; depth = nearest scope it rests on, -1 = on none."""

    fired: Fired
    depth: int = -1
    multi_duty: bool = False
    layout: bool = False  # from the layout, not from a rule
    final: bool = False  # the user said so: nothing else counts


class Verdict(Struct, frozen=True):
    """The answer for one field: value (None = none), deciding candidate, the other values with confidence."""

    value: str | None = None
    by: Candidate | None = None
    others: tuple[tuple[str, float], ...] = ()


def decide(candidates: Iterable[Candidate], *, strict: bool) -> Verdict:
    """Settle one field. strict (for the strategy): two differing A's are a conflict, weak answers are unknown."""
    standing = _nearest(list(candidates))
    if not standing:
        return Verdict()
    best: dict[str, Candidate] = {}
    for c in sorted(standing, key=lambda c: (c.fired.tier, -c.fired.confidence, c.depth, c.fired.rule)):
        best.setdefault(c.fired.value, c)
    ranked = list(best.values())
    first = ranked[0]
    others = tuple((c.fired.value, c.fired.confidence) for c in ranked[1:])
    rivals = [c for c in ranked[1:] if c.fired.tier == first.fired.tier]
    everyone = ((first.fired.value, first.fired.confidence), *others)
    if rivals and first.fired.tier == "A" and strict:
        return Verdict(CONFLICT, first, everyone)
    close = bool(rivals) and first.fired.confidence - rivals[0].fired.confidence < MARGIN
    if first.fired.confidence < FLOOR or close:
        return Verdict(UNKNOWN if strict else None, None, everyone)
    return Verdict(first.fired.value, first, others)


def _settle(name: str, candidates: list[Candidate]) -> Verdict:
    """Settle a field by its name.

    What the user maps is final. For the axes, the group itself speaks before any scope of the same tier, and its
    description before the layout; where the layout contradicts it, the description stands with little confidence.
    """
    candidates = [c for c in candidates if c.final] or candidates
    if name == "axes":
        described = [c for c in candidates if c.depth < 0 and not c.layout]
        doubt = any(c.layout and c.fired.tier == "A" and c.fired.confidence <= CONTRADICTED for c in candidates)
        if described:
            candidates = [_weaker(c) if doubt and c in described else c for c in candidates if not c.layout]
        spoken = {c.fired.tier for c in candidates if c.depth < 0}
        candidates = [c for c in candidates if c.depth < 0 or c.fired.tier not in spoken]
    return decide(candidates, strict=name == "strategy")


def _weaker(c: Candidate) -> Candidate:
    return replace(c, fired=replace(c.fired, confidence=min(c.fired.confidence, CONTRADICTED)))


def _nearest(candidates: list[Candidate]) -> list[Candidate]:
    """Of the conclusions of one tier that rest on scopes, those of the nearest scope only."""
    nearest: dict[str, int] = {}
    for c in candidates:
        if c.depth >= 0:
            tier = c.fired.tier
            nearest[tier] = min(nearest.get(tier, c.depth), c.depth)
    return [c for c in candidates if c.depth < 0 or c.depth == nearest[c.fired.tier]]


class Engine:
    """Evaluates the label rules for the calls of one rank."""

    def __init__(self, rules: Rules, context: Context) -> None:
        self.context = context
        self._index = ScopeIndex()
        self._first = [r for r in rules.labels if not r.when.derived]
        self._second = [r for r in rules.labels if r.when.derived]
        self._described = [r for r in self._first if r.when.group_desc is not None]
        self._phase = [r for r in self._first if set(r.then) == {"phase"}]
        self._standing: dict[tuple[int, Evidence], list[LabelRule]] = {}
        self._sizes = sorted({r.when.size for r in rules.labels if r.when.size} | _fact_sizes(rules.facts), key=repr)
        self._size_number = {s: i for i, s in enumerate(self._sizes)}
        self._passed: dict[tuple[int | None, int | None, int | None], tuple[bool, ...]] = {}
        self._labels: dict[Evidence, Label] = {}
        whens = [r.when for r in rules.labels] + [x.when for f in rules.facts for x in (*f.present, *f.absent)]
        self._use_ndim = any(w.ndim for w in whens)
        self._use_place = any(w.place for w in whens)
        self._use_names = any(r.when.group_name for r in rules.labels)

    def evidence(
        self,
        call: Call,
        description: str | None,
        scopes: tuple[str, ...],
        group: GroupEvidence,
        behaviour: tuple[str, str],
    ) -> Evidence:
        """What rules may see of a call.

        scopes: enclosing scopes and the call's own operators, outermost first; behaviour: split sizes, place in step.
        """
        splits, place = behaviour
        key = (call.in_nelems, call.out_nelems, call.payload_bytes)
        sizes = self._passed.get(key)
        if sizes is None:
            sizes = self._passed[key] = tuple(s.passes(key[:2], key[2]) for s in self._sizes)
        return Evidence(
            call.op, call.op_raw, description, call.group_name if self._use_names else None, call.dtype,
            call.family, call.kernel, scopes, sizes, group, call.frames, splits,
            ndim(call) if self._use_ndim else None, place if self._use_place else "none",
        )  # fmt: skip

    def shape(self, e: Evidence) -> Evidence:
        """The evidence with its group known by nothing but the facts that hold for it: no rule sees more of it."""
        return replace(e, group=replace(e.group, key=self.context.group_facts.get(e.group.key)))

    def _plain(self, when: When, e: Evidence) -> bool:
        ok = when.size is None or e.sizes[self._size_number[when.size]]
        return plain(when, e, self.context, self._index, ok)

    def _candidates(self, rules: list[LabelRule], e: Evidence) -> list[LabelRule]:
        """Rules whose conditions on the call itself hold.

        They are the same for all calls that differ in their place or in the identity of their group only.
        """
        key = (id(rules), replace(self.shape(e), scopes=(), frames=()))
        found = self._standing.get(key)
        if found is None:
            found = self._standing[key] = [r for r in rules if self._plain(r.when, e)]
        return found

    def _fire(
        self, rules: list[LabelRule], e: Evidence, derived: Derived | None, out: dict[str, list[Candidate]]
    ) -> None:
        for rule in self._candidates(rules, e):
            found = match(rule.when, e, self._index, derived)
            if found is None:
                continue
            tier, confidence = rule.tier, rule.confidence
            if e.group.borrowed and rule.when.group_desc is not None:
                tier, confidence = max(tier, BORROWED[0]), min(confidence, BORROWED[1])
            if found.floor is not None:
                tier, confidence = max(tier, found.floor[0]), min(confidence, found.floor[1])
            for name, value in rule.then.items():
                fired = Fired(rule.id, name, value, tier, confidence, found.saw)
                out[name].append(Candidate(fired, found.depth, rule.multi_duty))

    def axes_of(self, description: str) -> str | None:
        """Axes that a group's description alone tells."""
        e = Evidence("", "", description, None, None, None, None, (), (False,) * len(self._sizes), GroupEvidence())
        out: dict[str, list[Candidate]] = defaultdict(list)
        self._fire(self._described, e, None, out)
        return decide(out["axes"], strict=False).value

    def holds(self, expectation: Expectation, e: Evidence, phase: str | None) -> bool:
        """Does a call fulfil an expectation of a fact?"""
        when = expectation.when
        derived = Derived({"phase": {phase: ("A", 1.0)}} if phase else {})
        return self._plain(when, e) and match(when, e, self._index, derived) is not None

    def phase(self, e: Evidence) -> str | None:
        """Phase of a call, from the rules that conclude nothing else."""
        out: dict[str, list[Candidate]] = defaultdict(list)
        self._fire(self._phase, e, None, out)
        return decide(out["phase"], strict=False).value

    def nearest_scope(self, expectation: Expectation, e: Evidence) -> str | None:
        """Text of the nearest scope an expectation matches."""
        if expectation.when.scope is None:
            return None
        depth = self._index.depth(expectation.when.scope, e.scopes)
        return e.scopes[-1 - depth] if depth >= 0 else None

    def label(self, e: Evidence) -> Label:
        """The label of a call with this evidence."""
        shape = self.shape(e)
        found = self._labels.get(shape)
        if found is None:
            found = self._labels[shape] = self._label(e)
        return found

    def _label(self, e: Evidence) -> Label:
        out: dict[str, list[Candidate]] = defaultdict(list)
        _claim(e, out)
        self._fire(self._first, e, None, out)
        derived = _derive(out)
        self._fire(self._second, e, derived, out)
        verdicts = {name: _settle(name, out[name]) for name in FIELDS}
        strategy = verdicts["strategy"]
        fired = tuple(c.fired for name in FIELDS for c in out[name])
        by = strategy.by.fired if strategy.by else None
        others = strategy.others
        if strategy.value is None and verdicts["axes"].by is not None:
            others = _possible(verdicts["axes"].value)
        phase = verdicts["phase"]
        if phase.by and phase.by.fired.tier >= "C" and verdicts["purpose"].value in _OWN_PLACE:
            phase = Verdict()
        return Label(
            strategy=strategy.value or UNKNOWN,
            axes=verdicts["axes"].value,
            purpose=verdicts["purpose"].value,
            phase=phase.value,
            variant=verdicts["variant"].value,
            confidence=by.confidence if by else max((c for _, c in others), default=None),
            tier=by.tier if by else None,
            rule=by.rule if by else None,
            alternatives=others,
            fired=fired,
        )


def _claim(e: Evidence, out: dict[str, list[Candidate]]) -> None:
    """What the layout and the user say of the call's group."""
    for claim in e.group.claims:
        final = claim.rule == USER_MAP
        for name in ("axes", "strategy", "purpose"):
            value = getattr(claim, name)
            if value:
                fired = Fired(claim.rule, name, value, claim.tier, claim.confidence, claim.saw)
                multi = name == "axes" and value not in SINGLE_DUTY
                out[name].append(Candidate(fired, -1, multi, layout=not final, final=final))


def ndim(call: Call) -> str | None:
    """Dimensions of the first recorded input tensor."""
    first = call.dims
    while isinstance(first, list) and first and isinstance(first[0], list):
        first = first[0]
    return str(len(first)) if isinstance(first, list) and first else None


def _derive(out: dict[str, list[Candidate]]) -> Derived:
    """Settled axes, purpose and phase after the first pass; weak ones (below 0.5) are not built upon."""
    known: dict[str, dict[str, tuple[str, float]]] = {}
    single = True
    for name in ("axes", "purpose", "phase"):
        verdict = _settle(name, out[name])
        if verdict.by is not None and verdict.value is not None:
            known[name] = {verdict.value: (verdict.by.fired.tier, verdict.by.fired.confidence)}
            if name == "axes":
                single = not verdict.by.multi_duty
    return Derived(known, single)


def _possible(axes: str | None) -> tuple[tuple[str, float], ...]:
    """What a group of several duties may serve, as alternatives without weight."""
    duties = {
        "dp": ("dp", "zero1", "zero2", "zero3"), "dp+cp": ("dp", "zero1", "zero3"), "edp": ("dp", "zero1", "zero3"),
        "dp_shard": ("zero3", "zero2"), "dp_shard+cp": ("zero3", "zero2"), "dp_replicate": ("hsdp", "dp"),
        "tp": ("tp", "sp"),
    }  # fmt: skip
    return tuple((s, 0.3) for s in duties.get(axes or "", ()))


def _fact_sizes(facts: Iterable[FactRule]) -> set[SizeTest]:
    return {x.when.size for f in facts for x in (*f.present, *f.absent) if x.when.size is not None}


def explain(label: Label) -> list[str]:
    """Lines that say, field by field, which rules fired, what they saw, which won, and why the others lost."""
    if not label.fired:
        return ["no rule fired: nothing in the recorded evidence tells what this call belongs to"]
    lines = []
    for name in FIELDS:
        won = getattr(label, name)
        fired = sorted((f for f in label.fired if f.field == name), key=lambda f: (f.tier, -f.confidence, f.rule))
        for f in fired:
            outcome, why = _outcome(f, won, fired)
            text = f"{outcome:<11} {name:<8} = {f.value:<14} {f.tier} {f.confidence:.2f}  {f.rule}  saw {f.saw}"
            lines.append(text + (f"; {why}" if why else ""))
    if label.strategy == UNKNOWN:
        others = ", ".join(f"{s} {c:.2f}" for s, c in label.alternatives)
        lines.append(f"strategy unknown: {'candidates ' + others if others else 'no rule concludes a strategy'}")
    elif label.strategy == CONFLICT:
        lines.append("strategy in conflict: rules of tier A disagree; " + ", ".join(s for s, _ in label.alternatives))
    return lines


def _outcome(f: Fired, won: str | None, fired: list[Fired]) -> tuple[str, str]:
    """(outcome, why) of one rule among all that concluded the same field, best first."""
    if f.value == won:
        return "won", ""
    if won == CONFLICT:
        return ("in conflict", "") if f.tier == "A" else ("lost", "weaker than the rules in conflict")
    winner = next((other for other in fired if other.value == won), None)
    if winner is not None:
        if f.rule == winner.rule:
            return "lost", ""
        if (f.tier, -f.confidence) > (winner.tier, -winner.confidence):
            return "lost", f"weaker than {winner.rule}"
        return "lost", f"a scope further out than that of {winner.rule}, or the group speaks first"
    rivals = [other for other in fired if other.value != f.value]
    if f.confidence < FLOOR:
        return "lost", f"below {FLOOR}"
    if rivals and rivals[0].tier <= f.tier and f.confidence - rivals[0].confidence < MARGIN:
        return "lost", f"less than {MARGIN} ahead of {rivals[0].rule}"
    return "lost", "does not tell it for a call of this purpose"

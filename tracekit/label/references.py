"""Words in a rule that must exist elsewhere: a misspelt one would make the rule silent for ever."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.label.matching import ABSENT, ANY
from tracekit.label.schema import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tracekit.label.matching import LabelRule, When
    from tracekit.label.rules import Rules

_SEPARATOR = re.compile(r"[+|]")
_PHASES = frozenset({"forward", "backward", "recompute", "optimizer", "prefill", "decode", "draft", "verify", "step"})
_DTYPE_CLASSES = frozenset({"float", "integer"})


class Words:
    """Everything rules may refer to, of all rule files together."""

    def __init__(self, rules: Rules) -> None:
        words = rules.vocabulary
        ops = {op for op, _ in words.ops.values()} | {c.op for c in words.c10d.values()}
        ops |= {op for _, op in words.wrappers} | {k.op for k in rules.kernels if k.op}
        ops |= {op for k in rules.kernels for op in (k.ops or {}).values()}
        phases = _PHASES | {s.phase for s in rules.steps if s.phase}
        axes = {a for r in rules.labels if r.source == "groups.toml" for a in _SEPARATOR.split(r.then.get("axes", ""))}
        families = {k.family for k in rules.kernels if k.family} | {"copy_engine"}
        self.known = {
            "op": frozenset(ops | {"unknown", "send_recv"}),
            "dtype": frozenset(d.name for d in words.dtypes.values()) | _DTYPE_CLASSES,
            "fact": frozenset(f.id for f in rules.facts),
            "framework": frozenset(f.id for f in rules.frameworks),
            "family": frozenset(families),
            "phase": frozenset(phases),
            "axes": frozenset(axes - {""}) | rules.layouts.axes,
        }

    def check(self, rules: Iterable[LabelRule]) -> None:
        """Raises RuleError for the first word that exists nowhere, naming file, rule and field."""
        for rule in rules:
            place = Place(rule.source, "rule", rule.id)
            said = [*_asked(rule.when), *((f"then.{n}", n, v) for n, v in rule.then.items() if n in ("axes", "phase"))]
            for name, kind, value in said:
                parts = _SEPARATOR.split(value) if kind == "axes" else [value]
                if not value or not {*parts} <= self.known[kind] | {ABSENT, ANY}:
                    listed = ", ".join(sorted(self.known[kind]))
                    raise place.error(name, f"{value!r} is nowhere defined; there are {listed}")


def _asked(when: When) -> Iterator[tuple[str, str, str]]:
    """(field, kind of word, word) of the conditions."""
    fields = {
        "op": when.op, "group_ops": when.group_ops, "dtype": when.dtype, "fact": when.fact, "no_fact": when.no_fact,
        "framework": when.framework, "no_framework": when.no_framework, "family": when.family, "phase": when.phase,
        "axes": when.axes,
    }  # fmt: skip
    kinds = {"group_ops": "op", "no_fact": "fact", "no_framework": "framework"}
    for name, values in fields.items():
        for value in values:
            yield f"when.{name}", kinds.get(name, name), value

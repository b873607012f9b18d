"""Rule files: TOML → checked, compiled rules. A mistake is reported with file, rule and field."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS = ("compute", "comm", "fused")
TIERS = {"A": (0.9, 0.99), "B": (0.7, 0.9), "C": (0.4, 0.75), "D": (0.05, 0.4)}
"""Confidence range of each tier of evidence."""
CONCLUSIONS = ("strategy", "axes", "purpose", "phase", "variant")
MATCHERS = ("group_desc", "scope", "kernel", "family", "op", "dtype", "backend", "phase", "axes", "purpose")
STRATEGIES = frozenset(
    "tp sp pp dp zero1 zero2 zero3 hsdp cp ep etp embedding eplb kv_transfer housekeeping unknown".split()
)


@dataclass(frozen=True, slots=True)
class KernelRule:
    """Patterns on a kernel's name (all given must match) → kind, family and operation.

    `base`: last component of the demangled name; `qualified`: with its namespaces; `raw`: as recorded;
    `context`: some name of the same trace must match. `on_rocm`: family to report on ROCm. `op`: the
    operation, `ops`: part of the base name → operation, first hit wins.
    """

    id: str
    base: re.Pattern[str] | None
    qualified: re.Pattern[str] | None
    raw: re.Pattern[str] | None
    context: re.Pattern[str] | None
    kind: str
    family: str | None
    on_rocm: str | None
    op: str | None
    ops: tuple[tuple[str, str], ...]
    note: str
    source: str


@dataclass(frozen=True, slots=True)
class StepRule:
    """Marker grammar."""

    id: str
    pattern: re.Pattern[str]
    priority: int
    note: str
    source: str


@dataclass(frozen=True, slots=True)
class OpRule:
    """Spellings of one operation; `out_arg`/`in_arg` = argument positions of its tensors."""

    name: str
    c10d: tuple[str, ...]
    records: tuple[str, ...]
    titles: tuple[str, ...]
    gloo: str
    out_arg: int | None
    in_arg: int | None


@dataclass(frozen=True, slots=True)
class LabelRule:
    """Matchers (all must hold) → conclusions, with the weight of the evidence."""

    id: str
    when: tuple[tuple[str, re.Pattern[str]], ...]
    max_elements: int | None
    min_group: int | None
    then: tuple[tuple[str, str], ...]
    tier: str
    confidence: float
    note: str
    source: str


@dataclass(slots=True)
class Rules:
    """All rules in force; later files override earlier ones by id, or come first where order counts."""

    kernels: list[KernelRule] = field(default_factory=list)
    steps: list[StepRule] = field(default_factory=list)
    ops: list[OpRule] = field(default_factory=list)
    labels: list[LabelRule] = field(default_factory=list)
    no_transfer: frozenset[str] = frozenset()
    dtype_bytes: dict[str, int] = field(default_factory=dict)
    step_phases: dict[str, str] = field(default_factory=dict)


def load_rules(extra_files: Iterable[str | Path] = (), step_pattern: str | None = None) -> Rules:
    """The shipped rules, then those of `extra_files`; `step_pattern` outranks every step grammar.

    Raises RuleError naming file, rule and field.
    """
    rules = Rules()
    for entry in sorted(files("tracekit.rules").iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".toml"):
            _merge(rules, tomllib.loads(entry.read_text("utf-8")), entry.name)
    for path in extra_files:
        _merge(rules, _read(Path(path)), str(path), user=True)
    if step_pattern is not None:
        compiled = _regex(step_pattern, "--step-pattern", "step", "pattern")
        rules.steps.append(StepRule("user.step-pattern", compiled, -1, "given on the command line", "command line"))
    return rules


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as e:
        raise RuleError(f"{path}: cannot be read ({e.strerror}); give the path of a TOML rule file") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise RuleError(f"{path}: not valid TOML ({e})") from e


_SECTIONS = ("kernel", "step", "op", "rule", "no_transfer", "dtype_bytes", "phases")


def _merge(rules: Rules, data: dict[str, Any], source: str, *, user: bool = False) -> None:
    for section in data:
        if section not in _SECTIONS:
            raise RuleError(f"{source}: unknown section [{section}]; expected one of {', '.join(_SECTIONS)}")
    for raw in _tables(data, "kernel", source):
        _put(rules.kernels, _kernel(raw, source), front=user)
    for raw in _tables(data, "step", source):
        _put(rules.steps, _step(raw, source), front=user)
    for raw in _tables(data, "op", source):
        rules.ops.append(_op(raw, source))
    for raw in _tables(data, "rule", source):
        _put(rules.labels, _label(raw, source), front=user)
    rules.no_transfer |= frozenset(data.get("no_transfer", {}).get("records", ()))
    rules.dtype_bytes |= data.get("dtype_bytes", {})
    rules.step_phases |= data.get("phases", {})


def _tables(data: dict[str, Any], section: str, source: str) -> list[dict[str, Any]]:
    value = data.get(section, [])
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise RuleError(f"{source}: [{section}] must be an array of tables, written [[{section}]]")
    return value


def _put(rules: list[Any], rule: Any, *, front: bool) -> None:
    """Same id → replaced; new user rules go first, because the first match decides among kernels."""
    rules[:] = [r for r in rules if r.id != rule.id]
    if front:
        rules.insert(0, rule)
    else:
        rules.append(rule)


def _text(raw: dict[str, Any], key: str, source: str, rule: str, default: str | None = None) -> str:
    value = raw.get(key, default)
    if not isinstance(value, str) or not value:
        raise RuleError(f"{source}: rule {rule!r}: field {key!r} must be a non-empty string, not {value!r}")
    return value


def _regex(text: str, source: str, rule: str, key: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as e:
        raise RuleError(f"{source}: rule {rule!r}: field {key!r} is no regular expression: {e}") from e


def _only(raw: dict[str, Any], allowed: Iterable[str], source: str, rule: str) -> None:
    unknown = set(raw) - set(allowed)
    if unknown:
        raise RuleError(f"{source}: rule {rule!r}: unknown field {sorted(unknown)[0]!r}; expected {', '.join(allowed)}")


_PATTERNS = ("base", "qualified", "raw", "context")
_KERNEL_FIELDS = ("id", *_PATTERNS, "kind", "family", "on_rocm", "op", "ops", "note")


def _kernel(raw: dict[str, Any], source: str) -> KernelRule:
    rule = _text(raw, "id", source, "?")
    _only(raw, _KERNEL_FIELDS, source, rule)
    kind = _text(raw, "kind", source, rule)
    if kind not in KINDS:
        raise RuleError(f"{source}: rule {rule!r}: field 'kind' is {kind!r}; expected {', '.join(KINDS)}")
    family = raw.get("family")
    if kind != "compute" and not isinstance(family, str):
        raise RuleError(f"{source}: rule {rule!r}: field 'family' is missing; a {kind} kernel needs one")
    given = {k: _regex(_text(raw, k, source, rule), source, rule, k) if k in raw else None for k in _PATTERNS}
    if not any(given[k] for k in ("base", "qualified", "raw")):
        raise RuleError(f"{source}: rule {rule!r}: one of the fields 'base', 'qualified', 'raw' is needed")
    ops = raw.get("ops", {})
    if not isinstance(ops, dict) or not all(isinstance(v, str) for v in ops.values()):
        raise RuleError(f"{source}: rule {rule!r}: field 'ops' must be a table of strings, not {ops!r}")
    return KernelRule(
        rule, given["base"], given["qualified"], given["raw"], given["context"], kind, family,
        raw.get("on_rocm"), raw.get("op"), tuple(ops.items()), raw.get("note", ""), source,
    )  # fmt: skip


def _step(raw: dict[str, Any], source: str) -> StepRule:
    rule = _text(raw, "id", source, "?")
    _only(raw, ("id", "pattern", "priority", "note"), source, rule)
    priority = raw.get("priority", 0)
    if not isinstance(priority, int):
        raise RuleError(f"{source}: rule {rule!r}: field 'priority' must be an integer, not {priority!r}")
    pattern = _regex(_text(raw, "pattern", source, rule), source, rule, "pattern")
    return StepRule(rule, pattern, priority, raw.get("note", ""), source)


def _op(raw: dict[str, Any], source: str) -> OpRule:
    rule = _text(raw, "name", source, "?")
    _only(raw, ("name", "c10d", "records", "titles", "gloo", "out", "in"), source, rule)
    lists = {k: tuple(raw.get(k, ())) for k in ("c10d", "records", "titles")}
    return OpRule(rule, **lists, gloo=raw.get("gloo", rule), out_arg=raw.get("out"), in_arg=raw.get("in"))


def _label(raw: dict[str, Any], source: str) -> LabelRule:
    rule = _text(raw, "id", source, "?")
    _only(raw, ("id", "when", "then", "tier", "confidence", "note"), source, rule)
    when, then = raw.get("when"), raw.get("then")
    if not isinstance(when, dict) or not when:
        raise RuleError(f"{source}: rule {rule!r}: field 'when' must be a table of matchers")
    if not isinstance(then, dict) or not then:
        raise RuleError(f"{source}: rule {rule!r}: field 'then' must be a table of conclusions")
    _only(when, (*MATCHERS, "max_elements", "min_group"), source, rule)
    _only(then, CONCLUSIONS, source, rule)
    _check_strategy(then.get("strategy"), source, rule)
    tier = _text(raw, "tier", source, rule)
    if tier not in TIERS:
        raise RuleError(f"{source}: rule {rule!r}: field 'tier' is {tier!r}; expected one of {', '.join(TIERS)}")
    low, high = TIERS[tier]
    confidence = raw.get("confidence", high - 0.02)
    if not isinstance(confidence, int | float) or not low <= confidence <= high:
        raise RuleError(f"{source}: rule {rule!r}: field 'confidence' must be {low}–{high} for tier {tier}, not {confidence!r}")
    matchers = tuple((k, _regex(_text(when, k, source, rule), source, rule, k)) for k in MATCHERS if k in when)
    conclusions = tuple((k, _text(then, k, source, rule)) for k in CONCLUSIONS if k in then)
    return LabelRule(
        rule, matchers, when.get("max_elements"), when.get("min_group"), conclusions, tier,
        float(confidence), raw.get("note", ""), source,
    )  # fmt: skip


def _check_strategy(value: Any, source: str, rule: str) -> None:
    if value is not None and not set(str(value).split("|")) <= STRATEGIES:
        known = ", ".join(sorted(STRATEGIES))
        raise RuleError(f"{source}: rule {rule!r}: field 'strategy' is {value!r}; expected {known}")

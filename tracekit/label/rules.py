"""Load the rule files: the built-in ones and those a user adds; a mistake names file, rule and field."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from tracekit.errors import RuleError
from tracekit.label.behaviour import TRAFFIC
from tracekit.label.chunks import ChunkRule
from tracekit.label.frameworks import FrameworkRule
from tracekit.label.kernels import KernelRule
from tracekit.label.layout.tables import TABLES as LAYOUT_TABLES
from tracekit.label.layout.tables import LayoutTables, load_tables
from tracekit.label.matching import FIELDS, TIERS, Expectation, FactRule, LabelRule, SizeTest, When
from tracekit.label.place import PLACES
from tracekit.label.references import Words
from tracekit.label.schema import Field, Place, check, compiled, read_rule_file, toml_of
from tracekit.label.shipped import texts
from tracekit.label.steps import UNRANKED, USER_RANK, StepRule
from tracekit.label.vocabulary import C10dOp, DType, Vocabulary, squash
from tracekit.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

STRATEGIES = (
    "tp", "sp", "pp", "dp", "zero1", "zero2", "zero3", "hsdp", "cp", "ep", "etp", "embedding", "eplb",
    "kv_transfer", "housekeeping", "unknown",
)  # fmt: skip
PURPOSES = (
    "grad_reduce", "param_gather", "activation", "kv_exchange", "token_dispatch", "token_combine",
    "stage_transfer", "tied_grad", "weight_move", "metric", "control", "kv_transfer",
)  # fmt: skip

_PLAIN_FLAGS = re.compile("").flags
_BACK = re.compile(r"\\[1-9]|\(\?\(")
_SIZE = {
    "min_elements": Field("int"), "max_elements": Field("int"), "min_bytes": Field("int"),
    "max_bytes": Field("int"), "max_input": Field("int"),
    "relation": Field("str", choices=("shrinks", "grows", "equal")),
}  # fmt: skip
_WHEN = {
    "group_desc": Field("pattern"), "group_name": Field("pattern"), "job_group": Field("pattern"),
    "op": Field("strings"), "op_raw": Field("pattern"), "dtype": Field("strings"), "family": Field("strings"),
    "framework": Field("strings"), "kernel": Field("pattern"), "scope": Field("pattern"),
    "nearest_scope": Field("pattern"), "no_scope": Field("pattern"), "group_ops": Field("strings"),
    "outer_scope": Field("pattern"), "frame": Field("pattern"), "no_frame": Field("pattern"),
    "no_job_group": Field("pattern"), "no_framework": Field("strings"),
    "splits": Field("strings", choices=("even", "uneven", "single")), "ndim": Field("strings"),
    "place": Field("strings", choices=PLACES), "world": Field("bool"),
    "group_traffic": Field("strings", choices=TRAFFIC),
    "fact": Field("strings"), "no_fact": Field("strings"), "phase": Field("strings"), "axes": Field("strings"),
    "purpose": Field("strings"), "single_duty": Field("bool"), "size": Field("table", fields=_SIZE),
}  # fmt: skip
_SCHEMA: dict[str, dict[str, Field]] = {
    "kernel": {
        "id": Field("str", required=True),
        "kind": Field("str", required=True, choices=("compute", "comm", "fused")),
        "family": Field("str"), "on_rocm": Field("str"), "base": Field("pattern"),
        "qualified": Field("pattern"), "raw": Field("pattern"), "context": Field("pattern"),
        "op": Field("str"), "ops": Field("map"), "note": Field("str"),
    },
    "step": {
        "id": Field("str", required=True), "pattern": Field("pattern", required=True),
        "phase": Field("str"), "rank": Field("int"), "note": Field("str"),
    },
    "chunk": {
        "id": Field("str", required=True), "pattern": Field("pattern", required=True),
        "kind": Field("str", choices=("F", "B", "I", "W", "FB")), "rank": Field("int"), "note": Field("str"),
    },
    "op": {"name": Field("str", required=True), "spellings": Field("strings"), "traffic": Field("bool")},
    "c10d": {
        "name": Field("str", required=True), "op": Field("str", required=True), "input": Field("int"),
        "output": Field("int"), "peer": Field("int"), "worker": Field("str"), "in_splits": Field("int"),
        "out_splits": Field("int"),
    },
    "wrapper": {"pattern": Field("pattern", required=True), "op": Field("str", required=True)},
    "dtype": {
        "name": Field("str", required=True), "bytes": Field("int", required=True), "spellings": Field("strings"),
    },
    "rule": {
        "id": Field("str", required=True), "when": Field("table", required=True, fields=_WHEN),
        "then": Field("map", required=True), "tier": Field("str", required=True, choices=TIERS),
        "confidence": Field("number", required=True), "multi_duty": Field("bool"), "note": Field("str"),
    },
    "fact": {
        "id": Field("str", required=True), "note": Field("str"), "per_group": Field("bool"),
    },
    "framework": {
        "id": Field("str", required=True), "title": Field("str", required=True), "names": Field("strings"),
        "frames": Field("strings"), "groups": Field("strings"), "metadata": Field("strings"),
        "implies": Field("strings"), "note": Field("str"),
    },
}  # fmt: skip
_EXPECTATION = {
    "when": Field("table", required=True, fields=_WHEN), "at_least": Field("int"), "at_most": Field("int"),
    "count": Field("str", choices=("calls", "calls_per_step", "scopes")),
}  # fmt: skip


class Rules(Struct, dict=True):
    """All rules in force. `files` = where they come from, in order of reading."""

    kernels: list[KernelRule] = field(default_factory=list)
    steps: list[StepRule] = field(default_factory=list)
    chunks: list[ChunkRule] = field(default_factory=list)
    labels: list[LabelRule] = field(default_factory=list)
    facts: list[FactRule] = field(default_factory=list)
    frameworks: list[FrameworkRule] = field(default_factory=list)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    files: list[str] = field(default_factory=list)
    extra_files: tuple[Path, ...] = ()

    @cached_property
    def layouts(self) -> LayoutTables:
        """Axis orders and creation orders."""
        return load_tables(self.extra_files)

    @cached_property
    def frames(self) -> re.Pattern[str] | None:
        """Matches every Python frame that some rule asks for; None when none does."""
        whens = [r.when for r in self.labels] + [x.when for f in self.facts for x in (*f.present, *f.absent)]
        asked = [pattern for when in whens for pattern in (when.frame, when.no_frame)]
        wanted = [p for p in asked if p is not None]
        own = [p for p in wanted if isinstance(p, re.Pattern)]  # the shipped ones are plain
        if any(p.groupindex or p.flags != _PLAIN_FLAGS or _BACK.search(p.pattern) for p in own):
            return re.compile("")  # such patterns mean something else inside a larger one: every frame is looked at
        parts = {f"(?:{p.pattern})" for p in wanted}
        return re.compile("|".join(sorted(parts))) if parts else None

    @cached_property
    def frame_names(self) -> re.Pattern[str] | None:
        """Matches the Python frames whose mere presence tells a framework; None when none does."""
        parts = {re.escape(w.strip("^$")) for r in self.frameworks for w in r.frames}
        return re.compile("|".join(sorted(parts))) if parts else None


def _when(table: dict[str, Any]) -> When:
    size = table.pop("size", None)
    return When(**table, size=SizeTest(**size) if size else None)


def _label(entry: dict[str, Any], place: Place) -> LabelRule:
    then = entry["then"]
    for name, value in then.items():
        if name not in FIELDS:
            raise place.error(f"then.{name}", f"a rule concludes {', '.join(FIELDS)}")
        allowed = {"strategy": STRATEGIES, "purpose": PURPOSES}.get(name)
        if allowed and any(part not in allowed for part in value.split("|")):
            raise place.error(f"then.{name}", f"{value!r} is not one of {', '.join(allowed)}")
    if not then:
        raise place.error("then", "concludes nothing")
    if not entry["when"]:
        raise place.error("when", "has no condition, so the rule would match every call")
    return LabelRule(
        entry["id"], _when(entry["when"]), then, entry["tier"], entry["confidence"], place.file,
        entry.get("multi_duty", False), entry.get("note", ""),
    )  # fmt: skip


def _kernel(entry: dict[str, Any], place: Place) -> KernelRule:
    kind = Kind[entry.pop("kind").upper()]
    if kind is not Kind.COMPUTE and "family" not in entry:
        raise place.error("family", "is required for communication: the library the kernel belongs to")
    if not {"base", "qualified", "raw"} & set(entry):
        raise place.error("base", "one of base, qualified and raw is required")
    return KernelRule(kind=kind, source=place.file, **entry)


def _framework(entry: dict[str, Any], place: Place) -> FrameworkRule:
    if not {"names", "frames", "groups", "metadata"} & set(entry):
        raise place.error("names", "one of names, frames, groups and metadata is required")
    return FrameworkRule(source=place.file, **entry)


def _fact(entry: dict[str, Any], place: Place) -> FactRule:
    parts: dict[str, tuple[Expectation, ...]] = {}
    for side in ("present", "absent"):
        wanted = entry.pop(side, [])
        if not isinstance(wanted, list):
            raise place.error(side, "expected a list of tables")
        checked = [check(w, _EXPECTATION, place, f"{side}.") for w in wanted]
        parts[side] = tuple(Expectation(_when(c.pop("when")), **c) for c in checked)
    if not parts["present"]:
        raise place.error("present", "is required: what must be found")
    plain = check(entry, _SCHEMA["fact"], place)
    return FactRule(
        plain["id"], parts["present"], parts["absent"], place.file, plain.get("note", ""), plain.get("per_group", False)
    )


def _word(rules: Rules, table: str, entry: dict[str, Any]) -> None:
    """Take one entry of the vocabulary."""
    words = rules.vocabulary
    if table == "op":
        for spelling in (entry["name"], *entry.get("spellings", ())):
            words.ops[squash(spelling)] = (entry["name"], entry.get("traffic", True))
    elif table == "c10d":
        name = entry.pop("name")
        words.c10d[name] = C10dOp(**entry)
    elif table == "dtype":
        for spelling in (entry["name"], *entry.get("spellings", ())):
            words.dtypes[spelling.lower()] = DType(entry["name"], entry["bytes"])
    else:
        words.wrappers.append((entry["pattern"], entry["op"]))


def _entry(rules: Rules, table: str, raw: dict[str, Any], place: Place) -> None:
    if table == "fact":
        rules.facts.append(_fact(dict(raw), place))
        return
    entry = check(raw, _SCHEMA[table], place)
    if table == "kernel":
        rules.kernels.append(_kernel(entry, place))
    elif table == "step":
        rules.steps.append(StepRule(source=place.file, **entry))
    elif table == "chunk":
        rules.chunks.append(ChunkRule(source=place.file, **entry))
    elif table == "framework":
        rules.frameworks.append(_framework(entry, place))
    elif table == "rule":
        rules.labels.append(_label(entry, place))
    else:
        _word(rules, table, entry)


def _read(rules: Rules, text: str, name: str, *, shipped: bool = False) -> None:
    for table, entries in toml_of(text, name).items():
        if table in LAYOUT_TABLES:
            continue  # read by label.layout.tables
        if table not in _SCHEMA:
            there = ", ".join(sorted([*_SCHEMA, *LAYOUT_TABLES]))
            raise RuleError(f"{name}: [[{table}]]: no such table; there are {there}")
        if not isinstance(entries, list):
            raise RuleError(f"{name}: {table} must be written [[{table}]], once for each entry")
        for number, raw in enumerate(entries, 1):
            known = raw.get("id") or raw.get("name") if isinstance(raw, dict) else None
            _entry(rules, table, raw, Place(name, table, str(known or f"#{number}"), shipped))
    rules.files.append(name)


def _unique(rules: Iterable[Any], kind: str) -> None:
    seen: dict[str, str] = {}
    for rule in rules:
        if rule.id in seen:
            places = seen[rule.id] if seen[rule.id] == rule.source else f"{seen[rule.id]} and {rule.source}"
            raise RuleError(f"{places}: [[{kind}]] {rule.id!r}, field 'id': used twice; ids must be unique")
        seen[rule.id] = rule.source


def _over(extra: list[Any], base: list[Any]) -> list[Any]:
    """Extra rules first; one that bears the id of a built-in rule replaces it."""
    replaced = {r.id for r in extra}
    return extra + [r for r in base if r.id not in replaced]


def load_rules(extra_files: Iterable[str | Path] = (), step_pattern: str | None = None) -> Rules:
    """Built-in rules plus `extra_files` (TOML, same tables) plus a step marker pattern.

    What a user adds comes first: a kernel rule decides before the built-in ones, a step grammar is preferred, and
    a rule with the id of a built-in rule replaces it. Raises RuleError naming file, rule and field.
    """
    base, extra = Rules(), Rules()
    for name, text in texts().items():
        _read(base, text, name, shipped=True)
    paths = tuple(map(Path, extra_files))
    for path in paths:
        _read(extra, read_rule_file(path), str(path))
    extra.steps = [replace(r, rank=USER_RANK) if r.rank == UNRANKED else r for r in extra.steps]
    extra.chunks = [replace(r, rank=USER_RANK) if r.rank == UNRANKED else r for r in extra.chunks]
    for name in ("kernels", "steps", "chunks", "labels", "facts", "frameworks"):
        table = "rule" if name == "labels" else name.rstrip("s")
        _unique(getattr(extra, name), table)
        _unique(getattr(base, name), table)
        setattr(base, name, _over(getattr(extra, name), getattr(base, name)))
    if step_pattern is not None:
        pattern = compiled(step_pattern, Place("--step-pattern", "step", "user"), "pattern")
        base.steps.insert(0, StepRule("user", pattern, "--step-pattern", rank=USER_RANK))
    words, more = base.vocabulary, extra.vocabulary
    words.ops |= more.ops
    words.c10d |= more.c10d
    words.dtypes |= more.dtypes
    words.wrappers[:0] = more.wrappers
    base.files += extra.files
    base.extra_files = paths
    if extra.labels:
        Words(base).check(extra.labels)
    return base

"""Class, family and operation of each device activity, decided once for each distinct name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracekit.model import DeviceClass, HostCat, Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from numpy.typing import NDArray

    from tracekit.model import RankTrace

_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::|\(anonymous\)::")
_MANGLED = re.compile(r"__?Z(NK?)?")
_BRACKET = re.compile(r"[<>(]")
_OWN_MEANING = re.compile(r"\\[1-9]|\(\?\(|\(\?P|(?<!^)\(\?[a-zA-Z]+\)|^\(\?(?!i\))[a-zA-Z]+\)")
"""In a pattern: references to groups, conditions, named groups, flags other than a leading (?i)."""


class KernelRule(Struct, frozen=True):
    """One rule of kernels.toml; the patterns given must all match, the first rule that matches decides."""

    id: str
    kind: Kind
    source: str
    family: str | None = None
    on_rocm: str | None = None
    base: re.Pattern[str] | None = None
    qualified: re.Pattern[str] | None = None
    raw: re.Pattern[str] | None = None
    context: re.Pattern[str] | None = None
    op: str | None = None
    ops: Mapping[str, str] | None = None
    note: str = ""

    def matches(self, raw: str, qualified: str, base: str) -> bool:
        """True when every name pattern of the rule is found."""
        return all(
            p is None or p.search(s) is not None
            for p, s in ((self.base, base), (self.qualified, qualified), (self.raw, raw))
        )

    def operation(self, base: str) -> str | None:
        """Operation the name tells, None when it does not."""
        for part, op in (self.ops or {}).items():
            if part in base:
                return op
        return self.op


class KernelClass(Struct, frozen=True):
    """What a name is: kind, family (None for compute), operation (None when the name does not say)."""

    kind: Kind
    family: str | None = None
    op: str | None = None
    rule: str | None = None


COMPUTE = KernelClass(Kind.COMPUTE)


def _demangle(name: str) -> str:
    """Namespaces and name of an Itanium-mangled symbol; other names unchanged."""
    found = _MANGLED.match(name)
    if not found:
        return name
    at, parts = found.end(), []
    while digits := re.match(r"\d+", name[at:]):
        start = at + digits.end()
        at = start + int(digits[0])
        parts.append(name[start:at])
        if not found[1]:
            break
    return "::".join(p for p in parts if not p.startswith("_GLOBAL__N")) or name


def qualified_name(name: str) -> str:
    """Name with its namespaces; return type, template arguments, parameters and suffixes removed."""
    text = _ANONYMOUS.sub("", _demangle(name.strip().removesuffix(".kd")))
    depth = at = 0
    kept = ""
    for bracket in _BRACKET.finditer(text):
        if depth == 0:
            kept += text[at : bracket.start()]
        at = bracket.end()
        if bracket[0] == "<":
            depth += 1
        elif bracket[0] == ">":
            depth = max(0, depth - 1)
        elif depth == 0 and kept:
            at = len(text)
            break
        elif depth == 0:
            kept = "("
    if depth == 0:
        kept += text[at:]
    words = kept.split()
    return words[-1] if words else name


class Gate:
    """Whether any rule can match a name at all: one search for each form of the name, not one for each rule.

    From each rule one of its patterns (all of them must match). Open to all where a pattern means something else inside
    a larger one: groups by number or name, flags but (?i).
    """

    def __init__(self, rules: Iterable[KernelRule]) -> None:
        parts: dict[str, list[str]] = {"base": [], "qualified": [], "raw": []}
        self._open = False
        for rule in rules:
            form = next((f for f in parts if getattr(rule, f) is not None), None)
            part = _inside(getattr(rule, form)) if form is not None else None
            if form is None or part is None:
                self._open = True
            else:
                parts[form].append(part)
        self._union = {f: re.compile("|".join(p)) for f, p in parts.items() if p and not self._open}

    def admits(self, raw: str, qualified: str, base: str) -> bool:
        """False when no rule can match."""
        forms = {"base": base, "qualified": qualified, "raw": raw}
        return self._open or any(union.search(forms[f]) for f, union in self._union.items())


def _inside(pattern: re.Pattern[str]) -> str | None:
    """The pattern as a part of a larger one; None where it would mean something else there."""
    text = pattern.pattern
    ignore = text.startswith("(?i)")
    if isinstance(pattern, re.Pattern) and pattern.flags != re.compile("").flags | (re.IGNORECASE if ignore else 0):
        return None
    if _OWN_MEANING.search(text):
        return None
    return f"(?i:{text[4:]})" if ignore else f"(?:{text})"


class Classifier:
    """Applies kernel rules to the names of one trace (`names`: all of them, for rules that need context)."""

    def __init__(self, rules: Iterable[KernelRule], names: Collection[str] = (), *, rocm: bool = False) -> None:
        self._rules = list(rules)
        self._names = names
        self._rocm = rocm
        self._known: dict[str, KernelClass] = {}
        self._contexts: dict[str, bool] = {}
        self._gate = Gate(self._rules)

    def __call__(self, name: str) -> KernelClass:
        """Class of a kernel name; compute when no rule matches."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._decide(name)
        return found

    def _in_context(self, rule: KernelRule) -> bool:
        if rule.context is None:
            return True
        if rule.id not in self._contexts:
            self._contexts[rule.id] = any(map(rule.context.search, self._names))
        return self._contexts[rule.id]

    def _decide(self, name: str) -> KernelClass:
        qualified = qualified_name(name)
        base = qualified.rsplit("::", 1)[-1]
        if not self._gate.admits(name, qualified, base):
            return COMPUTE
        for rule in self._rules:
            if rule.matches(name, qualified, base) and self._in_context(rule):
                if rule.kind is Kind.COMPUTE:
                    return KernelClass(Kind.COMPUTE, rule=rule.id)
                family = (rule.on_rocm if self._rocm else None) or rule.family
                return KernelClass(rule.kind, family, rule.operation(base), rule.id)
        return COMPUTE


class DeviceKinds(Struct):
    """Per device row: `kind` (int8 `Kind`); `classes` maps the name index of a kernel to its `KernelClass`."""

    kind: NDArray[np.int8]
    classes: dict[int, KernelClass]


def is_rocm(trace: RankTrace) -> bool:
    """True when the runtime calls of the trace are HIP's."""
    hip = np.array([n.startswith("hip") for n in trace.names], np.bool_)
    return bool(hip.any()) and bool((hip[trace.host.name] & (trace.host.cat == HostCat.RUNTIME)).any())


def classify(trace: RankTrace, rules: Iterable[KernelRule]) -> DeviceKinds:
    """Kind of every device row, by category for copies and sets, by name for kernels."""
    device = trace.device
    classifier = Classifier(rules, trace.names, rocm=is_rocm(trace))
    is_kernel = device.cls == DeviceClass.KERNEL
    distinct = np.flatnonzero(np.bincount(device.name[is_kernel], minlength=1)).tolist()
    classes = {i: classifier(trace.names[i]) for i in distinct}
    by_name = np.full(len(trace.names) + 1, Kind.COMPUTE, np.int8)
    for i, found in classes.items():
        by_name[i] = found.kind
    kind = by_name[device.name]
    kind[device.cls == DeviceClass.MEMCPY] = Kind.COPY
    kind[device.cls == DeviceClass.MEMSET] = Kind.SET
    return DeviceKinds(kind, classes)

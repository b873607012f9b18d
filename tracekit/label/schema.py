"""Check of rule files: every table and field is known, present where required, and of the right type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tracekit.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `kind` = str | pattern | int | number | bool | strings | map | table; `choices` if closed."""

    kind: str
    required: bool = False
    choices: tuple[str, ...] = ()
    fields: Mapping[str, Field] | None = None


_EXPECTED = {
    "str": "a string",
    "pattern": "a regular expression in a string",
    "int": "a whole number",
    "number": "a number from 0 to 1",
    "bool": "true or false",
    "strings": "a string or a list of strings",
    "map": "a table of strings",
    "table": "a table",
}


class LazyPattern:
    """A regular expression that is compiled when it is first used: most of hundreds never meet their text.

    Quacks like `re.Pattern` as far as rules go; one object for each text.
    """

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._compiled: re.Pattern[str] | None = None

    @property
    def compiled(self) -> re.Pattern[str]:
        """The compiled pattern."""
        if self._compiled is None:
            self._compiled = re.compile(self.pattern)
        return self._compiled

    def search(self, text: str) -> re.Match[str] | None:
        """As `re.Pattern.search`."""
        return self.compiled.search(text)

    def match(self, text: str) -> re.Match[str] | None:
        """As `re.Pattern.match`."""
        return self.compiled.match(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """As `re.Pattern.fullmatch`."""
        return self.compiled.fullmatch(text)


_lazy: dict[str, LazyPattern] = {}


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a rule file something stands, for error messages. shipped: a file of this package, tested with it."""

    file: str
    table: str
    rule: str
    shipped: bool = False

    def error(self, field: str, problem: str) -> RuleError:
        """The error to raise: names file, rule and field."""
        where = f"{self.file}: [[{self.table}]] {self.rule!r}"
        return RuleError(f"{where}, field {field!r}: {problem}" if field else f"{where}: {problem}")


def check(entry: object, fields: Mapping[str, Field], place: Place, prefix: str = "") -> dict[str, Any]:
    """Checked copy of `entry` with patterns compiled and `strings` as tuples; raises RuleError."""
    if not isinstance(entry, dict):
        raise place.error(prefix.rstrip("."), f"expected a table, found {type(entry).__name__}")
    unknown = sorted(set(entry) - set(fields))
    if unknown:
        known = ", ".join(sorted(fields))
        raise place.error(prefix + unknown[0], f"no such field; the fields here are {known}")
    missing = [name for name, spec in fields.items() if spec.required and name not in entry]
    if missing:
        raise place.error(prefix + missing[0], f"is required: {_EXPECTED[fields[missing[0]].kind]}")
    return {name: _value(value, fields[name], place, prefix + name) for name, value in entry.items()}


def _value(value: Any, spec: Field, place: Place, name: str) -> Any:
    if spec.kind == "table":
        return check(value, spec.fields or {}, place, f"{name}.")
    converted = _convert(value, spec.kind, place, name)
    if converted is None:
        raise place.error(name, f"expected {_EXPECTED[spec.kind]}, found {value!r}")
    if spec.choices:
        for item in converted if isinstance(converted, tuple) else (converted,):
            if item not in spec.choices:
                raise place.error(name, f"{item!r} is not one of {', '.join(spec.choices)}")
    return converted


def _convert(value: Any, kind: str, place: Place, name: str) -> Any:
    """The value in its working type, None when it has the wrong one."""
    if kind == "bool":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if kind == "int":
        return value if isinstance(value, int) else None
    if kind == "number":
        return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else None
    if kind == "map":
        good = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
        return value if good else None
    if kind == "strings":
        items = [value] if isinstance(value, str) else value
        good = isinstance(items, list) and bool(items) and all(isinstance(v, str) for v in items)
        return tuple(items) if good else None
    if not isinstance(value, str):
        return None
    return compiled(value, place, name) if kind == "pattern" else value


def compiled(pattern: str, place: Place, name: str) -> re.Pattern[str]:
    """Compiled regular expression; raises RuleError when it is none. A shipped one is compiled when it is needed."""
    if place.shipped:
        return cast("re.Pattern[str]", _lazy.setdefault(pattern, LazyPattern(pattern)))
    try:
        return re.compile(pattern)
    except re.error as e:
        raise place.error(name, f"is not a regular expression ({e}): {pattern!r}") from e

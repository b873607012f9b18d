"""Check of rule files: every table and field is known, present where required, and of the right type."""

from __future__ import annotations

import re
from re import _parser  # type: ignore[attr-defined]  # the only way to see a pattern's parts
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from tracekit.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

MAX_RULE_FILE = 4 << 20
_REPEATS = (_parser.MAX_REPEAT, _parser.MIN_REPEAT)


class Field(Struct, frozen=True):
    """One field: `kind` = str | pattern | int | number | bool | strings | map | table; `choices` if closed."""

    kind: str
    required: bool = False
    choices: tuple[str, ...] = ()
    fields: Mapping[str, Field] | None = None


_EXPECTED = {
    "str": "a string",
    "pattern": "a regular expression in a string",
    "int": "a whole number, not negative",
    "number": "a number from 0 to 1",
    "bool": "true or false",
    "strings": "a string or a list of strings",
    "map": "a table of strings",
    "table": "a table",
}


class LazyPattern:
    """A regular expression that is compiled when it first may match: most of hundreds never meet their text.

    Quacks like `re.Pattern` as far as rules go; one object for each text.
    """

    __slots__ = ("_compiled", "_needs", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._compiled: re.Pattern[str] | None = None
        self._needs: tuple[str, ...] | None = None

    @property
    def compiled(self) -> re.Pattern[str]:
        """The compiled pattern."""
        if self._compiled is None:
            self._compiled = re.compile(self.pattern)
        return self._compiled

    def may_match(self, text: str) -> bool:
        """False where the text lacks what every match holds."""
        if self._compiled is not None:
            return True
        if self._needs is None:
            self._needs = words_of(self.pattern)
        return not self._needs or holds_any(self._needs, text)

    def search(self, text: str) -> re.Match[str] | None:
        """As `re.Pattern.search`."""
        return self.compiled.search(text) if self.may_match(text) else None

    def match(self, text: str) -> re.Match[str] | None:
        """As `re.Pattern.match`."""
        return self.compiled.match(text) if self.may_match(text) else None

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """As `re.Pattern.fullmatch`."""
        return self.compiled.fullmatch(text) if self.may_match(text) else None


_PARTS = re.compile(r"\\(.)|(\[\^?\]?(?:\\.|[^\]\\])*\])|(\{[^}]*\}|[?*+])|([()|^$.])|([^\\\[{?*+()|^$.]+)", re.DOTALL)
"""Escape, set, repetition, another sign, plain text."""


def words_of(pattern: str) -> tuple[str, ...]:
    """Texts, in lower case, of which every match of a regular expression holds one; () where none are told.

    Of each alternative the longest plain text that stands in no bracket. Far cheaper than compiling.
    """
    if _FLAGS.search(pattern):
        return ()
    out, best, run, depth = [], "", "", 0
    for escaped, _, repeated, sign, plain in _PARTS.findall(pattern.removeprefix("(?i)")):
        if depth == 0 and (plain or (escaped and not escaped.isalnum())):
            run += plain or escaped
            continue
        if repeated and repeated != "+":
            run = run[:-1]
        best, run = max(best, run, key=len), ""
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and depth == 0:
            out.append(best)
            best = ""
    out.append(max(best, run, key=len))
    return tuple(w.lower() for w in out) if all(out) else ()


def holds_any(words: Iterable[str], text: str) -> bool:
    """Whether a text holds one of some words, whatever their case; text beyond ASCII may, in ways of its own."""
    low = text.lower()
    return any(word in low for word in words) or not text.isascii()


_FLAGS = re.compile(r"\(\?[a-zA-Z-]*[aLmsux][a-zA-Z-]*[:)]|\(\?\(|\(\?#|\\[xuUN0-9]")
"""Flags but for i, conditions, comments, characters by number: plain text of such a pattern may mean something else."""


_lazy: dict[str, LazyPattern] = {}


class Place(Struct, frozen=True):
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
        return value if isinstance(value, int) and value >= 0 else None
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
        found = re.compile(pattern)
        endless = _endless(_parser.parse(pattern))
    except (re.error, OverflowError, RecursionError) as e:
        raise place.error(name, f"is not a regular expression ({e}): {shortened(pattern)}") from e
    if endless:
        problem = "repeats what is a repetition itself, which can take for ever; write it without one of the two"
        raise place.error(name, f"{problem}: {shortened(pattern)}")
    return found


def shortened(text: str, length: int = 200) -> str:
    """The text as it is written in Python, not longer than a message bears."""
    return repr(text) if len(text) <= length else f"{text[:length]!r}…"


def _endless(parts: Any) -> bool:
    """True where an unlimited repetition holds nothing but another one, as (a+)+ does: exponential in Python's `re`."""
    return any(
        (op in _REPEATS and value[1] is _parser.MAXREPEAT and _repetition(value[2]))
        or any(map(_endless, _inner(value)))
        for op, value in parts
    )


def _repetition(parts: Any) -> bool:
    """True for one unlimited repetition, however bracketed; what may be empty beside it does not matter."""
    solid = [(op, value) for op, value in parts if not (op in _REPEATS and value[0] == 0)]
    if not solid:
        return any(value[1] is _parser.MAXREPEAT for _, value in parts)
    if len(solid) != 1:
        return False
    op, value = solid[0]
    if op in _REPEATS:
        return value[1] is _parser.MAXREPEAT or _repetition(value[2])
    return op is _parser.SUBPATTERN and _repetition(value[-1])


def _inner(value: Any) -> Iterator[Any]:
    """The patterns inside one part of a parsed pattern."""
    if isinstance(value, _parser.SubPattern):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _inner(item)


def read_rule_file(path: Path) -> str:
    """Text of a rule file of the user. Raises RuleError: not there, no regular file, too large, not UTF-8."""
    try:
        if path.exists() and not path.is_file():
            raise RuleError(f"{path}: no regular file; give a TOML rule file")
        if path.exists() and path.stat().st_size > MAX_RULE_FILE:
            raise RuleError(f"{path}: larger than {MAX_RULE_FILE >> 20} MiB; that is no rule file")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise RuleError(f"{path}: cannot be read as a rule file: {e}") from e


def toml_of(text: str, name: str) -> dict[str, Any]:
    """The tables of a rule file. Raises RuleError."""
    import tomli  # lazily: not all commands read rules. Compiled, it takes a quarter of what tomllib does

    try:
        return tomli.loads(text)
    except (ValueError, RecursionError) as e:  # ValueError: also a number with thousands of digits
        raise RuleError(f"{name}: not a TOML file: {e}") from e

"""A saved `tracekit analyze --json`, read back for comparison."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analysis.diff.side import Side, side
from tracekit.errors import BrokenInput, UnusableInput
from tracekit.model import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEAD = re.compile(rb'\s*\{\s*"schema_version"\s*:')
MAX_BYTES = 1 << 30
_TABLES = ("ranks", "steps", "breakdown", "exposure", "findings", "bubble")
"""Tables of the document that a comparison reads."""
_SUMS = ("count", "payload_bytes", "exposed_ns", "total_ns")
"""Numbers of a call site (no table of its own: `analysis.sites`)."""


def is_saved(path: str | Path) -> bool:
    """Whether a file begins as the JSON document of `tracekit analyze --json` does."""
    file = Path(path)
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return bool(_HEAD.match(stream.read(256)))


def load(path: str | Path) -> dict[str, Any]:
    """The document. Raises BrokenInput when it is damaged, UnusableInput when of another major schema version."""
    file = Path(path)
    if file.stat().st_size > MAX_BYTES:
        raise UnusableInput(f"{path}: a JSON document of more than 1 GiB is not read; compare datasets instead")
    try:
        value = json.loads(file.read_text("utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError) as e:
        raise BrokenInput(
            f"{path}: no whole JSON document ({str(e)[:200]}); run `tracekit analyze --json` again"
        ) from e
    version = str(value.get("schema_version"))
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        major = SCHEMA_VERSION.partition(".")[0]
        raise UnusableInput(f"{path}: schema version {version[:20]}; this tracekit reads {major}.x: analyse again")
    return dict(value)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def side_of(path: str, tables: Mapping[str, Any] | None = None) -> Side:
    """One side of a comparison: of these tables, or of the document at `path`.

    Raises BrokenInput with the row and column where the document is not what `tracekit analyze --json` writes.
    """
    if tables is not None:
        return side(tables, path)
    document = load(path)
    try:
        _fit(document)
        return side(document, path)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as e:
        what = str(e) if isinstance(e, ValueError) else f"{type(e).__name__}: {e}"
        raise BrokenInput(f"{path}: not as `tracekit analyze --json` writes it ({what[:160]}); analyse again") from e


def _fit(document: dict[str, Any]) -> None:
    """Values of the right type in every row; columns that an older version did not know become null.

    ValueError names the place.
    """
    for name in _TABLES:
        for number, row in enumerate(_rows(document, name)):
            for column in TABLES[name].columns:
                value = row.setdefault(column.name, None) if column.nullable else row.get(column.name, 0)
                kind = "text" if column.type in ("dict", "string") else column.type
                if not (_suits(value, column.type) or (value is None and column.nullable)):
                    raise ValueError(f"{name}[{number}].{column.name}: expected {kind}, found {value!r:.40}")
    for number, row in enumerate(_rows(document, "sites")):
        if not isinstance(row.get("strategy"), str):
            raise ValueError(f"sites[{number}].strategy: expected a name, found {row.get('strategy')!r:.40}")
        for name in _SUMS:
            if row.setdefault(name, None) is not None and not _suits(row[name], "float64"):
                raise ValueError(f"sites[{number}].{name}: expected a number, found {row[name]!r:.40}")
    for name in document.get("frameworks") or []:
        if not isinstance(name, str) or isinstance(document["frameworks"], str):
            raise ValueError("frameworks: expected a list of names")


def _rows(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    rows = document.get(name) or []
    if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
        raise ValueError(f"{name}: expected a list of rows")
    return rows


def _suits(value: object, kind: str) -> bool:
    """Whether a JSON value is one of a column's type; times as text and the like are not looked into."""
    if kind.startswith(("int", "uint")):
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64
    if kind.startswith("float"):
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    if kind == "bool":
        return isinstance(value, bool)
    return isinstance(value, str) if kind in ("dict", "string") else True

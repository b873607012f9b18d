"""A saved `tracekit analyze --json`, read back for comparison."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analysis.diff.side import Side, side
from tracekit.errors import BrokenInput, UnusableInput
from tracekit.model import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEAD = re.compile(rb'\s*\{\s*"schema_version"\s*:')
MAX_BYTES = 1 << 30


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
        value = json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError) as e:
        raise BrokenInput(
            f"{path}: no whole JSON document ({str(e)[:200]}); run `tracekit analyze --json` again"
        ) from e
    version = str(value.get("schema_version"))
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        major = SCHEMA_VERSION.partition(".")[0]
        raise UnusableInput(f"{path}: schema version {version[:20]}; this tracekit reads {major}.x: analyse again")
    return dict(value)


def side_of(path: str, tables: Mapping[str, Any] | None = None) -> Side:
    """One side of a comparison: of these tables, or of the document at `path`."""
    if tables is not None:
        return side(tables, path)
    document = load(path)
    try:
        return side(document, path)
    except (KeyError, TypeError, AttributeError, ValueError) as e:
        raise BrokenInput(
            f"{path}: not as `tracekit analyze --json` writes it ({type(e).__name__}: {str(e)[:100]}); analyse again"
        ) from e

"""One module a format: bytes → `tracekit.model.RankTrace`.

`identify(path)` says what a file is; `parse(path)` reads it. A third party adds a parser through the
entry-point group `tracekit.parsers`: a callable `parse(path, *, strict) -> list[RankTrace]`, with an
optional attribute `identify(path) -> bool`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import ForeignFormat
from tracekit.parsers.sniff import Format, identify

if TYPE_CHECKING:
    from tracekit.model import RankTrace

__all__ = ["Format", "identify", "parse"]


def _third_party(path: Path) -> Any:
    from importlib.metadata import entry_points

    for entry in entry_points(group="tracekit.parsers"):
        if entry.name != "kineto":
            parser = entry.load()
            accepts = getattr(parser, "identify", None)
            if accepts is not None and accepts(path):
                return parser
    return None


def parse(path: str | Path, *, strict: bool = False) -> list[RankTrace]:
    """Read one file into one trace a process. strict: refuse instead of repairing.

    Raises ForeignFormat for a recognised format without a parser, BrokenInput (strict, or nothing to
    salvage), LimitExceeded, UnusableInput.
    """
    path = Path(path)
    found = identify(path)
    if found.readable:
        from tracekit.parsers.kineto import parse as kineto

        return kineto(path, strict=strict)
    parser = _third_party(path)
    if parser is not None:
        traces: list[RankTrace] = parser(path, strict=strict)
        return traces
    raise ForeignFormat(f"{path}: {found.title}: {found.advice}")

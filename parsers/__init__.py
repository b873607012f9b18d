"""One module a format: bytes → `tracekit.model.RankTrace`.

`identify(path)` says what a file is; `parse(path)` reads it. A third party adds a parser through the
entry-point group `tracekit.parsers`: a callable `parse(path, *, strict) -> list[RankTrace]`, with an
optional attribute `identify(path) -> bool`. If it takes `frames` as well, it is asked for Python frames.
"""

from __future__ import annotations

from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import ForeignFormat
from tracekit.parsers.sniff import Format, identify

if TYPE_CHECKING:
    import re

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


def _takes_frames(parser: Any) -> bool:
    parameters = signature(parser).parameters
    return "frames" in parameters or any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())


def parse(path: str | Path, *, strict: bool = False, frames: re.Pattern[str] | None = None) -> list[RankTrace]:
    """Read one file into one trace a process. strict: refuse instead of repairing.

    frames: Python frames (recorded with stacks) whose name contains a match are kept as host rows of category
    `HostCat.PYTHON`; all others, and without a pattern all, are only counted.

    Raises ForeignFormat for a recognised format without a parser, BrokenInput (strict, or nothing to
    salvage), LimitExceeded, UnusableInput.
    """
    path = Path(path)
    found = identify(path)
    if found.name == "nsys":
        from tracekit.parsers.nsys import parse as nsys

        return nsys(path, strict=strict)
    if found.readable:
        from tracekit.parsers.kineto import parse as kineto

        return kineto(path, strict=strict, frames=frames)
    parser = _third_party(path)
    if parser is not None:
        more = {"frames": frames} if frames is not None and _takes_frames(parser) else {}
        traces: list[RankTrace] = parser(path, strict=strict, **more)
        return traces
    raise ForeignFormat(f"{path}: {found.title}: {found.advice}")

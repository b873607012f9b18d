"""One module a format: bytes → `tracekit.model.RankTrace`, or `Witness` for a source that saw communication only.

`identify(path)` says what a file is; `parse(path)` reads it. A third party adds a parser through the
entry-point group `tracekit.parsers`: a callable `parse(path, *, strict) -> list[RankTrace]`, with an
optional attributes `identify(path) -> bool` and `title`. If it takes `frames` as well, it is asked for Python frames.
"""

from __future__ import annotations

from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import ForeignFormat
from tracekit.parsers import sniff
from tracekit.parsers.sniff import Format

if TYPE_CHECKING:
    import re

    from tracekit.model import RankTrace, Witness

__all__ = ["Format", "identify", "parse", "parse_witness"]

_WITNESSES = {
    "flight-recorder": "tracekit.parsers.flight_recorder",
    "nccl-log": "tracekit.parsers.nccl_log",
    "nccl-inspector": "tracekit.parsers.nccl_inspector",
    "nccl-profiler": "tracekit.parsers.nccl_profiler",
    "execution-trace": "tracekit.parsers.execution_trace",
    "msprof-communication": "tracekit.parsers.msprof",
}
"""`Format.name` → module with `parse(path, *, strict) -> list[Witness]`."""
_OWN = frozenset({"kineto", "nsys"})
"""Entry points of this package itself."""


def _third_party(path: Path) -> tuple[str, Any] | None:
    """(name of the entry point, parser) of the first third party that accepts a file."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="tracekit.parsers"):
        if entry.name not in _OWN:
            parser = entry.load()
            accepts = getattr(parser, "identify", None)
            if accepts is not None and accepts(path):
                return entry.name, parser
    return None


def identify(path: Path) -> Format:
    """What the file at `path` is; a format that tracekit does not read may be one that a third party does."""
    found = sniff.identify(path)
    if found.readable or found.witness:
        return found
    other = _third_party(path)
    if other is None:
        return found
    name, parser = other
    title = str(getattr(parser, "title", f"{name} (read by a package of a third party)"))
    return Format(name, title, readable=True, advice="", compression=found.compression)


def _takes_frames(parser: Any) -> bool:
    parameters = signature(parser).parameters
    return "frames" in parameters or any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())


def parse(
    path: str | Path,
    *,
    strict: bool = False,
    frames: re.Pattern[str] | None = None,
    frame_names: re.Pattern[str] | None = None,
) -> list[RankTrace]:
    """Read one file into one trace a process. strict: refuse instead of repairing.

    frames: Python frames (recorded with stacks) whose name contains a match are kept as host rows of category
    `HostCat.PYTHON`; all others, and without a pattern all, are only counted. frame_names: names of frames that contain
    a match are among `RankTrace.names`, whether their rows are kept or not.

    Raises ForeignFormat for a recognised format without a parser, BrokenInput (strict, or nothing to
    salvage), LimitExceeded, UnusableInput.
    """
    path = Path(path)
    found = sniff.identify(path)
    if found.name == "nsys":
        from tracekit.parsers.nsys import parse as nsys

        return nsys(path, strict=strict)
    if found.readable:
        from tracekit.parsers.kineto import parse as kineto

        return kineto(path, strict=strict, frames=frames, frame_names=frame_names)
    other = _third_party(path)
    if other is not None:
        parser = other[1]
        more = {"frames": frames} if frames is not None and _takes_frames(parser) else {}
        traces: list[RankTrace] = parser(path, strict=strict, **more)
        return traces
    raise ForeignFormat(f"{path}: {found.title}: {found.advice}")


def parse_witness(path: str | Path, *, strict: bool = False) -> list[Witness]:
    """Read one file of a format that tells communication only (`Format.witness`): one witness a process.

    Raises ForeignFormat for any other file, BrokenInput, LimitExceeded, UnusableInput.
    """
    path = Path(path)
    found = identify(path)
    if not found.witness:
        raise ForeignFormat(f"{path}: {found.title}: expected a flight recorder dump or the like")
    witnesses: list[Witness] = import_module(_WITNESSES[found.name]).parse(path, strict=strict)
    return witnesses

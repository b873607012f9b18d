"""Ranks that the user states: a pattern on paths, or a file that maps names to ranks."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


def user_ranks(regex: str | None, map_file: str | Path | None) -> Callable[[str], int | None] | None:
    """Function path → rank from `--rank-regex` and `--rank-map`; the map wins. None without either.

    regex: searched in the path; its group `rank`, else its first group, is the rank. Map file: lines
    `name-or-pattern rank` (blank or tab between; `#` starts a comment), matched against the path, its
    end, or its file name. Raises UsageError.
    """
    pattern = _pattern(regex) if regex else None
    entries = _entries(Path(map_file)) if map_file else []
    if pattern is None and not entries:
        return None

    def rank_of(path: str) -> int | None:
        for glob, rank in entries:
            if fnmatch.fnmatch(path, glob) or fnmatch.fnmatch(Path(path).name, glob) or path.endswith("/" + glob):
                return rank
        found = pattern.search(path) if pattern else None
        if found is None:
            return None
        text = found.groupdict().get("rank") or found[1]
        if text is None or not text.isdigit():
            raise UsageError(f"--rank-regex: it found {text!r} in {path}; expected digits")
        return int(text)

    return rank_of


def _pattern(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as e:
        raise UsageError(f"--rank-regex {text!r}: no regular expression: {e}") from e
    if pattern.groups < 1:
        raise UsageError(f"--rank-regex {text!r}: it has no group; put the digits of the rank in (…)")
    return pattern


def _entries(path: Path) -> list[tuple[str, int]]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"--rank-map {path}: cannot be read ({e})") from e
    out = []
    for number, line in enumerate(lines, 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        name, _, rank = text.rpartition("\t") if "\t" in text else text.rpartition(" ")
        if not name or not rank.strip().isdigit():
            raise UsageError(f"--rank-map {path}, line {number}: expected `file-name rank`, found {line.strip()!r}")
        out.append((name.strip(), int(rank)))
    return out

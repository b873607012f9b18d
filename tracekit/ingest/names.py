"""Ranks and mesh coordinates spelled in file and folder names; never a process id, time or host."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Key = tuple[str, int]
"""Path and part of a trace."""

_AXIS = r"tp|dp|pp|ep|cp|dcp|sp|mp|local|node|host|group"
_RANK = re.compile(rf"(?i)(?<![a-z])(?P<axis>(?:{_AXIS})[-_. ]?)?(?:rank|rk)[-_. ]?\[?(?P<rank>\d{{1,7}})\]?(?!\d)")
_WORKER = re.compile(r"(?i)(?<![a-z])worker[-_]?(\d{1,5})(?=[._-]|$)")
_COORDINATE = re.compile(r"(?i)(?:^|[-_.])(TP|DP|PP|EP|CP|DCP)[-_]?(?:rank[-_]?)?(\d{1,5})(?=[-_.]|$)")
_AT_END = re.compile(r"(?<!\d)(\d{1,7})(?:\.(?:json|pickle|pkl|bin|log|txt|gz))*$")
DEPTH = 6
"""Names looked at from the file outwards: far folders say nothing about a rank."""


def rank_in_name(path: str) -> int | None:
    """Rank spelled in the file's name, else in its folders' names from the inside out.

    A rank along one axis ("tp_rank_1", "local_rank_0") is no global rank; a name with two different ranks
    tells none.
    """
    parts = PurePath(path).parts
    for part in reversed(parts[-DEPTH:]):
        hits = {int(m["rank"]) for m in _RANK.finditer(part) if not m["axis"]}
        if hits:
            return hits.pop() if len(hits) == 1 else None
    worker = _WORKER.findall(parts[-1]) if parts else []
    return int(worker[-1]) if worker else None


def rank_at_end(path: str) -> int | None:
    """Rank of a flight recorder dump: digits at the end of its name (prefix + rank, without or with a suffix)."""
    found = _AT_END.search(PurePath(path).name)
    return int(found[1]) if found else None


def coordinates_in_name(path: str) -> dict[str, int] | None:
    """Mesh coordinates spelled in the file's name ("…-TP-0-DP-0-PP-1…"); None without a TP or PP one."""
    found = {k.upper(): int(v) for k, v in _COORDINATE.findall(PurePath(path).name)}
    return found if {"TP", "PP"} & found.keys() else None


def coordinate_ranks(coordinates: Mapping[Key, dict[str, int]], world: int | None) -> dict[Key, int]:
    """Rank = PP x TP-size + TP, the order of serving engines, where nothing has to be guessed.

    Nothing at all when two traces share a rank by that rule (another axis tells them apart). Stage 0 needs no
    TP size; for later stages the mesh must be complete, and its size the world's where that is known.
    """
    at = {k: (c.get("PP", 0), c.get("TP", 0)) for k, c in coordinates.items()}
    if len(set(at.values())) < len(at):
        return {}
    stages = max((p for p, _ in at.values()), default=0) + 1
    width = max((t for _, t in at.values()), default=0) + 1
    complete = len(at) == stages * width and (width > 1 if world is None else stages * width == world)
    return {k: p * width + t for k, (p, t) in at.items() if p == 0 or complete}

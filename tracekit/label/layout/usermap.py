"""What the user says of groups and of the run: `--map FILE` and run.toml."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli
from msgspec import Struct

from tracekit.errors import UsageError
from tracekit.label.job import Claim
from tracekit.label.layout.declared import DENSE, EXPERT, layout_of
from tracekit.label.layout.kinds import finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracekit.label.layout.kinds import JobGroup, Key, Layout

MAX_FILE = 4 << 20
RUN_TABLES = ("layout", "group", "model", "training", "hardware", "simulate")
_SAYS = ("axes", "strategy", "purpose")
_FINDS = ("name", "desc", "ranks")
_GLOB = frozenset("*?[")
_AXES = (*DENSE, *EXPERT, "embedding", "gtp")


class MapEntry(Struct, frozen=True):
    """One [[group]]: which groups (all of name, desc, ranks that are given must fit) and what they are.

    name, desc: exact or a glob (`*`, `?`, `[…]`); ranks: ascending global ranks.
    """

    where: str
    name: str | None = None
    desc: str | None = None
    ranks: tuple[int, ...] | None = None
    axes: str | None = None
    strategy: str | None = None
    purpose: str | None = None

    def fits(self, group: JobGroup) -> bool:
        """Whether it speaks of this group."""
        return (
            _fits(self.name, group.name)
            and _fits(self.desc, group.desc)
            and (self.ranks is None or (group.members is not None and tuple(sorted(group.members)) == self.ranks))
        )


class RunConfig(Struct, frozen=True):
    """A run.toml: layout, groups, and the other tables as they stand ([model], [training], [hardware] …)."""

    path: str
    layout: Layout | None
    groups: tuple[MapEntry, ...]
    tables: Mapping[str, Any]


def _fits(pattern: str | None, text: str | None) -> bool:
    return pattern is None or (
        text is not None and (text == pattern or (not _GLOB.isdisjoint(pattern) and fnmatchcase(text, pattern)))
    )


def read_map(path: str | Path) -> tuple[MapEntry, ...]:
    """Entries of a map file. Raises UsageError naming file, entry and field."""
    data = load_toml(Path(path), "--map")
    other = sorted(set(data) - {"group"})
    if other:
        raise UsageError(f"--map {path}: [{other[0]}]: no such table; there is [[group]], once for each entry")
    entries = _entries(data, str(path))
    if not entries:
        raise UsageError(f"--map {path}: it has no [[group]], so it maps nothing")
    return entries


def read_run_toml(path: str | Path) -> RunConfig:
    """A run.toml. Raises UsageError naming file, table and field."""
    data = load_run(Path(path))
    table = data.get("layout")
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{path}: layout must be a table: [layout]")
    layout = layout_of(table, f"{path} [layout]") if table is not None else None
    rest = {k: v for k, v in data.items() if k not in ("layout", "group")}
    return RunConfig(str(path), layout, _entries(data, str(path)), rest)


def load_run(path: Path) -> dict[str, Any]:
    """The tables of a run.toml. Raises UsageError as `load_toml`, and for a table that no command reads."""
    data = load_toml(path, "run.toml")
    other = sorted(set(data) - set(RUN_TABLES))
    if other:
        raise UsageError(f"{path}: [{other[0]}]: no such table; a run file has {', '.join(RUN_TABLES)}")
    return data


def load_toml(path: Path, what: str) -> dict[str, Any]:
    """The tables of a TOML file of the user. Raises UsageError: not there, no regular file, too large, not TOML."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{what} {path}: no regular file; give a TOML file")
        if path.exists() and path.stat().st_size > MAX_FILE:
            raise UsageError(f"{what} {path}: larger than {MAX_FILE >> 20} MiB")
        return tomli.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{what} {path}: cannot be read ({e})") from e
    except (ValueError, RecursionError) as e:  # ValueError: also a number with thousands of digits
        raise UsageError(f"{what} {path}: not a TOML file: {e}") from e


def _entries(data: Mapping[str, Any], path: str) -> tuple[MapEntry, ...]:
    found = data.get("group", [])
    if not isinstance(found, list):
        raise UsageError(f"{path}: group must be written [[group]], once for each entry")
    return tuple(_entry(raw, f"{path}: [[group]] #{i}") for i, raw in enumerate(found, 1))


def _entry(raw: Any, where: str) -> MapEntry:
    if not isinstance(raw, dict):
        raise UsageError(f"{where}: expected a table")
    unknown = sorted(set(raw) - {*_SAYS, *_FINDS})
    if unknown:
        raise UsageError(f"{where}, field {unknown[0]!r}: no such field; there are {', '.join((*_FINDS, *_SAYS))}")
    if not set(_FINDS) & set(raw):
        raise UsageError(f"{where}: one of {', '.join(_FINDS)} is required: which group")
    if not set(_SAYS) & set(raw):
        raise UsageError(f"{where}: one of {', '.join(_SAYS)} is required: what the group is")
    for name in ("name", "desc", *_SAYS):
        if name in raw and (not isinstance(raw[name], str) or not raw[name]):
            raise UsageError(f"{where}, field {name!r}: expected a string, found {raw[name]!r}")
    _words(raw, where)
    ranks = _ranks(raw["ranks"], where) if "ranks" in raw else None
    return MapEntry(where, ranks=ranks, **{k: v for k, v in raw.items() if k != "ranks"})


def _words(raw: Mapping[str, Any], where: str) -> None:
    from tracekit.label.rules import PURPOSES, STRATEGIES  # the rules read this package's tables

    parts = raw["axes"].split("+") if "axes" in raw else []
    for field, words, known in (
        ("axes", parts, _AXES),
        ("strategy", [raw[k] for k in ("strategy",) if k in raw], STRATEGIES),
        ("purpose", [raw[k] for k in ("purpose",) if k in raw], PURPOSES),
    ):
        for word in words:
            if word not in known:
                raise UsageError(f"{where}, field {field!r}: {word!r} is not one of {', '.join(known)}")


def _ranks(value: Any, where: str) -> tuple[int, ...]:
    whole = isinstance(value, list) and bool(value) and all(type(v) is int and v >= 0 for v in value)
    if not whole or len(set(value)) != len(value):
        raise UsageError(f"{where}, field 'ranks': expected a list of different ranks, found {value!r}")
    return tuple(sorted(value))


def unmatched(entries: Iterable[MapEntry], groups: Iterable[JobGroup]) -> list[dict[str, Any]]:
    """A finding on each entry that no group of the job fits: a name mistyped, or a group that is not recorded."""
    there = tuple(groups)
    return [
        finding("map-unmatched", f"{e.where} fits no group of this job; `tracekit layout PATH` lists the groups")
        for e in entries
        if not any(map(e.fits, there))
    ]


def mapped(entries: Iterable[MapEntry], groups: Iterable[JobGroup]) -> dict[Key, Claim]:
    """What the entries say of each group; the first that fits counts."""
    listed = tuple(entries)
    out: dict[Key, Claim] = {}
    for group in groups:
        entry = next((e for e in listed if e.fits(group)), None)
        if entry is not None:
            axes = entry.axes or group.axes or ""
            out[group.key] = Claim(axes, "A", 0.99, "layout.map", entry.where, entry.strategy, entry.purpose)
    return out

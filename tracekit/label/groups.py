"""Which process group a communication record speaks of, and who its members are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tracekit.model import CommArgs, ProcessGroup, TraceMeta

MAX_RANKS = 1 << 20
"""Ranks from here on are no ranks: a record that claims them is not followed."""


class Group(Struct, frozen=True):
    """A process group as far as it is known; `members` are global ranks, complete or None."""

    name: str | None = None
    desc: str | None = None
    size: int | None = None
    members: tuple[int, ...] | None = None


UNKNOWN = Group()


class Groups:
    """Resolves groups of one rank: metadata by name → start and stride → complete rank text → unknown.

    `mismatches` counts records that contradict the metadata of the group they name (then the record is followed).
    """

    def __init__(self, meta: TraceMeta) -> None:
        self._declared: dict[str, ProcessGroup] = {g.name: g for g in meta.groups}
        self._world = meta.world_size
        self._known: dict[tuple[object, ...], Group] = {}
        self.mismatches = 0
        only = meta.groups[0] if len(meta.groups) == 1 and meta.pg_count == 1 else None
        self.only = Group(only.name, only.desc, only.size, self._world_of(only.ranks, only.size)) if only else UNKNOWN

    def resolve(self, args: CommArgs | None) -> Group:
        """Group of a record; without any argument, the only group of the job if there is but one."""
        if args is None or (args.pg_name is None and args.group_size is None):
            size = old_size(args)
            if size is None:
                return self.only
            if self.only.size == size:
                return self.only
            return Group(None, None, size, self._world_of(None, size))
        key = (
            args.pg_name,
            args.pg_desc,
            args.group_size,
            args.rank_start,
            args.rank_stride,
            args.ranks_text,
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._resolve(args)
        return found

    def _resolve(self, args: CommArgs) -> Group:
        declared = self._declared.get(args.pg_name) if args.pg_name is not None else None
        size = args.group_size
        if declared is not None and size is not None and declared.size not in (None, size):
            self.mismatches += 1
            declared = None
        desc = args.pg_desc
        if declared is not None:
            size = size if size is not None else declared.size
            desc = desc or declared.desc  # nccl2 writes an empty one
        members = declared.ranks if declared is not None else None
        if members is None or (size is not None and len(members) != size):
            members = _from_stride(args) or _from_text(args.ranks_text, size)
        return Group(args.pg_name, desc, size, self._world_of(members, size))

    def _world_of(self, members: tuple[int, ...] | None, size: int | None) -> tuple[int, ...] | None:
        """A group as large as the world holds every rank of it."""
        if members is None and size is not None and size == self._world:
            return tuple(range(size))
        return members


def _from_stride(args: CommArgs) -> tuple[int, ...] | None:
    start, stride, size = args.rank_start, args.rank_stride, args.group_size
    if start is None or start < 0 or not size:
        return None
    if size == 1:
        return (start,)
    if stride is None or stride <= 0 or start + stride * (size - 1) >= MAX_RANKS:
        return None
    return tuple(range(start, start + stride * size, stride))


def _from_text(text: str | None, size: int | None) -> tuple[int, ...] | None:
    """Ranks of "[0, 2]"; a list the writer cut short is never trusted."""
    if not text or "..." in text:
        return None
    try:
        ranks = json.loads(text)
    except ValueError:
        return None
    if not isinstance(ranks, list) or not ranks or not all(isinstance(r, int) for r in ranks):
        return None
    return tuple(ranks) if size in (None, len(ranks)) else None


def _is_old(args: CommArgs) -> bool:
    """True for a record of torch ≤ 2.1 with values: (tensors, seq, group pointer, rank, …, …, …, size)."""
    types, values = args.types, args.concrete
    return (
        isinstance(types, list)
        and isinstance(values, list)
        and len(types) == len(values) == 8
        and types[0] != "Scalar"
        and types[1:4] == ["Scalar"] * 3
        and types[7] == "Scalar"
    )


def old_size(args: CommArgs | None) -> int | None:
    """Group size of an argument-less record, from its recorded values."""
    return _number(args, 7)


def old_seq(args: CommArgs | None) -> int | None:
    """Sequence number of an argument-less record, from its recorded values."""
    return _number(args, 1)


def _number(args: CommArgs | None, position: int) -> int | None:
    if args is None or not _is_old(args):
        return None
    try:
        value = int(args.concrete[position])  # type: ignore[index]
    except (TypeError, ValueError):
        return None
    return value if value > 0 else None

"""Which ranks a call's group holds: declared list, else start/stride/size, else a complete text."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.model import CommArgs, ProcessGroup, TraceMeta

MAX_MEMBERS = 1 << 20


class Groups:
    """The process groups of one rank, by name."""

    def __init__(self, meta: TraceMeta) -> None:
        self.by_name: dict[str, ProcessGroup] = {g.name: g for g in meta.groups}
        self.only: ProcessGroup | None = meta.groups[0] if len(meta.groups) == 1 and (meta.pg_count or 1) == 1 else None

    def named(self, name: str | None) -> ProcessGroup | None:
        """The declared group of that name."""
        return None if name is None else self.by_name.get(name)

    def members(self, args: CommArgs) -> tuple[int, ...] | None:
        """Global ranks of a record's group; None when no source is complete."""
        declared = self.named(args.pg_name)
        if declared is not None and declared.ranks and args.group_size in (None, len(declared.ranks)):
            return declared.ranks
        return strided(args) or complete_text(args.ranks_text, args.group_size)


def strided(args: CommArgs) -> tuple[int, ...] | None:
    """Ranks from "Global rank start", "stride" and "Group size" (−1 marks an irregular group)."""
    start, stride, size = args.rank_start, args.rank_stride, args.group_size
    if start is None or size is None or start < 0 or not 0 < size <= MAX_MEMBERS:
        return None
    if size == 1:
        return (start,)
    if stride is None or stride <= 0:
        return None
    return tuple(range(start, start + stride * size, stride))


@lru_cache(maxsize=4096)
def complete_text(text: str | None, size: int | None) -> tuple[int, ...] | None:
    """Ranks from the text of a list that the writer did not cut."""
    if not text or "..." in text or text == "[]":
        return None
    try:
        ranks = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(ranks, list | tuple) or not all(isinstance(r, int) for r in ranks):
        return None
    return tuple(ranks) if size in (None, len(ranks)) else None


def group_key(members: tuple[int, ...] | None, name: str | None, size: int | None) -> str | None:
    """Identity of a group: its members where known (short form for even strides), else name and size."""
    if members:
        if len(members) > 2:
            stride = members[1] - members[0]
            if stride > 0 and members == tuple(range(members[0], members[0] + stride * len(members), stride)):
                step = f":{stride}" if stride > 1 else ""
                return f"{members[0]}-{members[-1]}{step}"
        return ",".join(map(str, members))
    if name is not None:
        return f"name={name}" + (f"/{size}" if size else "")
    return None

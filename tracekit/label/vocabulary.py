"""One vocabulary for operations and element types, from rules/collectives.toml."""

from __future__ import annotations

import re
from functools import reduce
from operator import mul
from typing import Any

from msgspec import Struct, field

_PREFIX = re.compile(r"^(?:[a-z]*ccl2?|gloo|mpi|ucc|_?c10d(?:_functional\w*)?|symm_mem):{1,2}")
_PAIR = re.compile(r"(\d+)\s*(->|<-)\s*(\d+)\s*$")

_MAX_SEEN = 1 << 12
"""Spellings that are remembered; a file may have as many as calls."""


class C10dOp(Struct, frozen=True):
    """A torch.distributed operator: operation, positions of its arguments, kind of its gloo worker span."""

    op: str
    input: int | None = None
    output: int | None = None
    peer: int | None = None
    worker: str | None = None
    in_splits: int | None = None
    out_splits: int | None = None


class DType(Struct, frozen=True):
    """An element type: c10 name and size in bytes."""

    name: str
    bytes: int


class Vocabulary(Struct):
    """Look-up tables; `ops` by squashed spelling → (operation, moves data), `dtypes` by lower-case spelling."""

    ops: dict[str, tuple[str, bool]] = field(default_factory=dict)
    c10d: dict[str, C10dOp] = field(default_factory=dict)
    dtypes: dict[str, DType] = field(default_factory=dict)
    wrappers: list[tuple[re.Pattern[str], str]] = field(default_factory=list)
    _seen: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def op(self, raw: str) -> tuple[str, bool]:
        """(operation, moves data) of any spelling; an unknown spelling keeps its own name."""
        found = self._seen.get(raw)
        if found is None:
            text = _PAIR.sub("", _PREFIX.sub("", raw.strip())).strip()
            found = self.ops.get(squash(text)) or (text or "unknown", True)
            if len(self._seen) < _MAX_SEEN:
                self._seen[raw] = found
        return found

    def knows(self, raw: str) -> bool:
        """True for a spelling that is in the tables."""
        return squash(_PAIR.sub("", _PREFIX.sub("", raw.strip()))) in self.ops

    def wrapper(self, name: str) -> str | None:
        """Operation of an engine's communication operator; None for any other operator."""
        for pattern, op in self.wrappers:
            if pattern.search(name):
                return op
        return None

    def dtype(self, spelling: str | None) -> DType | None:
        """Element type of a c10 or C++ spelling."""
        return self.dtypes.get(spelling.lower()) if spelling else None


def squash(text: str) -> str:
    """Spelling without case and underscores."""
    return text.replace("_", "").lower()


def pair(annotation: str) -> tuple[int, int] | None:
    """(own, peer) group ranks of `nccl:send 0->1` or `nccl:recv 1<-0`."""
    found = _PAIR.search(annotation)
    return (int(found[1]), int(found[3])) if found else None


def nelems(dims: Any) -> int | None:
    """Elements of one recorded argument: a tensor's dims, or a list of them; None when not recorded.

    Inside a list an empty shape is a tensor without dimensions: one element.
    """
    if not isinstance(dims, list) or not dims:
        return None
    if all(isinstance(d, int) for d in dims):
        return reduce(mul, dims, 1)
    if all(isinstance(d, list) for d in dims):
        parts = [1 if d == [] else nelems(d) for d in dims]
        known = [p for p in parts if p is not None]
        return sum(known) if len(known) == len(parts) else None
    return None

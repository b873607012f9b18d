"""Calls of one rank that are equal in nearly everything: what is asked of all of them is asked of one."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.model import Call

SHARED = (
    "device", "op", "op_raw", "group_name", "group_desc", "group_size", "src_rank", "dst_rank", "in_nelems",
    "out_nelems", "dtype", "payload_bytes", "stream", "n_activities", "kernel", "family",
    "algorithm", "protocol", "channels", "frame", "witness",
)  # fmt: skip
"""Fields in which calls of a kind are equal, beside members, scopes, label, link and sources."""


class CallKinds(Struct):
    """One call of each kind, in order of first appearance; `which`: int64 kind of each of `calls`."""

    examples: list[Call]
    which: NDArray[np.int64]
    calls: Sequence[Call]
    _numbers: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def numbers(self, name: str) -> NDArray[np.int64]:
        """A field of all calls, a time or a position; `NO_TIME` = None, or beyond any clock."""
        if name not in self._numbers:
            values = list(map(attrgetter(name), self.calls))
            if None in values:
                values = [NO_TIME if v is None else v for v in values]
            try:
                self._numbers[name] = np.array(values, np.int64)
            except OverflowError:
                self._numbers[name] = np.array([v if abs(v) < 1 << 63 else NO_TIME for v in values], np.int64)
        return self._numbers[name]


def call_kinds(calls: Sequence[Call]) -> CallKinds:
    """Sort calls by kind. Members, scopes and labels of equal calls are one object each: their identity will do."""
    kinds: dict[tuple[object, ...], int] = {}
    examples: list[Call] = []
    which = np.empty(len(calls), np.int64)
    objects = (map(id, map(attrgetter(name), calls)) for name in ("members", "scopes", "label"))
    rest = map(attrgetter("link", "sources", *SHARED), calls)
    for i, key in enumerate(zip(*objects, rest, strict=True)):
        which[i] = kind = kinds.setdefault(key, len(examples))
        if kind == len(examples):
            examples.append(calls[i])
    return CallKinds(examples, which, calls)

"""Calls of one rank that are equal in nearly everything: what is asked of all of them is asked of one."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

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
    """One call of each kind, in order of first appearance; `which`: int64 kind of each call."""

    examples: list[Call]
    which: NDArray[np.int64]


def call_kinds(calls: Sequence[Call]) -> CallKinds:
    """Sort calls by kind. Members, scopes and labels of equal calls are one object each: their identity will do."""
    kinds: dict[tuple[object, ...], int] = {}
    examples: list[Call] = []
    which = np.empty(len(calls), np.int64)
    rest = attrgetter(*SHARED)
    for i, c in enumerate(calls):
        kind = kinds.setdefault((id(c.members), id(c.scopes), id(c.label), c.link, c.sources, rest(c)), len(examples))
        which[i] = kind
        if kind == len(examples):
            examples.append(c)
    return CallKinds(examples, which)

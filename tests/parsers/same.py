"""Equality of parsed traces, array by array."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np


def assert_same(a: Any, b: Any) -> None:
    """All that analysis reads is equal: columns, names, tracks, records, counts, health."""
    for part in ("host", "device", "annotations"):
        for f in fields(getattr(a, part)):
            one, two = getattr(getattr(a, part), f.name), getattr(getattr(b, part), f.name)
            assert one.dtype == two.dtype, (part, f.name)
            assert np.array_equal(one, two), (part, f.name)
    assert a.names == b.names
    assert a.tracks == b.tracks
    assert a.comm == b.comm
    assert a.event_counts == b.event_counts
    assert a.window_ns == b.window_ns
    assert a.health == b.health

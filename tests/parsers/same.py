"""Equality of parsed traces, array by array."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_same(a: Any, b: Any) -> None:
    """All that analysis reads is equal: columns, names, tracks, records, counts, health."""
    for part in ("host", "device", "annotations"):
        for name in getattr(a, part).__struct_fields__:
            one, two = getattr(getattr(a, part), name), getattr(getattr(b, part), name)
            assert one.dtype == two.dtype, (part, name)
            assert np.array_equal(one, two), (part, name)
    assert a.names == b.names
    assert a.tracks == b.tracks
    assert a.comm == b.comm
    assert a.event_counts == b.event_counts
    assert a.window_ns == b.window_ns
    assert a.health == b.health

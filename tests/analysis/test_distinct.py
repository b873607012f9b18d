"""Distinct rows, against numpy's own."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.analysis.distinct import distinct_rows


@pytest.mark.parametrize("n", [0, 1, 2, 500])
def test_equals_unique_over_rows(n: int) -> None:
    rng = np.random.default_rng(n)
    columns = [rng.integers(-2, 2, n), np.full(n, np.iinfo(np.int64).min), rng.integers(0, 3, n) * (1 << 60)]
    values, which = distinct_rows(columns)
    expected, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    assert values.tolist() == expected.tolist()
    assert which.tolist() == inverse.reshape(-1).tolist()

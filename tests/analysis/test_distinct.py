"""Distinct rows, against numpy's own."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.analysis.distinct import distinct_rows, distinct_values, order_of, within


@pytest.mark.parametrize("n", [0, 1, 2, 500])
def test_equals_unique_over_rows(n: int) -> None:
    rng = np.random.default_rng(n)
    columns = [rng.integers(-2, 2, n), np.full(n, np.iinfo(np.int64).min), rng.integers(0, 3, n) * (1 << 60)]
    values, which = distinct_rows(columns)
    expected, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    assert values.tolist() == expected.tolist()
    assert which.tolist() == inverse.reshape(-1).tolist()


@pytest.mark.parametrize("seed", range(40))
def test_columns_as_wide_as_int64_are_not_packed_into_wrong_keys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    pools = ([low, high, 0], [0, 1, 2], [low, 5], [-1, 1 << 40], [7], [1 << 62, -(1 << 62)], [0, 1 << 31, 1 << 32])
    columns = [rng.choice(np.array(pools[i], np.int64), 30) for i in rng.integers(0, len(pools), 4).tolist()]
    values, which = distinct_rows(columns)
    rows = [tuple(row) for row in np.stack(columns, axis=1).tolist()]
    assert [tuple(row) for row in values.tolist()] == sorted(set(rows))
    assert [tuple(row) for row in values[which].tolist()] == rows


@pytest.mark.parametrize(
    ("few", "bits", "n"), [(1, 1, 5), (40, 30, 500), (300, 60, 2000), (100_000, 40, 100_000), (9, 63, 0)]
)
def test_values_as_unique_tells_them_apart(few: int, bits: int, n: int) -> None:
    rng = np.random.default_rng(few)
    values = rng.choice(rng.integers(0, (1 << bits) - 1, few, np.int64, endpoint=True), n)
    found, which = distinct_values(values)
    expected, inverse = np.unique(values, return_inverse=True)
    assert found.tolist() == expected.tolist()
    assert which.tolist() == inverse.tolist()


@pytest.mark.parametrize("bits", [1, 20, 62])
def test_orders_as_numpy_has_them(bits: int) -> None:
    rng = np.random.default_rng(bits)
    values, key = rng.integers(0, 1 << bits, 300), rng.integers(0, 9, 300)
    assert order_of(values).tolist() == np.argsort(values, kind="stable").tolist()
    assert within(key, values).tolist() == values[np.lexsort((values, key))].tolist()
    assert order_of(-values).tolist() == np.argsort(-values, kind="stable").tolist()
    assert within(key, -values).tolist() == (-values)[np.lexsort((-values, key))].tolist()
    assert order_of(values[:0]).tolist() == within(key[:0], values[:0]).tolist() == []

"""Columns → Arrow, without pandas in between."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tracekit.analysis.tables import build, constant, encoded, from_list, from_numpy, from_rows, to_rows
from tracekit.model import TABLES, arrow_schema


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, None, -3], pa.int32()),
        ([2**63 - 1, -(2**63), None], pa.int64()),
        ([2**64 - 1, 0, None], pa.uint64()),
        ([0.5, None, -1.25], pa.float64()),
        ([True, False, None, True, True, False, True, False, True], pa.bool_()),
        (["a", None, "", "ünïcode ✓"], pa.string()),
        ([], pa.int64()),
        ([], pa.string()),
        ([None, None], pa.int32()),
    ],
)
def test_lists_come_back(values: list[object], type_: pa.DataType) -> None:
    array = from_list(values, type_)
    array.validate(full=True)
    assert array.type == type_
    assert array.to_pylist() == values


def test_numbers_that_fit_no_column_become_null() -> None:
    assert from_list([2**31, 5, -(2**31) - 1], pa.int32()).to_pylist() == [None, 5, None]
    assert from_list([-1, 2**64], pa.uint64()).to_pylist() == [None, None]


def test_text_that_is_no_unicode_is_replaced() -> None:
    array = from_list(["a\udc80b"], pa.string())
    array.validate(full=True)
    assert array.to_pylist() == ["a?b"]


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 64])
def test_numpy_with_missing_values(n: int) -> None:
    values = np.arange(n, dtype=np.int64)
    missing = values % 3 == 0
    array = from_numpy(values, pa.int32(), missing)
    array.validate(full=True)
    assert array.to_pylist() == [None if v % 3 == 0 else v for v in range(n)]
    assert array.null_count == int(missing.sum())


def test_dictionaries_hold_the_names_in_use() -> None:
    codes = np.array([4, 1, 4, -1], np.int32)
    array = encoded(codes, ["a", "b", "c", "d", "e"], codes < 0)
    assert array.to_pylist() == ["e", "b", "e", None]
    assert array.dictionary.to_pylist() == ["b", "e"]
    assert encoded(np.empty(0, np.int32), []).to_pylist() == []


def test_constants() -> None:
    assert constant(7, 3, pa.int32()).to_pylist() == [7, 7, 7]
    assert constant(None, 2, pa.int32()).to_pylist() == [None, None]


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_table_can_be_empty(name: str) -> None:
    table = from_rows(name, [])
    assert table.schema.equals(arrow_schema(name))
    assert table.num_rows == 0


def test_missing_keys_are_null_and_strings_share_a_dictionary() -> None:
    table = from_rows("health", [{"source": "a", "severity": "info", "reason": "r", "count": 2}] * 2)
    assert table.column("rank").to_pylist() == [None, None]
    assert table.column("severity").chunk(0).dictionary.to_pylist() == ["info"]


def test_columns_come_in_schema_order() -> None:
    columns = {"reason": ["r"], "count": [1], "example": [None], "severity": ["lost"], "source": ["f"], "rank": [0]}
    assert build("health", columns).column_names == arrow_schema("health").names


def test_rows_of_a_table_are_what_arrow_gives_for_any_slice() -> None:
    words = pa.array(["a", None, "b", "a", None, "c"]).dictionary_encode()
    numbers = pa.array([1, None, 3, None, -5, 6], pa.int64())
    data = pa.table({"w": words, "n": numbers, "s": pa.array([7, 8, None, 1, 2, 3], pa.int8()), "x": [0.5, None] * 3})
    for at in range(6):
        for n in range(6):
            part = pa.concat_tables([data.slice(at, n), data.slice(n)]).unify_dictionaries()
            assert to_rows(part) == part.to_pylist()


def test_a_name_that_stands_twice_is_one_word_of_the_dictionary() -> None:
    codes, missing = np.array([0, 2, 3, 1, 0], np.int32), np.array([False, False, False, True, False])
    array = encoded(codes, ["a", "unused", "b", "a"], missing)
    assert array.to_pylist() == ["a", "b", "a", None, "a"]
    assert array.dictionary.to_pylist() == ["a", "b"]

"""Arrow columns → numpy: nulls, slices, chunks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tracekit.analysis.arrays import codes_of, flags_of, numbers_of, plain
from tracekit.model import NO_TIME


@pytest.mark.parametrize("type_", [pa.int32(), pa.int64()])
@pytest.mark.parametrize(("first", "last"), [(0, 20), (3, 20), (9, 11), (5, 5)])
def test_a_slice_of_a_column_gives_its_own_values_and_nulls(type_: pa.DataType, first: int, last: int) -> None:
    values = [None if i % 3 == 1 else i - 5 for i in range(20)]
    column = pa.chunked_array([pa.array(values[:11], type_), pa.array(values[11:], type_)]).slice(first, last - first)
    expected = [NO_TIME if v is None else v for v in values[first:last]]
    assert numbers_of(column).tolist() == expected
    found, present = plain(column, np.dtype(str(type_)))
    assert found[present].tolist() == [v for v in values[first:last] if v is not None]


def test_a_column_without_rows_or_chunks_is_empty() -> None:
    assert numbers_of(pa.chunked_array([], pa.int64())).tolist() == []
    assert codes_of(pa.chunked_array([], pa.dictionary(pa.int32(), pa.string())))[1] == []


def test_words_of_a_slice_are_known_by_their_codes() -> None:
    column = pa.chunked_array([pa.array(["b", None, "a", "b"]).dictionary_encode().slice(1)])
    codes, words = codes_of(column)
    assert [None if c < 0 else words[c] for c in codes.tolist()] == [None, "a", "b"]


def test_words_of_several_chunks_are_all_there() -> None:
    parts = [pa.array(words).dictionary_encode() for words in (["b", None, "a"], ["c", "b"], ["a", None])]
    codes, words = codes_of(pa.chunked_array(parts))
    assert [None if c < 0 else words[c] for c in codes.tolist()] == ["b", None, "a", "c", "b", "a", None]


def test_flags_of_slices_and_of_nothing() -> None:
    flags = pa.array([i % 3 == 0 for i in range(20)])
    empty = pa.Array.from_buffers(pa.bool_(), 0, [None, None])
    column = pa.chunked_array([flags.slice(3, 10), empty, flags.slice(17)])
    assert flags_of(column).tolist() == column.to_pylist()
    assert flags_of(pa.chunked_array([], pa.bool_())).tolist() == []

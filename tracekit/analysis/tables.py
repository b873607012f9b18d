"""Columns → Arrow tables with the published schemas, without importing pandas."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tracekit.analysis.arrays import plain_of
from tracekit.model import TABLES, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray


def from_numpy(values: NDArray[Any], type_: pa.DataType, missing: NDArray[np.bool_] | None = None) -> pa.Array[Any]:
    """Arrow array over the numpy buffer; `missing` marks nulls. (pa.array would import pandas.)"""
    plain = np.ascontiguousarray(values, dtype=np.dtype(_NUMPY[str(type_)]))
    bitmap, nulls = _bitmap(missing)
    return pa.Array.from_buffers(type_, len(plain), [bitmap, pa.py_buffer(plain.data)], nulls)


def _bitmap(missing: NDArray[np.bool_] | None) -> tuple[pa.Buffer | None, int]:
    """Arrow validity bitmap and number of nulls."""
    nulls = 0 if missing is None else int(missing.sum())
    if missing is None or not nulls:
        return None, 0
    return pa.py_buffer(np.packbits(~missing, bitorder="little").tobytes()), nulls


_NUMPY = {
    "int8": "int8", "int32": "int32", "int64": "int64", "uint64": "uint64", "double": "float64",
    "timestamp[ns, tz=UTC]": "int64",
}  # fmt: skip


def from_text(values: Sequence[str | None]) -> pa.Array[Any]:
    """String array from Python strings."""
    data = [(v or "").encode("utf-8", "replace") for v in values]
    offsets = np.zeros(len(data) + 1, np.int32)
    np.cumsum([len(d) for d in data], out=offsets[1:])
    missing = np.array([v is None for v in values], np.bool_)
    bitmap, nulls = _bitmap(missing)
    return pa.Array.from_buffers(
        pa.string(), len(data), [bitmap, pa.py_buffer(offsets.data), pa.py_buffer(b"".join(data))], nulls
    )


def from_list(values: Sequence[Any], type_: pa.DataType) -> pa.Array[Any]:
    """Arrow array from Python numbers, booleans or strings, None = null.

    A damaged file can hold numbers beyond any type; those that do not fit the column become null.
    """
    if pa.types.is_string(type_):
        return from_text(values)
    if pa.types.is_boolean(type_):
        objects, missing = _objects(values)
        bits = np.packbits(objects.astype(np.bool_), bitorder="little")
        bitmap, nulls = _bitmap(missing)
        return pa.Array.from_buffers(type_, len(values), [bitmap, pa.py_buffer(bits.tobytes())], nulls)
    plain, missing = _numbers(values, np.dtype(_NUMPY[str(type_)]))
    return from_numpy(plain, type_, missing)


def _objects(values: Sequence[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The values with 0 for None, and where that is."""
    objects = np.fromiter(values, object, len(values))
    missing: NDArray[np.bool_] = (objects == None).astype(np.bool_)  # noqa: E711  (elementwise)
    objects[missing] = 0
    return objects, missing


def _numbers(values: Sequence[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """(numbers, which are missing or do not fit)."""
    gone = values.count(None)
    if gone == len(values):
        return np.zeros(gone, dtype), np.ones(gone, np.bool_)
    if not gone and dtype == np.uint64 and min(values) >= 0 and max(values) < 1 << 64:
        return np.fromiter(values, dtype, len(values)), np.zeros(len(values), np.bool_)
    objects, missing = _objects(values)
    if dtype.kind == "f":
        return objects.astype(dtype), missing
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    try:
        plain = objects.astype(np.int64)
        misfit = (plain < low) | (plain > high)
    except OverflowError:  # uint64 ids, and numbers beyond any type
        misfit = np.array([v is not None and not low <= v <= high for v in values], np.bool_)
        kept = zip(values, (missing | misfit).tolist(), strict=True)
        plain = np.fromiter((0 if m else v for v, m in kept), dtype, len(values))
    return np.where(misfit, 0, plain), missing | misfit


def spread(values: Sequence[Any], which: NDArray[np.int64], type_: pa.DataType) -> pa.Array[Any]:
    """values[which] as an array of numbers or words, for rows that share few values."""
    if pa.types.is_dictionary(type_):
        return _words(values, which)
    plain, missing = _numbers(values, np.dtype(_NUMPY[str(type_)]))
    return from_numpy(plain[which], type_, missing[which])


def encoded(codes: NDArray[np.int32], names: Sequence[str], missing: NDArray[np.bool_] | None = None) -> pa.Array[Any]:
    """Dictionary array of the names in use: codes are renumbered, so that no name is stored unused or twice."""
    own = codes if missing is None else codes[~missing]
    seen = np.zeros(len(names), np.bool_)
    seen[own] = True
    used = np.flatnonzero(seen)
    number: dict[str, int] = {}
    dense = np.zeros(len(names), np.int32)
    dense[used] = [number.setdefault(names[c], len(number)) for c in used.tolist()]
    full = np.zeros(len(codes), np.int32)
    full[slice(None) if missing is None else ~missing] = dense[own]
    return pa.DictionaryArray.from_arrays(from_numpy(full, pa.int32(), missing), from_text(list(number)))


def from_words(values: Sequence[str | None]) -> pa.Array[Any]:
    """Dictionary array from Python strings."""
    return _words(values, None)


def _words(values: Sequence[str | None], which: NDArray[np.int64] | None) -> pa.Array[Any]:
    words = [w for w in dict.fromkeys(values) if w is not None]
    number: dict[str | None, int] = {w: i for i, w in enumerate(words)} | {None: -1}
    codes = np.fromiter(map(number.__getitem__, values), np.int32, len(values))
    if which is not None:
        codes = codes[which]
    missing = codes < 0
    codes[missing] = 0
    return pa.DictionaryArray.from_arrays(from_numpy(codes, pa.int32(), missing), from_text(words))


def build(table: str, columns: Mapping[str, Sequence[Any] | pa.Array[Any]]) -> pa.Table:
    """Published table from plain lists (or ready Arrow arrays), in schema order."""
    schema = arrow_schema(table)
    arrays = []
    for column in TABLES[table].columns:
        values = columns[column.name]
        if isinstance(values, pa.Array):
            arrays.append(values)
        elif column.type == "dict":
            arrays.append(from_words(values))
        else:
            arrays.append(from_list(values, schema.field(column.name).type))
    return pa.Table.from_arrays(arrays, schema=schema)


def from_rows(table: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Published table from row dictionaries; a missing key is null."""
    rows = list(rows)
    if not rows:
        return pa.Table.from_batches([], arrow_schema(table))
    names = [c.name for c in TABLES[table].columns]
    try:
        columns = dict(zip(names, zip(*map(itemgetter(*names), rows), strict=True), strict=True))
    except KeyError:
        return build(table, {name: [r.get(name) for r in rows] for name in names})
    return build(table, columns)


def to_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Row dictionaries of a table; null = None. (`to_pylist` makes an object a value on the way.)"""
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in zip(*map(_values, table.columns), strict=True)]


def _values(column: pa.ChunkedArray[Any]) -> list[Any]:
    out: list[Any] = []
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            words = [*chunk.dictionary.to_pylist(), None]
            codes, present = plain_of(chunk.indices, np.dtype(_NUMPY[str(chunk.indices.type)]))
            codes[~present] = len(words) - 1
            out += map(words.__getitem__, codes.tolist())
        elif pa.types.is_integer(chunk.type):
            numbers, present = plain_of(chunk, np.dtype(_NUMPY[str(chunk.type)]))
            values = numbers.tolist()
            for i in np.flatnonzero(~present).tolist():
                values[i] = None
            out += values
        else:
            out += chunk.to_pylist()
    return out


def constant(value: int | None, n: int, type_: pa.DataType) -> pa.Array[Any]:
    """n times the same integer, or n nulls."""
    missing = np.ones(n, np.bool_) if value is None else None
    return from_numpy(np.full(n, value or 0, np.int64), type_, missing)

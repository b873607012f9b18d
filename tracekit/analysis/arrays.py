"""Arrow columns → numpy arrays, without importing pandas (as Arrow's own `to_numpy` and `fill_null` do)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray


def spill(data: pa.Table, path: str) -> None:
    """Leave a table on disk for `mapped`."""
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data)


def mapped(path: str) -> pa.Table:
    """A table that `spill` left, memory-mapped: columns that nobody looks at are not read.

    A stream, since Arrow starts threads to open its other format, and a process with threads is not forked.
    """
    with pa.memory_map(path) as source:
        return pa.ipc.open_stream(source).read_all()


def plain(column: pa.ChunkedArray[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """(values, presence) of a number column, copied out of the file; nulls hold anything."""
    parts = [plain_of(chunk, dtype) for chunk in column.chunks]
    if len(parts) == 1:
        return parts[0]
    values, present = (
        [np.empty(0, kind), *(p[i] for p in parts)] for i, kind in enumerate((dtype, np.dtype(np.bool_)))
    )
    return np.concatenate(values), np.concatenate(present)


def plain_of(chunk: pa.Array[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The same of one chunk."""
    return view_of(chunk, dtype).copy(), _present(chunk)


def view_of(chunk: pa.Array[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The numbers of a chunk where they lie, read-only; nulls hold anything."""
    data, n, at = chunk.buffers()[1], len(chunk), chunk.offset
    return np.frombuffer(data, dtype, at + n)[at:] if data is not None else np.zeros(n, dtype)


def _present(chunk: pa.Array[Any]) -> NDArray[np.bool_]:
    validity = chunk.buffers()[0] if chunk.null_count else None
    return np.ones(len(chunk), np.bool_) if validity is None else _bits(validity, chunk)


def _bits(data: pa.Buffer, chunk: pa.Array[Any]) -> NDArray[np.bool_]:
    """A buffer with a bit a row of a chunk."""
    n, at = len(chunk), chunk.offset
    return np.unpackbits(np.frombuffer(data, np.uint8), count=at + n, bitorder="little")[at:].astype(np.bool_)


def view(column: pa.ChunkedArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A number column without nulls, where it lies in the file if it is in one piece."""
    parts = [view_of(chunk, dtype) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])


def numbers_of(column: pa.ChunkedArray[Any]) -> NDArray[np.int64]:
    """An integer column as int64; null = `NO_TIME`."""
    dtype = np.dtype(np.int32 if column.type == pa.int32() else np.int64)
    parts = [_filled(chunk, dtype) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])


def _filled(chunk: pa.Array[Any], dtype: np.dtype[Any]) -> NDArray[np.int64]:
    values = view_of(chunk, dtype).astype(np.int64)
    if chunk.null_count:
        values[~_present(chunk)] = NO_TIME
    return values


def floats_of(column: pa.ChunkedArray[Any]) -> NDArray[np.float64]:
    """A float64 column; null = NaN."""
    values, present = plain(column, np.dtype(np.float64))
    values[~present] = np.nan
    return values


def flags_of(column: pa.ChunkedArray[Any]) -> NDArray[np.bool_]:
    """A column of truth values without nulls."""
    filled = [chunk for chunk in column.chunks if len(chunk)]  # an empty one may have no buffer
    return np.concatenate([np.empty(0, np.bool_), *(_bits(chunk.buffers()[1], chunk) for chunk in filled)])


def codes_of(column: pa.ChunkedArray[Any]) -> tuple[NDArray[np.int32], list[str]]:
    """(codes, words) of a dictionary column; null = -1."""
    if not column.num_chunks:
        return np.empty(0, np.int32), []
    chunk = column.chunk(0) if column.num_chunks == 1 else column.unify_dictionaries().combine_chunks()
    found = view_of(chunk.indices, np.dtype(np.int32)).copy()
    if chunk.null_count:
        found[~_present(chunk.indices)] = -1
    return found, [str(word) for word in chunk.dictionary.to_pylist()]

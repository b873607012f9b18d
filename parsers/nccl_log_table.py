"""A block of a log that holds calls of one shape of line only → columns, by Arrow's CSV reader (words are cells).

Most of a long log is such blocks; reading them this way costs a third of cutting each line in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

_MIN_LINES = 200
"""Below this many lines the set-up costs more than it saves."""
_MAX_CODE = 1 << 62


class Rows(NamedTuple):
    """Calls in order: number of the shape of line (int32), count (int64), opCount (int64), buffers (int32)."""

    shape: NDArray[np.int32]
    counts: NDArray[np.int64]
    op_count: NDArray[np.int64]
    buffers: NDArray[np.int32]


def is_pure(block: bytes) -> bool:
    """Whether every line of a block looks like the line of a call without a time."""
    lines = block.count(b"\n")
    if lines < _MIN_LINES or block[:2] == b"[2":
        return False
    return block.count(b": opCount ") == lines == block.count(b"CCL ")


def read(block: bytes, shape: Callable[[bytes, bytes], int], buffers: Callable[[bytes], int]) -> Rows | None:
    """Columns of a pure block (whole lines); None when its lines differ in form, so that each has to be looked at.

    shape(head, fixed) numbers what stands before ": opCount" and after the count; buffers(text) what stands between.
    Both may raise ValueError for what they cannot read: then the block is not of one form either.
    """
    words = block[: block.index(b"\n")].split(b" ")
    try:
        k, c = words.index(b"opCount"), words.index(b"count")
    except ValueError:
        return None
    head, tail, between = list(range(k)), _values(words, c), list(range(k + 3, c, 2))
    table = _table(block, len(words), [*head, k + 1, *between, *tail], c + 1)
    if table is None:
        return None
    try:
        codes, spelled = _combined(table, [*head, *tail])
        fixed = words[c + 2 :]
        numbers = []
        for cells in spelled:
            for i, cell in zip(tail, cells[k:], strict=True):
                fixed[i - c - 2] = cell
            numbers.append(shape(b" ".join(cells[:k]).removesuffix(b":"), b" ".join(fixed)))
        where, spelled = _combined(table, between)
        names = words[k + 2 : c : 2]
        places = [buffers(b" ".join(b for pair in zip(names, cells, strict=True) for b in pair)) for cells in spelled]
        op_count = _hexadecimal(table.column(str(k + 1)))
    except (ValueError, OverflowError):
        return None
    count: NDArray[np.int64] = table.column(str(c + 1)).to_numpy()
    return Rows(np.array(numbers, np.int32)[codes], count, op_count, np.array(places, np.int32)[where])


def _values(words: list[bytes], c: int) -> list[int]:
    """Places of the values after the count: every second word, but for `comm 0x… [nranks=8]`, which has two."""
    at = words.index(b"comm") if b"comm" in words[c:] else len(words)
    return [*range(c + 3, at, 2), *range(at + 1, min(at + 3, len(words))), *range(at + 4, len(words), 2)]


def _table(block: bytes, width: int, texts: list[int], number: int) -> pa.Table | None:
    import pyarrow as pa
    from pyarrow import csv

    text = pa.dictionary(pa.int32(), pa.string())
    types = {str(i): text for i in texts} | {str(number): pa.int64()}
    try:
        return csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(column_names=[str(i) for i in range(width)], use_threads=False, block_size=len(block) + 1),
            csv.ParseOptions(delimiter=" ", quote_char=False, escape_char=False, ignore_empty_lines=False),
            csv.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=False),
        )
    except pa.ArrowException:
        return None


def _combined(table: pa.Table, columns: list[int]) -> tuple[NDArray[np.int64], list[tuple[bytes, ...]]]:
    """Number of the combination of cells in each row, and the cells of each combination."""
    total = np.zeros(len(table), np.int64)
    size = 1
    indices, values = [], []
    for i in columns:
        cells = table.column(str(i)).combine_chunks()
        values.append([v.encode() for v in cells.dictionary.to_pylist()])
        indices.append(cells.indices.to_numpy())
        n = max(len(values[-1]), 1)
        size *= n
        if size > _MAX_CODE:
            raise OverflowError
        if n > 1:
            total *= n
            total += indices[-1]
    _, first, codes = np.unique(total, return_index=True, return_inverse=True)
    spelled = [[v[j] for j in at[first].tolist()] for v, at in zip(values, indices, strict=True)]
    return codes.reshape(-1), list(zip(*spelled, strict=True))


def _hexadecimal(column: pa.ChunkedArray) -> NDArray[np.int64]:
    cells = column.combine_chunks()
    values = np.array([int(text, 16) for text in cells.dictionary.to_pylist()], np.int64)
    out: NDArray[np.int64] = values[cells.indices.to_numpy()]
    return out

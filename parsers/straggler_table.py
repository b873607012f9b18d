"""Operation tables of whole jobs, in the layout of ByteDance's StragglerAnalysis → `OpRows`.

Two forms: the Parquet table (one row an operation, seconds) and the Chrome timeline made from it (without
the waiting inside transfers). Both are known by their content.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracekit.errors import BrokenInput, LimitExceeded, UnusableInput
from tracekit.model import HealthEntry, OpRows
from tracekit.parsers.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

COLUMNS = (
    "dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc",
)  # fmt: skip
MAX_ROWS = 20_000_000
MAX_JSON_BYTES = 2 << 30
_LIMITS = {"dp_rank": 1 << 20, "stage": 1 << 16, "seq_id": 1 << 24}
_THREAD = re.compile(r"PP rank (\d+), TP rank (\d+), (.+)")
_PROCESS = re.compile(r"DP rank \[?(\d+)\]?")
_FIX = "write the table again, or leave the file out"


def is_op_table(path: Path) -> bool:
    """Whether a Parquet file has the columns of an operation table; False for one that cannot be opened."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return set(COLUMNS) <= set(pq.read_schema(path).names)
    except (pa.ArrowException, OSError):
        return False


def parse(path: Path, *, strict: bool = False) -> OpRows:
    """Read one operation table. strict: refuse rows that cannot be used instead of counting them.

    Raises BrokenInput for a damaged file, LimitExceeded, UnusableInput when no row can be used.
    """
    source = Source(path)
    try:
        magic = source.read(4)
    finally:
        source.close()
    raw = _parquet(path) if magic == b"PAR1" else _timeline(path)
    return _checked(path, *raw, strict=strict)


def _parquet(path: Path) -> tuple[list[str], dict[str, NDArray[Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        if file.metadata.num_rows > MAX_ROWS:
            raise LimitExceeded(f"{path}: more than {MAX_ROWS:,} rows; split the table by steps")
        table = file.read(list(COLUMNS))
        words = table.column("optype").cast(pa.string()).combine_chunks().dictionary_encode()
    except (pa.ArrowException, OSError) as e:
        raise BrokenInput(f"{path}: the Parquet table cannot be read ({str(e)[:160]}); {_FIX}") from e
    columns = {}
    for name in COLUMNS:
        column = words.indices if name == "optype" else table.column(name)
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise BrokenInput(f"{path}: column {name} holds {column.type}, expected numbers; {_FIX}")
        columns[name] = column.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy()
    for name in ("start_ts", "duration"):
        columns[name] = columns[name] * 1e9
    return words.dictionary.to_pylist(), columns


class _Args(msgspec.Struct):
    name: str | None = None
    step: int | None = None
    model_chunk: int | None = None
    mb_id: int | None = None
    seq_id: int | None = None


class _Event(msgspec.Struct):
    ph: str
    name: str = ""
    pid: int = -1
    tid: int = -1
    ts: float = 0.0
    dur: float = 0.0
    args: _Args | None = None


class _Document(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815 - the file's spelling


def _timeline(path: Path) -> tuple[list[str], dict[str, NDArray[Any]]]:
    data = _text(path)
    try:
        if data.lstrip()[:1] == b"[":
            events = msgspec.json.decode(data, type=list[_Event])
        else:
            events = msgspec.json.decode(data, type=_Document).traceEvents
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise BrokenInput(f"{path}: the timeline is not whole ({str(e)[:160]}); {_FIX}") from e
    place = _places(path, events)
    spans = [(e, e.args or _Args()) for e in events if e.ph == "X"]
    number: dict[str, int] = {}

    def column(value: Callable[[_Event, _Args], float | None]) -> NDArray[np.float64]:
        found = (value(e, a) for e, a in spans)
        return np.array([np.nan if v is None else v for v in found], np.float64)

    columns = {
        "dp_rank": column(lambda e, _: place(e)[0]),
        "stage": column(lambda e, _: place(e)[1]),
        "rank": column(lambda e, _: place(e)[2]),
        "step": column(lambda _, a: a.step),
        "optype": column(lambda e, _: number.setdefault(e.name, len(number))),
        "start_ts": column(lambda e, _: e.ts * 1e3),
        "duration": column(lambda e, _: e.dur * 1e3),
        "seq_id": column(lambda _, a: a.seq_id),
        "mc": column(lambda _, a: -1 if a.model_chunk is None else a.model_chunk),
        "mb_id": column(lambda _, a: -1 if a.mb_id is None else a.mb_id),
        "gmc": column(lambda _, __: -1),
    }
    return list(number), columns


def _text(path: Path) -> bytes:
    source = Source(path)
    parts: list[bytes] = []
    try:
        while more := source.read(4 << 20):
            parts.append(more)
            if source.read_bytes > MAX_JSON_BYTES:
                raise LimitExceeded(f"{path}: a timeline of more than {MAX_JSON_BYTES:,} bytes; pass the Parquet table")
        if source.damage:
            raise BrokenInput(f"{path}: {source.damage}; {_FIX}")
    finally:
        source.close()
    return b"".join(parts)


def _places(path: Path, events: list[_Event]) -> Callable[[_Event], tuple[int, int, int]]:
    """(DP rank, stage, global rank or -1) of a span, from the names of its process and thread."""
    named = [(e, (e.args and e.args.name) or "") for e in events if e.ph == "M"]
    data_ranks = {e.pid: int(m[1]) for e, text in named if e.name == "process_name" and (m := _PROCESS.match(text))}
    threads = {
        (e.pid, e.tid): (int(m[1]), m[3]) for e, text in named if e.name == "thread_name" and (m := _THREAD.match(text))
    }
    if not threads:
        raise UnusableInput(f"{path}: no thread is named 'PP rank N, TP rank N, …', so no stage is known; {_FIX}")
    kinds = len({kind for _, kind in threads.values()})  # the writer numbers threads rank x kinds + kind
    workers = {tid // kinds: (pid, stage) for (pid, tid), (stage, _) in threads.items()}
    whole = all(workers[tid // kinds] == (pid, stage) for (pid, tid), (stage, _) in threads.items())

    def place(event: _Event) -> tuple[int, int, int]:
        stage = threads.get((event.pid, event.tid), (-1, ""))[0]
        return data_ranks.get(event.pid, event.pid), stage, event.tid // kinds if whole else -1

    return place


def _checked(path: Path, ops: list[str], columns: dict[str, NDArray[Any]], *, strict: bool) -> OpRows:
    """Numbers in their types; rows that cannot be placed in space or time are counted and left out."""
    health: list[HealthEntry] = []
    good = np.ones(len(columns["step"]), np.bool_)
    for reason, bad in _faults(columns):
        bad &= good
        if not bad.any():
            continue
        at = int(bad.argmax())
        if strict:
            raise BrokenInput(f"{path}: row {at}: {reason}; read without --strict to leave such rows out")
        health.append(HealthEntry(reason, int(bad.sum()), "lost", f"row {at}"))
        good &= ~bad
    if not good.any():
        raise UnusableInput(f"{path}: no row of the operation table can be used; {_FIX}")

    def whole(name: str, type_: type[np.signedinteger[Any]] = np.int32) -> NDArray[Any]:
        rounded: NDArray[Any] = np.rint(columns[name][good]).astype(type_)
        return rounded

    optional = {n: np.where(np.abs(columns[n]) < 1 << 30, columns[n], -1) for n in ("rank", "mc", "mb_id", "gmc")}
    columns = columns | optional
    return OpRows(
        str(path), ops, whole("dp_rank"), whole("stage"), whole("rank"), whole("step", np.int64), whole("optype"),
        whole("start_ts", np.int64), whole("duration", np.int64), whole("seq_id"), whole("mc"), whole("mb_id"),
        whole("gmc"), health,
    )  # fmt: skip


def _faults(columns: dict[str, NDArray[Any]]) -> list[tuple[str, NDArray[np.bool_]]]:
    out = []
    for name, limit in _LIMITS.items():
        column = columns[name]
        out.append((f"operation without a possible {name}", ~((column >= 0) & (column < limit))))
    out.append(("operation without a step", ~(np.abs(columns["step"]) < 1 << 52)))
    out.append(("operation without a type", ~(columns["optype"] >= 0)))
    times = columns["start_ts"], columns["duration"]
    out.append(("operation without a possible time", ~((np.abs(times[0]) < 1 << 60) & (np.abs(times[1]) < 1 << 60))))
    out.append(("operation that ends before it starts", times[1] < 0))
    return out

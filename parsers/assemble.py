"""Finished columns of one document → one `RankTrace` a process, in canonical order.

Names and tracks are numbered in sorted order and communication records in row order, so that the
result does not depend on chunks, layout or the order of events in the file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracekit.model import (
    DeviceAnnotations,
    DeviceRows,
    HealthEntry,
    HostCat,
    HostRows,
    RankTrace,
    TraceMeta,
    Track,
)
from tracekit.parsers.convert import as_int

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.parsers.columns import Column, Columns
    from tracekit.parsers.comm import Records

    Table = dict[str, NDArray[Any]]

_PROCESS = re.compile(r"(\[[^\[\]]*\d[^\[\]]*\])\s*(.*)", re.DOTALL)
_COORDINATE = re.compile(r"([A-Za-z]+)[-_ ]?(\d+)")
_LABEL = re.compile(r"(?:GPU|XPU|HPU|MTIA|NPU|Device)\s*(\d+)", re.IGNORECASE)
_GENERIC_THREAD = re.compile(r"thread \S+ \((.*)\)", re.DOTALL)
_WEAK_NAMES = frozenset({"python", "python3", "pt_main_thread", ""})
OVERRUN_NS = 1_000_000_000
OVERRUN_ROWS = 200
STRAY_ZERO_NS = 3_600 * 10**9
"""A device row at time 0 whose neighbours are an hour later has lost its time stamp."""

# Sort keys behind the time, most significant first; "-" means descending.
_HOST_ORDER = ("-dur", "track", "name", "cat", "ext", "corr")
_DEVICE_ORDER = ("device", "stream", "dur", "name", "cls", "corr", "ext", "nbytes")
_NOTE_ORDER = ("device", "stream", "dur", "name", "ext")


class Tables(Struct):
    """Columns of one process: host, device and annotation rows, by the field names of the model."""

    host: Table
    device: Table
    notes: Table


def process_of(pid: Any) -> tuple[str, str]:
    """(process prefix, rest) of a pid: merged files write "[TP00-PP01] 83"."""
    found = _PROCESS.fullmatch(pid) if isinstance(pid, str) else None
    return (found[1], found[2]) if found else ("", str(pid))


def _taken(columns: dict[str, Column]) -> Table:
    return {field: column.take() for field, column in columns.items()}


def _take(table: Table, rows: NDArray[Any]) -> Table:
    return {k: v[rows] for k, v in table.items()}


def _work(host: Table) -> Table:
    """Host rows without Python frames: which of them are kept must not change window or health."""
    frames = host["cat"] == HostCat.PYTHON
    return _take(host, ~frames) if frames.any() else host


def _move(table: Table, rows: NDArray[Any]) -> Table:
    """As `_take`, but each old column goes as its successor comes, to keep the peak low."""
    return {k: table.pop(k)[rows] for k in list(table)}


def _sort(table: Table, keys: tuple[str, ...]) -> NDArray[np.int64]:
    """Order by ts, then the keys. Few rows share a time stamp: only those are sorted by all keys."""
    order = np.argsort(table["ts"], kind="stable")
    ts = table["ts"][order]
    same = ts[1:] == ts[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    if len(tied):
        rows = order[tied]
        values = [-table[k[1:]][rows] if k[0] == "-" else table[k][rows] for k in reversed(keys)]
        order[tied] = rows[np.lexsort((*values, table["ts"][rows]))]
    return order


def _canonical(values: list[Any]) -> tuple[list[Any], NDArray[np.int32]]:
    """Sorted values, and the new code of each old one."""
    order = sorted(range(len(values)), key=values.__getitem__)
    codes = np.empty(len(values), np.int32)
    codes[order] = np.arange(len(values), dtype=np.int32)
    return [values[i] for i in order], codes


def _names(c: Columns, tables: Tables) -> list[str]:
    names, codes = _canonical(list(c.names))
    for table in (tables.host, tables.device, tables.notes):
        table["name"] = codes[table["name"]] if len(codes) else table["name"]
    return names


def _tracks(c: Columns, host: Table) -> tuple[list[Track], list[str]]:
    """All tracks with their best thread name, and the process prefix of each."""
    spelled = [(*process_of(pid), str(tid), str(pid)) for pid, tid in c.tracks]
    ordered, codes = _canonical(sorted(set(spelled)))
    position = {key: int(code) for key, code in zip(ordered, codes, strict=True)}
    lookup = np.array([position[key] for key in spelled], np.int32)
    host["track"] = lookup[host["track"]] if len(lookup) else host["track"]
    tracks = [Track(rest, tid, _best_name(c.thread_names.get((pid, tid), set()))) for _, rest, tid, pid in ordered]
    return tracks, [prefix for prefix, *_ in ordered]


def _best_name(names: set[str]) -> str | None:
    """Writers name a thread several times; the specific (longest) name beats "python"."""
    inner = [found[1] if (found := _GENERIC_THREAD.fullmatch(n)) else n for n in names]
    return min(inner, key=lambda n: (n in _WEAK_NAMES, -len(n), n), default=None)


def _places(c: Columns, tables: Tables) -> tuple[list[str], NDArray[np.int32], NDArray[np.int32]]:
    """Resolve (device argument, pid) to the ordinal, and return the process of each row.

    The argument wins; then the label of the pid ("GPU 3"); then the pid itself.
    """
    prefixes, devices = [], []
    for argument, pid in c.places:
        prefix, rest = process_of(pid)
        prefixes.append(prefix)
        labels = sorted(c.labels.get(str(pid), set()))
        found = next((m[1] for m in map(_LABEL.fullmatch, labels) if m), None)
        number = next((n for n in (as_int(argument), as_int(found), as_int(rest)) if n is not None), -1)
        devices.append(min(max(number, -(1 << 31)), (1 << 31) - 1))
    lookup = np.array(devices, np.int32)
    procs = sorted(set(prefixes))
    of_place = np.array([procs.index(p) for p in prefixes], np.int32)
    rows = []
    for table in (tables.device, tables.notes):
        place = table.pop("place")
        table["device"] = lookup[place] if len(lookup) else place
        rows.append(of_place[place] if len(of_place) else place)
    return procs, rows[0], rows[1]


def _drop_zero(c: Columns, device: Table) -> Table:
    """Leave out device rows that carry no time: ts 0, and no duration or everything else far later."""
    zero = device["ts"] == 0
    if not zero.any():
        return device
    rest = device["ts"][~zero]
    far = bool(len(rest)) and int(rest.min()) > STRAY_ZERO_NS
    drop = zero & (far | (device["dur"] == 0))
    names = list(c.names)
    example = min((names[i] for i in device["name"][drop].tolist()), default="")
    c.note("lost", "device activity with time stamp 0", int(np.count_nonzero(drop)), example[:120])
    return _take(device, ~drop) if drop.any() else device


def _overruns(c: Columns, tables: Tables, names: list[str]) -> None:
    """Flag rows that run far past the recording or over hundreds of followers: a writer's defect."""
    device, host = tables.device, _work(tables.host)
    both = [t for t in (host, device) if len(t["ts"])]
    last = max((int(t["ts"].max()) for t in both), default=0)
    last = max(last, c.window_end or 0)
    for what, table in (("host", host), ("device", device)):
        late = table["ts"] + table["dur"] > last + OVERRUN_NS
        if late.any():
            example = min(names[i] for i in table["name"][late].tolist())
            reason = f"{what} activity that runs more than 1 s past the end of the recording (kept)"
            c.note("info", reason, int(np.count_nonzero(late)), example[:120])
    order = np.lexsort((device["ts"], device["stream"], device["device"]))
    over, example = 0, ""
    edges = np.flatnonzero((np.diff(device["device"][order]) != 0) | (np.diff(device["stream"][order]) != 0)) + 1
    for rows in np.split(order, edges):
        ts = device["ts"][rows]
        followers = np.searchsorted(ts, ts + device["dur"][rows]) - np.arange(1, len(rows) + 1)
        hit = rows[followers >= OVERRUN_ROWS]
        over += len(hit)
        example = min([*(names[i] for i in device["name"][hit].tolist()), *([example] if example else [])], default="")
    c.note(
        "info",
        f"device activity that covers {OVERRUN_ROWS} or more later ones of its stream (kept)",
        over,
        example[:120],
    )


def assemble(c: Columns, meta: TraceMeta, base_ns: int) -> list[RankTrace]:
    """Sort, split by process, shift by the file's base. Traces in order of their process label."""
    host = _taken(c.host)
    device = _drop_zero(c, _taken(c.device))
    tables = Tables(host, device, _taken(c.annotations))
    for noted in sorted(c.frames.noted) if c.frames is not None else ():
        c.names[noted]  # takes a number, should it have none
    names = _names(c, tables)
    tracks, prefixes = _tracks(c, host)
    procs, device_proc, notes_proc = _places(c, tables)
    _overruns(c, tables, names)
    for table in (host, tables.device, tables.notes):
        table["ts"] += base_ns
    health = [HealthEntry(r, n, s, c.examples[s, r]) for (s, r), n in sorted(c.notes.items())]
    counts = dict(sorted(c.counts.items()))
    every = sorted({*procs, *(prefixes[i] for i in np.unique(_work(host)["track"]).tolist())}) or [""]
    out = []
    for part, proc in enumerate(every):
        own = tables
        if len(every) > 1:
            code = procs.index(proc) if proc in procs else -1
            pick = np.array([p == proc for p in prefixes], np.bool_)
            own = Tables(
                _take(host, pick[host["track"]] if len(pick) else np.zeros(0, np.bool_)),
                _take(tables.device, device_proc == code),
                _take(tables.notes, notes_proc == code),
            )
        mine = replace(meta, part=meta.part + part, coordinates=_coordinates(proc), extra=dict(meta.extra))
        if len(every) > 1:
            mine.rank = None  # the file's rank is that of one of its processes; it does not say which
        out.append(rank_trace(mine, own, names, tracks, c.comm, counts, health))
    return out


def rank_trace(
    meta: TraceMeta,
    tables: Tables,
    names: list[str],
    tracks: list[Track],
    comm: Records,
    counts: dict[str, int],
    health: list[HealthEntry],
) -> RankTrace:
    """Columns of one process (which are used up) → a trace in canonical order."""
    h = _move(tables.host, _sort(tables.host, _HOST_ORDER))
    d = _move(tables.device, _sort(tables.device, _DEVICE_ORDER))
    a = _move(tables.notes, _sort(tables.notes, _NOTE_ORDER))
    timed = [t for t in (_work(h), d, a) if len(t["ts"])]
    starts = [int(t["ts"].min()) for t in timed]
    ends = [int((t["ts"] + t["dur"]).max()) for t in timed]
    return RankTrace(
        meta=meta,
        names=names,
        tracks=tracks,
        comm=_renumber(comm, h, d),
        host=HostRows(**h),
        device=DeviceRows(**d),
        annotations=DeviceAnnotations(**a),
        event_counts=counts,
        health=list(health),
        window_ns=(min(starts, default=0), max(ends, default=0)),
    )


def _renumber(comm: Records, host: Table, device: Table) -> Records:
    """Communication records in the order of their rows, host before device."""
    ordered = []
    at = 0
    for table in (host, device):
        rows = np.flatnonzero(table["comm"] >= 0)
        ordered.append(table["comm"][rows])
        table["comm"][rows] = np.arange(at, at + len(rows), dtype=np.int32)
        at += len(rows)
    return comm.picked(np.concatenate(ordered))


def _coordinates(proc: str) -> dict[str, int] | None:
    """Mesh coordinates of a label such as "[TP00-DP01-PP00]"."""
    return {k.upper(): int(v) for k, v in _COORDINATE.findall(proc)} if proc else None

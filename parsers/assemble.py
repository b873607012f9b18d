"""Finished columns of one document → one `RankTrace` a process."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.model import (
    DeviceAnnotations,
    DeviceRows,
    HealthEntry,
    HostRows,
    RankTrace,
    Track,
    TraceMeta,
)
from tracekit.parsers.columns import Column, Columns, process_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COORDINATE = re.compile(r"([A-Za-z]+)[-_ ]?(\d+)")
_GENERIC_THREAD = re.compile(r"(?:thread \S+ \((?P<inner>.*)\))|(?P<bare>.*)", re.DOTALL)
_WEAK_NAMES = frozenset({"python", "python3", "pt_main_thread", ""})
OVERRUN_NS = 1_000_000_000

_HOST_TYPES = {"ts": np.int64, "dur": np.int64, "name": np.int32, "cat": np.int8, "track": np.int32,
               "corr": np.int64, "ext": np.int64, "comm": np.int32}  # fmt: skip
_DEVICE_TYPES = {"ts": np.int64, "dur": np.int64, "name": np.int32, "cls": np.int8, "device": np.int32,
                 "stream": np.int64, "corr": np.int64, "ext": np.int64, "nbytes": np.int64, "peer": np.int8,
                 "comm": np.int32, "proc": np.int32}  # fmt: skip
_NOTE_TYPES = {"ts": np.int64, "dur": np.int64, "name": np.int32, "device": np.int32, "stream": np.int64,
               "ext": np.int64, "proc": np.int32}  # fmt: skip


def _join(columns: dict[str, Column], types: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """One array a column; each list is emptied as it is joined, to keep the peak low."""
    joined = {}
    for field, dtype in types.items():
        parts = columns[field]
        joined[field] = np.concatenate(parts) if parts else np.empty(0, dtype)
        parts.clear()
    return joined


def _take(table: dict[str, NDArray[Any]], rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {k: v[rows] for k, v in table.items()}


def _name_order(names: list[str]) -> NDArray[np.int64]:
    """Rank of each name in sorted order: a sort key that does not depend on first sight."""
    order = np.empty(len(names), np.int64)
    order[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return order


def _tracks(c: Columns) -> tuple[list[Track], list[str]]:
    """All tracks with their best thread name, and the process prefix of each."""
    tracks, prefixes = [], []
    names = {(str(p), str(t)): n for (p, t), n in c.thread_names.items()}
    for pid, tid in c.tracks:
        prefix, rest = process_of(pid)
        tracks.append(Track(rest, str(tid), _best_name(names.get((str(pid), str(tid)), []))))
        prefixes.append(prefix)
    return tracks, prefixes


def _best_name(names: list[str]) -> str | None:
    """Writers name a thread several times; the specific name beats "python"."""
    inner = []
    for name in names:
        found = _GENERIC_THREAD.fullmatch(name)
        inner.append((found["inner"] or found["bare"] or name).strip() if found else name)
    specific = [n for n in inner if n not in _WEAK_NAMES]
    return (specific or inner or [None])[-1]


def _overruns(c: Columns, host: dict[str, NDArray[Any]], device: dict[str, NDArray[Any]]) -> None:
    """Flag device rows that run far past the recording: a known writer defect, not real work."""
    if not len(device["ts"]):
        return
    last = int(device["ts"].max())
    if len(host["ts"]):
        last = max(last, int((host["ts"] + host["dur"]).max()))
    late = device["ts"] + device["dur"] > last + OVERRUN_NS
    if late.any():
        names = list(c.names)
        c.note(
            "info", "device activity that runs more than 1 s past the end of the recording (kept)",
            int(late.sum()), names[int(device["name"][int(np.argmax(late))])][:120],
        )  # fmt: skip


def assemble(c: Columns, meta: TraceMeta, base_ns: int) -> list[RankTrace]:
    """Sort, split by process, shift by the file's base. Traces in order of their process label."""
    host = _join(c.host, _HOST_TYPES)
    device = _join(c.device, _DEVICE_TYPES)
    notes = _join(c.annotations, _NOTE_TYPES)
    for table in (host, device, notes):
        table["ts"] += base_ns
    _overruns(c, host, device)
    names = [str(n) for n in c.names]
    tracks, prefixes = _tracks(c)
    procs = sorted(set(c.procs) | set(prefixes))
    if len(procs) > 1 and not _used(c, procs, prefixes, host, device):
        procs.remove("")
    health = [HealthEntry(r, n, s, c.examples[s, r]) for (s, r), n in sorted(c.notes.items())]
    order = _name_order(names)
    out = []
    for part, proc in enumerate(procs):
        own = replace(meta, part=meta.part + part, coordinates=_coordinates(proc) if proc else None)
        pick_host = np.array([p == proc for p in prefixes], np.bool_)
        h = host if len(procs) == 1 else _take(host, pick_host[host["track"]])
        d = device if len(procs) == 1 else _take(device, device["proc"] == c.procs.get(proc, -1))
        a = notes if len(procs) == 1 else _take(notes, notes["proc"] == c.procs.get(proc, -1))
        out.append(_one(own, h, d, a, order, names, tracks, c, health))
    return out


def _used(c: Columns, procs: list[str], prefixes: list[str], host: dict[str, Any], device: dict[str, Any]) -> bool:
    plain_tracks = np.array([p == "" for p in prefixes], np.bool_)
    return bool(plain_tracks[host["track"]].any() or (device["proc"] == 0).any())


def _one(
    meta: TraceMeta,
    host: dict[str, NDArray[Any]],
    device: dict[str, NDArray[Any]],
    notes: dict[str, NDArray[Any]],
    order: NDArray[np.int64],
    names: list[str],
    tracks: list[Track],
    c: Columns,
    health: list[HealthEntry],
) -> RankTrace:
    key = order if len(order) else np.zeros(1, np.int64)
    h = _take(host, np.lexsort((key[host["name"]], host["track"], -host["dur"], host["ts"])))
    d = _take(device, np.lexsort((key[device["name"]], device["dur"], device["stream"], device["device"], device["ts"])))
    a = _take(notes, np.lexsort((key[notes["name"]], notes["dur"], notes["stream"], notes["device"], notes["ts"])))
    d.pop("proc")
    a.pop("proc")
    starts = [int(t["ts"].min()) for t in (h, d, a) if len(t["ts"])]
    ends = [int((t["ts"] + t["dur"]).max()) for t in (h, d, a) if len(t["ts"])]
    return RankTrace(
        meta=meta,
        names=names,
        tracks=tracks,
        host=HostRows(**h),
        device=DeviceRows(**d),
        annotations=DeviceAnnotations(**a),
        comm=c.comm,
        event_counts=dict(sorted(c.counts.items())),
        health=health,
        window_ns=(min(starts, default=0), max(ends, default=0)),
    )


def _coordinates(proc: str) -> dict[str, int]:
    """Mesh coordinates of a label such as "[TP00-DP01-PP00]"."""
    return {k.upper(): int(v) for k, v in _COORDINATE.findall(proc)}

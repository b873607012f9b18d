"""Nsight Systems reports, exported as SQLite → one `RankTrace` a process, as a Kineto file of the same run would give.

Tables exist only where they have rows, and columns come and go with versions, so each is looked up. Times are ns since
the session began; the session's start makes them Unix times.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from tracekit.errors import BrokenInput, UnusableInput
from tracekit.model import HealthEntry, RankTrace, TraceMeta, Track
from tracekit.parsers.assemble import Tables, rank_trace
from tracekit.parsers.comm import Records
from tracekit.parsers.convert import MAX_DUR_NS, Interner
from tracekit.parsers.memory import without_gc
from tracekit.parsers.nsys_db import Database
from tracekit.parsers.nsys_device import device_rows
from tracekit.parsers.nsys_host import host_rows
from tracekit.parsers.nsys_nccl import Process, groups_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

TABLE = "CUPTI_ACTIVITY_KIND_"
_PID = 24
"""A global id holds machine and process above this bit, the thread below."""


class Context(Struct):
    """What all parts of one reading share: texts by id, names in use, records, findings, counts of rows.

    last: end of the recording, ns since the session began.
    """

    db: Database
    texts: dict[int, str]
    strict: bool
    names: Interner = field(default_factory=Interner)
    comm: Records = field(default_factory=Records)
    processes: dict[int, Process] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    notes: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)
    last: int = 0

    def note(self, severity: str, reason: str, count: int = 1, example: str = "") -> None:
        """Count a finding; under strict reading what is lost or repaired is refused."""
        if not count:
            return
        if self.strict and severity != "info":
            raise BrokenInput(f"{self.db.path}: {reason} ({count}; {example}); read without --strict to leave it out")
        self.notes[severity, reason] += count
        self.examples.setdefault((severity, reason), example)

    def text(self, number: int) -> str:
        """Text of an id; an id without one keeps its number."""
        return self.texts.get(number, f"string {number}")

    def usable(self, rows: dict[str, NDArray[np.int64]], what: str) -> dict[str, NDArray[np.int64]]:
        """Rows with a possible start and end; others are counted and left out."""
        start, end = rows["start"], rows["end"]
        good = (start >= 0) & (end >= start) & (end - start <= MAX_DUR_NS)
        self.note("lost", f"{what} without a usable time", int(np.count_nonzero(~good)))
        self.counts[what] += len(start)
        if not good.all():
            rows = {k: v[good] for k, v in rows.items()}
        if len(rows["end"]):
            self.last = max(self.last, int(rows["end"].max()))
        return rows


def parse(path: Path, *, strict: bool = False) -> list[RankTrace]:
    """Read one export. strict: refuse rows that cannot be used instead of counting them.

    Raises BrokenInput for a damaged file, LimitExceeded, UnusableInput when it holds no timed work.
    """
    with without_gc(), Database(path) as db:
        ctx = Context(db, db.strings(), strict)
        device = device_rows(ctx)
        host, tracks = host_rows(ctx)
        return _traces(ctx, device, host, tracks)


def _traces(
    ctx: Context, device: dict[str, NDArray[Any]], host: dict[str, NDArray[Any]], tracks: list[tuple[int, Track]]
) -> list[RankTrace]:
    owner = np.array([process for process, _ in tracks], np.int64)
    host_process = owner[host["track"]] if len(owner) else np.empty(0, np.int64)
    everyone = sorted({*np.unique(device["process"]).tolist(), *np.unique(host_process).tolist()})
    busy = set(np.unique(device["process"]).tolist())
    kept = [p for p in everyone if p in busy] or everyone
    if not kept:
        raise UnusableInput(
            f"{ctx.db.path}: the export holds no CUDA work and no NVTX ranges; record with nsys profile "
            "--trace=cuda,nvtx and export again"
        )
    passed = int(np.count_nonzero(~np.isin(host_process, kept)))
    ctx.note("info", "rows of processes without device work, passed over", passed)
    metas = groups_of({p: ctx.processes.get(p, Process()) for p in kept}, _ranks(ctx, kept))
    base = _epoch(ctx.db)
    facts = _facts(ctx, base)
    health = [HealthEntry(r, n, s, ctx.examples[s, r]) for (s, r), n in sorted(ctx.notes.items())]
    names = list(ctx.names)
    out = []
    process_of = device.pop("process")
    for part, process in enumerate(kept):
        own = np.flatnonzero(host_process == process)
        rows = np.flatnonzero(process_of == process)
        tables = Tables(
            {k: v[own] for k, v in host.items()}, {k: v[rows] for k, v in device.items()}, _no_annotations()
        )  # fmt: skip
        tables.host["ts"] = tables.host["ts"] + base
        tables.device["ts"] = tables.device["ts"] + base
        told, groups = metas[process]
        meta = TraceMeta(
            str(ctx.db.path), part, rank=told.rank, world_size=told.world_size, groups=groups,
            backend="nccl" if groups else None, **facts,
        )  # fmt: skip
        out.append(
            rank_trace(meta, tables, names, [t for _, t in tracks], ctx.comm, dict(sorted(ctx.counts.items())), health)
        )
    return out


def _no_annotations() -> dict[str, NDArray[Any]]:
    """The export has no ranges on the device side: they are projected from the host's, which the analysis does."""
    types = {"ts": np.int64, "dur": np.int64, "name": np.int32, "device": np.int32, "stream": np.int64, "ext": np.int64}
    return {k: np.empty(0, t) for k, t in types.items()}


def _ranks(ctx: Context, processes: list[int]) -> dict[int, int]:
    """Ranks that the MPI table states, if it states another one for every process."""
    db = ctx.db
    column = next((c for c in ("globalPid", "globalTid", "globalId") if db.has("MPI_RANKS", c, "rank")), None)
    if column is None:
        return {}
    rows = db.integers("MPI_RANKS", (column, "rank"))
    found = {p >> _PID: r for p, r in zip(rows[column].tolist(), rows["rank"].tolist(), strict=True) if r >= 0}
    if len(set(found.values())) < len(found) or not set(processes) <= set(found):
        ctx.note("info", "MPI ranks that do not tell the processes apart (not used)", len(found))
        return {}
    return found


def _epoch(db: Database) -> int:
    """Unix ns of the session's start; 0 when the export does not tell."""
    if not db.has("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"):
        return 0
    rows = db.integers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"]
    return max(int(rows[0]), 0) if len(rows) else 0


def _facts(ctx: Context, base: int) -> dict[str, Any]:
    """Fields of the meta that all processes share."""
    db = ctx.db
    devices: list[dict[str, Any]] = []
    if db.has("TARGET_INFO_GPU", "id"):
        columns = ("id", "name", "totalMemory", "smCount")
        for number, name, memory, count in db.select("TARGET_INFO_GPU", columns):
            text = name if isinstance(name, str) else ctx.texts.get(name, "") if isinstance(name, int) else ""
            devices.append({"id": number, "name": text, "totalGlobalMem": memory, "numSms": count})
    version = None
    if db.has("META_DATA_EXPORT", "name", "value"):
        version = {str(n): str(v) for n, v in db.select("META_DATA_EXPORT", ("name", "value"))}.get(
            "EXPORT_SCHEMA_VERSION"
        )
    size = db.path.stat().st_size
    return {
        "file_bytes": size, "json_bytes": size, "base_ns": base or None, "devices": tuple(devices),
        "host_name": _host(db), "era": f"nsys export {version}" if version else "nsys export",
    }  # fmt: skip


def _host(db: Database) -> str | None:
    if not db.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        return None
    for name, value in db.select("TARGET_INFO_SYSTEM_ENV", ("name", "value")):
        if str(name).lower() in ("hostname", "host name") and isinstance(value, str) and value:
            return value[:200]
    return None


PARSER = parse

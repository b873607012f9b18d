"""The runs behind the dashboard: the list, key figures of each, and parts of tables, read where they are asked for.

Sums and means of published columns, nothing else. Key figures come from small tables only and are kept until the run
is written again; of the big tables only the chosen rank and step are read.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError, UnusableInput
from tracekit.output import dataset, runs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import pyarrow as pa

    from tracekit.output.runs import ListedRun

Row = dict[str, Any]
Place = tuple[Any, Any, Any]
CLASSES = (
    "compute_only_ns", "overlapped_ns", "fused_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns",
)  # fmt: skip
"""Columns of `breakdown` that add up to `window_ns`."""
TIMES = ("window_ns", *CLASSES)
PARTS = ("count", "total_ns", "hidden_ns", "attributed_ns", "attributed_wait_ns")
"""Columns of `exposure` that are shown."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Key figures of a run: means of a rank and complete step (of all steps where none is complete), ns.

    None where nothing was measured; parts: by class of time; exposed: attributed exposed time by strategy, and
    findings: how many of each severity.
    """

    ranks: int
    steps: int
    window_ns: float | None
    parts: dict[str, float]
    exposed: dict[str, float | None]
    findings: dict[str, int] = field(default_factory=dict)

    @property
    def exposed_ratio(self) -> float | None:
        """Communication that nothing hid over the step; None without communication that has a time."""
        if not self.window_ns or not any(v is not None for v in self.exposed.values()):
            return None
        return self.parts["exposed_comm_ns"] / self.window_ns


class Store:
    """Runs of one or more folders: datasets, or datasets of many runs. Looked for each time, so new runs appear.

    What was read of a run is kept until its manifest changes, which is written anew with the run.
    """

    def __init__(self, folders: Iterable[str | Path], *, last: int = 100) -> None:
        self.folders = [Path(f).expanduser().resolve() for f in folders]
        self.last = last
        self._listed: dict[Path, tuple[int, ListedRun]] = {}
        self._figures: dict[Path, tuple[int, Overview]] = {}
        self._lock = threading.Lock()

    def runs(self) -> dict[str, ListedRun]:
        """The newest `last` runs by name, oldest first. UnusableInput when a folder holds none."""
        return self.survey()[0]

    def survey(self) -> tuple[dict[str, ListedRun], list[str]]:
        """The same, and why other runs cannot be read. Names that several folders have get that of their folder."""
        found: list[tuple[str, ListedRun]] = []
        broken: list[str] = []
        for folder in self.folders:
            for place in [folder] if dataset.is_dataset(folder) else runs.folders(folder):
                try:
                    found.append((folder.name, self._run(place)))
                except TracekitError as e:
                    broken += [str(e)] if place.exists() else []
        if not found and broken:
            raise UnusableInput("\n".join(broken))
        found.sort(key=lambda f: (f[1].started_ns, f[1].name))
        names = Counter(run.name for _, run in found)
        out: dict[str, ListedRun] = {}
        for folder_name, run in found[-self.last :]:
            name = _text(run.name if names[run.name] == 1 else f"{folder_name}/{run.name}")
            while name in out:
                name += "'"
            out[name] = run
        return out, broken

    def overview(self, run: ListedRun) -> Overview:
        """Key figures of a run. UnusableInput when a table cannot be read."""
        version = _version(run.folder)
        with self._lock:
            kept = self._figures.get(run.folder)
            if kept is None or kept[0] != version:
                self._figures[run.folder] = kept = version, overview(dataset.read(run.folder))
            return kept[1]

    def _run(self, folder: Path) -> ListedRun:
        version = _version(folder)
        kept = self._listed.get(folder)
        if kept is None or kept[0] != version:
            self._listed[folder] = kept = version, runs.listed(folder)
        return kept[1]


def _version(folder: Path) -> int:
    """What changes when a run is written again. UnusableInput when it is gone."""
    try:
        return (folder / dataset.MANIFEST).stat().st_mtime_ns
    except OSError as e:
        raise UnusableInput(f"{folder}: cannot be read ({e.strerror or e}); the run may be gone") from e


def _text(name: str) -> str:
    """A folder's name as text that every address and page can hold."""
    return os.fsencode(name).decode("utf-8", "replace")


def overview(data: dataset.Dataset) -> Overview:
    """Key figures of a dataset."""
    rows, places = counted(data)
    exposure = _within(data.arrow("exposure", [*_PLACE, "strategy", "attributed_ns"]), places)
    sums = by(exposure, "strategy", ["attributed_ns"], "sum")
    severities = data.arrow("findings", ["severity"]).column("severity").to_pylist()
    means = mean(rows)
    ranks = {(rank, device) for rank, device, _ in places}
    return Overview(
        ranks=len(ranks), steps=len({step for *_, step in places}), window_ns=means["window_ns"],
        parts={name: means[name] or 0.0 for name in CLASSES},
        exposed={s: None if v["attributed_ns"] is None else v["attributed_ns"] / len(places) for s, v in sums.items()},
        findings={s: severities.count(s) for s in ("error", "warning", "info")},
    )  # fmt: skip


_PLACE = ("rank", "device", "step")


def counted(
    data: dataset.Dataset, *, ranks: Collection[int | None] | None = None, steps: Collection[int] | None = None
) -> tuple[pa.Table, set[Place]]:
    """Rows of `breakdown` that count, and their (rank, device, step): those of complete steps, all where none is.

    A step that was asked for counts as it is.
    """
    only: Row = {"ranks": ranks, "steps": steps}
    rows = data.arrow("breakdown", [*_PLACE, *TIMES], **only)
    if steps is None:
        known = data.arrow("steps", [*_PLACE, "complete"], **only)
        complete = {p for p, whole in zip(_places(known), known.column("complete").to_pylist(), strict=True) if whole}
        if whole_rows := _within(rows, complete):
            rows = whole_rows
    return rows, set(_places(rows))


def exposure(
    data: dataset.Dataset,
    places: set[Place],
    *,
    ranks: Collection[int | None] | None = None,
    steps: Collection[int] | None = None,
) -> dict[str, Row]:
    """`PARTS` by strategy, means of a rank and step over the places; None where a call had no time."""
    rows = data.arrow("exposure", [*_PLACE, "strategy", *PARTS], ranks=ranks, steps=steps)
    sums = by(_within(rows, places), "strategy", PARTS, "sum")
    return {
        name: {c: None if v is None else v / len(places) for c, v in row.items()}
        for name, row in sorted(sums.items(), key=lambda s: -(s[1]["attributed_ns"] or 0))
    }


def by(rows: pa.Table, key: str, columns: Collection[str], how: str) -> dict[Any, Row]:
    """Sums or means of columns by a key, in order of the key; None where one of them is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    of = rows.column(key)
    if pa.types.is_dictionary(of.type):
        rows = rows.set_column(rows.schema.names.index(key), key, of.cast(pa.string()))
    options = pc.ScalarAggregateOptions(skip_nulls=False)
    found = rows.group_by(key).aggregate([(c, how, options) for c in columns]).to_pylist()
    found.sort(key=lambda r: (r[key] is None, r[key]))
    return {r[key]: {c: r[f"{c}_{how}"] for c in columns} for r in found}


def strategies(data: dataset.Dataset) -> list[str]:
    """Strategies that a run's communication is labelled with."""
    import pyarrow as pa

    return sorted(set(data.arrow("exposure", ["strategy"]).column("strategy").cast(pa.string()).to_pylist()))


def _places(rows: pa.Table) -> list[Place]:
    return list(zip(*(rows.column(c).to_pylist() for c in _PLACE), strict=True))


def _within(rows: pa.Table, places: set[Place]) -> pa.Table:
    import pyarrow as pa

    return rows.filter(pa.array([p in places for p in _places(rows)], pa.bool_()))


def mean(rows: pa.Table) -> Row:
    """Means of `TIMES`; None without rows."""
    import pyarrow.compute as pc

    return {c: pc.mean(rows.column(c)).as_py() for c in TIMES}


def call(data: dataset.Dataset, where_ranks: Collection[int | None] | None, number: int) -> Row:
    """One call with all its columns. UnusableInput when the rank has no such call."""
    import pyarrow.compute as pc

    rows = data.arrow("collectives", ranks=where_ranks)
    found: list[Row] = rows.filter(pc.equal(rows.column("id"), number)).to_pylist()
    if not found:
        raise UnusableInput(f"no call {number} on this rank")
    return found[0]

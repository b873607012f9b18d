"""A run as a trace for ui.perfetto.dev: ranks are processes, strategies are tracks, exposed parts are slices.

Everything shown is published: the detail tables, `steps`, `matches`, `pipeline`, `bubble` and `clocks`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tracekit.analysis.timeline import NO_CALL, STAGE_WORK, Work, bubbles, clock_of, lanes, timeline
from tracekit.errors import UnusableInput, UsageError
from tracekit.model import NO_TIME
from tracekit.output.callargs import CallTexts
from tracekit.output.chrome import ChromeTrace, Track, may_write, quoted
from tracekit.output.flows import Flows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.timeline import Timeline

Row = dict[str, Any]
Detail = tuple[int | None, "pa.Table", "pa.Table"]
UNPLACED = 1_000_000
"""Processes of recordings whose rank is not known are numbered from here."""
_OTHER_WORK = ("fused", "copy", "set")


class Source(Protocol):
    """What is drawn: small tables by name, and rank by rank the tables `activities` and `collectives`."""

    @property
    def tables(self) -> dict[str, list[Row]]:
        """Rows of the small tables."""

    def rows(self, table: str) -> list[Row]:
        """Rows of a small table that may be kept as columns."""

    def detail(self) -> Iterator[Detail]:
        """(rank, activities, collectives) of each recording; may be called again."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What part of a run is drawn; None = all. window: [from, to) ns from the run's origin on the common clock."""

    ranks: frozenset[int] | None = None
    steps: frozenset[int] | None = None
    window: tuple[int | None, int | None] = (None, None)

    def rank(self, rank: int | None) -> bool:
        """Whether a rank is drawn."""
        return self.ranks is None or rank in self.ranks

    def keep(self, start: NDArray[np.int64], end: NDArray[np.int64], step: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which slices are drawn: those of the steps that touch the window, whole."""
        low, high = self.window
        kept = np.ones(len(start), np.bool_)
        if low is not None:
            kept &= end > low
        if high is not None:
            kept &= start < high
        if self.steps is not None:
            kept &= np.isin(step, sorted(self.steps))
        return kept


@dataclass(slots=True)
class Written:
    """What was drawn, for the last line of the command."""

    ranks: int = 0
    slices: int = 0
    flows: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Rank:
    """One recording on the common clock, with what of it is drawn."""

    number: int
    rank: int | None
    line: Timeline
    calls: CallTexts
    kept: NDArray[np.bool_]
    step: NDArray[np.int64]
    clock: Clock | None

    def placed(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Times on the common clock; as they are where there is none."""
        return times if self.clock is None else self.clock.place(times)


def write(
    source: Source, path: Path, about: dict[str, Any], chosen: Selection | None = None, *, overwrite: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> Written:  # fmt: skip
    """Write the trace: two passes over the ranks, one in memory at a time. UsageError where nothing is left to draw."""
    may_write(path, overwrite=overwrite)
    chosen = chosen or Selection()
    clocks = {row["rank"]: row for row in source.tables.get("clocks", [])}
    flows = Flows(source.rows("matches"))
    first, total, there, drawn = 0, 0, 0, 0
    for one in _ranks(source, chosen, clocks):
        total += 1
        there += len(one.kept) + sum(len(w.start) for w in one.line.work.values())
        drawn += int(one.kept.sum()) + sum(int(_kept(one, w, chosen).sum()) for w in one.line.work.values())
        first = min(first, int(one.line.start[one.kept].min(initial=0)), _earliest(one, chosen))
        flows.learn(one.rank, one.calls, one.line, one.kept)
    if not drawn:
        raise _nothing(chosen, there)
    work = source.rows("pipeline")
    gaps = bubbles(work, source.tables.get("bubble", []))
    tables = {name: _by_rank(source.tables.get(name, [])) for name in ("ranks", "steps")} | {"pipeline": _by_rank(work)}
    out = Written()
    with ChromeTrace(path, -first, about) as trace:
        for done, one in enumerate(_ranks(source, chosen, clocks), 1):
            _rank(trace, one, tables, chosen, flows, gaps.get(one.rank, []) if one.rank is not None else [])
            _note(out, one, len(clocks) > 0)
            if progress:
                progress(done, total, f"rank {one.rank}")
        trace.about = {**about, "notes": out.notes, "flows_left_out": flows.left_out}
    out.ranks, out.slices, out.flows = total, trace.slices, trace.flows
    return out


def _nothing(chosen: Selection, there: int) -> Exception:
    """Why there is nothing to draw."""
    if there or chosen != Selection():
        return UsageError("nothing to draw: nothing of the run is in these ranks, steps and window")
    return UnusableInput("nothing to draw: these recordings hold no device work and no call with a duration")


def _by_rank(rows: Sequence[Row]) -> dict[Any, list[Row]]:
    out: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        out[row["rank"]].append(row)
    return out


def _earliest(one: _Rank, chosen: Selection) -> int:
    works = [one.placed(w.start)[_kept(one, w, chosen)] for w in one.line.work.values()]
    return min((int(w.min(initial=0)) for w in works), default=0)


def _note(out: Written, one: _Rank, several: bool) -> None:
    if not one.line.exposed_known and len(one.line.call):
        out.notes.append(f"rank {one.rank}: no exposed parts, since compute or the calls of its kernels are not told")
    if several and one.clock is None:
        out.notes.append(f"rank {one.rank}: not on the common clock")


def _ranks(source: Source, chosen: Selection, clocks: dict[Any, Row]) -> Iterator[_Rank]:
    unknown = UNPLACED
    seen: set[int] = set()
    for rank, activities, collectives in source.detail():
        if not chosen.rank(rank):
            continue
        clock = clock_of(clocks.get(rank)) if rank is not None else None
        line = timeline(activities, collectives)
        if clock is not None:
            line.start, line.end = clock.place(line.start), clock.place(line.end)
            line.part_start, line.part_end = clock.place(line.part_start), clock.place(line.part_end)
        calls = CallTexts(collectives)
        step = calls.step_of(line.call)
        placed = rank is not None and rank not in seen  # a rank that was recorded again is a process of its own
        number = rank + 1 if placed and rank is not None else unknown
        unknown += not placed
        seen |= {rank} if rank is not None else set()
        yield _Rank(number, rank, line, calls, chosen.keep(line.start, line.end, step), step, clock)


def _rank(
    trace: ChromeTrace, one: _Rank, tables: dict[str, dict[Any, list[Row]]], chosen: Selection, flows: Flows,
    gaps: Sequence[Row],
) -> None:  # fmt: skip
    mine = {name: rows.get(one.rank, []) for name, rows in tables.items()}
    host = next((r["host"] for r in mine["ranks"] if r["used"] and r["host"]), "")
    name = f"rank {one.rank}" if one.rank is not None else "rank unknown"
    trace.process(name, one.number, str(host))
    _steps(trace, one, mine["steps"], chosen)
    _stage_work(trace, one, mine["pipeline"], gaps, chosen)
    _work(trace, one, "compute", chosen)
    _calls(trace, one, flows)
    _waiting(trace, one, chosen)
    for kind in _OTHER_WORK:
        _work(trace, one, kind, chosen)


def _steps(trace: ChromeTrace, one: _Rank, steps: Sequence[Row], chosen: Selection) -> None:
    by_device: dict[int, list[Row]] = defaultdict(list)
    for row in steps:
        by_device[row["device"]].append(row)
    for device, rows in sorted(by_device.items()):
        start = one.placed(np.array([r["ts_ns"] for r in rows], np.int64))
        end = one.placed(np.array([r["ts_ns"] + r["dur_ns"] for r in rows], np.int64))
        names = [quoted(r["name"]) for r in rows]
        args = [f'{{"step": {r["step"]}, "complete": {"true" if r["complete"] else "false"}}}' for r in rows]
        kept = chosen.keep(start, end, np.array([r["step"] for r in rows], np.int64))
        _lines(trace, one, _titled("steps", device, by_device), np.flatnonzero(kept), start, end, names, '"step"', args)


def _titled(title: str, device: int, devices: Any) -> str:
    return title if len(devices) < 2 else f"{title} (device {device})"


def _stage_work(
    trace: ChromeTrace, one: _Rank, pipeline: Sequence[Row], gaps: Sequence[Row], chosen: Selection
) -> None:
    """What the stage does, and its bubbles, both already on the common clock."""
    seen: dict[tuple[int, int, int], list[Row]] = defaultdict(list)
    for r in pipeline:
        if r["op"] in STAGE_WORK and r["aligned_ns"] is not None and r["dur_ns"] is not None:
            seen[r["aligned_ns"], r["dur_ns"], r["step"]].append(r)
    names = [quoted(" + ".join(map(_action, rows))) for rows in seen.values()]
    args = [f'{{"step": {step}, "stage": {_json(rows[0]["stage"])}}}' for (_, _, step), rows in seen.items()]
    _table(trace, one, "pipeline", list(seen), names, '"pipeline"', args, chosen)
    spans = [(g["ts_ns"], g["dur_ns"], g["step"]) for g in gaps]
    args = [f'{{"step": {g["step"]}}}' for g in gaps]
    _table(trace, one, "bubbles", spans, ['"bubble"'] * len(spans), '"bubble"', args, chosen)


def _action(row: Row) -> str:
    micro = "" if row["micro_batch"] is None else str(row["micro_batch"])
    return f"{row['op']}{micro}" + ("" if row["stage"] is None else f" of stage {row['stage']}")


def _json(value: int | None) -> str:
    return "null" if value is None else str(value)


def _table(
    trace: ChromeTrace, one: _Rank, title: str, spans: Sequence[tuple[int, int, int]], names: Sequence[str],
    kind: str, args: Sequence[str], chosen: Selection,
) -> None:  # fmt: skip
    """Slices of rows (start, length, step) on lines of their own."""
    start = np.array([s for s, _, _ in spans], np.int64)
    end = start + np.array([d for _, d, _ in spans], np.int64)
    rows = np.flatnonzero(chosen.keep(start, end, np.array([n for _, _, n in spans], np.int64)))
    _lines(trace, one, title, rows, start, end, names, kind, args)


def _lines(
    trace: ChromeTrace, one: _Rank, title: str, rows: NDArray[np.intp], start: NDArray[np.int64],
    end: NDArray[np.int64], names: Sequence[str], kind: str, args: Sequence[str] = (),
) -> None:  # fmt: skip
    """Slices that follow one another, on as many lines as they need."""
    for row, track in zip(*_assigned(trace, one, title, rows, start, end), strict=True):
        trace.slice(track, names[row], kind, int(start[row]), int(end[row]), args[row] if args else "")


def _assigned(
    trace: ChromeTrace, one: _Rank, title: str, rows: NDArray[np.intp], start: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[list[int], list[Track]]:
    """(row, its line) in order of time; the lines are declared."""
    lane = lanes(start[rows], end[rows])
    count = int(lane.max(initial=-1)) + 1
    tracks = [trace.track(one.number, title if i == 0 else f"{title} ({i + 1})") for i in range(count)]
    order = np.lexsort((-end[rows], start[rows]))
    return rows[order].tolist(), [tracks[i] for i in lane[order].tolist()]


def _kept(one: _Rank, work: Work, chosen: Selection) -> NDArray[np.bool_]:
    return chosen.keep(one.placed(work.start), one.placed(work.end), work.step)


def _work(trace: ChromeTrace, one: _Rank, kind: str, chosen: Selection) -> None:
    work = one.line.work.get(kind)
    if work is None:
        return
    kept = _kept(one, work, chosen)
    start, end = one.placed(work.start), one.placed(work.end)
    texts_ = [quoted(n) for n in work.names]
    devices = np.unique(work.device).tolist()
    for device in devices:
        rows = np.flatnonzero(kept & (work.device == device))
        names = _Indexed(texts_, work.name)
        _lines(trace, one, _titled(kind, device, devices), rows, start, end, names, f'"{kind}"')  # type: ignore[arg-type]


@dataclass(slots=True)
class _Indexed:
    """names[code[row]] without a list of a million references."""

    names: list[str]
    code: NDArray[np.int32]

    def __getitem__(self, row: int) -> str:
        return self.names[int(self.code[row])]


def _calls(trace: ChromeTrace, one: _Rank, flows: Flows) -> None:
    """One line a strategy (more where its calls overlap): calls, and in each the parts that nothing hides."""
    line, calls = one.line, one.calls
    strategy = calls.strategies(line.call)
    order = np.lexsort((line.part_start, line.part_of))
    first = np.searchsorted(line.part_of[order], np.arange(len(line.call) + 1))
    begin, stop = line.part_start[order].tolist(), line.part_end[order].tolist()
    loose = [quoted(n) for n in line.names]
    arrows = flows.of_rank(one.rank, calls, line, one.kept)
    devices = np.unique(line.device).tolist()
    for name in sorted(set(strategy)):
        mine = np.array([s == name for s in strategy], np.bool_) & one.kept
        for device in devices:
            rows = np.flatnonzero(mine & (line.device == device))
            for row, track in zip(
                *_assigned(trace, one, _titled(name, device, devices), rows, line.start, line.end), strict=True
            ):
                a, b = int(line.start[row]), int(line.end[row])
                low, high = int(first[row]), int(first[row + 1])
                exposed = sum(stop[i] - begin[i] for i in range(low, high)) if line.exposed_known else None
                call = int(line.call[row])
                title = loose[line.name[row]] if call == NO_CALL else calls.title(call)
                trace.slice(track, title, '"communication"', a, b, calls.args(call, exposed))
                for text, number in arrows.begin.get(row, ()):
                    trace.flow(track, text, number, a, begins=True)
                for i in range(low, high):
                    trace.slice(track, '"exposed"', '"exposed"', begin[i], stop[i])
                for text, number in arrows.end.get(row, ()):
                    trace.flow(track, text, number, b - 1, begins=False)


def _waiting(trace: ChromeTrace, one: _Rank, chosen: Selection) -> None:
    """The first part of a call, until all others are there."""
    wait = one.calls.wait_of(one.line.call)
    end = np.minimum(one.line.start + np.where(wait == NO_TIME, 0, wait), one.line.end)
    kept = one.kept & (end > one.line.start) & chosen.keep(one.line.start, end, one.step)
    rows = np.flatnonzero(kept)
    if len(rows):
        names = one.calls.waiting_titles(one.line.call)
        _lines(trace, one, "waiting", rows, one.line.start, end, names, '"waiting"')

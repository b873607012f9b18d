"""One step of each rank as lanes of blocks: compute, each strategy with its exposed part, fused kernels, copies.

Blocks are unions of intervals: of communication the device activities of the calls, so what lies between the kernels of
one call is not drawn. Those nearer to each other than the picture can show are put together; a block keeps
how long it was busy and how many activities it holds, and is drawn as high as it was full, so no time is lost or added.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.intervals import covered, union
from tracekit.output import colours
from tracekit.output.html import markup as m
from tracekit.output.html.charts import Axis, Layer, Picture, draw
from tracekit.output.html.section import Section

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from tracekit.output.html.section import Context

Row = dict[str, Any]
Spans = tuple["NDArray[np.int64]", "NDArray[np.int64]"]
Lane = tuple[int | None, int]
TITLE = "Timeline of a step"
ACTIVITY = ("rank", "device", "ts_ns", "dur_ns", "kind", "call_id")
CALL = ("rank", "device", "ts_ns", "dur_ns", "strategy", "arrival_ns", "id")
MOST_BLOCKS = 400_000
FINEST = 1500
MOST_LANES = 256
OTHER_KINDS = {"fused": "#7a6fc0", "copy": colours.CLASSES["exposed_copy_ns"]}


def section(ctx: Context) -> Section:
    """The picture, the choice of ranks, and the blocks of all ranks (compressed)."""
    if ctx.step is None or not ctx.source.has_detail:
        return Section.empty(
            "timeline", TITLE, "No device activity is kept: give the traces, or a dataset with `activities`."
        )
    windows = {
        (s["rank"], s["device"]): (s["ts_ns"], s["ts_ns"] + s["dur_ns"])
        for s in ctx.source.rows("steps")
        if s["step"] == ctx.step
    }
    shown = _spread(windows)
    ranks = blocks(ctx, shown)
    if not ranks:
        return Section.empty("timeline", TITLE, "No activity lies in this step.")
    begin = min(r["start"] for r in ranks)
    length = max(r["end"] for r in ranks) - begin
    for r in ranks:
        r["start"] -= begin
        r["end"] -= begin
    names = [r["name"] for r in ranks]
    chart = draw(
        Picture(
            "timeline", "lanes of compute and of each strategy over time for the chosen ranks; the table has the sums",
            Axis("ms", 0, length / 1e6), Axis("", 0, 1, ticks={0.5: ""}), 320, _layers(), zoom=True,
        )
    )  # fmt: skip
    listed = m.options(enumerate(names))
    choice = (
        f'<p class="pick"><label>rank <select data-rank="0">{listed}</select></label> '
        f'<label>beside it <select data-rank="1"><option value="">none</option>{listed}</select></label></p>'
    )
    strategies = dict.fromkeys(lane["name"] for r in ranks for lane in r["lanes"] if lane["kind"] == "comm")
    signs = [("compute", colours.COMPUTE), *((s, colours.strategy(s)) for s in strategies), *OTHER_KINDS.items()]
    legend = m.legend((c, n) for n, c in signs if any(lane["name"] == n for r in ranks for lane in r["lanes"]))
    common = "on the common clock" if all(r["aligned"] for r in ranks) else "each rank on its own clock"
    aligned = common if len(ranks) > 1 else "on the rank's own clock"
    few = "" if len(shown) == len(windows) else f" {len(shown)} of {len(windows)} ranks, evenly spread."
    lead = (
        f'<p class="lead">Step {m.esc(ctx.step)}, {aligned}. Exposed communication is solid, hidden pale. A block is '
        f"as high as it was busy. Drag to zoom.{few}</p>"
    )
    sums = '<div data-note="timeline" aria-live="polite"></div>'
    payload = {"step": ctx.step, "length_ns": length, "ranks": packed(ranks)}
    return Section("timeline", TITLE, lead + choice + legend + chart.html() + sums, [chart], {"timeline": payload})


def _spread(windows: dict[Lane, tuple[int, int]]) -> dict[Lane, tuple[int, int]]:
    """At most so many of the ranks as a page holds."""
    lanes = sorted(windows, key=lambda p: (p[0] is None, p[0] or 0, p[1]))
    if len(lanes) <= MOST_LANES:
        return windows
    places = np.linspace(0, len(lanes) - 1, MOST_LANES).round().astype(int).tolist()
    return {lanes[i]: windows[lanes[i]] for i in places}


def packed(ranks: list[Row]) -> str:
    """The blocks as gzip in base64; the browser unpacks them."""
    return base64.b64encode(gzip.compress(json.dumps(ranks, separators=(",", ":")).encode(), 6, mtime=0)).decode()


def _layers() -> list[Layer]:
    nothing: dict[str, list[Any]] = {k: [] for k in ("left", "right", "bottom", "top", "colour", "what", "ms")}
    hover = (("", "what"), ("busy ms", "ms"))
    return [Layer(nothing, hover, 0.4, name="pale"), Layer(nothing, hover, name="solid")]


def blocks(ctx: Context, windows: dict[Lane, tuple[int, int]]) -> list[Row]:
    """Lanes of blocks of each rank in its window of the step, times from the run's origin on the common clock, ns."""
    until = max((end for _, end in windows.values()), default=0)
    calls = dict(_by_lane(ctx.source.each("collectives", CALL, until_ns=until), windows))
    out: list[Row] = []
    most = max(60, min(FINEST, MOST_BLOCKS // (8 * max(1, len(windows)))))
    for lane, data in _by_lane(ctx.source.each("activities", ACTIVITY, until_ns=until), windows):
        begin, end = windows[lane]
        own = calls.get(lane)
        shift = _shift(own)
        rank = {"name": ctx.lane_name(*lane), "start": begin + (shift or 0), "end": end + (shift or 0),
                "aligned": shift is not None or len(windows) == 1}  # fmt: skip
        lanes = list(_lanes(data, own, begin, end, max(1, (end - begin) // most)))
        if lanes:
            out.append(rank | {"lanes": lanes})
    order = {ctx.lane_name(*lane): i for i, lane in enumerate(ctx.lanes)}
    return sorted(out, key=lambda r: order.get(r["name"], len(order)))


def _by_lane(tables: Iterator[pa.Table], windows: dict[Lane, tuple[int, int]]) -> Iterator[tuple[Lane, Row]]:
    """(lane, columns as arrays) of the rows that overlap the lane's window."""
    import pyarrow.compute as pc

    for data in tables:
        data = data.filter(pc.and_(pc.is_valid(data["ts_ns"]), pc.is_valid(data["dur_ns"])))
        columns = {
            n: _array(pc.fill_null(data.column(n), -1) if n == "call_id" else data.column(n)) for n in data.column_names
        }
        ts, ends = columns["ts_ns"], columns["ts_ns"] + columns["dur_ns"]
        for lane, (begin, end) in windows.items():
            mine = _is(columns["rank"], lane[0]) & (_is(columns["device"], lane[1]) | _is(columns["device"], None))
            mine &= (ts < end) & (ends > begin)
            if mine.any():
                yield lane, {n: v[mine] for n, v in columns.items()}


def _array(column: pa.ChunkedArray) -> NDArray[Any]:
    """numpy values; object arrays with None where there are nulls."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count or pa.types.is_string(column.type):
        return np.array(column.to_pylist(), object)
    return np.asarray(column.to_numpy())


def _is(values: NDArray[Any], wanted: int | None) -> NDArray[np.bool_]:
    if wanted is None:
        return np.array([v is None for v in values], bool) if values.dtype == object else np.zeros(len(values), bool)
    return np.asarray(values == wanted, bool)


def _shift(calls: Row | None) -> int | None:
    """ns from the rank's clock to the common one: as its calls were moved; None without any."""
    if calls is None:
        return None
    moved = [a - t for a, t in zip(calls["arrival_ns"].tolist(), calls["ts_ns"].tolist(), strict=True) if a is not None]
    return int(np.median(moved)) if moved else None


def _lanes(data: Row, calls: Row | None, begin: int, end: int, finest: int) -> Iterator[Row]:
    compute = _clipped(data, data["kind"] == "compute", begin, end)
    yield from _lane("compute", "compute", compute, begin, finest)
    if calls is not None:
        comm = data["kind"] == "comm"
        told = bool((data["call_id"][comm] >= 0).any())  # else whole calls: older datasets do not say
        names = sorted(set(calls["strategy"].tolist()))
        for name in names:
            mine = calls["strategy"] == name
            parts = comm & np.isin(data["call_id"], calls["id"][mine])
            spans = _clipped(data, parts, begin, end) if told else _clipped(calls, mine, begin, end)
            yield from _lane(name, "comm", spans, begin, finest, compute)
    for kind in OTHER_KINDS:
        yield from _lane(kind, "other", _clipped(data, data["kind"] == kind, begin, end), begin, finest)


def _clipped(data: Row, which: NDArray[np.bool_], begin: int, end: int) -> Spans:
    ts = data["ts_ns"][which]
    stop = ts + data["dur_ns"][which]
    return np.clip(ts, begin, end), np.clip(stop, begin, end)


def _lane(name: str, kind: str, spans: Spans, begin: int, finest: int, hides: Spans | None = None) -> Iterator[Row]:
    """One lane, with the part that nothing hides as a row of blocks of its own."""
    if not len(spans[0]):
        return
    lane = {"name": name, "kind": kind, "all": _blocks(union(*spans), np.sort(spans[0]), begin, finest)}
    if hides is not None:
        exposed = without(union(*spans), union(*hides))
        lane["exposed"] = _blocks(exposed, exposed[0], begin, finest)
    yield lane


def without(a: Spans, b: Spans) -> Spans:
    """A minus B, both unions as `intervals.union` returns them."""
    edges = np.unique(np.concatenate([*a, *b]))
    if len(edges) < 2:
        return a
    lengths = np.diff(edges)
    in_a, in_b = np.diff(covered(a, edges)) == lengths, np.diff(covered(b, edges)) == lengths
    keep = in_a & ~in_b
    return union(edges[:-1][keep], edges[1:][keep])


def _blocks(spans: Spans, starts: NDArray[np.int64], begin: int, finest: int) -> list[list[int]]:
    """[offset from the end of the block before, length, busy ns, activities], one column list each.

    Neighbours with less than `finest` ns between them are one block.
    """
    a, z = spans
    if not len(a):
        return [[], [], [], []]
    first = np.flatnonzero(np.concatenate([[True], a[1:] - z[:-1] >= finest]))
    last = np.concatenate([first[1:], [len(a)]]) - 1
    left, right = a[first], z[last]
    busy = np.add.reduceat(z - a, first)
    count = np.diff(np.searchsorted(starts, np.concatenate([left, [np.iinfo(np.int64).max]])))
    offset = left - np.concatenate([[begin], right[:-1]])
    return [v.tolist() for v in (offset, right - left, busy, count)]

"""One labelled rank → the forward and backward work of its pipeline stages, and its messages.

Annotations tell best. Without them (torch's Schedule1F1B writes none) the work between point-to-point calls is cut
where it changes between forward and backward: what ran inside the autograd engine is backward. Where only forwards are
annotated (Megatron's `forward_step`), the backwards come from there.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.intervals import union
from tracekit.analysis.pipeline.pace import pace_of
from tracekit.analysis.pipeline.parts import Chunk, Mark, Message, RankPipeline
from tracekit.analysis.pipeline.repeat import parts_of
from tracekit.analysis.steps import launched_in
from tracekit.model import CPU_DEVICE, NO_TIME, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.pipeline.pace import Pace
    from tracekit.model import Call, ChunkSpan, LabelledRank, Marker, PipelineSpans

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Rows = NDArray[np.intp]

_FORWARD: Mark = ("F", None, None)
_BACKWARD: Mark = ("B", None, None)
INSIDE = frozenset({"tp", "sp", "cp", "ep", "etp"})
"""Strategies whose communication is part of a micro-batch's way through a stage."""
SHORT, FEW = 0.25, 2
"""Chunks are taken apart that have this share of the mean compute of their kind; into layers only where a step has so
few of them."""
USUAL, NOTICED_NS = 2, 5_000
"""A device waits when it idles so many times as long as usual between kernels, and at least so long."""
_TOLD = re.compile(r"PP:(?P<stage>\d{1,9})(?P<op>SEND|RECV)_(?P<kind>[FB])(?P<mb>\d{1,9})")


def rank_pipeline(
    labelled: LabelledRank, markers: list[Marker], steps: Sequence[int | None], origin: int
) -> RankPipeline | None:
    """The pipeline work of one rank; None when no call of it is pipeline-parallel.

    markers: of `distinct_markers`; steps: step of each call, None = none; origin: ns that all times count from.
    """
    spans = labelled.pipeline
    own = [i for i, c in enumerate(labelled.calls) if c.op in ("send", "recv") and c.label.strategy == "pp"]
    if spans is None or not own:
        return None
    on_host = bool((labelled.activities.device == CPU_DEVICE).any())
    work = _Work(labelled, markers)
    out = RankPipeline(groups=tuple(sorted({c.members for i in own if (c := labelled.calls[i]).members})))
    out.messages = [_message(i, labelled.calls[i], steps[i], on_host, origin) for i in own]
    if spans.chunks:
        waits = sorted(_end(labelled.calls[i]) for i in own if labelled.calls[i].op == "recv") if on_host else []
        found = (work.annotated(span, waits, origin) for span in _outermost(spans.chunks))
        out.chunks = [chunk for chunk in found if chunk is not None]
    if all(c.kinds == "F" for c in out.chunks):
        told = bool(out.chunks)
        between = work.between([labelled.calls[i] for i in own], spans, on_host, origin)
        out.chunks += [c for c in between if not told or c.kinds == "B"]
    out.chunks.sort(key=lambda c: (c.ts, c.dur))
    out.comm = _between(labelled, out.chunks, origin)
    out.pace = work.pace(labelled.activities.names, spans.optimizer)
    return out


def _end(call: Call) -> int:
    """End of a receive on the host; `NO_TIME` when it has none."""
    return NO_TIME if call.ts is None or call.dur is None else call.ts + call.dur


def _between(labelled: LabelledRank, chunks: Sequence[Chunk], origin: int) -> list[tuple[int, int]]:
    """Communication between chunks, but for the pipeline's own and what is part of a stage, ns from the origin."""
    acts = labelled.activities
    apart = np.array([c.label.strategy not in INSIDE | {"pp"} for c in labelled.calls] + [True], np.bool_)
    rows = np.flatnonzero((acts.kind == Kind.COMM) & apart[acts.call])
    starts, ends = union(acts.ts[rows] - origin, acts.ts[rows] + acts.dur[rows] - origin)
    out: list[tuple[int, int]] = []
    if len(chunks) < 2 or not len(starts):
        return out
    ts = np.array([c.ts for c in chunks], np.int64)
    free = np.maximum.accumulate(ts + np.array([c.dur for c in chunks], np.int64))[:-1]
    first, last = np.searchsorted(ends, free, "right"), np.searchsorted(starts, ts[1:], "left")
    gaps = np.flatnonzero((ts[1:] > free) & (first < last))
    columns = zip(first[gaps].tolist(), last[gaps].tolist(), free[gaps].tolist(), ts[1:][gaps].tolist(), strict=True)
    for a, b, low, high in columns:
        spans = zip(starts[a:b].tolist(), ends[a:b].tolist(), strict=True)
        out += [(max(s, low), min(e, high)) for s, e in spans]
    return out


def _outermost(spans: Sequence[ChunkSpan]) -> list[ChunkSpan]:
    """Spans that lie in no other: an overlapped pair may hold its halves."""
    out: list[ChunkSpan] = []
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        if not out or span.end > out[-1].end:
            out.append(span)
    return out


def _message(position: int, call: Call, step: int | None, on_host: bool, origin: int) -> Message:
    told = next((m for s in reversed(call.scopes) if (m := _TOLD.fullmatch(s))), None)
    mark: Mark | None = (told["kind"], int(told["stage"]), int(told["mb"])) if told else None
    send = call.op == "send"
    blocked = []
    if call.ts is not None and call.dur is not None:  # a receive, or the kernel of a send
        blocked.append((call.ts - origin, call.ts - origin + call.dur))
    if on_host and call.call_ts is not None and call.call_end is not None:
        blocked.append((call.call_ts - origin, call.call_end - origin))
    return Message(
        position, send, call.dst_rank if send else call.src_rank, step,
        None if call.call_ts is None else call.call_ts - origin, None if call.ts is None else call.ts - origin,
        call.dur, mark, tuple(blocked),
    )  # fmt: skip


def _length(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
    """Length of the union; work that follows one another, as it mostly does, needs no sorting."""
    if not (starts[1:] < ends[:-1]).any():
        return int((ends - starts).sum())
    start, end = union(starts, ends)
    return int((end - start).sum())


class _Work:
    """Rows of a rank that belong to micro-batches, in order of launch: ts, end, launch int64 ns; compute bool."""

    def __init__(self, labelled: LabelledRank, markers: list[Marker]) -> None:
        acts = labelled.activities
        call_inside = np.array([c.label.strategy in INSIDE for c in labelled.calls] + [False], np.bool_)
        compute = np.isin(acts.kind, (Kind.COMPUTE, Kind.FUSED))
        belongs = compute | ((acts.kind == Kind.COMM) & call_inside[acts.call])
        keep = np.flatnonzero(belongs & (acts.launch_ts > NO_TIME))
        keep = keep[np.argsort(acts.launch_ts[keep], kind="stable")]
        self.launch, self.ts = acts.launch_ts[keep], acts.ts[keep]
        self.end, self.compute, self.name = acts.ts[keep] + acts.dur[keep], compute[keep], acts.name[keep]
        self.source = "operators" if (acts.device == CPU_DEVICE).any() else "kernels"
        self._markers = markers
        self.marker = launched_in(self.launch, markers)

    def _step_at(self, marker: int) -> int | None:
        """Step number at a marker; None outside every step."""
        return None if marker < 0 else self._markers[marker].step if self._markers else 0

    def pace(self, names: Sequence[str], optimizer: NDArray[np.int64]) -> Pace:
        """Durations of the kernels of all steps, by name."""
        rows = np.flatnonzero(self.compute & (self.marker >= 0) & ~_inside(self.launch, optimizer))
        return pace_of(names, self.name[rows], (self.end - self.ts)[rows])

    def annotated(self, span: ChunkSpan, waits: list[int], origin: int) -> Chunk | None:
        """Work launched inside an annotation, after the last receive that was waited for in it.

        Some have none (the input gradient of the first stage): they take no time, after what was launched before.
        None outside every step.
        """
        a, b = np.searchsorted(self.launch, (span.start, span.end), "left").tolist()
        last = int(np.searchsorted(waits, span.end, "left")) - 1 if waits else -1
        if last >= 0 and waits[last] > span.start:
            after = int(np.searchsorted(self.launch, waits[last], "left"))
            a = after if after < b else a
        chunk = self._chunk(a, b, span, origin)
        if chunk is not None:
            return chunk
        at = int(launched_in(np.array([span.start], np.int64), self._markers)[0])
        if at < 0:
            return None
        ts = span.start if self.source == "operators" else int(self.end[:a].max(initial=span.start))
        return Chunk(span.actions, self._markers[at].step if self._markers else 0, ts - origin, 0, 0, "annotation",
                     launch=span.start - origin, until=span.end - origin)  # fmt: skip

    def _chunk(self, a: int, b: int, span: ChunkSpan, origin: int) -> Chunk | None:
        """Rows a … b as one chunk; None without compute or outside every step."""
        rows = np.arange(a, b)
        computes = rows[self.compute[rows]] if len(rows) else rows
        if not len(computes) or (step := self._step_at(int(self.marker[rows[0]]))) is None:
            return None
        ts, end = int(self.ts[rows].min()), int(self.end[rows].max())
        return Chunk(
            span.actions, step, ts - origin, end - ts, _length(self.ts[computes], self.end[computes]), "annotation",
            launch=span.start - origin, until=span.end - origin,
        )  # fmt: skip

    def between(self, calls: list[Call], spans: PipelineSpans, on_host: bool, origin: int) -> list[Chunk]:
        """Runs of rows of one kind that no message, step or optimizer interrupts.

        A message cuts where the host made the call, a receive of a host trace where it was waited for; and a receive on
        a device between two rows that it kept apart: it may have been posted long before.
        """
        kept = np.flatnonzero(~_inside(self.launch, spans.optimizer))
        if not len(kept):
            return []
        backward = _inside(self.launch[kept], spans.backward)
        cuts = np.array([_end(c) if on_host and c.op == "recv" else c.call_ts or NO_TIME for c in calls], np.int64)
        order = np.argsort(cuts, kind="stable")
        at = np.searchsorted(cuts[order], self.launch[kept], "right")
        waited = {} if on_host else self._waited(calls, kept)
        cut = (np.diff(at) != 0) | (np.diff(backward.astype(np.int8)) != 0) | (np.diff(self.marker[kept]) != 0)
        cut[list(waited)] = True
        first = np.append(0, np.flatnonzero(cut) + 1)
        here = at[first]
        sends = np.array([c.op == "send" for c in calls], np.bool_)[order]
        sent, received = order[sends].tolist(), order[~sends].tolist()
        sends_by = np.append(0, np.cumsum(sends))  # that many of the first calls
        left, right = np.append(0, here[:-1]), np.append(here[1:], len(calls))
        arrived, left_by = here - sends_by[here], left - sends_by[left]
        ends = np.append(first[1:], len(kept))
        some, step, ts, dur, compute = self._runs(kept, first, ends)
        passed = (left_by, arrived, sends_by[here], sends_by[right])
        called = (self.launch[kept[first]] - origin, self.launch[kept[ends - 1]] - origin)
        columns = (first - 1, backward[first], *passed, step, ts - origin, dur, compute, *called)
        out = []
        marks = ((_FORWARD,), (_BACKWARD,))
        rows = zip(*(c[some].tolist() for c in columns), strict=True)
        for a, b, r0, r1, s0, s1, step_of, begin, ns, active, host, until in rows:
            before, after = (*received[r0:r1], *waited.get(a, ())), tuple(sent[s0:s1])
            out.append(Chunk(marks[b], step_of, begin, ns, active, self.source, before, after, host, until))
        self._repeats(out, kept, first[some], ends[some], origin)
        return out

    def _repeats(self, chunks: list[Chunk], kept: Rows, first: Rows, last: Rows, origin: int) -> None:
        """Tell of chunks that may be several entries the parts they consist of; not of layers that all chunks have."""
        steps = len({c.step for c in chunks})
        made: list[tuple[int, tuple[int, ...]]] = []
        for kind in "FB":
            mine = [i for i, c in enumerate(chunks) if c.kinds == kind]
            least = sum(chunks[i].compute for i in mine) / max(1, len(mine)) * SHORT
            mine = [i for i in mine if chunks[i].compute >= least]
            found = parts_of([self.name[kept[first[i] : last[i]]] for i in mine])
            for i, (sizes, alike, often) in zip(mine, found, strict=True):
                if sizes and not (alike and often > FEW * steps):
                    chunks[i].alike = alike
                    made.append((i, sizes))
        if not made:
            return
        made.sort()
        size = np.concatenate([np.array(sizes, np.int64) for _, sizes in made])
        number = np.array([len(sizes) for _, sizes in made], np.int64)
        before = np.cumsum(size) - size  # rows of all parts before
        skipped = first[[i for i, _ in made]] - before[np.cumsum(number) - number]
        begin = before + np.repeat(skipped, number)
        low, dur, active = self._spans(kept, begin, begin + size)
        parts = zip((low - origin).tolist(), dur.tolist(), active.tolist(), strict=True)
        for i, sizes in made:
            chunks[i].repeats = tuple(islice(parts, len(sizes)))

    def _runs(self, kept: Rows, first: Rows, last: Rows) -> tuple[Flags, Ints, Ints, Ints, Ints]:
        """Of each run of `kept`, from its row in `first` to that before `last`: whether it counts, step, and `_spans`.

        Those without compute or outside every step do not count.
        """
        marker = self.marker[kept[first]]
        steps = np.array([m.step for m in self._markers] or [0], np.int64)
        computes = np.append(0, np.cumsum(self.compute[kept]))
        some = (computes[last] > computes[first]) & (marker >= 0)
        return some, steps[marker if self._markers else np.zeros_like(marker)], *self._spans(kept, first, last)

    def _spans(self, kept: Rows, first: Rows, last: Rows) -> tuple[Ints, Ints, Ints]:
        """(ts, dur, ns of compute) of runs of `kept`, in order, none empty: from `first` to before `last`."""
        ts, end, compute = self.ts[kept], self.end[kept], self.compute[kept]
        edges = np.stack([first, last], axis=1).ravel()  # every second stretch is a run; one row more, to end at
        low = np.minimum.reduceat(np.append(ts, 0), edges)[::2]
        high = np.maximum.reduceat(np.append(end, 0), edges)[::2]
        rows = np.flatnonzero(compute)
        run = np.searchsorted(first, rows, "right") - 1
        inside = (run >= 0) & (rows < last[run])
        rows, run = rows[inside], run[inside]
        start, stop = ts[rows], end[rows]
        # Work that follows one another, as it mostly does, is its own union.
        active = np.zeros(len(first), np.int64)
        np.add.at(active, run, stop - start)
        mixed = np.unique(run[1:][(start[1:] < stop[:-1]) & (run[1:] == run[:-1])])
        bounds = np.searchsorted(run, np.stack([mixed, mixed + 1]))
        for number, a, b in zip(mixed.tolist(), *bounds.tolist(), strict=True):
            active[number] = _length(start[a:b], stop[a:b])
        return low, high - low, active

    def _waited(self, calls: list[Call], kept: NDArray[np.intp]) -> dict[int, tuple[int, ...]]:
        """Position of a kept row → receives that ended after all work up to it and before the next row started.

        Only where the device idled longer there than it usually does: by chance a receive ends between any two kernels.
        """
        out: dict[int, tuple[int, ...]] = {}
        if len(kept) < 2:
            return out
        done, start = np.maximum.accumulate(self.end[kept])[:-1], self.ts[kept][1:]
        idle = start - done
        usual = np.median(idle[idle > 0]) if (idle > 0).any() else 0
        least = max(USUAL * usual, NOTICED_NS)
        for i, call in enumerate(calls):
            if call.op != "recv" or (end := _end(call)) == NO_TIME:
                continue
            last = int(np.searchsorted(done, end, "right")) - 1
            if last >= 0 and end <= start[last] and idle[last] >= least:
                out[last] = (*out.get(last, ()), i)
        return out


def _inside(times: NDArray[np.int64], spans: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which times lie in one of the disjoint ascending [start, end) intervals."""
    if not len(spans):
        return np.zeros(len(times), np.bool_)
    at = np.searchsorted(spans[:, 0], times, "right") - 1
    out: NDArray[np.bool_] = (at >= 0) & (times < spans[np.maximum(at, 0), 1])
    return out

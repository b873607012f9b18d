"""All pipelines of a run: the tables `pipeline`, `bubble` and `what_if`, and findings."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.detail import group_key
from tracekit.analysis.pipeline.causes import CAUSES, Causes, Typical, ask_causes, causes
from tracekit.analysis.pipeline.causes import Asked as AskedCauses
from tracekit.analysis.pipeline.gantt import gantt
from tracekit.analysis.pipeline.lines import Line, find_lines
from tracekit.analysis.pipeline.orders import ANNOTATION, backward_split, ordered, pieces
from tracekit.analysis.pipeline.plans import Plans
from tracekit.analysis.pipeline.slow import LongStage, long_stages, stage_findings
from tracekit.analysis.pipeline.timed import Lags, Timed, idle_split, lags, timed
from tracekit.analysis.pipeline.whatif import MOST_ERROR, ask_what_if, what_if
from tracekit.analysis.pipeline.whatif import Asked as AskedWhatIf
from tracekit.analysis.tables import from_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.pipeline.parts import Chunk, Message, RankPipeline
    from tracekit.analysis.pipeline.recognise import Recognised

Row = dict[str, Any]
_Row = TypeVar("_Row", "Chunk", "Message")


class RankInput(Struct):
    """One recording: `shift` ns from its own times to the run's axis; `clock` from there to the common one, if any."""

    rank: int
    part: RankPipeline
    shift: int = 0
    clock: Clock | None = None

    def offset(self, at: int) -> int | None:
        """ns from the run's axis to the common clock at a time of the recording; None without a common clock."""
        if self.clock is None or not self.clock.aligned:
            return None
        on_axis = at + self.shift
        return int(self.clock.place(np.array([on_axis], np.int64))[0]) - on_axis


class PipelineTables(Struct):
    """The table `pipeline`, rows of the others and of findings."""

    pipeline: pa.Table = field(default_factory=lambda: from_rows("pipeline", []))
    bubble: list[Row] = field(default_factory=list)
    what_if: list[Row] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)


class _Step(Struct):
    """One step of one pipeline; `t`, `lag` None where the ranks have no common clock or the order is not known.

    offsets: per rank, ns from the run's axis to the common clock in this step, None without one.
    """

    line: Line
    step: int
    chunks: list[list[Chunk]]
    messages: list[list[Message]]
    offsets: list[int | None]
    known: Recognised | None = None
    by_form: bool = False
    t: Timed | None = None
    lag: Lags | None = None
    reason: str | None = None
    why: AskedCauses | None = None
    what: AskedWhatIf | None = None

    def ask(self, typical: Typical, long: Sequence[LongStage]) -> None:
        """Ask for all replays of the step; they run together with those of other steps."""
        ran = self.known.ran if self.known is not None else None
        if self.t is None or self.lag is None or self.known is None or ran is None:
            return
        self.why = ask_causes(self.t, ran, self.known.ideal, typical, self.lag)
        compute = [[c.compute for c in row] for row in self.chunks]
        self.what = ask_what_if(self.t, ran, typical, self.lag, compute, long)


def pipelines(inputs: Sequence[RankInput], groups: Iterable[Sequence[int]] = ()) -> PipelineTables:
    """Everything about the pipelines of a job.

    inputs: one recording a rank, in order of rank; groups: pipeline-parallel groups of the layout, where it is known.
    """
    by_rank = {one.rank: one for one in inputs}
    found = find_lines({r: one.part for r, one in by_rank.items()}, groups)
    plans = Plans()
    steps = [s for line in found for s in _steps(line, by_rank, plans)]
    ready = [(s.t, s.known.ran) for s in steps if s.t is not None and s.known is not None and s.known.ran is not None]
    typical = Typical(ready, plans)
    long = long_stages(found, {r: one.part for r, one in by_rank.items()}, _loads(steps))
    out = PipelineTables()
    for s in steps:
        s.ask(typical, [x for x in long if x.places == len(s.line.ranks)])
    for s in steps:
        out.bubble += _bubbles(s, by_rank, typical)
        out.what_if += _what_ifs(s, typical)
    work = ((s, _name(s.line), plans.of(s.known.ran) if s.known and s.known.ran else None) for s in steps)
    out.pipeline = gantt(work, {rank: one.shift for rank, one in by_rank.items()})
    out.findings = [*stage_findings(long, out.what_if, {_name(line): len(line.ranks) for line in found}),
                    *_findings(steps)]  # fmt: skip
    return out


def _loads(steps: Iterable[_Step]) -> dict[int, float]:
    """Rank → ns of compute a micro-batch, the median over the steps that nothing seems to cut."""
    found: dict[int, list[float]] = {}
    for s in steps:
        if s.reason in ("incomplete", "no-work-on-a-stage") or not all(s.chunks):
            continue
        for rank, row in zip(s.line.ranks, s.chunks, strict=True):
            forwards = sum(c.kinds.count("F") for c in row)
            if forwards:
                found.setdefault(rank, []).append(sum(c.compute for c in row) / forwards)
    return {rank: statistics.median(values) for rank, values in found.items()}


def _steps(line: Line, by_rank: Mapping[int, RankInput], plans: Plans) -> list[_Step]:
    """The steps of a line; those of a line that cannot be analysed are left with the reason."""
    chunks, messages = (
        [_by_step(getattr(by_rank[r].part, name)) if r in by_rank else {} for r in line.ranks]
        for name in ("chunks", "messages")
    )
    out = []
    for step in sorted({step for own in chunks for step in own}):
        rows, sent = ([own.get(step, []) for own in lists] for lists in (chunks, messages))
        out.append(_Step(line, step, rows, sent, _offsets(map(by_rank.get, line.ranks), rows), reason=line.reason))
    if line.reason is None:
        ranks = [by_rank[r] for r in line.ranks]
        comm = [_spans(one.part.comm) for one in ranks]
        for s in out:
            _order(s, ranks)
            _place(s, ranks, plans, comm)
    return out


def _by_step(rows: Iterable[_Row]) -> dict[int, list[_Row]]:
    out: dict[int, list[_Row]] = {}
    for row in rows:
        if row.step is not None:
            out.setdefault(row.step, []).append(row)
    return out


def _order(s: _Step, ranks: Sequence[RankInput]) -> None:
    """Find the order of a step, and put its chunks into it."""
    from tracekit.analysis.pipeline.fit import by_form
    from tracekit.analysis.pipeline.recognise import recognise

    parts = [one.part for one in ranks]
    rows = [pieces(part, s.step) for part in parts]
    s.chunks = ordered(s.line, parts, rows)
    s.offsets = _offsets(ranks, s.chunks)
    orders = tuple(tuple(c.actions for c in row) for row in s.chunks)
    sends = sum(m.send for row in s.messages for m in row) if all(s.messages) else None
    s.known = recognise(orders, s.line.ring, sends)
    if any(c.source != ANNOTATION for row in s.chunks for c in row):
        found = by_form(s.line, parts, s.step, s.known, rows)
        s.by_form = found is not None
        s.known, s.chunks = found or (s.known, s.chunks)
    s.reason = s.known.reason


def _offsets(ranks: Iterable[RankInput | None], chunks: Sequence[Sequence[Chunk]]) -> list[int | None]:
    return [one.offset(row[0].ts) if row and one else None for one, row in zip(ranks, chunks, strict=True)]


def _place(s: _Step, ranks: Sequence[RankInput], plans: Plans, comm: Sequence[NDArray[np.int64]]) -> None:
    """Put a step on the common clock, if there is one and nothing seems cut.

    comm: per rank, [start, end) ns of other communication, int64 [k, 2] on the recording's own axis.
    """
    if not all(s.chunks):
        return
    moves = [one.shift + offset for one, offset in zip(ranks, s.offsets, strict=True) if offset is not None]
    if len(moves) < len(ranks) or len({one.clock.component for one in ranks if one.clock}) > 1:
        s.reason = "clock"
        return
    t = timed(s.chunks, moves)
    if not s.by_form and not t.whole():
        if not backward_split(s.line, s.chunks, s.messages):
            s.reason = "incomplete"
            return
        # What passes nothing on is work of its own here, and so is the wait before it.
        s.reason, s.chunks = "backward-split", [pieces(r.part, s.step) for r in ranks]
        t = timed(s.chunks, moves)
    if not t.backwards and s.line.ring is not True and any(map(_both_ways, s.messages)):
        s.reason = "no-backward"
        return
    s.t = t
    ran = s.known.ran if s.known else None
    if ran is not None:
        blocked = [_spans([span for m in row for span in m.blocked]) for row in s.messages]
        s.lag = lags(t, plans.of(ran), _moved(blocked, moves), _moved(comm, moves))


def _both_ways(messages: Sequence[Message]) -> bool:
    """Whether a rank both sends to another and receives from it: only training does, in a pipeline that is no ring."""
    return bool({m.peer for m in messages if m.send} & {m.peer for m in messages if not m.send})


def _spans(spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array(spans, np.int64).reshape(-1, 2)


def _moved(spans: Sequence[NDArray[np.int64]], moves: Sequence[int]) -> list[NDArray[np.int64]]:
    return [rows + move for rows, move in zip(spans, moves, strict=True)]


def _name(line: Line) -> str:
    return group_key(line.ranks, None, None) or ""


# -------------------------------------------------------------------------------------------------- table `bubble`


def _bubbles(s: _Step, by_rank: Mapping[int, RankInput], typical: Typical) -> list[Row]:
    known, t = s.known, s.t
    found: Causes | None = None
    if t is not None and known is not None and s.why is not None:
        found = causes(s.why, t, known.ideal, typical)
        if found is None:
            s.reason = "order-cannot-finish"
    rows = []
    for place, rank in enumerate(s.line.ranks):
        if rank not in by_rank:
            continue
        shape = known.ideal or known.ran if known is not None else None
        row: Row = {
            "pipeline": _name(s.line), "rank": rank, "step": s.step, "position": place,
            "schedule": known.name if known is not None else None,
            "stages": shape.stages if shape else None, "micro_batches": shape.micro_batches if shape else None,
            "deviations": known.deviations[place] if known is not None and known.ideal is not None else None,
            "deviation": known.first[place] if known is not None else None,
            "compute_ns": sum(c.compute for c in s.chunks[place]), "reason": s.reason,
            **dict.fromkeys(_MEASURED), **dict.fromkeys(_EXPLAINED),
        }  # fmt: skip
        if t is not None:
            row |= _measured(t, place)
            clocks = [by_rank[r].clock for r in s.line.ranks]
            row["clock_error_ns"] = max((c.error_ns or 0 for c in clocks if c is not None), default=None)
        if found is not None and s.lag is not None:
            row |= {f"{cause}_ns": ns for cause, ns in zip(CAUSES, found.idle[place], strict=True)}
            row |= {"held_ns": s.lag.held[place], "simulated_ns": found.simulated, "closed_form_ns": found.closed_form}
        rows.append(row)
    return rows


_MEASURED = (
    "window_ns", "busy_ns", "bubble_ns", "warmup_ns", "steady_ns", "drain_ns", "bubble_over_step_ratio",
    "bubble_over_ideal_ratio", "clock_error_ns",
)  # fmt: skip
_EXPLAINED = (*(f"{cause}_ns" for cause in CAUSES), "held_ns", "simulated_ns", "closed_form_ns")


def _measured(t: Timed, place: int) -> Row:
    begin, finish = t.window
    busy = sum(t.end[place]) - sum(t.start[place])
    idle = finish - begin - busy
    warmup, steady, drain = idle_split(t, place)
    return {
        "window_ns": finish - begin, "busy_ns": busy, "bubble_ns": idle, "warmup_ns": warmup, "steady_ns": steady,
        "drain_ns": drain, "bubble_over_step_ratio": idle / (finish - begin) if finish > begin else None,
        "bubble_over_ideal_ratio": idle / busy if busy else None,
    }  # fmt: skip


def _what_ifs(s: _Step, typical: Typical) -> list[Row]:
    """Rows of the table `what_if`; beyond MOST_ERROR of the replay without a window."""
    if s.t is None or s.what is None or (found := what_if(s.what, typical)) is None:
        return []
    base, cases = found
    window = s.t.window[1] - s.t.window[0]
    error = abs(base - window) / window if window else None
    good = error is not None and error <= MOST_ERROR
    return [
        {
            "basis": "pipeline", "pipeline": _name(s.line), "step": s.step, "what": what, "subject": subject,
            "window_ns": window, "replayed_ns": base,
            "replay_error_ratio": error, "what_if_ns": ns if good else None, "saved_ns": base - ns if good else None,
            "saved_ratio": (base - ns) / base if good and base else None, "reason": None if good else "replay-error",
        }
        for what, subject, ns in cases
    ]  # fmt: skip


def _findings(steps: Sequence[_Step]) -> Iterable[Row]:
    """One finding a pipeline and reason for which its bubble has no number or no causes."""
    seen: dict[tuple[str, str], int] = {}
    for s in steps:
        if s.reason is not None:
            key = (_name(s.line), s.reason)
            seen[key] = seen.get(key, 0) + 1
    for (name, reason), count in sorted(seen.items()):
        message = f"pipeline of ranks {name}: {_WORDS[reason]} (in {count} step{'' if count == 1 else 's'})"
        yield {"severity": "info", "code": f"pipeline-{reason}", "rank": None, "message": message}


_WORDS = {
    "peers-unknown": "nothing tells which ranks it sends to; declare the layout with --layout",
    "ranks-missing": "some of its ranks were not recorded or show no pipeline work, so no bubble is given",
    "order-unknown": "the order of its micro-batches cannot be told, so its bubble is not taken apart",
    "schedule-unknown": "its order is none of the known schedules; the bubble is that of the order itself",
    "schedule-ambiguous": "its order fits several schedules, so its bubble is not taken apart",
    "no-work-on-a-stage": "a stage has no forward or backward work in the recording",
    "clock": "its ranks have no common clock, so no bubble is given",
    "no-backward": "it sends both ways, but no backward work can be told, so no bubble is given",
    "incomplete": "forwards and backwards do not pair up on every rank: the recording cuts the step, or nothing tells "
    "some of them apart",
    "backward-split": "backwards run in parts (gradients of inputs, of weights) that nothing names, so its schedule is "
    "not told and its bubble not taken apart; annotate them as PP:<stage><I or W><micro-batch>",
    "micro-batches-merged": "its schedule is told by what ran between its sends, but nothing separates some of its "
    "micro-batches from one another, so its bubble is not taken apart",
    "order-cannot-finish": "the recorded order cannot finish, so its bubble is not taken apart",
}

"""What the cross-rank step needs of one rank: a few numpy columns of its `collectives` file."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.arrays import codes_of, mapped, numbers_of, plain, view
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Row = dict[str, Any]
_TEXTS = ("op", "group_id", "group_name", "dtype", "strategy", "purpose", "phase", "scope", "family")
_NUMBERS = (
    "group_size", "seq", "src_rank", "dst_rank", "in_nelems", "out_nelems", "payload_bytes", "call_ts_ns", "ts_ns",
    "dur_ns", "device", "step", "coalesced_into", "peers",
)  # fmt: skip


class Busy(Struct):
    """The columns of `busy.busy_table`, where they lie in the file."""

    device: NDArray[np.int32]
    call: NDArray[np.int32]
    ts: NDArray[np.int64]
    dur: NDArray[np.int64]


class RankInput(Struct, dict=True):
    """One analysed recording: `files` from the worker, `shift` ns from its own times to the run's axis.

    comparable: its times are Unix times (else only durations compare). steps, totals: rows of those tables
    (times on its own axis), markers: whether its steps come from markers and so mean the same on all ranks.
    """

    rank: int
    files: dict[str, str]
    shift: int = 0
    host: str | None = None
    comparable: bool = False
    steps: list[Row] = field(default_factory=list)
    totals: list[Row] = field(default_factory=list)

    @cached_property
    def busy(self) -> Busy:
        """Its device work."""
        table = mapped(self.files["busy"])
        device, call = (view(table.column(n), np.dtype(np.int32)) for n in ("device", "call"))
        return Busy(device, call, *(view(table.column(n), np.dtype(np.int64)) for n in ("ts_ns", "dur_ns")))

    @property
    def markers(self) -> bool:
        """True when step numbers come from markers."""
        return bool(self.steps) and all(s["found_by"] != "whole-window" for s in self.steps)


class CallColumns(Struct):
    """What matching adds to the calls of one recording; int64 with `NO_TIME`, float64 with NaN, texts with None."""

    numbers: dict[str, NDArray[np.int64]]
    rates: dict[str, NDArray[np.float64]]
    texts: dict[str, list[str | None]]


class RankCalls(Struct, dict=True):
    """The calls of one recording in call order; times on the run's axis, `NO_TIME` = missing number.

    text: column → (int32 codes, names), code -1 = null; number: column → int64; comms: uint64 ids with their
    presence; window: first and last start of device activity.
    """

    rank: int
    host: str | None
    comparable: bool
    markers: bool
    window: tuple[int, int]
    text: dict[str, tuple[NDArray[np.int32], list[str]]]
    number: dict[str, NDArray[np.int64]]
    comms: NDArray[np.uint64]
    has_comms: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.comms)

    def texts(self, column: str) -> list[str | None]:
        """A text column as Python strings."""
        codes, names = self.text[column]
        words: list[str | None] = [*names, None]
        return [words[c] for c in codes.tolist()]

    def word(self, column: str, row: int) -> str | None:
        """A text of one call."""
        codes, names = self.text[column]
        code = int(codes[row])
        return None if code < 0 else names[code]

    @property
    def start(self) -> NDArray[np.int64]:
        """Start on the device or worker, ns."""
        return self.number["ts_ns"]

    @cached_property
    def begin(self) -> NDArray[np.int64]:
        """When a call can first have reached other ranks: its start; on gloo a send leaves with the operator's call."""
        call = self.number["call_ts_ns"]
        return np.where(self.says("op", "send") & self.says("family", "gloo") & (call != NO_TIME), call, self.start)

    def says(self, column: str, *words: str) -> NDArray[np.bool_]:
        """Which calls have one of some words in a text column."""
        codes, names = self.text[column]
        wanted = np.array([*(name in words for name in names), False], np.bool_)  # null, -1, is the last one
        return np.asarray(wanted[codes], np.bool_)

    @cached_property
    def end(self) -> NDArray[np.int64]:
        """End on the device or worker, ns; `NO_TIME` where the call has no duration."""
        dur = self.number["dur_ns"]
        return np.where((dur == NO_TIME) | (self.start == NO_TIME), NO_TIME, self.start + dur)


def shared(parts: Sequence[RankCalls], column: str) -> tuple[list[NDArray[np.int64]], list[str | None]]:
    """A text column of all parts in codes of one list of names; the last name is None."""
    number: dict[str, int] = {}
    maps = [[number.setdefault(name, len(number)) for name in part.text[column][1]] for part in parts]
    codes = [np.array([*own, len(number)], np.int64)[p.text[column][0]] for own, p in zip(maps, parts, strict=True)]
    return codes, [*number, None]


def load(one: RankInput) -> RankCalls:
    """Read the columns of one recording; others of the file are not touched (it is memory-mapped)."""
    table = mapped(one.files["collectives"])
    text = {name: codes_of(table.column(name)) for name in _TEXTS}
    number = {name: numbers_of(table.column(name)) for name in _NUMBERS}
    comms, has_comms = plain(table.column("comms_id"), np.dtype(np.uint64))
    for name in ("call_ts_ns", "ts_ns"):
        known = number[name] != NO_TIME
        number[name][known] += one.shift
    low, high = _hull(one.busy.ts)
    return RankCalls(
        one.rank, one.host, one.comparable, one.markers, (low + one.shift, high + one.shift), text, number, comms,
        has_comms,
    )  # fmt: skip


def _hull(begins: NDArray[np.int64]) -> tuple[int, int]:
    """First and last start of device activity, on the recording's own axis.

    Not the last end: what runs beyond the end of a recording says nothing about what began then.
    """
    return (int(begins.min()), int(begins.max())) if len(begins) else (0, 0)


def distinct(values: NDArray[Any]) -> list[int]:
    """Distinct values, ascending; quick where they are all equal."""
    found: list[int] = (values[:1] if (values == values[:1]).all() else np.unique(values)).tolist()
    return found


def median(values: NDArray[Any]) -> float:
    """`np.median` of one value or more, without what that does besides: ten times the work where they are few."""
    low, high = (len(values) - 1) // 2, len(values) // 2
    halves = np.partition(values, (low, high))
    return (float(halves[low]) + float(halves[high])) / 2

"""What each call should take and how it stands: expectation by kind of call, verdict by call.

Measured is the transfer where the other ranks tell it. A duration alone may contain waiting, so it proves that a call
is fast enough, never that it is slow: the verdict is one-sided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.expected.calls import P2P
from tracekit.model import NO_TIME
from tracekit.theory import MissingInput, NoNumber, OutsideDomain, bus_factor, expect
from tracekit.theory.expectation import LARGE_BYTES, LATENCY_BOUND_RATIO, TOO_SMALL_RATIO

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.analysis.expected.calls import Calls, Kind
    from tracekit.analysis.expected.machine import Machine
    from tracekit.theory import Expectation, Placement

VERDICTS = ("at_limit", "below_limit", "latency_bound", "too_small", "above_limit", "unknown")
AT, BELOW, LATENCY, SMALL, ABOVE, UNKNOWN = range(6)
NONE = -1
"""No verdict: nothing was expected or nothing measured."""
TRANSFER, DURATION = "transfer", "duration"
NCCL = frozenset({"nccl", "rccl", None})
GROUP, MESSAGE = "the size of the group", "the size of the message (the file does not record it)"
WAITING = "its duration may contain waiting (other ranks are needed)"
_AXIS = {"tp": "tp", "sp": "tp", "cp": "cp", "ep": "ep", "pp": "pp"}
_MODELS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send", "recv"})


class Timed(Struct):
    """Expectation of one kind of call, or why there is none. `limit_gbps`: bus bandwidth at the least time."""

    size: int | None
    placement: Placement | None = None
    expectation: Expectation | None = None
    factor: float | None = None
    reason: str | None = None

    @property
    def least_ns(self) -> float | None:
        """Bytes over the links, ns."""
        return self.expectation.bound.lower_bound_ns if self.expectation else None


class Judged(Struct):
    """Columns of one recording's calls: `verdict` codes (-1 = none), expected and least ns (NaN), timed by kind."""

    verdict: NDArray[np.int64]
    expected: NDArray[np.float64]
    least: NDArray[np.float64]
    measured: NDArray[np.int64]
    exact: NDArray[np.bool_]
    timed: list[Timed] = field(default_factory=list)


def size_of(kind: Kind, machine: Machine) -> int | None:
    """Ranks of the group: recorded, else the members', else the layout's degree of the strategy's axis."""
    if kind.op in P2P:
        return 2
    if kind.size is not None:
        return kind.size
    members = machine.members(kind.group_id)
    if members is not None:
        return len(members)
    return machine.degrees.get(_AXIS.get(kind.strategy, ""))


def time_of(kind: Kind, rank: int | None, machine: Machine) -> Timed:
    """Expectation of one kind of call."""
    out = Timed(size_of(kind, machine))
    try:
        out.factor = bus_factor(kind.op, out.size) if out.size else None
        lacking = [GROUP] if out.size is None else []
        lacking += [MESSAGE] if kind.payload is None else []
        if out.size is None or kind.payload is None:
            raise MissingInput(*lacking)
        hw = machine.need()
        members = machine.members(kind.group_id, (rank, kind.peer) if kind.op in P2P else ())
        if members is not None and len(members) != out.size:
            raise OutsideDomain(f"the group has {len(members)} ranks, the call says {out.size}")
        out.placement = machine.place(members, out.size)
        if kind.op not in _MODELS:
            raise MissingInput(f"a model of {kind.op}")
        out.expectation = expect(kind.op, kind.payload, out.placement, hw)
        if out.expectation.expected_ns is None:
            out.reason = out.expectation.reason
    except NoNumber as e:
        out.reason = str(e)
    return out


def judge_calls(calls: Calls, rank: int | None, machine: Machine, known: dict[object, Timed]) -> Judged:
    """Expectation and verdict of every call; `known` keeps the expectations of kinds over recordings."""
    n = len(calls)
    exact = calls.transfer != NO_TIME
    measured = np.where(exact, calls.transfer, calls.dur)
    out = Judged(np.full(n, NONE, np.int64), np.full(n, np.nan), np.full(n, np.nan), measured, exact)
    for kind, rows in zip(calls.kinds, calls.rows, strict=True):
        key = (kind, rank if kind.op in P2P else None)
        timed = known.get(key)
        if timed is None:
            timed = known[key] = time_of(kind, rank, machine)
        out.timed.append(timed)
        if timed.expectation is None or not len(rows):
            continue
        out.least[rows] = timed.expectation.bound.lower_bound_ns
        out.expected[rows] = np.nan if timed.expectation.expected_ns is None else timed.expectation.expected_ns
        there = rows[measured[rows] > 0]
        out.verdict[there] = judge(timed.expectation, kind.payload or 0, measured[there], exact[there])
    return out


def judge(e: Expectation, payload: int, ns: NDArray[np.int64], exact: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Verdict codes of measured times, as `theory.verdict` gives them; not exact: the time may contain waiting."""
    share = e.latency_ratio or 0.0
    small = payload < LARGE_BYTES and share >= LATENCY_BOUND_RATIO
    usual = (SMALL if share >= TOO_SMALL_RATIO else LATENCY) if small else AT
    if e.high_ns is None or not e.expected_ns:
        out = np.full(len(ns), UNKNOWN, np.int64)
    else:
        out = np.where(ns > e.high_ns, np.where(exact, BELOW, UNKNOWN), usual)
    return np.where(ns < e.bound.lower_bound_ns, ABOVE, out)

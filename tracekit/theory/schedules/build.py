"""Schedules by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.theory.schedules import flush_orders, zero_orders
from tracekit.theory.schedules.dual_orders import dual
from tracekit.theory.schedules.errors import ScheduleError
from tracekit.theory.schedules.schedule import Schedule, checked, from_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.theory.schedules.actions import Step


@dataclass(frozen=True)
class _Maker:
    """How a schedule is made: `order(rank, p, m, v)`, where stages live, and what it needs."""

    order: Callable[[int, int, int, int], Sequence[Step]]
    looped: bool = False
    """Takes any number of stages a rank; stage s lives on rank s mod p."""
    v_shaped: bool = False
    """Two stages a rank: s and 2p-1-s."""
    rounds: bool = False
    """Micro-batches come in equal rounds."""
    fills: bool = False
    """Needs 2p micro-batches at least."""


_MAKERS = {
    "GPipe": _Maker(lambda r, _p, m, _v: flush_orders.gpipe(r, m)),
    "1F1B": _Maker(lambda r, p, m, _v: flush_orders.one_f_one_b(r, p, m)),
    "Interleaved1F1B": _Maker(flush_orders.interleaved_1f1b, looped=True, rounds=True),
    "LoopedBFS": _Maker(flush_orders.looped_bfs, looped=True),
    "InterleavedZeroBubble": _Maker(zero_orders.interleaved_zero_bubble, looped=True, rounds=True),
    "ZB-H1": _Maker(zero_orders.interleaved_zero_bubble),
    "ZB-H2": _Maker(lambda r, p, m, _v: zero_orders.zb_h2(r, p, m)),
    "ZBVZeroBubble": _Maker(lambda r, p, m, _v: zero_orders.zb_v(r, p, m), v_shaped=True),
    "DualPipeV": _Maker(
        lambda r, p, m, _v: dual(r, p, m, r, 2 * p - 1 - r, {r: 0, 2 * p - 1 - r: 0}), v_shaped=True, fills=True
    ),
}
NAMES = (*_MAKERS, "DualPipe")
"""What `build` knows. Spelling of case, dashes and spaces does not matter."""

_ALIASES = {"interleaved": "Interleaved1F1B", "zbv": "ZBVZeroBubble", "zb1p": "ZB-H1", "bfs": "LoopedBFS"}


def canonical(name: str) -> str:
    """The entry of NAMES meant by `name`; ScheduleError if none is."""
    key = "".join(c for c in name.casefold() if c.isalnum())
    for known in NAMES:
        if key == "".join(c for c in known.casefold() if c.isalnum()):
            return known
    if key in _ALIASES:
        return _ALIASES[key]
    raise ScheduleError(f"no schedule is called {name!r}; known are {', '.join(NAMES)}")


def build(name: str, stages: int, micro_batches: int, virtual: int | None = None) -> Schedule:
    """The schedule `name` over `stages` pipeline ranks, with `virtual` stages on each and `micro_batches` a step.

    The model has stages·virtual parts; without `virtual`, one a rank, or two in V-shaped schedules (ZB-V, DualPipeV).
    DualPipe has `stages` parts, each on two ranks, and half the micro-batches go each way.
    Raises ScheduleError for a name or sizes that the schedule does not have.
    """
    known = canonical(name)
    if stages < 1 or micro_batches < 1 or (virtual is not None and virtual < 1):
        raise ScheduleError(f"{known}: stages, micro-batches and virtual stages are at least 1 each")
    if known == "DualPipe":
        return _dualpipe(stages, micro_batches, virtual)
    maker = _MAKERS[known]
    v = virtual or (2 if maker.v_shaped else 1)
    _check_sizes(known, maker, stages, micro_batches, v)
    orders = tuple(tuple(maker.order(rank, stages, micro_batches, v)) for rank in range(stages))
    lane = tuple(range(stages * v))
    home = [s if s < stages else 2 * stages - 1 - s for s in lane] if maker.v_shaped else [s % stages for s in lane]
    return checked(Schedule(known, orders, tuple(home), (lane,), lane))


def _check_sizes(name: str, maker: _Maker, p: int, m: int, v: int) -> None:
    if maker.v_shaped and v != 2:
        raise ScheduleError(f"{name} has 2 stages on each rank, not {v}")
    if not maker.v_shaped and not maker.looped and v != 1:
        raise ScheduleError(f"{name} has 1 stage on each rank, not {v}; Interleaved1F1B and LoopedBFS take more")
    if maker.rounds and m % max(1, m // p):
        raise ScheduleError(f"{name} needs rounds of equal size: {m} micro-batches do not divide into {m // p} rounds")
    if maker.fills and m < 2 * p:
        raise ScheduleError(f"{name} over {p} ranks needs at least {2 * p} micro-batches, not {m}")


def _dualpipe(p: int, m: int, virtual: int | None) -> Schedule:
    """Lane 0 runs over stages 0…p-1 on ranks 0…p-1, lane 1 over stages p…2p-1 on ranks p-1…0."""
    if p % 2 or m % 2 or m < 2 * p or virtual not in (None, 2):
        raise ScheduleError(
            f"DualPipe needs an even number of ranks and an even number, at least twice as many, of micro-batches "
            f"(and holds 2 stages a rank); found {p} ranks, {m} micro-batches, {virtual or 2} stages a rank"
        )
    each, half = m // 2, p // 2
    orders: list[tuple[Step, ...]] = []
    for rank in range(p):
        there, back = rank, 2 * p - 1 - rank
        near, far = (there, back) if rank < half else (back, there)
        orders.append(tuple(dual(min(rank, p - 1 - rank), half, each, near, far, {there: 0, back: each})))
    return from_order(orders, "DualPipe", (range(p), range(p, 2 * p)))

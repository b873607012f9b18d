"""Orders of the schedules that split backward: ZB-H1, its interleaved form, ZB-H2, ZB-V (Qi et al., arXiv 2401.10241).

Each function gives the order of one rank out of `p`, for `m` micro-batches and `v` stages a rank.
"""

from __future__ import annotations

from itertools import count

from tracekit.theory.schedules.actions import Action, Kind, Step
from tracekit.theory.schedules.flush_orders import turns

F, I, W = Kind.FORWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT  # noqa: E741 - the letters of the papers


def interleaved_zero_bubble(rank: int, p: int, m: int, v: int) -> list[Step]:
    """As interleaved 1F1B with half the warm-up; weight gradients run `rank` backwards late. v = 1 is ZB-H1 (ZB1P)."""
    warmup = min((v - 1) * (m // max(1, m // p)) + (p - 1 - rank), m * v)
    return _delayed(turns(rank, p, m, v, False), turns(rank, p, m, v, True), warmup, rank)


def zb_h2(rank: int, p: int, m: int) -> list[Step]:
    """Twice the warm-up of ZB-H1 and twice its delay of weight gradients: the idle of the start moves to the end.

    Derived from the paper's conditions: rank r begins with 2(p-r)-1 forwards, and W follows 2r backwards late.
    """
    batches = [(rank, k) for k in range(m)]
    return _delayed(batches, batches, min(2 * (p - 1 - rank), m), 2 * rank)


def _delayed(forward: list[tuple[int, int]], backward: list[tuple[int, int]], warmup: int, delay: int) -> list[Step]:
    """`warmup` forwards; then forward and input gradient in turn, each with the weight gradient `delay` turns older."""
    order: list[Step] = [Action(F, *turn) for turn in forward[:warmup]]
    for i, turn in enumerate(backward):
        order += [Action(F, *ahead) for ahead in forward[warmup + i : warmup + i + 1]]
        order.append(Action(I, *turn))
        if i >= delay:
            order.append(Action(W, *backward[i - delay]))
    return order + [Action(W, *turn) for turn in backward[max(0, len(backward) - delay) :]]


def zb_v(rank: int, p: int, m: int) -> list[Step]:
    """ZB-V: two stages a rank, `rank` on the way down and 2p-1-rank on the way back; made for F = Bin = W.

    Needs 2p-1 micro-batches to fill the pipeline; with fewer, the order is that of 2p-1 without the absent ones.
    """
    down, up = rank, 2 * p - 1 - rank
    following = {(kind, stage): count() for kind in (F, I, W) for stage in (down, up)}
    order: list[Action] = []

    def add(stage: int, *kinds: Kind) -> None:
        order.extend(Action(kind, stage, next(following[kind, stage])) for kind in kinds)

    full, filled = max(m, 2 * p - 1), 2 * p - 1 - rank
    for _ in range(filled - rank):
        add(down, F)
    for _ in range(rank):
        add(up, F)
        add(down, F)
    for _ in range(p - rank):
        add(up, F, I, W)
    for done in range(full - p):
        if filled + done < full:
            add(down, F)
        add(down, I, W)
        add(up, F, I, W)
    for _ in range(rank):
        add(down, I)
        add(up, I)
    for _ in range(p - rank):
        add(down, I, W)
    for stage in (up, down):
        for _ in range(rank):
            add(stage, W)
    return [action for action in order if action.micro_batch < m]

"""Orders of the schedules that keep backward whole: GPipe, 1F1B, interleaved 1F1B, breadth-first.

Each function gives the order of one rank out of `p`, `m` micro-batches, `v` stages a rank (chunk·p + rank).
"""

from __future__ import annotations

from tracekit.theory.schedules.actions import Action, Kind, Step

F, B = Kind.FORWARD, Kind.BACKWARD


def gpipe(rank: int, m: int) -> list[Step]:
    """All forwards, then all backwards, both in the order of micro-batches (Huang et al., arXiv 1811.06965)."""
    return [Action(kind, rank, k) for kind in (F, B) for k in range(m)]


def one_f_one_b(rank: int, p: int, m: int) -> list[Step]:
    """p-1-rank forwards, then one forward and one backward in turn (PipeDream-flush; Narayanan et al., 2104.04473)."""
    warmup = min(p - 1 - rank, m)
    order: list[Step] = [Action(F, rank, k) for k in range(warmup)]
    for k in range(m):
        if warmup + k < m:
            order.append(Action(F, rank, warmup + k))
        order.append(Action(B, rank, k))
    return order


def looped_bfs(rank: int, p: int, m: int, v: int) -> list[Step]:
    """All forwards of a stage before the next stage; backwards mirror them (Lamy-Poirier, arXiv 2211.05953)."""
    stages = range(rank, p * v, p)
    forward: list[Step] = [Action(F, s, k) for s in stages for k in range(m)]
    return forward + [Action(B, s, k) for s in reversed(stages) for k in reversed(range(m))]


def turns(rank: int, p: int, m: int, v: int, last_first: bool) -> list[tuple[int, int]]:
    """(stage, micro-batch) in depth-first order: rounds of micro-batches pass all stages of the rank before the next.

    A round has p micro-batches if p divides m, else m // max(1, m // p), the last one what is left. `last_first` is the
    order of backwards.
    """
    size = m // max(1, m // p)
    chunks = range(v - 1, -1, -1) if last_first else range(v)
    rounds = [range(first, min(first + size, m)) for first in range(0, m, size)]
    return [(c * p + rank, k) for batches in rounds for c in chunks for k in batches]


def interleaved_1f1b(rank: int, p: int, m: int, v: int) -> list[Step]:
    """One forward and one backward in turn over the v stages of a rank (Narayanan et al., arXiv 2104.04473, 2.2)."""
    forward, backward = turns(rank, p, m, v, False), turns(rank, p, m, v, True)
    warmup = min((v - 1) * (m // max(1, m // p)) + 2 * (p - 1 - rank), m * v)
    order: list[Step] = [Action(F, *turn) for turn in forward[:warmup]]
    for i, turn in enumerate(backward):
        order += [Action(F, *ahead) for ahead in forward[warmup + i : warmup + i + 1]]
        order.append(Action(B, *turn))
    return order

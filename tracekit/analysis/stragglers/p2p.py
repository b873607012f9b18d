"""Pipeline transfers: which compute each send and recv belongs to, and which send meets which recv."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.analysis.stragglers.optable import NotReplayableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.stragglers.optable import OpGrid

_SLACK_NS = 50_000
"""Clocks of two streams of a worker differ by less."""


@dataclass(slots=True)
class Matched:
    """edges: (before, after) nodes of one stage; groups: pairs that end together (alone: nothing was sent)."""

    edges: list[tuple[int, int]] = field(default_factory=list)
    groups: list[tuple[int, ...]] = field(default_factory=list)


def match(grid: OpGrid, order: Sequence[int]) -> Matched:
    """Match the transfers of a grid; `order`: nodes by start. NotReplayableError `unpaired` when counts disagree."""
    out = Matched()
    ends: dict[tuple[str, int, int], dict[str, int]] = {}
    chunks = 1 + max((n.global_chunk for n in grid.nodes), default=-1)
    last_chunk = max(chunks, grid.stages) - 1
    for stage in range(grid.stages):
        for direction in ("forward", "backward"):
            computes = _nodes(grid, order, stage, f"{direction}-compute")
            for way in ("send", "recv"):
                found = _launched(grid, _nodes(grid, order, stage, f"{direction}-{way}"), computes, way, out)
                for transfer, position in _computes_of(grid, found, computes, stage):
                    _bind(out, transfer, computes, position, way)
                    key = _boundary(grid, computes, position, direction, way, last_chunk)
                    if key is None:
                        out.groups.append((transfer,))
                    elif way in ends.setdefault(key, {}):
                        raise NotReplayableError("unpaired", f"{grid.nodes[transfer]} moves what another has moved")
                    else:
                        ends[key][way] = transfer
    for pair in ends.values():
        if len(pair) != 2:
            (node,) = pair.values()
            raise NotReplayableError("unpaired", f"{grid.nodes[node]} has no other end")
        out.groups.append(tuple(sorted(pair.values())))
    return out


def _nodes(grid: OpGrid, order: Sequence[int], stage: int, op: str) -> list[int]:
    return [i for i in order if grid.nodes[i].stage == stage and grid.nodes[i].op == op]


def _launched(grid: OpGrid, transfers: list[int], computes: list[int], way: str, out: Matched) -> list[int]:
    """Transfers that can belong to a compute; a recv after the last or a send before the first moved nothing."""
    if not computes:
        out.groups += [(i,) for i in transfers]
        return []
    start, end = grid.start[:, 0, 0], grid.end[:, 0, 0]
    if way == "recv":
        limit = max(int(start[c]) for c in computes) + _SLACK_NS
        real = [i for i in transfers if int(start[i]) <= limit]
    else:
        limit = min(int(end[c]) for c in computes) - _SLACK_NS
        real = [i for i in transfers if int(end[i]) >= limit]
    out.groups += [(i,) for i in transfers if i not in set(real)]
    return real


def _computes_of(grid: OpGrid, transfers: list[int], computes: list[int], stage: int) -> list[tuple[int, int]]:
    """(transfer, position of its compute): in order, one each; the first recv of the model's first chunk may lack."""
    missing = len(computes) - len(transfers)
    if not transfers:
        return []
    if missing not in (0, 1):
        name = grid.nodes[transfers[0]].op
        raise NotReplayableError(
            "unpaired", f"stage {stage} has {len(transfers)} {name} for {len(computes)} computes: one each is needed"
        )
    return [(i, k + missing) for k, i in enumerate(transfers)]


def _bind(out: Matched, transfer: int, computes: list[int], position: int, way: str) -> None:
    """compute → send; the compute before → recv → compute."""
    if way == "send":
        out.edges.append((computes[position], transfer))
        return
    out.edges.append((transfer, computes[position]))
    if position:
        out.edges.append((computes[position - 1], transfer))


def _boundary(
    grid: OpGrid, computes: list[int], position: int, direction: str, way: str, last_chunk: int
) -> tuple[str, int, int] | None:
    """(direction, lower chunk of the boundary that is crossed, micro-batch); None at either end of the model."""
    node = grid.nodes[computes[position]]
    chunk = node.global_chunk if node.global_chunk >= 0 else node.stage
    upward = (direction == "forward") == (way == "send")
    lower = chunk if upward else chunk - 1
    if lower < 0 or lower >= last_chunk:
        return None
    return direction, lower, _micro_batch(grid, computes, position)


def _micro_batch(grid: OpGrid, computes: list[int], position: int) -> int:
    """The micro-batch, or without numbers the ordinal among the computes of the same chunk."""
    node = grid.nodes[computes[position]]
    if node.micro_batch >= 0:
        return node.micro_batch
    before = computes[:position]
    return sum(grid.nodes[i].global_chunk == node.global_chunk for i in before)

"""Pipeline transfers: which compute each send and recv belongs to, and which send meets which recv."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from tracekit.analysis.stragglers.optable import NotReplayableError
from tracekit.analysis.stragglers.optypes import COMPUTE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.stragglers.optable import Node, OpGrid

_Key = tuple[str, int, int]
"""(direction, lower chunk of the boundary that is crossed, micro-batch)."""

_SLACK_NS = 50_000
"""Clocks of two streams of a worker differ by less."""


class Matched(Struct):
    """edges: (before, after) nodes of one stage; groups: pairs that end together (alone: nothing was sent)."""

    edges: list[tuple[int, int]] = field(default_factory=list)
    groups: list[tuple[int, ...]] = field(default_factory=list)


def match(grid: OpGrid, order: Sequence[int]) -> Matched:
    """Match the transfers of a grid; `order`: nodes by start. NotReplayableError `unpaired` when counts disagree."""
    out = Matched()
    ends: dict[_Key, dict[str, int]] = {}
    last_chunk = max((_chunk(grid, n) for n in grid.nodes if n.op in COMPUTE), default=0)
    for stage in range(grid.stages):
        for direction in ("forward", "backward"):
            computes = _nodes(grid, order, stage, f"{direction}-compute")
            for way in ("send", "recv"):
                keys = [_boundary(grid, computes, k, direction, way, last_chunk) for k in range(len(computes))]
                found = _launched(grid, _nodes(grid, order, stage, f"{direction}-{way}"), computes, way, out)
                for transfer, position in _assign(grid, found, keys):
                    _bind(out, transfer, computes, position, way)
                    _meet(grid, out, ends, keys[position], way, transfer)
    for pair in ends.values():
        if len(pair) != 2:
            (node,) = pair.values()
            raise NotReplayableError("unpaired", f"{grid.nodes[node]} has no other end")
        out.groups.append(tuple(sorted(pair.values())))
    return out


def _nodes(grid: OpGrid, order: Sequence[int], stage: int, op: str) -> list[int]:
    return [i for i in order if grid.nodes[i].stage == stage and grid.nodes[i].op == op]


def _chunk(grid: OpGrid, node: Node) -> int:
    """Number of a node's chunk in the whole model; chunks go round the stages."""
    return node.global_chunk if node.global_chunk >= 0 else max(node.chunk, 0) * grid.stages + node.stage


def _launched(grid: OpGrid, transfers: list[int], computes: list[int], way: str, out: Matched) -> list[int]:
    """Transfers that can belong to a compute; a recv after the last or a send before the first moved nothing."""
    start, end = grid.start[:, 0, 0], grid.end[:, 0, 0]
    if not computes:
        real = []
    elif way == "recv":
        limit = max(int(start[c]) for c in computes) + _SLACK_NS
        real = [i for i in transfers if int(start[i]) <= limit]
    else:
        limit = min(int(end[c]) for c in computes) - _SLACK_NS
        real = [i for i in transfers if int(end[i]) >= limit]
    out.groups += [(i,) for i in transfers if i not in set(real)]
    return real


def _assign(grid: OpGrid, transfers: list[int], keys: list[_Key | None]) -> list[tuple[int, int]]:
    """(transfer, position of its compute), in order.

    Writers note a transfer for every compute, or only where something crosses, or for every compute but the first.
    """
    crossing = [k for k, key in enumerate(keys) if key is not None]
    every = list(range(len(keys)))
    for positions in (crossing, every, every[1:]):
        if len(positions) == len(transfers):
            return list(zip(transfers, positions, strict=True))
    node = grid.nodes[transfers[0]] if transfers else None
    what = f"stage {node.stage} has {len(transfers)} {node.op}" if node else "a stage has no transfers"
    raise NotReplayableError("unpaired", f"{what} for {len(crossing)} that cross a stage and {len(keys)} computes")


def _bind(out: Matched, transfer: int, computes: list[int], position: int, way: str) -> None:
    """compute → send; the compute before → recv → compute."""
    if way == "send":
        out.edges.append((computes[position], transfer))
        return
    out.edges.append((transfer, computes[position]))
    if position:
        out.edges.append((computes[position - 1], transfer))


def _meet(
    grid: OpGrid, out: Matched, ends: dict[_Key, dict[str, int]], key: _Key | None, way: str, transfer: int
) -> None:
    """Note one end of a transfer; one that crosses nothing is alone."""
    if key is None:
        out.groups.append((transfer,))
    elif way in ends.setdefault(key, {}):
        raise NotReplayableError("unpaired", f"{grid.nodes[transfer]} moves what another has moved")
    else:
        ends[key][way] = transfer


def _boundary(
    grid: OpGrid, computes: list[int], position: int, direction: str, way: str, last_chunk: int
) -> _Key | None:
    """Which boundary of chunks a compute's transfer crosses; None at either end of the model."""
    chunk = _chunk(grid, grid.nodes[computes[position]])
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
    return sum(_chunk(grid, grid.nodes[i]) == _chunk(grid, node) for i in computes[:position])

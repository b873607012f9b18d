"""Replay and path on small random graphs, against the enumeration of all paths."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tracekit.analysis.critical.joint import Joint
from tracekit.analysis.critical.parts import PARTS, NodeKind, Part, RankGraph
from tracekit.analysis.critical.path import Walk
from tracekit.analysis.critical.pieces import KINDS
from tracekit.analysis.critical.replay import Replay
from tracekit.model import NO_TIME


def joint(time: list[int], edges: list[tuple[int, int, int]], step: list[int]) -> Joint:
    """One recording's nodes with given times and (source, target, ns) edges; node 0 begins and the last one ends."""
    n = len(time)
    parts = np.zeros((len(edges), PARTS), np.int64)
    parts[:, Part.COMPUTE] = [w for _, _, w in edges]
    graph: Any = RankGraph(
        begin=0, time=np.array(time), kind=np.zeros(n, np.int8), step=np.array(step, np.int32),
        name=np.zeros(n, np.int32), lane=np.zeros(n, np.int32), thread=np.full(n, -1, np.int32),
        call=np.full(n, -1, np.int32), count=np.ones(n, np.int32), issued=np.full(n, -1, np.int32),
        src=np.array([a for a, _, _ in edges], np.int32), dst=np.array([b for _, b, _ in edges], np.int32), parts=parts,
        steps=[(0, 0, max(time), True)], names=["work"], lanes=[(0, 7)], threads=[], owner=np.empty(0, np.int32),
        label=np.empty(0, np.int64), labels=[], on_host=False,
    )  # fmt: skip
    from tracekit.analysis.critical.joint import RankInput

    return Joint(
        [RankInput(0, graph)], np.array(time), np.full(n, NodeKind.RUN, np.int8), np.zeros(n, np.int32),
        np.arange(n, dtype=np.int32), np.array(step, np.int32), graph.src, graph.dst, parts.sum(axis=1),
        parts[:, Part.COMPUTE], np.full(len(edges), -2, np.int16), [],
        np.full(n, NO_TIME), [0], [True], [{0: 0}], [{0: n - 1}],
        np.arange(n, dtype=np.int32),
    )  # fmt: skip


def random_graph(seed: int) -> tuple[int, list[tuple[int, int, int]]]:
    """Edges that go forward; every node but the first has one, and the last is reached from all that lead nowhere."""
    draw = random.Random(seed)
    n = draw.randint(3, 9)
    edges = []
    for node in range(1, n):
        sources = draw.sample(range(node), draw.randint(1, min(node, 3)))
        edges += [(s, node, draw.randint(0, 50)) for s in sources]
    ends = {s for s, _, _ in edges}
    edges += [(node, n - 1, draw.randint(0, 50)) for node in range(1, n - 1) if node not in ends]
    return n, edges


def all_paths(edges: list[tuple[int, int, int]], goal: int) -> list[int]:
    """Lengths of all paths from node 0 to `goal`, one by one."""
    found = []

    def go(node: int, length: int) -> None:
        if node == goal:
            found.append(length)
        for s, d, w in edges:
            if s == node:
                go(d, length + w)

    go(0, 0)
    return found


def times(n: int, edges: list[tuple[int, int, int]]) -> list[int]:
    return [0, *(max(all_paths(edges, node)) for node in range(1, n))]


@pytest.mark.parametrize("seed", range(60))
def test_the_replay_finds_the_longest_of_all_paths(seed: int) -> None:
    n, edges = random_graph(seed)
    steps = [-1] + [0] * (n - 1)
    other = [(s, d, w * 3 % 41) for s, d, w in edges]
    j = joint(times(n, edges), edges, steps)
    replay = Replay(j)
    for changed in (edges, other):
        got = replay.run(np.array([w for _, _, w in changed]))
        assert got.tolist() == times(n, changed)


@pytest.mark.parametrize("seed", range(30))
def test_changes_are_replayed_each_on_its_own(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("CELLS", 1), ("FEWEST", 2), ("BLOCK", 2)):
        monkeypatch.setattr(f"tracekit.analysis.critical.replay.{name}", value)
    n, edges = random_graph(seed)
    replay = Replay(joint(times(n, edges), edges, [-1] + [0] * (n - 1)))
    draw = random.Random(seed)
    changed = [sorted(draw.sample(range(len(edges)), draw.randint(0, len(edges))), reverse=True) for _ in range(5)]
    longer = [[(s, d, w + 7 * (e in some)) for e, (s, d, w) in enumerate(edges)] for some in changed]
    weight = np.array([w for _, _, w in edges])
    cases = [(np.array(some, np.intp), weight[np.array(some, np.intp)] + 7) for some in changed]
    nodes = np.arange(n)[::-1]
    found = [t.tolist() for t in replay.runs(weight, [lambda c=c: c for c in cases], nodes)]
    assert found == [times(n, other)[::-1] for other in longer]


@pytest.mark.parametrize("seed", range(60))
def test_the_path_is_one_of_the_longest(seed: int) -> None:
    n, edges = random_graph(seed)
    when = times(n, edges)
    walk = Walk(joint(when, edges, [-1] + [0] * (n - 1)))
    segments = walk.paths([(0, n - 1)])
    assert (segments.end - segments.start).sum() == when[-1]
    assert {KINDS[k] for k in segments.kind.tolist()} <= {"compute"}
    node, length = n - 1, 0
    while node:
        edge = walk.cause(node)
        length += int(walk.weight[edge])
        node = edges[edge][0]
    assert length == max(all_paths(edges, n - 1))


def test_what_nothing_explains_is_waiting_and_no_part_of_the_replay() -> None:
    edges = [(0, 1, 10), (1, 2, 5)]
    j = joint([0, 10, 40], edges, [-1, 0, 0])
    walk = Walk(j)
    s = walk.paths([(0, 2)])
    kinds, reasons = [KINDS[k] for k in s.kind.tolist()], [walk.reasons[r] if r >= 0 else None for r in s.reason]
    assert list(zip(kinds, s.start.tolist(), s.end.tolist(), reasons, strict=True)) == [
        ("compute", 0, 10, None), ("wait", 10, 35, "unexplained"), ("compute", 35, 40, None)
    ]  # fmt: skip
    assert Replay(j).run(j.weight)[2] == 15


def test_a_step_starts_from_what_was_measured_before_it() -> None:
    edges = [(0, 1, 10), (1, 2, 10), (2, 3, 10)]
    j = joint([0, 10, 20, 30], edges, [-1, 0, 1, 1])
    assert Replay(j).run(np.array([1, 10, 10])).tolist() == [0, 1, 20, 30]


def test_calls_that_wait_for_each_other_in_a_circle_are_refused() -> None:
    j = joint([0, 10, 10], [(0, 1, 10), (1, 2, 0), (2, 1, 0)], [-1, 0, 0])
    with pytest.raises(ValueError, match="circle"):
        Replay(j)
    segments = Walk(j).paths([(0, 2)])
    assert (segments.end - segments.start).sum() == 10


def test_a_path_that_starts_inside_a_segment_is_cut_there() -> None:
    j = joint([0, 10, 30], [(0, 1, 10), (1, 2, 20)], [-1, 0, 0])
    segments = Walk(j).paths([(4, 2)])
    assert (segments.start.tolist(), segments.end.tolist()) == ([4], [30])

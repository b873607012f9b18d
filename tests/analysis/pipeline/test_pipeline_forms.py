"""What a schedule shows between its sends, and how runs of kernels are taken apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tracekit.analysis.pipeline.forms import known_forms, split
from tracekit.analysis.pipeline.parts import Chunk
from tracekit.analysis.pipeline.repeat import parts_of
from tracekit.theory.schedules import NAMES, Kind, Overlap, Schedule, ScheduleError, build, from_order, parts

if TYPE_CHECKING:
    from tracekit.analysis.pipeline.forms import Split

VIRTUAL = {"Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 3}


def shown(s: Schedule) -> list[Split]:
    """The pieces of a schedule of which only kinds, sends and their targets are known."""
    out = []
    for rank, order in enumerate(s.orders):
        row: list[Chunk] = []
        peers: list[int | None] = []
        for n, step in enumerate(order):
            sent = []
            for action in parts(step):
                stage = s.neighbours[action.stage][1 if action.kind is Kind.FORWARD else 0]
                if action.kind is not Kind.BACKWARD_WEIGHT and stage >= 0 and s.stage_rank[stage] != rank:
                    sent.append(len(peers))
                    peers.append(s.stage_rank[stage])
            kinds = "FB" if isinstance(step, Overlap) else "F" if parts(step)[0].kind is Kind.FORWARD else "B"
            marks = tuple((kind, None, None) for kind in kinds)
            row.append(Chunk(marks, 0, n, 1, 1, "kernels", after=tuple(sent)))
        out.append(split(row, peers))
    return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("p", [2, 4, 6])
def test_sends_tell_schedules_apart(name: str, p: int) -> None:
    """Whatever else shows the same is the same order; nothing but sends was needed to tell."""
    for m in (1, 2, 4, 2 * p, 3 * p, 25):
        try:
            schedule = build(name, p, m, VIRTUAL.get(name))
        except ScheduleError:
            continue
        forms = known_forms(shown(schedule))
        assert name in {f.name for f in forms}
        assert len({(f.shown.orders, f.shown.stage_rank) for f in forms}) == 1
        assert all(f.shown.micro_batches == m for f in forms)


@pytest.mark.parametrize("name", ["1F1B", "GPipe", "ZB-H1", "Interleaved1F1B"])
def test_another_order_is_none_of_them(name: str) -> None:
    """Two entries of one rank exchanged, or its last ones lost: no schedule shows that."""
    splits = shown(build(name, 4, 8, VIRTUAL.get(name)))
    flat = [[c for row in one.pieces for c in row] for one in splits]
    other = [row[:] for row in flat]
    at = next(i for i, (a, b) in enumerate(zip(other[1], other[1][1:], strict=False)) if a.kinds != b.kinds)
    other[1][at : at + 2] = other[1][at + 1], other[1][at]
    cut = [*flat[:2], flat[2][:-3], flat[3]]
    for rows in (other, cut):
        peers = {(r, k): to for r, one in enumerate(splits) for c, to in _sent(one) for k in c.after}
        again = [split(row, [peers.get((r, k)) for k in range(200)]) for r, row in enumerate(rows)]
        assert known_forms(again) == []


def _sent(one: Split) -> list[tuple[Chunk, int]]:
    return [(row[-1], to[0]) for row, (_, to) in zip(one.pieces, one.segments, strict=True) if to]


def test_an_order_of_no_known_schedule_is_none_of_them() -> None:
    """Three forwards ahead on the first of two ranks, neither one (1F1B), two (interleaved) nor all (GPipe)."""
    mine = ["0F0", "0F1", "0F2", "0F3", "0B0", "0F4", "0B1", "0F5", "0B2", "0B3", "0B4", "0B5"]
    last = [f"1{kind}{k}" for k in range(6) for kind in "FB"]
    assert known_forms(shown(from_order([mine, last]))) == []


def test_runs_are_taken_apart_where_there_is_one_way() -> None:
    def runs(*texts: str) -> list[tuple[tuple[int, ...], bool]]:
        found = parts_of([np.frombuffer(t.encode(), np.uint8).astype(np.int32) for t in texts])
        return [(sizes, alike) for sizes, alike, _ in found]

    assert runs("abc", "xy", "xyabcxy") == [((), True), ((), True), ((2, 3, 2), False)]
    assert runs("abab") == [((2, 2), True)]  # layers of one, or two
    assert runs("ab", "abab", "ababab") == [((), True), ((2, 2), False), ((2, 2, 2), False)]
    assert runs("a", "ab", "b", "abab")[3] == ((1, 1, 1, 1), False)  # the shortest ones, as "ab" is two of them
    assert runs("ab", "ba", "aba", "abaab")[3] == ((3, 2), False)
    assert runs("ab", "abc", "cd", "d", "abcd")[4] == ((), True)  # ab+cd, or abc+d
    assert runs("abc", "abcx") == [((), True), ((), True)]


def test_more_messages_than_a_step_has_name_no_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = shown(build("1F1B", 4, 8))
    assert known_forms(splits)
    monkeypatch.setattr("tracekit.analysis.pipeline.forms.MOST_SENDS", 2 * 3 * 8 - 1)
    assert known_forms(splits) == []

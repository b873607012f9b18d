"""Sequences of calls laid side by side: which shift fits, by what, and when none is told."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.label.align import ALIKE, DURATION, ORDER, SEQ, TIME, UNTOLD, Aligner, Lane

T0 = 1_767_189_400_000_000_000


def lane(sizes: list[int], *, first: int = 0, numbers: list[int] | None = None, dur: list[int] | None = None,
         at: list[int] | None = None, whole: bool = False) -> Lane:  # fmt: skip
    n = len(sizes)
    return Lane(
        np.zeros(n, np.int32), np.array(sizes, np.int64),
        np.array(numbers if numbers is not None else range(first, first + n), np.int64),
        np.array(dur or [UNTOLD] * n, np.int64), np.array(at or [UNTOLD] * n, np.int64), whole,
    )  # fmt: skip


def test_calls_that_do_not_repeat_have_one_place() -> None:
    found = Aligner(lane([3, 4, 5]), lane([1, 2, 3, 4, 5, 6], first=100)).align()
    assert found is not None
    assert (found.way, found.shifts, found.agree, found.odd) == (ORDER, [102], 3, 0)


def test_nothing_fits() -> None:
    assert Aligner(lane([3, 4, 5]), lane([1, 2, 6, 7])).align() is None
    assert Aligner(lane([]), lane([1])).align() is None
    assert Aligner(lane([1]), lane([])).align() is None


def test_steps_that_repeat_stay_open_unless_numbers_tell() -> None:
    mine, theirs = lane([1, 2, 1, 2]), lane([1, 2] * 10)
    found = Aligner(mine, theirs).align()
    assert found is not None
    assert found.way == ALIKE
    assert len(found.shifts) > 5
    told = Aligner(mine, theirs).align((6,))
    assert told is not None
    assert (told.way, told.shifts) == (SEQ, [6])
    wrong = Aligner(mine, theirs).align((7,))  # what the numbers propose does not fit
    assert wrong is not None
    assert wrong.way == ALIKE


def test_a_whole_log_leaves_no_call_without_a_partner() -> None:
    mine = lane([1, 2] * 5)
    assert getattr(Aligner(mine, lane([1, 2] * 5, whole=True)).align(), "way", None) == ORDER
    assert getattr(Aligner(mine, lane([1, 2] * 5)).align(), "way", None) == ALIKE


@pytest.mark.parametrize("apart", [900, 3_600_000_000_000, -86_400_000_000_000])
def test_clocks_that_keep_their_distance_tell_the_step(apart: int) -> None:
    gaps = [0, 1_000_000, 2_700_000, 3_100_000, 5_900_000, 6_000_000, 8_800_000, 9_000_000]
    mine = lane([1] * 4, at=[T0 + g for g in gaps[2:6]])
    theirs = lane([1] * 8, at=[T0 + g + apart for g in gaps])
    found = Aligner(mine, theirs).align()
    assert found is not None
    assert (found.way, found.shifts) == (TIME, [2])


def test_durations_tell_the_step_and_refute_a_single_fit() -> None:
    took = [10_000, 50_000, 20_000, 90_000, 40_000, 70_000, 15_000]
    theirs = lane([1] * 7, dur=[t // 1000 * 1000 for t in took])
    found = Aligner(lane([1] * 3, dur=[t + 300 for t in took[3:6]]), theirs).align()
    assert found is not None
    assert (found.way, found.shifts, found.refuted) == (DURATION, [3], False)
    other = Aligner(lane([1, 2, 3], dur=[500_000] * 3), lane([1, 2, 3], dur=[10_000] * 3)).align()
    assert other is not None
    assert other.refuted


def test_gaps_in_the_numbers_are_kept_and_wild_numbers_are_not_believed() -> None:
    found = Aligner(lane([1, 2, 3, 4]), lane([1, 2, 4], numbers=[10, 11, 13])).align()
    assert found is not None
    assert (found.shifts, found.agree) == ([10], 3)
    wild = Aligner(lane([1, 2, 3]), lane([1, 2, 3], numbers=[0, 1 << 40, 1 << 60])).align()
    assert wild is not None
    assert (wild.shifts, wild.agree) == ([0], 3)


def test_one_contradiction_among_many_is_told() -> None:
    sizes = list(range(40))
    other = [99 if s == 20 else s for s in sizes]
    found = Aligner(lane(sizes), lane(other)).align()
    assert found is not None
    assert (found.agree, found.odd) == (39, 1)

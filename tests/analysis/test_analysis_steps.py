"""Which step launched an activity, and the device windows of the steps."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from analysis_builder import Act, activities, marker
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis.steps import WHOLE, Window, distinct_markers, launched_in, windows

if TYPE_CHECKING:
    from tracekit.model import Marker


def _windows(acts: list[Act], markers: list[Marker]) -> tuple[list[Window], list[int]]:
    columns = activities(acts)
    found, _ = distinct_markers(markers)
    at = windows(columns, np.arange(len(acts)), found, launched_in(columns.launch_ts, found))
    return at[0], at[1].tolist()


def _bounds(found: list[Window]) -> list[tuple[int, int, int]]:
    return [(w.step, w.start, w.end) for w in found]


MARKERS = [marker(4, 0, 100), marker(5, 100, 200), marker(6, 200, 300)]


def test_launch_decides_not_device_time() -> None:
    # The second activity runs inside marker 5, but step 4 launched it.
    acts = [Act(10, 20, launch=5), Act(120, 130, launch=90), Act(150, 160, launch=110), Act(330, 350, launch=250)]
    found, at = _windows(acts, MARKERS)
    assert _bounds(found) == [(4, 10, 150), (5, 150, 330), (6, 330, 350)]
    assert at == [0, 0, 1, 2]
    assert [w.complete for w in found] == [False, True, False]


def test_launch_between_markers_belongs_to_no_step() -> None:
    markers = [marker(1, 0, 100), marker(2, 150, 200), marker(3, 200, 250)]
    acts = [Act(10, 20, launch=5), Act(130, 140, launch=120), Act(160, 170, launch=155), Act(210, 220, launch=205)]
    found, at = _windows(acts, markers)
    assert at == [0, -1, 1, 2]
    assert _bounds(found)[0] == (1, 10, 160)


def test_start_of_a_marker_is_inside_its_end_is_not() -> None:
    acts = [Act(10, 20, launch=0), Act(110, 120, launch=100), Act(310, 320, launch=300)]
    assert _windows(acts, MARKERS)[1] == [0, 1, -1]


def test_without_launch_the_device_time_decides() -> None:
    acts = [
        Act(5, 8),
        Act(10, 20, launch=5),
        Act(140, 145),
        Act(150, 160, launch=110),
        Act(170, 180),
        Act(185, 186, launch=250),
        Act(900, 910),
    ]
    found, at = _windows(acts, MARKERS)
    assert _bounds(found) == [(4, 10, 150), (5, 150, 185), (6, 185, 186)]
    assert at == [-1, 0, 0, 1, 1, 2, -1]


def test_no_launch_recorded_at_all() -> None:
    acts = [Act(10, 20), Act(90, 110), Act(150, 160), Act(250, 290)]
    found, at = _windows(acts, MARKERS)
    assert _bounds(found) == [(4, 10, 150), (5, 150, 250), (6, 250, 290)]
    assert at == [0, 0, 1, 2]


def test_no_markers_is_one_window() -> None:
    found, at = _windows([Act(10, 20), Act(5, 40)], [])
    assert _bounds(found) == [(0, 5, 40)]
    assert (found[0].name, found[0].found_by) == ("window", WHOLE)
    assert at == [0, 0]


def test_markers_that_launched_nothing_are_one_window() -> None:
    found, at = _windows([Act(510, 520, launch=500), Act(540, 550, launch=505)], MARKERS)
    assert _bounds(found) == [(0, 510, 550)]
    assert found[0].found_by == WHOLE
    assert at == [0, 0]


def test_step_without_activity_has_no_window() -> None:
    acts = [Act(10, 20, launch=5), Act(250, 260, launch=240)]
    found, _ = _windows(acts, MARKERS)
    assert _bounds(found) == [(4, 10, 250), (6, 250, 260)]


def test_next_step_that_starts_first_leaves_no_time_to_the_one_ahead() -> None:
    # A copy of step 5 overtakes all of step 4 on the device: windows still partition time.
    acts = [Act(110, 115, launch=105), Act(150, 160, launch=90), Act(400, 410, launch=250)]
    found, at = _windows(acts, MARKERS)
    assert _bounds(found) == [(4, 110, 110), (5, 110, 400), (6, 400, 410)]
    assert at == [1, 0, 2]


def test_last_step_ends_with_its_own_activities() -> None:
    acts = [Act(10, 900, launch=5), Act(220, 250, launch=210), Act(230, 240, launch=211)]
    found, _ = _windows(acts, MARKERS)
    assert _bounds(found)[-1] == (6, 220, 250)


# ------------------------------------------------------------------------------- markers


def test_nested_and_equal_markers_go() -> None:
    outer = marker(7, 0, 100)
    found, renumbered = distinct_markers([marker(8, 20, 80), outer, marker(7, 0, 100), marker(9, 0, 100)])
    assert found == [outer]
    assert renumbered == 0


def test_pipelined_markers_stay_and_the_later_has_the_overlap() -> None:
    found, _ = distinct_markers([marker(2, 80, 180), marker(1, 0, 100)])
    assert [m.step for m in found] == [1, 2]
    assert launched_in(np.array([10, 79, 80, 99, 150, 180], np.int64), found).tolist() == [0, 0, 1, 1, 1, -1]


@pytest.mark.parametrize(
    ("steps", "expected", "renumbered"),
    [([3, 4, 3], [3, 4, 5], 1), ([0, 0, 0], [0, 1, 2], 2), ([-7, 2**40, 1], [2, 3, 1], 2)],
)
def test_one_number_one_step(steps: list[int], expected: list[int], renumbered: int) -> None:
    found, count = distinct_markers([marker(s, 100 * i, 100 * i + 90) for i, s in enumerate(steps)])
    assert [m.step for m in found] == expected
    assert count == renumbered


markers_lists = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 80), st.integers(0, 40)).map(lambda p: marker(p[0], p[1], p[1] + p[2])),
    max_size=6,
)
acts_lists = st.lists(
    st.tuples(st.integers(0, 120), st.integers(0, 30), st.none() | st.integers(0, 120)).map(
        lambda p: Act(p[0], p[0] + p[1], launch=p[2])
    ),
    min_size=1,
    max_size=15,
)


@given(markers_lists)
def test_markers_end_up_in_order(markers: list[Marker]) -> None:
    found, _ = distinct_markers(markers)
    assert all(a.start < b.start and a.end < b.end for a, b in itertools.pairwise(found))
    assert len({m.step for m in found}) == len(found)
    spans = {(m.start, m.end) for m in markers}
    assert {(m.start, m.end) for m in found} <= spans
    assert all(any(k.start <= a and b <= k.end for k in found) for a, b in spans)


@given(acts_lists, markers_lists)
def test_windows_partition_and_hold_their_members(acts: list[Act], markers: list[Marker]) -> None:
    found, at = _windows(acts, markers)
    assert all(a.end == b.start for a, b in itertools.pairwise(found))
    assert all(w.start <= w.end for w in found)
    assert len({w.step for w in found}) == len(found)
    assert len(at) == len(acts)
    columns = activities(acts)
    for start, window in zip(columns.ts.tolist(), at, strict=True):
        assert window < 0 or start >= found[0].start
    low, high = min(a.start for a in acts), max(a.end for a in acts)
    assert low <= found[0].start
    assert found[-1].end <= high


@given(acts_lists, markers_lists, st.integers(-(2**60), 2**60))
def test_clock_shift_moves_windows_only(acts: list[Act], markers: list[Marker], shift: int) -> None:
    found, at = _windows(acts, markers)
    moved = [Act(a.start + shift, a.end + shift, launch=None if a.launch is None else a.launch + shift) for a in acts]
    found2, at2 = _windows(moved, [marker(m.step, m.start + shift, m.end + shift) for m in markers])
    assert at2 == at
    assert _bounds(found2) == [(n, a + shift, b + shift) for n, a, b in _bounds(found)]

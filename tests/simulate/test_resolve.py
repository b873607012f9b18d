"""When work runs, worked out by hand."""

from __future__ import annotations

import pytest

from tracekit.simulate.device import GAP_NS, LAUNCH_LATENCY_NS, Meeting, Work
from tracekit.simulate.errors import Stuck
from tracekit.simulate.resolve import resolve
from tracekit.simulate.truth import account

FIRST = LAUNCH_LATENCY_NS + GAP_NS


def work(ns: int = 0, *deps: Work, launched: int = 0, meetings: list[Meeting] | None = None) -> Work:
    return Work("comm" if meetings else "compute", "k", 7, launched, ns, 0, 0, "", None, [*deps], (), meetings or [])


def test_work_waits_for_its_launch_and_for_what_it_needs() -> None:
    a = work(1_000)
    b = work(500, a)
    c = work(10, a, launched=50_000)
    resolve([[a, b, c]])
    assert (a.start, a.end) == (FIRST, FIRST + 1_000)
    assert (b.start, b.end) == (a.end + GAP_NS, a.end + GAP_NS + 500)
    assert c.start == 50_000 + FIRST


def test_a_collective_ends_for_all_when_the_last_has_come() -> None:
    meeting = Meeting(3, 700)
    works = [work(launched=at, meetings=[meeting]) for at in (0, 9_000, 4_000)]
    after = work(5, works[0])
    resolve([[works[0], after], [works[1]], [works[2]]])
    assert [w.start for w in works] == [FIRST, 9_000 + FIRST, 4_000 + FIRST]
    assert {w.end for w in works} == {9_000 + FIRST + 700}
    assert after.start == 9_000 + FIRST + 700 + GAP_NS


def test_a_batch_ends_with_its_later_message() -> None:
    there, back = Meeting(2, 100), Meeting(2, 100)
    both = work(meetings=[there, back])
    first, second = work(meetings=[there]), work(launched=20_000, meetings=[back])
    resolve([[both], [first, second]])
    assert first.end == FIRST + 100
    assert both.end == second.end == 20_000 + FIRST + 100


def test_ranks_that_wait_for_each_other_are_told() -> None:
    one, other = Meeting(2, 1), Meeting(2, 1)
    a, b = work(meetings=[one]), work(meetings=[other])
    with pytest.raises(Stuck, match="2 ranks wait"):
        resolve([[a, work(1, a), work(meetings=[other])], [b, work(1, b), work(meetings=[one])]])


def test_the_account_by_hand() -> None:
    """Compute 0-10 and 20-30; tp 5-15; dp 12-25; a copy 30-33; nothing 33-40."""
    spans = [(0, 10, "compute"), (20, 30, "compute"), (5, 15, "tp"), (12, 25, "dp"), (30, 33, "copy")]
    found = account(spans, 0, 40)
    assert found == {
        "window_ns": 40, "compute_only_ns": 10, "overlapped_ns": 10, "exposed_comm_ns": 10, "exposed_copy_ns": 3,
        "idle_ns": 7,
        "by_strategy": {
            "dp": {"total_ns": 13, "exposed_ns": 8, "exposed_alone_ns": 5},
            "tp": {"total_ns": 10, "exposed_ns": 5, "exposed_alone_ns": 2},
        },
    }  # fmt: skip

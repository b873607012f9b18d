"""Clocks against the offsets and drifts a generator put in."""

from __future__ import annotations

import random

import numpy as np
import pytest
from crossrank_job import Event, collectives, columns
from msgspec.structs import replace

from tracekit.analysis.crossrank.clocks import align_clocks
from tracekit.analysis.crossrank.matches import Matches
from tracekit.analysis.crossrank.matching import match
from tracekit.model import NO_TIME

MESH = [(0, 1), (2, 3), (0, 2), (1, 3)]


def jittered(events: list[Event], rng: random.Random, by: int) -> list[Event]:
    """Ends that ranks see a little apart."""
    from dataclasses import replace

    return [replace(e, end=e.end + rng.randrange(by)) for e in events]


@pytest.mark.parametrize("seed", range(30))
def test_offsets_come_back_within_their_error(seed: int) -> None:
    """Ends jitter by 10 us, offsets reach ±5 ms; ranks 0 and 3 share no group."""
    rng = random.Random(seed)
    job = collectives(rng, MESH, 10, [(i, "all_reduce", 64) for i in range(4)])
    truth = [0, *(rng.randrange(-5_000_000, 5_000_000) for _ in range(3))]
    parts = [columns(r, jittered(job.ranks[r], rng, 10_000), offset=truth[r]) for r in range(4)]
    clocks = align_clocks(parts, match(parts).matches)
    for clock, offset in zip(clocks, truth, strict=True):
        assert clock.aligned
        assert clock.offset_ns is not None
        assert clock.error_ns is not None
        assert abs(clock.offset_ns + offset) <= clock.error_ns


def test_drift_over_a_long_recording_is_found_and_put_back() -> None:
    rng = random.Random(3)
    job = collectives(rng, [(0, 1)], 200, [(0, "all_reduce", 64)], gap=100_000_000)
    parts = [columns(0, job.ranks[0]), columns(1, job.ranks[1], offset=2_000_000, drift_ppm=40.0)]
    matches = match(parts).matches
    clock = align_clocks(parts, matches)[1]
    assert clock.drift_ppm == pytest.approx(-40, rel=0.01)
    ends = clock.place(parts[1].end)
    assert np.abs(ends - parts[0].end).max() < 5_000


def test_no_drift_is_made_of_noise() -> None:
    rng = random.Random(4)
    job = collectives(rng, [(0, 1)], 200, [(0, "all_reduce", 64)], gap=100_000_000)
    parts = [columns(r, jittered(job.ranks[r], rng, 20_000), offset=r * 1_000_000) for r in (0, 1)]
    assert align_clocks(parts, match(parts).matches)[1].drift_ppm == 0


def test_one_host_has_one_clock_and_that_is_checked() -> None:
    job = collectives(random.Random(5), [(0, 1)], 20, [(0, "all_reduce", 64)])
    same = [columns(r, job.ranks[r], host="h") for r in (0, 1)]
    assert [c.method for c in align_clocks(same, match(same).matches)] == ["reference", "same-host"]
    assert align_clocks(same, match(same).matches)[1].offset_ns == 0
    off = [columns(r, job.ranks[r], host="h", offset=4_000_000 * r) for r in (0, 1)]
    assert align_clocks(off, match(off).matches)[1].method == "infeasible"


def test_ranks_without_common_calls_stay_apart() -> None:
    job = collectives(random.Random(6), [(0, 1), (2, 3)], 5, [(0, "all_reduce", 64), (1, "all_reduce", 64)])
    parts = [columns(r, job.ranks[r]) for r in range(4)]
    clocks = align_clocks(parts, match(parts).matches)
    assert {c.component for c in clocks} == {0, 2}


def test_a_wrong_pairing_shows_as_infeasible() -> None:
    """Calls that end before they began elsewhere, whatever the offset: no aligned times."""
    job = collectives(random.Random(7), [(0, 1)], 200, [(0, "all_reduce", 64)], gap=2_000_000)
    parts = [columns(r, job.ranks[r]) for r in (0, 1)]
    matches = match(parts).matches
    rng = random.Random(8)
    rows = [m.rows[1] for m in matches]
    rng.shuffle(rows)
    wrong = [replace(m, rows=(m.rows[0], row)) for m, row in zip(matches, rows, strict=True)]
    clock = align_clocks(parts, Matches.of(wrong))[1]
    assert clock.method == "infeasible"
    assert (clock.place(parts[1].start) == NO_TIME).all()


def test_messages_both_ways_bound_the_clock() -> None:
    """Sends take 20 us at least; 3 ms between the clocks lie within the stated error."""
    a, b = [], []
    for i in range(6):
        t = 1_000_000 * i
        a.append(Event(2 * i, "send", "0,1", t, t + 30_000, 0, "pp", 8, dst=1, group_size=2))
        b.append(Event(2 * i, "recv", "0,1", t + 5_000, t + 30_000, 0, "pp", 8, src=0, group_size=2))
        t += 400_000
        b.append(Event(2 * i + 1, "send", "0,1", t, t + 30_000, 0, "pp", 8, dst=0, group_size=2))
        a.append(Event(2 * i + 1, "recv", "0,1", t + 5_000, t + 30_000, 0, "pp", 8, src=1, group_size=2))
    parts = [columns(0, a, markers=True), columns(1, b, markers=True, offset=3_000_000)]
    clock = align_clocks(parts, match(parts).matches)[1]
    assert clock.method == "message-order"
    assert clock.offset_ns is not None
    assert clock.error_ns is not None
    assert abs(clock.offset_ns + 3_000_000) <= clock.error_ns
    assert clock.error_ns <= 30_000
